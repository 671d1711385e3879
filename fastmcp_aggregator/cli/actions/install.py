"""The installation into a client's config: the difference, a question, a backup; and its removal, which undoes it."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastmcp_aggregator.cli.parser.command import DEFAULT_NAME
from fastmcp_aggregator.cli.running.given_files import add_variables_of, variables_of
from fastmcp_aggregator.cli.terminal.console import put_diff, put_json, put_lines, say
from fastmcp_aggregator.cli.terminal.exits import FAILED, FINE, UsageError
from fastmcp_aggregator.cli.terminal.questions import NOTHING_WRITTEN, agrees, may_ask
from fastmcp_aggregator.client_configs.documents import read, why_unreadable
from fastmcp_aggregator.client_configs.installing import (
    Change,
    FileChanged,
    apply,
    backup_of,
    entries_of,
    entry_for,
    installation,
    removal,
    restore,
    shown_diff,
    told_apart,
)
from fastmcp_aggregator.client_configs.known import CLIENT_CONFIGS, ClientConfig, this_machine
from fastmcp_aggregator.config import load_config
from fastmcp_aggregator.config.documents import text_of
from fastmcp_aggregator.config.loader import require_right_entries
from fastmcp_aggregator.config.servers import missing_variables
from fastmcp_aggregator.doctor.findings import Source
from fastmcp_aggregator.doctor.programs import missing_programs
from fastmcp_aggregator.early.ancestors import real_path_of

_EVERYWHERE = frozenset({"HOME", "PATH", "USER", "LOGNAME", "SHELL", "TMPDIR", "TEMP", "APPDATA", "USERPROFILE"})


def run(options: argparse.Namespace) -> int:
    if options.config is None:
        raise UsageError(
            "say which servers are to be served: --config FILE\n"
            "To make one of what your clients have: fastmcp-aggregator import --output mcp.json"
        )
    if options.env_file is not None:
        add_variables_of(options.env_file)
    config = load_config(options.config, strict=False)
    require_right_entries(config)
    client, path = _client_file(options)
    _require_another_file(options.config, client, path)
    entry = entry_for(client, _arguments(options), os.environ)
    served = _entries(options.config)
    environ = _environ(options.env_file)
    unset = missing_variables(served, environ)
    missing = list(missing_programs(config, Source(options.config)))
    may_move = None if not options.yes and not options.move and may_ask() else bool(options.move)
    is_declined = False
    while True:
        change = installation(client, path, options.name, entry, served if may_move else None, environ)
        known = entries_of(client, change.before, path)
        same, others = told_apart(client, known, served, environ)
        if same and may_move is None:
            may_move = agrees(f"{', '.join(same)}: in {path} as well, so both would run. Take them out of there?")
            is_declined = not may_move
            continue
        if not options.json:
            _show(change, client, entry, unset, options.env_file)
            _tell_of_others(options.config, path, [] if is_declined else same, others, is_moved=bool(may_move))
            for finding in missing:
                say(f"warning: {finding.server}: {finding.message}.")
            if why := why_unreadable(change.after or "", client):
                say(f"warning: {why}.")
        if change.before == change.after:
            _tell(options, client, change, None)
            return FINE
        if not options.json:
            _tell_what_comes_first(client, path)
        if not _allowed(options, f"Write {path}?"):
            return FAILED
        try:
            backup = apply(change, keeps_backup=options.name in known)
        except FileChanged as error:
            say(f"{error}. It is read again.")
        else:
            _tell(options, client, change, backup)
            return FINE


def run_uninstall(options: argparse.Namespace) -> int:
    client, path = _client_file(options)
    while True:
        change, is_exact = removal(client, path, options.name)
        if change.before == change.after:
            say(f"{path} has no server {options.name!r}; if the entry has another name there, give --name NAME")
            return FAILED
        if not options.json:
            put_diff(shown_diff(change, client, _own(client, entries_of(client, change.before, path)[options.name])))
            _tell_what_comes_first(client, path)
        if not _allowed(options, f"Write {path}?"):
            return FAILED
        try:
            restore(change, is_exact=is_exact)
        except FileChanged as error:
            say(f"{error}. It is read again.")
            continue
        break
    if options.json:
        put_json({"client": client.id, "path": str(path), "name": options.name, "restored": is_exact})
    elif is_exact:
        say(f"{path} is what it was before." if change.after is not None else f"{path} is gone, as it was before.")
    else:
        say(f"{path} has changed since, so only the entry {options.name!r} was taken out.")
        known = entries_of(client, change.before, path)
        if back := [key for key in entries_of(client, change.after, path) if key not in known]:
            say(f"{', '.join(back)}: restored, as before the installation.")
        if backup_of(path).exists():
            say(f"What was there before the installation is still in {backup_of(path)}.")
    return FINE


def _own(client: ClientConfig, entry: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of an entry that are surely of `install`: a person may have changed the others since."""
    words = [word for word in (entry.get("command"), *(entry.get("args") or [])) if isinstance(word, str)]
    known = entry_for(client, ["attach", "serve", "--no-strict"], os.environ)
    return {**known, "files": [word for word in words if os.path.isabs(word) and os.path.exists(word)]}


