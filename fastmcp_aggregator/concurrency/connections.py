"""The connections of an HTTP server, shared between the addresses that they come from. Pure.

Theory. A connection without a request costs a descriptor and nothing else, so it may be closed at any time: when it has
been so for too long, be it idle or with half a head (slowloris); and when another one comes and there is no room, the
oldest of who has most of them at the address with most. One whose request is being answered is never closed for others,
unless that only waits to be refused. What is written and not read costs memory: a client that takes too little of it in
some time is gone, and so is the slowest of the address with most of it, when there is too much.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fastmcp_aggregator.concurrency.limiter import FairShare, Holder

HEAD_BOUND = 15.0
"""Seconds that a connection may be without a request."""
READING_BOUND = 30.0
"""Seconds after which a client that reads slowly is looked at again."""
MIN_READ_RATE = 16 * 1024
"""Bytes a second that a client must read of what waits for it."""


class SharedConnection(Protocol):
    address: Holder
    """The address that it counts for; None for a proxy's connections, which are not counted by address."""
    holder: Holder
    """The holder that its unread bytes count for, and itself while it has no request."""

    @property
    def unread(self) -> int:
        """Bytes that are written and not read."""
        ...

    def abort(self) -> None:
        """Close it at once."""

    def refuse(self) -> None:
        """Close it at once, for another; if it may wait for an answer, it is told so."""


class Connections:
    def __init__(
        self, open_ones: FairShare, unread: FairShare, clock: Callable[[], float], *, head_bound: float = HEAD_BOUND
    ) -> None:
        """`unread` is of bytes."""
        self._open = open_ones
        self._unread = unread
        self._clock = clock
        self._head_bound = head_bound
        self._all: set[SharedConnection] = set()
        self._waiting: dict[Holder, dict[Holder, dict[SharedConnection, float]]] = {}
        """Connections without a request, and since when, by address and there by holder, the oldest first."""
        self._waits_as: dict[SharedConnection, Holder] = {}
        """The holder of each of those."""
        self.unasked: set[SharedConnection] = set()
        """Connections that have never had a request."""
        self._slow: dict[SharedConnection, tuple[float, int, Holder, int]] = {}
        """Connections that do not read: the time of the last look and the unread bytes then; the holder and its bytes.
        """

    def admit(self, connection: SharedConnection) -> bool:
        """Take up a connection, in place of others if there have to be; return whether there is room for it."""
        address = connection.address
        while not self._open.has_room(address):
            giver = self._open.largest()[0] if self._open.is_full else address
            if giver not in self._waiting:
                self._open.refused += 1
                return False
            of_largest = max(self._waiting[giver].values(), key=len)
            oldest = next(iter(of_largest))
            self.leave(oldest)
            oldest.refuse()
        self._open.force_acquire(address)
        self._all.add(connection)
        self.unasked.add(connection)
        self.wait(connection)
        return True

    def wait(self, connection: SharedConnection, *, anew: bool = True) -> None:
        """The connection has no request now; unless `anew`, its idle time goes on."""
        if connection in self._all and (anew or connection not in self._waits_as):
            self._works(connection)
            holder = self._waits_as[connection] = connection.holder
            of_holder = self._waiting.setdefault(connection.address, {}).setdefault(holder, {})
            of_holder[connection] = self._clock()

    def work(self, connection: SharedConnection) -> None:
        """A request on it is to be answered."""
        self.unasked.discard(connection)
        self._works(connection)

    def _works(self, connection: SharedConnection) -> None:
        if connection not in self._waits_as:
            return
        of_address, holder = self._waiting[connection.address], self._waits_as.pop(connection)
        del of_address[holder][connection]
        if not of_address[holder]:
            del of_address[holder]
        if not of_address:
            del self._waiting[connection.address]

    def leave(self, connection: SharedConnection) -> None:
        if connection in self._all:
            self._all.discard(connection)
            self.resume(connection)
            self.work(connection)
            self._open.release(connection.address)

    def pause(self, connection: SharedConnection) -> None:
        """Note that its peer does not read as fast as it is written to."""
        size = connection.unread
        while connection in self._all and not self._unread.has_room(connection.holder, size):
            if not self._slow:
                break
            most, _ = self._unread.largest()
            self._unread.refused += 1
            self._end(next(slow for slow, entry in self._slow.items() if entry[2] == most))
        if connection in self._all:
            self._unread.force_acquire(connection.holder, size)
            self._slow[connection] = (self._clock(), size, connection.holder, size)

    def resume(self, connection: SharedConnection) -> None:
        """The connection is read again."""
        entry = self._slow.pop(connection, None)
        if entry is not None:
            _, _, holder, size = entry
            self._unread.release(holder, size)

    def end_overdue(self) -> None:
        """Close those that have been without a request for too long, and those that hardly read; once a second."""
        now = self._clock()
        overdue = [
            connection
            for of_address in self._waiting.values()
            for of_holder in of_address.values()
            for connection, since in of_holder.items()
            if now - since > self._head_bound and connection not in self._slow
        ]
        for connection, (since, unread, holder, size) in list(self._slow.items()):
            if now - since < READING_BOUND:
                continue
            if unread - connection.unread < MIN_READ_RATE * (now - since):
                overdue.append(connection)
            else:
                self._slow[connection] = (now, connection.unread, holder, size)
        for connection in overdue:
            self._end(connection)

    def _end(self, connection: SharedConnection) -> None:
        self.leave(connection)
        connection.abort()
