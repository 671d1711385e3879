"""A group, and all groups of a hub."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

FROM_DICT = "<groups>"
DEFAULT_GROUP = "default"
"""The group when none is named: all servers, unless the file says otherwise."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def is_group_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Group:
    """The servers that its callers see, and the tools of these.

    `tools` are `server:tool`, or a tool's own name that is unique in the group; `*` stands for any characters.
    Empty: all tools of the servers. Resources and prompts of a server belong to every group that has the server.
    """

    id: str
    name: str = ""
    description: str = ""
    servers: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    tool_search: bool | None = None
    """True if its callers see a search instead of the tools; None: as the setting says."""
    is_implied: bool = False
    """True if it is in no file: `default`, where the file has none."""
    absent: tuple[str, ...] = ()
    """Servers that the file gives it and that are not served now: they may have any tool when they come."""


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of a hub by id, in the file's order, `default` first where the file has none. `source` is the file."""

    by_id: Mapping[str, Group] = field(default_factory=dict)
    source: str = ""
    absent: frozenset[str] = frozenset()
    """Servers that the file names and that are not served now; the groups are without them."""
    read: tuple[Group, ...] = ()
    """The groups as they were read, with these servers."""

    def __getitem__(self, group_id: str) -> Group:
        return self.by_id[group_id]

    def __contains__(self, group_id: object) -> bool:
        return group_id in self.by_id

    def __iter__(self) -> Iterator[Group]:
        return iter(self.by_id.values())

    @property
    def path(self) -> Path | None:
        return Path(self.source).absolute() if self.source and self.source != FROM_DICT else None
