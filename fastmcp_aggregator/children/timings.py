"""The times and counts of supervision and of the end, and the clock that they are measured with."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from fastmcp_aggregator.children.process.process import DEFAULT_GRACES
from fastmcp_aggregator.children.process.start_slots import AT_ONCE, SLOT_TIMEOUT
from fastmcp_aggregator.concurrency.limiter import DRAIN_TIMEOUT

_TICK = 1e-6
"""Seconds. A timer of asyncio's may end a nanosecond early, and sums of seconds are rounded."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Timeouts and pauses, in seconds, where nothing else is said."""

    clock: Callable[[], float] = time.monotonic
    """Monotonic seconds."""
    jitter: Callable[[], float] = random.random
    """The fraction of its ceiling, in [0, 1), that a back-off delay takes."""

    starts_at_once: int = AT_ONCE
    """Processes that start at the same time, and remote servers that are connected."""
    start_slot_timeout: float = SLOT_TIMEOUT
    """After so long, a process that is still starting no longer keeps others waiting."""
    connect_slot_timeout: float = 2.0
    """The same of a remote server, which costs nothing while it is waited for."""
    stop_bound: float = DEFAULT_GRACES.total + 1.0
    """After so long, a child that is still closing is abandoned; its process group is killed by then."""

    health_interval: float = 30.0
    """The silence of an idle child after which it is pinged."""
    health_deadline: float = 10.0
    """The time to answer a ping."""

    wake_bound: float = 5.0
    """How long a call waits for the reconnection that it has triggered."""
    notice_bound: float = 1.0
    """How long a call waits, at most, until the supervision has noticed that a session is lost."""

    first_ceiling: float = 0.5
    """The longest back-off delay after one failure; it doubles with each further one in a row."""
    last_ceiling: float = 60.0
    """The longest of all."""
    served_after: float = 1.0
    """A child that has run for so long has served: the failures before are forgotten."""
    crash_loop: int = 5
    """So many crashes within `crash_window` are a crash loop."""
    crash_window: float = 60.0
    crash_loop_delay: float = 300.0
    """The delay between two starts in a crash loop."""
    crash_loop_pause: float = 10.0
    """How long after a crash in a crash loop a call cannot trigger the next start."""
    renewal_pause: float = 10.0
    """The shortest time between two immediate renewals of a session that a remote child has forgotten."""

    client_timeout: float = 1.0
    """How long a child's handshake waits for that of the only client."""
    report_interval: float = 1.0
    """The time between two reports of progress on a start that a call waits for."""

    pending_timeout: float = 600.0
    """How long a modern client has to come back with its answers."""
    pending_calls: int = 1000
    """Calls that wait for one client to come back, at most; see `FairShare`."""
    asking_bound: float = 60.0
    """How long a call waits for its client's answers once a call of somebody else waits for its turn."""

    failures_to_open: int = 5
    """So many failed calls in a row open the circuit breaker."""
    first_open: float = 30.0
    """How long it stays open; twice as long after each failed probe."""
    longest_open: float = 300.0

    change_settle: float = 0.05
    """How long `list_changed` notifications are collected before the lists are read again."""
    change_interval: float = 5.0
    """The time between two readings of changed lists in the long run: they are work for the loop that all share."""

    roots_settle: float = 0.1
    """How long a server that has asked for roots in its start has to take them up before it is called."""

    session_idle: float = 600.0
    """How long without a request until an instance is closed whose client session has no visible end."""

    wall_clock: Callable[[], float] = time.time
    """Seconds since 1970, by which credentials expire."""
    expiry_look: float = 60.0
    """The time between two looks at it, which a machine that was suspended puts forward."""

    drain_timeout: float = DRAIN_TIMEOUT
    """How long requests in flight have to finish once the program is told to end."""

    def until(self, when: float) -> float:
        """Seconds until the clock says so; 0 where that is less than timers tell apart, and so could end too early."""
        seconds = when - self.clock()
        return seconds if seconds > _TICK else 0.0


DEFAULT_TIMINGS = Timings()
