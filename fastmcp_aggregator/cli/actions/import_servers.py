"""The servers that other clients on this machine have, shown, and written as one standard config."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fastmcp_aggregator.cli.running.given_files import env_text
from fastmcp_aggregator.cli.terminal.console import counted, put_json, put_lines, say
from fastmcp_aggregator.cli.terminal.exits import FAILED, FINE, UsageError
from fastmcp_aggregator.cli.terminal.questions import agrees, chosen, may_ask
from fastmcp_aggregator.client_configs.found import FoundFile, FoundServer, found_files, given_file
from fastmcp_aggregator.client_configs.known import CLIENT_CONFIGS, this_machine
from fastmcp_aggregator.client_configs.merging import Choice, ServerDefinition, definitions, merged, usable_key
from fastmcp_aggregator.client_configs.secrets import masked_entry, with_variables
from fastmcp_aggregator.config import load_config
from fastmcp_aggregator.config.documents import stamp_of
from fastmcp_aggregator.config.servers import missing_variables
from fastmcp_aggregator.errors import ConfigError
from fastmcp_aggregator.files.atomic import PRIVATE, require_no_link_to_nothing, write_whole
from fastmcp_aggregator.version import PROGRAM

Servers = dict[str, dict[str, Any]]

_NOTHING_FOUND = """\
There is no server to import. If a client keeps its config elsewhere, name the file: fastmcp-aggregator import FILE
To begin without one, write mcp.json: {"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}}
See what it offers: fastmcp-aggregator list mcp.json"""


def run(options: argparse.Namespace) -> int:
    machine = this_machine()
    files = [given_file(Path(file), machine) for file in options.files] or found_files(machine, options.clients)
    if options.output is None:
        found = definitions(files)
        sought = () if options.files else options.clients or CLIENT_CONFIGS
        _show(files, found, sought=sought, options=options)
        return FINE if found and not _unreadable(files) else FAILED
    files = [file for file in files if not file.is_of_project or not file.servers or _is_wanted(file, options)]
    found = definitions(files)
    if not found:
        raise UsageError(
            "no server was found to import; name the config files: fastmcp-aggregator import FILE … --output FILE"
        )
    output, env_file = (Path(path).expanduser() if path else None for path in (options.output, options.env_file))
    stamps = {path: stamp_of(path) for path in (output, env_file) if path is not None}
    for path in stamps:
        _require_free(path, overwrites=options.overwrite)
    together = merged(found, _decision(found, renames=options.rename))
    servers, variables = together.servers, dict[str, str]()
    if options.secrets_as_variables:
        servers = {key: with_variables(key, entry, variables, _is_plain) for key, entry in servers.items()}
    missing = _users([missing_variables(servers, {**os.environ, **variables})])
    for path, stamp in stamps.items():
        if stamp_of(path) != stamp:
            raise UsageError(f"{path} was written meanwhile, and is left as it is")
    assert output is not None
    write_whole(output, json.dumps({"mcpServers": servers}, indent=2, ensure_ascii=False) + "\n", mode=PRIVATE)
    if env_file is not None:
        write_whole(env_file, env_text(variables, missing), mode=PRIVATE)
    if options.json:
        written = {"written": str(output), "servers": list(servers), "renamed": together.renamed}
        put_json({**_described(files, found), **written, "variables": list(variables), "withoutValue": missing})
    else:
        put_lines(_outcome(output, env_file, servers, together.renamed, variables, missing))
        put_lines(_left_behind(files))
    _tell_problems(servers, variables)
    for file in _unreadable(files):
        say(f"warning: {file.path} of {file.client.label} is left out: {file.error}")
    return FAILED if _unreadable(files) else FINE


def _unreadable(files: Iterable[FoundFile]) -> list[FoundFile]:
    """The files whose servers are missing, because they cannot be read."""
    return [file for file in files if file.error]


_FILE_NAME = re.compile(r"[A-Za-z_-]{1,30}\.[A-Za-z]{1,5}")
"""Surely a name, and nothing secret."""


def _is_plain(text: str) -> bool:
    """True if it is no secret: a path of this machine, if only of a file that is yet to be made, or a time zone."""
    path = Path(text).expanduser()
    try:
        if path.is_absolute():
            return path.exists() or (_FILE_NAME.fullmatch(path.name) is not None and path.parent.exists())
        return "/" in text and bool(ZoneInfo(text))
    except (OSError, ValueError, ZoneInfoNotFoundError):
        return False


def _is_wanted(file: FoundFile, options: argparse.Namespace) -> bool:
    """True if the servers of a file of the project are to be taken: it may have come with somebody's repository."""
    names = ", ".join(server.key for server in file.servers)
    if options.yes or (may_ask() and agrees(f"{file.path} belongs to this project. Take its servers ({names})?")):
        return True
    say(f"{file.path} belongs to this project and is left out; give --yes, or its name, to take its servers: {names}")
    return False


def _without_value(found: Mapping[str, Sequence[ServerDefinition]]) -> dict[str, list[str]]:
    """The variables without a value, of everything that is found, and the servers that need them."""
    every = ({key: definition.entry} for key, known in found.items() for definition in known)
    return _users(missing_variables(entry, os.environ) for entry in every)


def _users(missing: Iterable[Mapping[str, Sequence[str]]]) -> dict[str, list[str]]:
    """The servers that need each variable, by variable."""
    users = defaultdict[str, dict[str, None]](dict)
    for needs in missing:
        for key, names in needs.items():
            for name in names:
                users[name][key] = None
    return {name: list(keys) for name, keys in users.items()}


def _decision(found: Mapping[str, Sequence[ServerDefinition]], *, renames: bool) -> Any:
    """The chooser between different definitions of a key: the option, a person, or nobody."""
    different = [key for key, known in found.items() if len(known) > 1]
    if renames or not different:
        return lambda *_: None
    if may_ask():
        return _ask
    lines = [f"{key!r} differs between {_whose(found[key])}" for key in different]
    raise UsageError("\n".join([*lines, "Give --rename to keep all under names of their own, or name fewer files."]))


def _ask(key: str, known: Sequence[ServerDefinition]) -> Choice:
    lines = [_line(definition.entry) for definition in known]
    shown = [
        f"{_labels(definition)}: {line}{_differences(definition, known) if lines.count(line) > 1 else ''}"
        for definition, line in zip(known, lines, strict=True)
    ]
    choice = chosen(f"{key!r} is not the same everywhere.", [*shown, "all of them, under names of their own"])
    return choice if choice < len(known) else None


def _differences(definition: ServerDefinition, known: Sequence[ServerDefinition]) -> str:
    """The parts of this definition that others of the same line lack, or have otherwise."""
    names = dict.fromkeys(name for other in known for name in other.entry)
    different = [name for name in names if any(o.entry.get(name) != definition.entry.get(name) for o in known)]
    entry = masked_entry(definition.entry)
    told = (f"{n}: {json.dumps(entry[n], ensure_ascii=False)}" if n in entry else f"no {n}" for n in different)
    return f" ({', '.join(told)})"


def _require_free(path: Path, *, overwrites: bool) -> None:
    require_no_link_to_nothing(path)
    if path.exists() and not overwrites and not (may_ask() and agrees(f"{path} exists. Replace it?")):
        raise UsageError(f"{path} exists; give --overwrite to replace it, or another name")


def _show(
    files: Sequence[FoundFile],
    found: Mapping[str, Sequence[ServerDefinition]],
    *,
    sought: Iterable[str],
    options: argparse.Namespace,
) -> None:
    """Show what there is; `sought` are the clients whose configs were looked for, by id."""
    if options.json:
        put_json({**_described(files, found), "withoutValue": _without_value(found)})
        return
    put_lines(map(str.rstrip, _shown(files)))
    there = {file.client.id for file in files}
    missing = [CLIENT_CONFIGS[client].label for client in sought if client not in there]
    if missing:
        say(f"No config found of: {', '.join(missing)}.")
    for key, known in found.items():
        if len(known) > 1:
            say(f"{key!r} differs between {_whose(known)}: --rename keeps all; in a terminal you are asked.")
    for name, keys in _without_value(found).items():
        say(f"The variable {name} has no value; needed by: {', '.join(keys)}.")
    if found:
        clients = chain.from_iterable(("--from", client) for client in options.clients or ())
        command = shlex.join([PROGRAM, "import", *options.files, *clients, "--output", "mcp.json"])
        say(f"Nothing is written. To have {_in_one(found)}: {command}")
    elif not options.files:
        say(_NOTHING_FOUND)


def _in_one(found: Mapping[str, Sequence[ServerDefinition]]) -> str:
    number = sum(map(len, found.values()))
    return f"{'it' if number == 1 else f'these {number} servers'} in one config"


def _shown(files: Sequence[FoundFile]) -> Iterator[str]:
    for file in files:
        yield f"{file.client.label}  {file.path}"
        if file.error:
            yield f"  {file.error}"
        elif file.unreadable:
            yield f"  {file.unreadable}"
        elif not file.servers:
            yield "  no servers"
        width = max((len(server.key) for server in file.servers), default=0)
        for server in file.servers:
            yield f"  {server.key:{width}}  {_about(server)}"
            yield from (f"  {'':{width}}  {line}" for line in _details(server))
        yield from (f"  {line}" for line in _elsewhere(file))


def _elsewhere(file: FoundFile) -> Iterator[str]:
    for folder, number in file.others:
        yield f"{counted(number, 'server')} of {folder} left out; import in that folder takes them"


def _about(server: FoundServer) -> str:
    if server.is_ours:
        return "this aggregator itself; it is left out"
    return "" if server.translated.entry is None else _line(server.translated.entry)


def _line(entry: Mapping[str, Any]) -> str:
    shown = masked_entry(entry)
    if "url" in shown:
        return f"{shown.get('type', 'http'):5}  {shown['url']}"
    arguments = shown.get("args") or []
    return " ".join(["stdio ", shown["command"], *(arguments if isinstance(arguments, list) else [arguments])])


def _details(server: FoundServer) -> Iterator[str]:
    shown = masked_entry(server.translated.entry or {})
    for field in ("env", "headers"):
        values = shown.get(field) or ""
        if isinstance(values, Mapping):
            values = ", ".join(f"{name}={value}" for name, value in values.items())
        if values:
            yield f"{field}: {values}"
    if shown.get("disabled"):
        yield "disabled"
    yield from _remarks(server)


def _remarks(server: FoundServer) -> Iterator[str]:
    if (name := usable_key(server.key)) != server.key and server.translated.entry is not None:
        yield f"becomes {name!r}: a name has no `:`, which separates it from those of tools"
    yield from server.translated.remarks


def _described(files: Sequence[FoundFile], found: Mapping[str, Sequence[ServerDefinition]]) -> dict[str, Any]:
    return {
        "files": [
            {
                "client": file.client.id,
                "path": str(file.path),
                "error": file.error,
                "otherProjects": dict(file.others),
                "servers": {
                    server.key: {
                        "entry": server.translated.entry and masked_entry(server.translated.entry),
                        "remarks": list(_remarks(server)),
                        "isAggregator": server.is_ours,
                    }
                    for server in file.servers
                },
            }
            for file in files
        ],
        "different": {
            key: [[str(file.path) for file in definition.files] for definition in known]
            for key, known in found.items()
            if len(known) > 1
        },
    }


def _left_behind(files: Sequence[FoundFile]) -> Iterator[str]:
    """The parts that were not imported, by file and server."""
    remarks = [
        f"  {file.client.label}, {server.key}: {remark}"
        for file in files
        for server in file.servers
        for remark in _remarks(server)
    ]
    remarks += [f"  {file.client.label}: {line}" for file in files for line in _elsewhere(file)]
    if remarks:
        yield "Of what was there:"
    yield from remarks


def _outcome(
    output: Path,
    env_file: Path | None,
    servers: Servers,
    renamed: Mapping[str, Sequence[str]],
    variables: Mapping[str, str],
    missing: Mapping[str, Sequence[str]],
) -> Iterator[str]:
    yield f"{output}: {counted(len(servers), 'server')}, readable by you alone"
    yield from (f"  {key}: another definition is now {', '.join(names)}" for key, names in renamed.items())
    if variables and env_file is None:
        yield "Set these variables before you use it; their values are where they were before:"
        yield from (f"  export {name}=…" for name in variables)
    elif variables:
        yield f"{env_file}: {counted(len(variables), 'variable')}, readable by you alone: {', '.join(variables)}"
    if missing:
        where = "set them" if env_file is None else f"write their values into {env_file}"
        yield f"These variables have no value; {where}, or the servers that need them fail:"
        yield from (f"  {name}  ({', '.join(keys)})" for name, keys in missing.items())
    with_file = f" --env-file {env_file}" if env_file and (variables or missing) else ""
    yield f"Look at it: fastmcp-aggregator check {output}{with_file}"


def _tell_problems(servers: Servers, variables: Mapping[str, str]) -> None:
    """Say what is wrong with the result. Variables that are not set are no problem of it."""
    try:
        load_config({"mcpServers": servers}, environ=defaultdict(lambda: "0", {**os.environ, **variables}))
    except ConfigError as error:
        for detail in error.details:
            if detail.code != "missing_env_var":
                say(f"warning: {detail}")


def _whose(known: Sequence[ServerDefinition]) -> str:
    return " and ".join(_labels(definition) for definition in known)


def _labels(definition: ServerDefinition) -> str:
    return ", ".join(dict.fromkeys(file.client.label for file in definition.files))
