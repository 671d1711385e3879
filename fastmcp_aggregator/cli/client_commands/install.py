"""`install`: put the aggregator into a client's config; `uninstall` takes it out again (see `uninstall.py`)."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastmcp_aggregator.cli.running.env_file import add_variables_of, variables_of
from fastmcp_aggregator.cli.terminal.console import printable, put, put_json, say
from fastmcp_aggregator.cli.terminal.exits import FAILED, FINE, UsageError
from fastmcp_aggregator.cli.terminal.questions import agrees, may_ask
from fastmcp_aggregator.client_configs.documents import read, text_of
from fastmcp_aggregator.client_configs.installing import Change, apply, entries_of, entry_for, installation, shown_diff
from fastmcp_aggregator.client_configs.known import CLIENTS, Client, this_machine
from fastmcp_aggregator.config import load_config
from fastmcp_aggregator.config.expansion import expand

_EVERYWHERE = frozenset({"HOME", "PATH", "USER", "LOGNAME", "SHELL", "TMPDIR", "TEMP", "APPDATA", "USERPROFILE"})


def run(options: argparse.Namespace) -> int:
    """Run the command; the exit code."""
    if options.config is None:
        raise UsageError(
            "say which servers are to be served: --config FILE\n"
            "To make one of what your clients have: fastmcp-aggregator import --output mcp.json"
        )
    if options.env_file is not None:
        add_variables_of(options.env_file)
    config = load_config(options.config)
    client, path = client_file(options)
    entry = entry_for(client, _arguments(options), os.environ)
    change = installation(client, path, options.name, entry)
    unset = sorted(_unset(options.config, options.env_file))
    if not options.json:
        _show(change, entry, unset)
    if change.before == change.after:
        _tell(options, client, change, None)
        return FINE
    if not allowed(options, f"Write {path}?"):
        return FAILED
    known = entries_of(client, change.before, path)
    backup = apply(change, keeps_backup=options.name in known)
    _tell(options, client, change, backup)
    if twice := [key for key in known if key in config.servers]:
        say(f"{', '.join(twice)}: in {path} as well as in {options.config}. Take them out there, or they run twice.")
    return FINE


def client_file(options: argparse.Namespace) -> tuple[Client, Path]:
    """The client that is meant, and its file."""
    client = CLIENTS[options.client]
    if options.client_config is not None:
        return client, Path(options.client_config).expanduser().absolute()
    candidates = client.user_files(this_machine())
    return client, next((path for path in candidates if path.is_file()), candidates[0])


def allowed(options: argparse.Namespace, question: str) -> bool:
    """Whether a change may be made: by option, or because a person says so."""
    if options.yes:
        return True
    if not may_ask():
        raise UsageError("nothing is written without your word: give --yes")
    return agrees(question)


def _arguments(options: argparse.Namespace) -> list[str]:
    arguments = [str(Path(options.config).expanduser().absolute())]
    for option in ("env_file", "settings", "groups"):
        if (file := getattr(options, option)) is not None:
            arguments += [f"--{option.replace('_', '-')}", str(Path(file).expanduser().absolute())]
    if options.group is not None:
        arguments += ["--group", options.group]
    return [*arguments, "--no-strict"]


def _unset(config: str, env_file: str | None) -> set[str]:
    """The variables that the config needs and a client started from the desktop does not have."""
    known = _EVERYWHERE.union(variables_of(env_file) if env_file is not None else ())
    document = read(text_of(Path(config)), "json", config)
    return {name for text in _texts(document) for name in expand(text, {}).missing} - known


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for key, item in value.items():
                if key != "disabled":
                    yield from _texts(item)
        case list():
            for item in value:
                yield from _texts(item)


def _show(change: Change, entry: dict[str, Any], unset: list[str]) -> None:
    lines = list(shown_diff(change, entry))
    put("\n".join(map(printable, lines)) if lines else f"{change.path} has it already")
    if unset:
        say(
            f"warning: the config needs {', '.join(unset)}, which a client that is started from the desktop does not "
            "know. Put them into a file, NAME=VALUE in each line, and give it with --env-file FILE."
        )


def _tell(options: argparse.Namespace, client: Client, change: Change, backup: Path | None) -> None:
    if options.json:
        is_changed = change.before != change.after
        put_json(
            {
                "client": client.id,
                "path": str(change.path),
                "name": options.name,
                "changed": is_changed,
                "backup": str(backup) if backup else None,
            }
        )
        return
    if backup:
        say(f"What was there before is kept in {backup}.")
    if change.before != change.after:
        say(f"{client.label} starts the aggregator from now on. {client.advice}")
        say(f"To undo it: fastmcp-aggregator uninstall {client.id}")