def _client_file(options: argparse.Namespace) -> tuple[ClientConfig, Path]:
    client = CLIENT_CONFIGS[options.client]
    if options.client_config is not None:
        return client, Path(options.client_config).expanduser().absolute()
    candidates = client.user_files(this_machine())
    return client, next((path for path in candidates if path.is_file()), candidates[0])


def _require_another_file(config: str, client: ClientConfig, path: Path) -> None:
    """Refuse to have the aggregator serve the file that it is put into: it would start itself."""
    if real_path_of(config) == real_path_of(str(path)):
        raise UsageError(
            f"{config} is {client.label}'s own file; make a config of its servers first, and give that with --config:\n"
            f"fastmcp-aggregator import --from {client.id} --output mcp.json"
        )


def _allowed(options: argparse.Namespace, question: str) -> bool:
    """True if a change may be made: by option, or because a person says so."""
    if options.yes:
        return True
    if not may_ask():
        raise UsageError(
            "this is no terminal to ask on, so nothing is written; give --yes to write without being asked"
        )
    if agrees(question):
        return True
    say(NOTHING_WRITTEN)
    return False


def _arguments(options: argparse.Namespace) -> list[str]:
    arguments = [_lasting(options.config)]
    for option in ("env_file", "settings", "groups"):
        if (file := getattr(options, option)) is not None:
            arguments += [f"--{option.replace('_', '-')}", _lasting(file)]
    if options.group is not None:
        arguments += ["--group", options.group]
    if options.hub is not None:
        arguments += ["--hub", options.hub]
    is_own = options.own or (sys.platform == "win32" and options.hub is None)  # tried under Wine only
    return ["serve" if is_own else "attach", *arguments, "--no-strict"]


def _lasting(file: str) -> str:
    """The path of a file wherever the client runs. It leads through no folder that it leaves again by `..`."""
    path = Path(file).expanduser().absolute()
    return str(path.parent.resolve() / path.name if ".." in path.parts else path)


def _environ(env_file: str | None) -> dict[str, str]:
    """The variables that a client started from the desktop surely has, and those that it is given."""
    given = {} if env_file is None else {name: value for name, value in variables_of(env_file).items() if value}
    return {**given, **{name: os.environ.get(name, "") for name in _EVERYWHERE}}


def _entries(config: str) -> Mapping[str, Any]:
    """The entries of a config, as written."""
    entries: Mapping[str, Any] = read(text_of(Path(config)), "json", config)["mcpServers"]
    return entries


def _show(
    change: Change,
    client: ClientConfig,
    entry: dict[str, Any],
    unset: Mapping[str, tuple[str, ...]],
    env_file: str | None,
) -> None:
    lines = list(shown_diff(change, client, entry))
    if lines:
        put_diff(lines)
    else:
        put_lines([f"{change.path} has it already"])
    if client.is_of_project(change.path, this_machine()):
        _warn_of_paths(change.path, entry)
    if unset:
        advice = (
            "Write NAME=VALUE lines into a file, and give it with --env-file FILE"
            if env_file is None
            else f"Write the values into {env_file}"
        )
        say(
            f"warning: the config needs {', '.join(sorted(set().union(*unset.values())))}, which {client.label} has "
            f"only if it is started from a shell that has. {advice}; without them, these fail: {', '.join(unset)}."
        )


def _tell_what_comes_first(client: ClientConfig, path: Path) -> None:
    if client.before and not client.is_of_project(path, this_machine()):
        say(f"{client.label}: {client.before}")


def _warn_of_paths(path: Path, entry: Mapping[str, Any]) -> None:
    """Warn that everybody who gets the project gets its file, too."""
    absolute = ", ".join(word for word in (entry["command"], *entry["args"]) if os.path.isabs(word))
    say(
        f"warning: {path} is a project's file, but {absolute} and the PATH are of this machine. Keep the file out of "
        "version control; or, to have the aggregator in all your projects, leave out --client-config."
    )


def _tell_of_others(config: str, path: Path, twice: Sequence[str], others: Sequence[str], *, is_moved: bool) -> None:
    """Say what becomes of servers that the client has already."""
    if twice and is_moved:
        say(f"{', '.join(twice)}: taken out of {path}, for {config} has the same.")
    elif twice:
        say(f"{', '.join(twice)}: in {path} as well as in {config}. To take them out of {path}, add --move.")
    if others:
        say(f"{', '.join(others)}: not the same in {path} as in {config}; both run. Delete one of them.")


def _whose_file(options: argparse.Namespace) -> list[str]:
    """The arguments by which `uninstall` finds the entry again."""
    given = [] if options.client_config is None else ["--client-config", options.client_config]
    return [*given, *([] if options.name == DEFAULT_NAME else ["--name", options.name])]


def _tell(options: argparse.Namespace, client: ClientConfig, change: Change, backup: Path | None) -> None:
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
    if change.before is None:
        say(f"There was no {change.path}; if {client.label} reads another file, give it with --client-config FILE.")
    if change.before != change.after:
        is_readable = why_unreadable(change.after or "", client) is None
        when = "from now on" if is_readable else "once that is mended"
        say(f"{client.label} starts the aggregator {when}. {client.advice}")
        say(f"To undo it: fastmcp-aggregator {shlex.join(['uninstall', client.id, *_whose_file(options)])}")
