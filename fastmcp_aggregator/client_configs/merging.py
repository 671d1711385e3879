"""Servers of several files in one config: the same ones once, and others under names that tell them apart. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastmcp_aggregator.client_configs.found import FoundFile

Choice = int | None
"""The definition to keep, by index; None keeps all under names of their own."""


@dataclass(frozen=True, slots=True)
class ServerDefinition:
    """One definition of a server key, and the files that have it."""

    entry: dict[str, Any]
    files: tuple[FoundFile, ...]

    @property
    def client_id(self) -> str:
        return self.files[0].client.id


@dataclass(frozen=True, slots=True)
class Merged:
    """`servers` by server key; `renamed` has the keys of which some definition got another name."""

    servers: dict[str, dict[str, Any]] = field(default_factory=dict)
    renamed: dict[str, list[str]] = field(default_factory=dict)


def definitions(files: Sequence[FoundFile]) -> dict[str, list[ServerDefinition]]:
    """The different definitions of each server key, in the order of the files."""
    found: dict[str, list[ServerDefinition]] = {}
    for file in files:
        for server in file.servers:
            entry = server.translated.entry
            if entry is None or server.is_ours:
                continue
            known = found.setdefault(usable_key(server.key), [])
            same = [index for index, definition in enumerate(known) if definition.entry == entry]
            if same:
                known[same[0]] = ServerDefinition(entry, (*known[same[0]].files, file))
            else:
                known.append(ServerDefinition(entry, (file,)))
    return found


def merged(
    found: dict[str, list[ServerDefinition]], decide: Callable[[str, Sequence[ServerDefinition]], Choice]
) -> Merged:
    """One config of them. `decide` is asked for each server key with different definitions."""
    result = Merged()
    taken = set(found)
    for key, known in found.items():
        kept = 0 if len(known) == 1 else decide(key, known)
        if kept is not None:
            result.servers[key] = known[kept].entry
            continue
        for index, definition in enumerate(known):
            name = key if index == 0 else _free(f"{key}-{definition.client_id}", taken)
            taken.add(name)
            result.servers[name] = definition.entry
            if index:
                result.renamed.setdefault(key, []).append(name)
    return result


def usable_key(key: str) -> str:
    """The key without `:`, which separates it from tool names."""
    return key.replace(":", "-") or "server"


def _free(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free
