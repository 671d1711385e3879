"""The hub that a command is about: the only one, or that of a name or an id."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from fastmcp_aggregator.attach import greeting
from fastmcp_aggregator.attach.asking import DEFAULT_TIMEOUTS, Timeouts, ask
from fastmcp_aggregator.attach.folder import Unusable, known_hubs
from fastmcp_aggregator.attach.identity import difference
from fastmcp_aggregator.attach.starting import record_of
from fastmcp_aggregator.cli.parser.command import HERE
from fastmcp_aggregator.cli.terminal.console import say
from fastmcp_aggregator.cli.terminal.exits import UsageError
from fastmcp_aggregator.escaping import printable

Status = Mapping[str, Any]
NO_HUB = "no hub runs; the next request of a client that attaches starts it"
NOTHING = (
    f"no hub runs, and no aggregator serves HTTP at {HERE}; the next request of a client that attaches starts a hub"
)
_NOTED = ("name", "config", "pid")
STARTS, ENDS, HANGS = "it is starting", "it is ending", "it does not answer"
"""Why a hub tells nothing of itself."""
_MOST_AT_ONCE = 32


def running_hubs(timeouts: Timeouts = DEFAULT_TIMEOUTS) -> list[Status]:
    """The status of each hub of this user; of one that does not answer only what its lock tells, and `silent`: why that
    is.
    """
    ids = known_hubs()
    with ThreadPoolExecutor(_MOST_AT_ONCE) as threads:
        return [status for status in threads.map(partial(_status_of, timeouts.status), ids) if status is not None]


def _status_of(timeout: float, hub_id: str) -> Status | None:
    """None: there is no such hub."""
    try:
        status = ask(hub_id, greeting.STATUS, timeout=timeout)
    except Unusable as why:
        record, silent = record_of(hub_id), HANGS
        if record is None:
            say(str(why))
    else:
        if status is not None:
            return status
        record, silent = record_of(hub_id), ENDS
    if record is None:
        return None
    noted = {name: record.get(name) for name in _NOTED}
    return {"id": hub_id, "silent": silent if record.get("serves") else STARTS, **noted}


def others_of(hub: Status, hubs: Sequence[Status]) -> dict[str, list[str]]:
    """The other hubs of the same config, as they are told, and in what each differs."""
    mine, found = record_of(hub["id"]) or {}, {}
    for other in hubs:
        record = None if other["id"] == hub["id"] or other["config"] != hub["config"] else record_of(other["id"])
        if record is not None:
            told = f"{_named(other)}, which also serves it{_for(other)}"
            found[told] = difference(mine.get("parts") or {}, record.get("parts") or {})
    return found


def chosen(word: str | None, hubs: Sequence[Status]) -> Status | None:
    """The hub that the word names: its name, the beginning of its id, or the path of its config; None: none runs.

    Raises:
        UsageError: it names none of those that run, or several, or there is no word and several run.
    """
    if not hubs:
        return None
    fitting = [hub for hub in hubs if is_named(hub, word)]
    if len(fitting) == 1:
        return fitting[0]
    known = "".join(f"\n{_told(hub)}" for hub in fitting or hubs)
    raise UsageError(f"say which hub:{known}" if word is None or fitting else f"there is no hub {word!r}, but:{known}")


def _told(hub: Status) -> str:
    return printable(f"{_named(hub)} serves {hub['config']}{_for(hub)}")


def _named(hub: Status) -> str:
    """Its id, which no other has, and its name, which those of other versions may have."""
    return f"{hub['id']} ({hub['name']})" if hub["name"] else str(hub["id"])


def _for(hub: Status) -> str:
    """Its clients, by which people know it."""
    clients = ", ".join(client["name"] or "a client" for client in hub.get("clients") or ())
    return f" for {clients}" if clients else ""


def refuse_url(word: str | None, advice: str) -> None:
    """Refuse the URL of an instance that serves HTTP where a hub of this user is to be named.

    Raises:
        UsageError: with the advice.
    """
    if word is not None and word.startswith(("http://", "https://")):
        raise UsageError(f"{word} serves HTTP, and is not a hub that `attach` has started; {advice}")


def is_named(hub: Status, word: str | None) -> bool:
    """True if the word names the hub; no word names all."""
    if word is None or hub["name"] == word or hub["id"].startswith(word):
        return True
    return bool(hub["config"] == os.path.realpath(os.path.expanduser(word)))
