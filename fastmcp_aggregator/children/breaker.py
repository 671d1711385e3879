"""The circuit breaker: stop asking a child that does not answer, and probe it later. Pure, without I/O.

    closed ──5 failures in a row──▶ open ──time is up──▶ probing ──success──▶ closed
                                      ▲                     │
                                      └──────failure────────┘   (each time twice as long, up to 300 s)

A failure is a timeout or a broken transport. An error that the child sends is an answer, and so a success. Times are
monotonic seconds, brought by the caller.
"""

from __future__ import annotations

from fastmcp_aggregator.children.timings import DEFAULT_TIMINGS, Timings


class Breaker:
    def __init__(self, timings: Timings = DEFAULT_TIMINGS) -> None:
        self._timings = timings
        self._failures = 0
        self._open_until: float | None = None
        self._open_for = timings.first_open
        self._probing = False
        self.has_failures = False
        """True if the last request failed; otherwise there is nothing to ask or tell it, but the next failure."""

    @property
    def is_open(self) -> bool:
        """True while calls are rejected, except one probe when the time is up."""
        return self._open_until is not None

    def wait(self, now: float) -> float | None:
        """Seconds until the child may be asked again; None when this call may go. When open, that call is the probe."""
        if self.may_probe(now):
            self._probing = True
            return None
        return self.remaining(now)

    def may_probe(self, now: float) -> bool:
        """True if it is open, and the next call is the probe."""
        return self._open_until is not None and not self._probing and now >= self._open_until

    def remaining(self, now: float) -> float | None:
        """Seconds until a call may go that is not the probe; None when every call may."""
        return None if self._open_until is None else max(1.0, self._open_until - now)

    def succeeded(self) -> None:
        """Close it: the child has answered."""
        self._failures, self._open_until, self._open_for, self._probing = 0, None, self._timings.first_open, False
        self.has_failures = False

    def failed(self, now: float) -> None:
        """Count a failure; open, or stay open for twice as long, if that is due."""
        self._failures += 1
        self.has_failures = True
        if self._probing:
            self._open_for = min(self._timings.longest_open, self._open_for * 2)
        if self._probing or (not self.is_open and self._failures >= self._timings.failures_to_open):
            self._open_until = now + self._open_for
        self._probing = False

    def abandoned(self) -> None:
        """Let another call be the probe: this one was cancelled before the child answered or failed."""
        self._probing = False
