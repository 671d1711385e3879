"""The config loader: an `McpConfig` from a file or a dict, with every problem reported at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastmcp_aggregator.config.dialects import IMPORT, missing_servers_message
from fastmcp_aggregator.config.documents import Location, read_json
from fastmcp_aggregator.config.expansion import Measured, TooLong
from fastmcp_aggregator.config.fields import kind_of
from fastmcp_aggregator.config.models import FROM_DICT, McpConfig, ServerConfig, StdioServer, only_lack_values
from fastmcp_aggregator.config.servers import read_server, say_ignored
from fastmcp_aggregator.config.working_folder import with_working_folder
from fastmcp_aggregator.early.ancestors import serves_config
from fastmcp_aggregator.errors import ConfigError


def load_config(
    source: str | Path | Mapping[str, Any] | McpConfig,
    *,
    environ: Mapping[str, str] | None = None,
    strict: bool = True,
) -> McpConfig:
    """Load the servers of a config file (its path), of a dict of the same shape, or of a config already loaded.

    Variables are taken from `environ`, by default the environment of this process. A server with a variable that has
    no value, or whose entry is wrong, is a problem if `strict`, and otherwise an `UnresolvedServer` among the others.

    Raises:
        ConfigError: with every problem that was found.
    """
    config = source if isinstance(source, McpConfig) else _loaded(source, os.environ if environ is None else environ)
    if strict and config.problems:
        raise ConfigError(config.source, config.problems)
    return config


def require_right_entries(config: McpConfig) -> None:
    """Refuse what only `strict=False` goes on with, but for variables without a value.

    Raises:
        ConfigError: the entry of a server is wrong; with every problem of the config.
    """
    if not only_lack_values(config.problems):
        raise ConfigError(config.source, config.problems)


def _loaded(source: str | Path | Mapping[str, Any], environ: Mapping[str, str]) -> McpConfig:
    name = _name(source)
    root = Location(name)
    read = _read(source, root, Measured(with_working_folder(environ)))
    servers = {key: server for key, server in read.items() if server is not None}
    if not isinstance(source, Mapping):
        _report_recursion(servers, str(source), root)
    config = McpConfig(servers, name, frozenset(read.keys() - servers.keys()))
    if len(root.problems) > len(config.problems):  # something is wrong besides single servers
        raise ConfigError(name, root.problems)
    for server in servers.values():
        say_ignored(server)
    return config


def _name(source: str | Path | Mapping[str, Any]) -> str:
    if isinstance(source, Mapping):
        return FROM_DICT
    # JSON text in place of a path would otherwise end up in a message with its secrets.
    return "<text>" if _is_json_text(source) else str(source)


def _is_json_text(source: str | Path) -> bool:
    return isinstance(source, str) and source.lstrip().startswith("{")


def _read(
    source: str | Path | Mapping[str, Any], root: Location, environ: Mapping[str, str]
) -> dict[str, ServerConfig | None]:
    """The servers by key; None: disabled."""
    document = source if isinstance(source, Mapping) else _parsed(source, root)
    if document is None and root.problems:
        return {}
    try:
        entries, location = entries_of(document, root), root.at("mcpServers")
        return {key: read_server(key, entry, location.at(key), environ) for key, entry in entries.items()}
    except RecursionError:
        root.report("is nested too deeply")
    except TooLong:
        root.report("becomes too large by the variables in it; check their values, and how often each is used")
    return {}


def _parsed(source: str | Path, root: Location) -> Any:
    if _is_json_text(source):
        root.report("is JSON text, not the path of a file; parse it and give the dict", code="file_not_found")
        return None
    if Path(source).suffix == ".toml":
        root.report(f"is TOML; to translate it: {IMPORT}", code="invalid_json")
        return None
    return read_json(Path(source), root, takes_comments=True)


def _report_recursion(servers: Mapping[str, ServerConfig], config: str, root: Location) -> None:
    """Report the entries that start the aggregator with this same file."""
    for key, server in servers.items():
        if isinstance(server, StdioServer) and serves_config((server.command, *server.args), config, server.cwd):
            root.at("mcpServers").at(key).report(
                "starts the aggregator with this same file, which would start itself without end; "
                "remove it, or give it a config of its own"
            )


def entries_of(document: object, root: Location) -> Mapping[str, Any]:
    """Return the entries of a document as they are written; report what keeps it from having any."""
    if not isinstance(document, Mapping):
        root.report(f"must be an object with the key `mcpServers`, not {kind_of(document)}")
    elif "mcpServers" not in document:
        root.report(missing_servers_message(document))
    elif not isinstance(document["mcpServers"], Mapping):
        kind = kind_of(document["mcpServers"])
        root.at("mcpServers").report(f"must be an object with one entry for each server, not {kind}")
    else:
        entries: Mapping[str, Any] = document["mcpServers"]
        return entries
    return {}
