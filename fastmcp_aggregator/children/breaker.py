"""A circuit breaker: stops asking a child that does not answer, and tries it again later. Pure, without I/O.

    closed ──5 failures in a row──▶ open ──time is up──▶ probing ──success──▶ closed
                                      ▲                     │
                                      └──────failure────────┘   (each time twice as long, up to 300 s)

A failure is a deadline that passed or a transport that broke. An error that the child sends is an answer, and so a
success. Times are monotonic seconds, brought by the caller.
"""

from __future__ import annotations

FAILURES_TO_OPEN = 5
FIRST_OPEN = 30.0
LONGEST_OPEN = 300.0


class Breaker:
    """The breaker of one child."""

    def __init__(self) -> None:
        self._failures = 0
        self._open_until: float | None = None
        self._open_for = FIRST_OPEN
        self._probing = False

    @property
    def is_open(self) -> bool:
        """Whether calls are turned away, but for one probe when the time is up."""
        return self._open_until is not None

    def wait(self, now: float) -> float | None:
        """Seconds until the child may be asked again; None when this call may go. When open, that call is the probe."""
        if self._open_until is None:
            return None
        if self._probing or now < self._open_until:
            return self.remaining(now)
        self._probing = True
        return None

    def remaining(self, now: float) -> float | None:
        """Seconds until a call may go that is not the probe; None when every call may."""
        return None if self._open_until is None else max(1.0, self._open_until - now)

    def succeeded(self) -> None:
        """The child has answered."""
        self._failures, self._open_until, self._open_for, self._probing = 0, None, FIRST_OPEN, False

    def failed(self, now: float) -> None:
        """The child has not answered."""
        self._failures += 1
        if self._probing:
            self._open_for = min(LONGEST_OPEN, self._open_for * 2)
        if self._probing or (not self.is_open and self._failures >= FAILURES_TO_OPEN):
            self._open_until = now + self._open_for
        self._probing = False

    def abandoned(self) -> None:
        """The caller gave up before the child answered or failed: another call may be the probe."""
        self._probing = False
