"""The liveness of a hub: whether it works before it has greeted, and whether its event loop answers afterwards.

A hub that serves a client may be silent for as long as a server takes. So when requests are open and nothing has come
for a while, it is asked, over a connection of its own: that of the client may be full.

A hub that has not greeted or answered in time may only have had little of the processor. If all its clients took
servers of their own then, an overloaded machine would have one aggregator to start for each, and the hub even less.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fastmcp_aggregator.attach import greeting
from fastmcp_aggregator.attach.folder import Unusable
from fastmcp_aggregator.attach.peer import has_sent
from fastmcp_aggregator.attach.starting import connected, record_of

MOST_WORK = 10.0
"""Seconds of the processor in which a hub greets or answers, however long it has to wait for them."""
_MOST_UNANSWERED = 2
"""In a row: after one, it may be that we and the hub stood still, as while a machine sleeps."""


class Timings(NamedTuple):
    """Timeouts of a bridge that waits for its hub, in seconds, and the clock of its liveness probe."""

    start_timeout: float = 30.0
    """A hub which starts has so long to greet: it imports FastMCP first."""
    greeting_timeout: float = 8.0
    """A hub which serves already has so long; many clients give a server 10 s to begin."""
    shortest_life: float = 1.0
    """After so long, a hub has served."""
    silence: float = 5.0
    """After so long without a sign of life, the hub is asked for one."""
    probe_timeout: float = 10.0
    """It has so long to answer."""
    clock: Callable[[], float] = time.monotonic
    work_interval: float = 5.0
    """The time between looks at what a hub does that has not greeted or answered in time."""


DEFAULT_TIMINGS = Timings()


class Probe:
    """The liveness probe of one hub, while it serves."""

    def __init__(self, hub_id: str, timings: Timings = DEFAULT_TIMINGS) -> None:
        self._hub_id = hub_id
        self._timings = timings
        self._heard: float | None = None
        """When something came last, or began to be expected; None: nothing is expected."""
        self._peer: socket.socket | None = None
        self._work = Work({})
        """The hub's work since the first probe."""
        self._answer_due = 0.0
        self._unanswered = 0

    @property
    def is_dead(self) -> bool:
        """True if the hub has left so many probes unanswered that it hangs."""
        return self._unanswered >= _MOST_UNANSWERED

    def heard(self) -> None:
        self._heard, self._unanswered = self._timings.clock(), 0
        self.close()

    def rest(self) -> None:
        """Note that nothing is expected of the hub."""
        if self._heard is not None:
            self.heard()
            self._heard = None

    @property
    def descriptor(self) -> int | None:
        """A descriptor that is readable when the hub answers; None: no probe is open."""
        return None if self._peer is None else self._peer.fileno()

    @property
    def due_in(self) -> float | None:
        """Seconds until there is something to do; None: nothing is expected."""
        return None if self._heard is None else max(0.0, self._due - self._timings.clock())

    @property
    def _due(self) -> float:
        assert self._heard is not None
        return self._heard + self._timings.silence if self._peer is None else self._answer_due

    def look(self) -> float:
        """Something is expected: ask, if it is time, or give up an answer; seconds until there is something to do."""
        now = self._timings.clock()
        if self._heard is None:
            self._heard = now
        due = self._due
        if now < due:
            return due - now
        if self._peer is not None:
            if has_sent(self._peer):  # while this process had no processor
                self.heard()
                return self._timings.silence
            if self._work.goes_on():
                self._answer_due = now + self._timings.work_interval
                return self._timings.work_interval
            self.close()
            self._unanswered += 1
        if not self.is_dead:
            self._ask()
        return max(0.0, self._due - now)

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None

    def _ask(self) -> None:
        try:
            peer = connected(self._hub_id)
        except Unusable:
            peer = None
        if peer is None:  # it ends, and says so, or has ended: reading tells
            self.heard()
            return
        if not self._unanswered:
            self._work = Work(record_of(self._hub_id) or {})
        self._peer, self._answer_due = peer, self._timings.clock() + self._timings.probe_timeout
        try:
            peer.send(greeting.line(greeting.PING))
        except OSError:
            self.heard()


class Work:
    """The processor time and state of one hub until it greets or answers, as far as the system tells."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        """`record` is what is noted of the hub."""
        self._process = record.get("pid")
        self._first = self._last = processor_time(self._process)

    def goes_on(self) -> bool:
        """True if it has had some processor time since the last look, or waits for it, and has had little."""
        last, now = self._last, processor_time(self._process)
        self._last = now
        if self._first is None or last is None or now is None:
            return False
        return (now.is_wanted or now.seconds > last.seconds) and now.seconds < self._first.seconds + MOST_WORK


class ProcessorTime(NamedTuple):
    """Processor time of a process, in seconds, and whether it could use the processor now."""

    seconds: float
    is_wanted: bool


def processor_time(process: int | None) -> ProcessorTime | None:
    """The processor time of a process; None: unknown on this system."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return ProcessorTime(seconds, fields[0] == b"R")
    except (OSError, ValueError, IndexError):
        return None
