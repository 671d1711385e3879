"""Warnings about groups that name tools which no server offers; each is logged once, after a server was listed."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

from fastmcp_aggregator.groups import Group
from fastmcp_aggregator.groups.policy import missing_tools
from fastmcp_aggregator.naming.suggestions import closest

logger = logging.getLogger(__name__)

Offered = Mapping[str, Collection[str]]
"""The tools' own names by server key, of the servers that have been listed."""


class MissingTools:
    """Remembers which warnings were logged, so that each is logged once."""

    def __init__(self) -> None:
        self._logged: dict[Group, frozenset[str]] = {}

    def look(self, groups: Iterable[Group], offered: Offered, down: Collection[str] = ()) -> None:
        """Warn of what is missing now, and was not before or was not asked for. `down` could not be listed."""
        before, self._logged = self._logged, {}
        for group in groups:
            missing = [*missing_tools(group, offered), *_undecided(group, offered, down)]
            self._logged[group] = frozenset(missing)
            for entry in missing:
                if entry not in before.get(group, ()):
                    logger.warning(
                        "the group %r names the tool %r, which %s", group.id, entry, _why(entry, group, offered)
                    )


def _undecided(group: Group, offered: Offered, down: Collection[str]) -> list[str]:
    """Find the names without a server that one server offers, and one that is down or absent may offer, too."""
    if not group.absent and not any(key in down for key in group.servers):
        return []
    bare = [entry for entry in group.tools if ":" not in entry and "*" not in entry]
    return [entry for entry in bare if any(entry in offered.get(key, ()) for key in group.servers)]


def _why(entry: str, group: Group, offered: Offered) -> str:
    owners = [key for key in group.servers if entry in offered.get(key, ())]
    unlisted = [*(key for key in group.servers if key not in offered), *group.absent]
    if owners and unlisted:
        return (
            f"is ambiguous while {unlisted[0]!r} has not been listed; write its server in front of it, "
            f"as in {f'{group.servers[0]}:{entry}'!r}"
        )
    if owners:
        return f"several of its servers offer; write {f'{owners[0]}:{entry}'!r}, for example"
    known = [f"{key}:{name}" if ":" in entry else name for key in group.servers for name in offered.get(key, ())]
    similar = closest(entry, known, 1)
    return "none of its servers offers" + (f"; did you mean {similar[0]!r}?" if similar else "")
