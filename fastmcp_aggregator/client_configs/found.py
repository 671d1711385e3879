"""The configs that are found on a machine, or given as files, with the servers in each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fastmcp_aggregator.client_configs.documents import read, why_unreadable
from fastmcp_aggregator.client_configs.known import CLIENT_CONFIGS, STANDARD, ClientConfig, Machine
from fastmcp_aggregator.client_configs.translation import Translated, translated
from fastmcp_aggregator.config.documents import text_of
from fastmcp_aggregator.early.ancestors import starts_aggregator
from fastmcp_aggregator.errors import ConfigError


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A server in a file; see `Translated`. `is_ours` says that it is the aggregator itself."""

    key: str
    translated: Translated
    is_ours: bool


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A config of a client; `error` says why it could not be read, `unreadable` why the client itself cannot."""

    client: ClientConfig
    path: Path
    servers: tuple[FoundServer, ...] = ()
    error: str | None = None
    unreadable: str | None = None
    others: tuple[tuple[str, int], ...] = ()
    """Other projects with servers in it, which are not taken: their folders, and how many there are."""
    is_of_project: bool = False
    """True if it was found in the working directory: whoever made that has written it."""


def found_files(machine: Machine, clients: Iterable[str] = ()) -> list[FoundFile]:
    """The files of these clients, by default all, on this machine: the user's own files, and those of the project."""
    files: list[FoundFile] = []
    for client in [CLIENT_CONFIGS[name] for name in clients] or CLIENT_CONFIGS.values():
        for path in client.user_files(machine):
            if path.is_file():
                files.append(_file(client, path, None, machine))
        for relative in client.project_files:
            folder = _folder_with(relative, machine)
            if folder is not None and folder / relative not in client.user_files(machine):
                found = _file(client, folder / relative, folder, machine)
                files.append(replace(found, is_of_project=True))
    return files


def given_file(path: Path, machine: Machine) -> FoundFile:
    """A file that was named. Its path and its keys tell whose it is."""
    text = text_of(path)
    document = read(text, "toml" if path.suffix == ".toml" else "json", str(path))
    client, folder = _owner(path, document, machine)
    return replace(_servers(client, path, folder, machine, document), unreadable=why_unreadable(text, client))


def _owner(path: Path, document: Mapping[str, Any], machine: Machine) -> tuple[ClientConfig, Path | None]:
    absolute = path.absolute()
    for client in CLIENT_CONFIGS.values():
        if absolute in client.user_files(machine):
            return client, None
        for relative in client.project_files:
            if absolute.as_posix().endswith(f"/{relative}"):
                return client, absolute.parents[len(Path(relative).parts) - 1]
    by_key = (client for client in CLIENT_CONFIGS.values() if client.servers_key != STANDARD.servers_key)
    names = {"claude_desktop_config.json", "cline_mcp_settings.json"} & {absolute.name}
    by_name = (c for c in CLIENT_CONFIGS.values() if names & {file.name for file in c.user_files(machine)})
    return next((client for client in by_key if client.servers_key in document), next(by_name, STANDARD)), None


def _folder_with(relative: str, machine: Machine) -> Path | None:
    """The project, or the nearest folder above it and below the home, that has the file."""
    for folder in (machine.project, *machine.project.parents):
        if folder == machine.home:
            return None
        if (folder / relative).is_file():
            return folder
    return None


def _file(client: ClientConfig, path: Path, folder: Path | None, machine: Machine) -> FoundFile:
    try:
        text = text_of(path)
        document = read(text, client.format, str(path))
    except ConfigError as error:
        return FoundFile(client, path, error="; ".join(str(detail) for detail in error.details))
    return replace(_servers(client, path, folder, machine, document), unreadable=why_unreadable(text, client))


def _servers(
    client: ClientConfig, path: Path, folder: Path | None, machine: Machine, document: Mapping[str, Any]
) -> FoundFile:
    servers: dict[str, FoundServer] = {}
    for entries, project in _sections(client, folder, machine, document):
        for key, raw in entries.items():
            means = translated(raw, client, project)
            servers[key] = FoundServer(key, means, is_aggregator(means.entry))
    others = tuple(_other_projects(client, machine, document))
    found = FoundFile(client, path, tuple(servers.values()), others=others)
    has_servers = servers or client.servers_key in document or client is not STANDARD
    return found if has_servers else replace(found, error=f"has no `{client.servers_key}`")


def _sections(
    client: ClientConfig, folder: Path | None, machine: Machine, document: Mapping[str, Any]
) -> Iterator[tuple[Mapping[str, Any], Path | None]]:
    if isinstance(entries := document.get(client.servers_key), Mapping):
        yield entries, folder
    if entries := _of_projects(client, document).get(str(machine.project)):
        yield entries, machine.project


def _of_projects(client: ClientConfig, document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The servers that Claude Code has for single folders, by folder."""
    projects = document.get("projects") if client.id == "claude-code" else None
    known = projects if isinstance(projects, Mapping) else {}
    found = {folder: about.get("mcpServers") for folder, about in known.items() if isinstance(about, Mapping)}
    return {folder: entries for folder, entries in found.items() if isinstance(entries, Mapping) and entries}


def _other_projects(client: ClientConfig, machine: Machine, document: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for folder, entries in _of_projects(client, document).items():
        if folder != str(machine.project):
            yield folder, len(entries)


def is_aggregator(entry: object) -> bool:
    """True if an entry of a client's file starts this program."""
    if not isinstance(entry, Mapping):
        return False
    arguments = entry.get("args")
    return starts_aggregator([entry.get("command"), *(arguments if isinstance(arguments, list) else [])])
