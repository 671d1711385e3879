"""The hub that a command is about: the only one, or that of a name or an id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastmcp_aggregator.attach import greeting
from fastmcp_aggregator.attach.asking import ask
from fastmcp_aggregator.attach.folder import Unusable, known_hubs
from fastmcp_aggregator.attach.identity import difference
from fastmcp_aggregator.attach.starting import record_of
from fastmcp_aggregator.cli.terminal.console import say
from fastmcp_aggregator.cli.terminal.exits import UsageError

Status = Mapping[str, Any]
_NOTED = ("name", "config", "pid")


def running_hubs() -> list[Status]:
    """How each hub of this user is; of one that does not answer (`hangs`) only what its lock tells."""
    found: list[Status] = []
    for hub_id in known_hubs():
        try:
            status = ask(hub_id, greeting.STATUS)
        except Unusable as why:
            if (record := record_of(hub_id)) is None:
                say(str(why))
            else:
                found.append({"id": hub_id, "hangs": True, **{name: record.get(name) for name in _NOTED}})
        else:
            if status is not None:
                found.append(status)
    return found


def others_of(hub: Status, hubs: Sequence[Status]) -> dict[str, list[str]]:
    """The other hubs of the same config, by name or id, and in what each differs."""
    mine, found = record_of(hub["id"]) or {}, {}
    for other in hubs:
        record = None if other["id"] == hub["id"] or other["config"] != hub["config"] else record_of(other["id"])
        if record is not None:
            found[other["name"] or other["id"]] = difference(mine.get("parts") or {}, record.get("parts") or {})
    return found


def chosen(word: str | None, hubs: Sequence[Status]) -> Status | None:
    """The hub that the word names, by name or the beginning of its id; None: none runs.

    Raises:
        UsageError: it names none of those that run, or several, or there is no word and several run.
    """
    if not hubs:
        return None
    fitting = [hub for hub in hubs if word is None or hub["name"] == word or hub["id"].startswith(word)]
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(hub["name"] or hub["id"] for hub in hubs)
    raise UsageError(f"say which hub: {names}" if word is None or fitting else f"there is no hub {word!r}: {names}")
