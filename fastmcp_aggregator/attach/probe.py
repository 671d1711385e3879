"""The liveness probe of a hub: whether its event loop still answers, asked over connections of its own.

A hub that serves a client may be silent for as long as a server takes. So when requests are open and nothing has come
for a while, it is asked. The connection of the client is not used for that, for it may be full.
"""

from __future__ import annotations

import socket
import time

from fastmcp_aggregator.attach import greeting
from fastmcp_aggregator.attach.folder import Unusable
from fastmcp_aggregator.attach.starting import connected

SILENCE = 5.0
"""Seconds without a sign of life after which the hub is asked for one."""
PROBE_TIMEOUT = 10.0
"""Seconds that it has to answer."""
_MOST_UNANSWERED = 2
"""In a row: after one, it may be that we and the hub stood still, as while a machine sleeps."""


class Probe:
    """That of one hub, while it serves."""

    def __init__(self, hub_id: str) -> None:
        self._hub_id = hub_id
        self._heard: float | None = None
        """When something came last, or began to be expected; None: nothing is expected."""
        self._peer: socket.socket | None = None
        self._asked = 0.0
        self._unanswered = 0

    @property
    def is_dead(self) -> bool:
        """Whether the hub has left so many probes unanswered that it hangs."""
        return self._unanswered >= _MOST_UNANSWERED

    def heard(self) -> None:
        """Something has come from the hub."""
        self._heard, self._unanswered = time.monotonic(), 0
        self.close()

    def rest(self) -> None:
        """Nothing is expected of the hub."""
        if self._heard is not None:
            self.heard()
            self._heard = None

    @property
    def descriptor(self) -> int | None:
        """What is readable when the hub answers; None: it is not asked now."""
        return None if self._peer is None else self._peer.fileno()

    @property
    def patience(self) -> float | None:
        """Seconds until there is something to do; None: nothing is expected."""
        return None if self._heard is None else max(0.0, self._due - time.monotonic())

    @property
    def _due(self) -> float:
        assert self._heard is not None
        return self._heard + SILENCE if self._peer is None else self._asked + PROBE_TIMEOUT

    def look(self) -> float:
        """Something is expected: ask, if it is time, or give up an answer; seconds until there is something to do."""
        now = time.monotonic()
        if self._heard is None:
            self._heard = now
        due = self._due
        if now < due:
            return due - now
        if self._peer is not None:
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
        self._peer, self._asked = peer, time.monotonic()
        try:
            peer.send(greeting.line(greeting.PING))
        except OSError:
            self.heard()
