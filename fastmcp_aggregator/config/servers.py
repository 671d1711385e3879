"""One entry of `mcpServers`, checked and turned into a server; every problem in it is reported."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypedDict

from fastmcp_aggregator.config.dialects import (
    Transport,
    meant_field,
    missing_target_message,
    misspelt_message,
    transport_of,
)
from fastmcp_aggregator.config.disclosure import shown
from fastmcp_aggregator.config.documents import Location
from fastmcp_aggregator.config.expansion import Text, expanded, missing_in
from fastmcp_aggregator.config.fields import Fields, kind_of
from fastmcp_aggregator.config.models import RemoteServer, ServerConfig, StdioServer, UnresolvedServer, only_lack_values
from fastmcp_aggregator.config.remote import header_fault, transport_of_url, url_fault
from fastmcp_aggregator.config.working_folder import folder_variables_of, in_working_folder, with_working_folder

logger = logging.getLogger(__name__)

_SHARED_NAMES = {"type", "transport", "timeout", "description", "disabled", "enabled"}
_STDIO_NAMES = _SHARED_NAMES | {"command", "args", "env", "cwd"}
_REMOTE_NAMES = _SHARED_NAMES | {"url", "headers"}


class _Shared(TypedDict):
    key: str
    timeout: float | None
    description: str | None
    misspelt: Mapping[str, str]


def read_server(key: str, entry: object, location: Location, environ: Mapping[str, str]) -> ServerConfig | None:
    """The server of one entry; None when it is disabled."""
    _check_key(key, location)
    own = location.apart()
    if not isinstance(entry, Mapping):
        own.report(f"must be an object with `command` or `url`, not {kind_of(entry)}")
        location.take(own.problems)
        return _unresolved(key, Fields({}, own), (), None)
    is_enabled = _is_enabled(Fields(entry, own))
    fields = Fields(expanded(entry, own, environ if is_enabled else None), own)
    server = _server(key, fields)
    location.take(own.problems)
    if not is_enabled:
        return None
    if own.problems:
        known = _known(server, fields) if only_lack_values(own.problems) else None
        return _unresolved(key, fields, _missing(entry, environ), known)
    names = folder_variables_of(entry) if isinstance(server, StdioServer) else ()
    if not names or not isinstance(server, StdioServer):
        return server

    def read_in(folder: str) -> StdioServer:
        there = read_server(key, entry, Location(), in_working_folder(environ, folder))
        assert isinstance(there, StdioServer)  # no value makes another kind of it
        return there

    return replace(server, folder_variables=names, read_in=read_in)


def missing_variables(entries: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The variables that have neither a value nor a default, of each enabled entry that needs any."""
    environ = {name: value[:1] for name, value in with_working_folder(environ).items()}  # whether there is one counts
    missing = {
        key: _missing(entry, environ) for key, entry in entries.items() if _is_enabled(Fields(entry, Location()))
    }
    return {key: names for key, names in missing.items() if names}


def say_ignored(server: ServerConfig) -> None:
    """Log which keys of the entry mean nothing here."""
    for name in server.extras:
        logger.debug("server %r: the config key %r means nothing here and is ignored", server.key, name)


def warn_of_misspelt_fields(servers: Mapping[str, ServerConfig], before: Mapping[str, ServerConfig]) -> None:
    """Log which ignored keys were probably meant to be fields, but for those that a server had before."""
    for key, server in servers.items():
        known = before[key].misspelt if key in before else {}
        for name, meant in sorted(server.misspelt.items() - known.items()):
            logger.warning("server %r: %s", server.key, misspelt_message(name, meant))


def _check_key(key: object, location: Location) -> None:
    if not isinstance(key, str):
        location.report(f"the name of a server must be a string, not {kind_of(key)}")
    elif not key:
        location.report("the name of a server must not be empty")
    elif ":" in key:
        location.report("the name of a server must not contain `:`, which separates it from tool names")


def _is_enabled(fields: Fields) -> bool:
    disabled, enabled = fields.flag("disabled"), fields.flag("enabled")
    return disabled is not True and enabled is not False


def _server(key: str, fields: Fields) -> ServerConfig | None:
    transport = _declared_transport(fields)
    _check_target(fields, transport)
    shared: _Shared = {
        "key": key,
        "timeout": fields.seconds("timeout"),
        "description": _value(fields.text("description", may_be_blank=True)),
        "misspelt": _misspelt(fields),
    }
    # Both are read whatever the entry is, so that no problem in it goes unreported.
    stdio = _stdio_server(fields, shared)
    remote = _remote_server(fields, shared, transport)
    return stdio or remote


