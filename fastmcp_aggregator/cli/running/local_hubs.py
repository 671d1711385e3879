"""The hub that a command is about: the only one, or that of a name or an id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastmcp_aggregator.attach import greeting
from fastmcp_aggregator.attach.asking import ask
from fastmcp_aggregator.attach.folder import Unusable, known_hubs
from fastmcp_aggregator.cli.terminal.console import say
from fastmcp_aggregator.cli.terminal.exits import UsageError

Status = Mapping[str, Any]


def running_hubs() -> list[Status]:
    """How each hub of this user is; those that do not answer are told of."""
    found = []
    for hub_id in known_hubs():
        try:
            status = ask(hub_id, greeting.STATUS)
        except Unusable as why:
            say(str(why))
        else:
            if status is not None:
                found.append(status)
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