def _misspelt(fields: Fields) -> dict[str, str]:
    names = _STDIO_NAMES if "command" in fields.entry else _REMOTE_NAMES
    missing = sorted(names - fields.entry.keys())
    meant = {str(name): meant_field(name, missing) for name in fields.entry if name not in _STDIO_NAMES | _REMOTE_NAMES}
    return {name: field for name, field in meant.items() if field}


def _stdio_server(fields: Fields, shared: _Shared) -> StdioServer | None:
    command = fields.text("command", advice="write the program as one string, and the rest in `args`")
    args, env, cwd = fields.texts("args"), fields.secrets("env", _variable_fault), fields.text("cwd")
    if command is None:
        return None
    return StdioServer(
        label=shown("command", command.written, "terminal"),
        command=command.value,
        args=args,
        env=env,
        cwd=_value(cwd),
        extras=fields.besides(_STDIO_NAMES),
        **shared,
    )


def _remote_server(fields: Fields, shared: _Shared, transport: Transport | None) -> RemoteServer | None:
    url = fields.text("url")
    headers = fields.secrets("headers", header_fault)
    if url is None or not _is_usable(url, fields.location.at("url")):
        return None
    return RemoteServer(
        label=shown("url", url.written, "terminal"),
        url=url.value,
        transport="sse" if (transport or transport_of_url(url.value)) == "sse" else "http",
        headers=headers,
        extras=fields.besides(_REMOTE_NAMES),
        **shared,
    )


def _missing(entry: object, environ: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(missing_in(entry, environ)))


def _known(server: ServerConfig | None, fields: Fields) -> StdioServer | RemoteServer | None:
    """The server without what lacks a variable; None if that is what it is reached by."""
    match server:
        case StdioServer() if _is_known(fields, "command"):
            written = Fields(fields.entry.get("env") or {}, fields.location)
            env = {name: value for name, value in server.env.items() if _is_known(written, name)}
            return replace(server, args=(), env=env, cwd=server.cwd if _is_known(fields, "cwd") else None)
        case RemoteServer():  # which there is none of without a known `url`
            return replace(server, headers={})
        case _:
            return None


def _is_known(fields: Fields, name: str) -> bool:
    text = fields.entry.get(name)
    return isinstance(text, Text) and text.is_known


def _unresolved(
    key: str, fields: Fields, missing: tuple[str, ...], known: StdioServer | RemoteServer | None
) -> UnresolvedServer:
    is_process = "url" not in fields.entry
    target = fields.entry.get("command" if is_process else "url")
    description = fields.entry.get("description")
    return UnresolvedServer(
        key=key,
        label=shown("command" if is_process else "url", target.written, "terminal") if isinstance(target, Text) else "",
        transport="stdio" if is_process else "http",
        missing=missing,
        problems=tuple(fields.location.problems),
        known=known,
        description=description.value if isinstance(description, Text) and description.is_known else None,
        misspelt=_misspelt(fields),
    )


def _declared_transport(fields: Fields) -> Transport | None:
    declared = [transport for name in ("type", "transport") if (transport := _transport(fields, name))]
    if len(set(declared)) > 1:
        fields.location.report("`type` and `transport` contradict each other; remove one of them")
        return None
    return declared[0] if declared else None


def _transport(fields: Fields, name: str) -> Transport | None:
    text = fields.text(name)
    if text is None or not text.is_known or not text.value.strip():
        return None
    transport = transport_of(text.value)
    if transport is None:
        fields.location.at(name).report("is not a known transport; write stdio, http or sse, or leave it out")
    return transport


def _check_target(fields: Fields, transport: Transport | None) -> None:
    """Report an entry whose `command`, `url` and declared transport do not fit together."""
    location = fields.location
    match "command" in fields.entry, "url" in fields.entry:
        case True, True:
            location.report("has both `command` and `url`; keep the one that is meant")
        case False, False:
            location.report(missing_target_message(fields.entry))
        case True, False if transport in ("http", "sse"):
            location.report(f"has the transport {transport} and a `command`; write stdio, or give a `url`")
        case False, True if transport == "stdio":
            location.report("has the transport stdio and a `url`; write http or sse, or give a `command`")


def _is_usable(url: Text, location: Location) -> bool:
    if not url.is_known or not url.value.strip():
        return False
    fault = url_fault(url.value)
    if fault:
        location.report(fault)
    return fault is None


def _variable_fault(name: str, _value: str) -> str | None:
    return None if name and "=" not in name else "is not a name of an environment variable"


def _value(text: Text | None) -> str | None:
    return text.value if text else None
