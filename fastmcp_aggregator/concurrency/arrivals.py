"""Connections of a listening socket that are accepted, and taken up when they have sent a head and it is their turn.

Theory. To take a connection up (a transport, a protocol, a parser) costs ten times as much as to accept it, and the
system's queue knows no addresses: who only connects and leaves would have all others wait behind that. So all are
accepted at once, and one without the head of a request costs no more, be it left or kept. The others are taken up one
in each turn of the event loop: those of callers that are known by what they bring, and of addresses, in turn. While
many wait, those that their clients have left are closed, and of a caller or address with many each waits for some
milliseconds, in which that shows. What this asks of the system only Linux has (`epoll`, `EPOLLRDHUP`).
"""

from __future__ import annotations

import asyncio
import errno
import re
import select
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from fastmcp_aggregator.concurrency.connections import Connections
from fastmcp_aggregator.concurrency.known_callers import HEAD_END, Digest, KnownCallers
from fastmcp_aggregator.concurrency.limiter import Holder

_AT_ONCE = 64
"""Connections that are accepted or heard in a turn of the event loop: the system's queue knows no turns."""
_CLOSED_AT_ONCE = 16
_MANY = 16
"""Connections that wait. While fewer do, one whose client has ended its half is taken up: it may wait for an answer."""
_LATELY = 0.05
"""Seconds after that."""
_PAUSE = 0.001
"""Seconds between two looks, while all have to wait."""
_PEEKED = 4096
"""Bytes of what a connection has sent that are looked at, without being taken. With as many, or with what begins no
request, it waits for no more.
"""
_BEGUN = re.compile(rb"[A-Z][^\n]*(?:\Z|(?<= HTTP/1\.[01]\r)\n)")
"""A request may begin so."""
_DROPPED = 64 * 1024
"""Bytes of it that are taken when it is refused: what is unread when it is closed resets it, and the answer is lost."""
_PASSING = {errno.EAGAIN, errno.EINTR, errno.ECONNABORTED, errno.EPROTO, errno.ENETDOWN, errno.EHOSTUNREACH}
"""Errors that say nothing about the next connection (accept(2))."""


Line = tuple[Holder, bool]
"""The connections that one takes turns with: those of a caller who is known by what it has brought; or of an address
or proxy, and there new ones apart. So who comes again, or keeps a connection, is not behind a flood of its address.
"""


class HasFileno(Protocol):
    """A socket, or what stands for one."""

    def fileno(self) -> int: ...


class Arrival:
    """A connection that is not taken up; it counts among all connections."""

    unread = 0
    heard = 0.0
    """The time when it had sent enough; 0: not yet."""
    credential: Digest | None = None
    """The credential that it has brought."""

    def __init__(self, connection: socket.socket, address: Holder, refusal: bytes) -> None:
        self.connection = connection
        self.address = self.holder = address
        self.line: Line = (address, True)
        self._refusal = refusal

    def abort(self) -> None:
        with suppress(OSError):
            self.connection.recv(_DROPPED)
        self.connection.close()

    def refuse(self) -> None:
        with suppress(OSError):
            self.connection.recv(_DROPPED)
        with suppress(OSError):
            self.connection.send(self._refusal)
        self.connection.close()

    @property
    def is_closed(self) -> bool:
        return self.connection.fileno() < 0


TakeUp = Callable[[Arrival], None]


class Arrivals:
    """Accepts the connections of a listening socket."""

    _heard: select.epoll
    _take_up: TakeUp

    def __init__(
        self,
        listener: socket.socket,
        connections: Connections,
        address_of: Callable[[str], Holder],
        known: KnownCallers,
        refusal: bytes,
        *,
        retry_delay: float = 1.0,
    ) -> None:
        """`address_of` gives the holder of a host; a connection without room is sent the `refusal`. When none can be
        accepted, it is tried again after `retry_delay` seconds.
        """
        self.stays = 0.005
        """Seconds that one waits at least while many of its line do: most that leave have left by then."""
        self._retry_delay = retry_delay
        self._listener = listener
        self._connections = connections
        self._address_of = address_of
        self._known = known
        self._refusal = refusal
        self._loop = asyncio.get_running_loop()
        self._incomplete: dict[int, Arrival] = {}
        """Connections that have not sent enough, by file descriptor; or were closed, until another has that."""
        self._waiting: dict[Line, deque[Arrival]] = {}
        """Connections that wait to be taken up; or were closed for others."""
        self._count = 0
        """The number of those."""
        self._many_until = 0.0
        self._next_turn: asyncio.Handle | None = None
        self._retry: asyncio.TimerHandle | None = None

    def start(self, take_up: TakeUp) -> None:
        """Accept connections from now on. On Linux."""
        self._take_up = take_up
        self._heard = select.epoll()
        self._loop.add_reader(self._heard.fileno(), self._hear)
        self._listen()

    def has_left(self, connection: HasFileno) -> bool:
        """True if a client has ended its half of a connection, and many others wait or did lately."""
        return self._loop.time() < self._many_until and _is_ended(connection)

    def close_listener(self) -> None:
        """Accept no more; those that are accepted are taken up as ever."""
        if self._retry is not None:
            self._retry.cancel()
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener.fileno())
            self._listener.close()

    def close(self) -> None:
        """Close what is not taken up, too."""
        self.close_listener()
        self._loop.remove_reader(self._heard.fileno())
        self._heard.close()
        if self._next_turn is not None:
            self._next_turn.cancel()
        for queue in (self._incomplete.values(), *self._waiting.values()):
            for arrival in queue:
                self._end(arrival)

    def _listen(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, peer = self._listener.accept()
            except OSError as error:
                if error.errno not in _PASSING:  # a lack of file descriptors, as a rule
                    context = {"message": "no connection can be accepted", "exception": error, "socket": self._listener}
                    self._loop.call_exception_handler(context)
                    self._loop.remove_reader(self._listener.fileno())
                    self._retry = self._loop.call_later(self._retry_delay, self._listen)
                break
            connection.setblocking(False)
            arrival = Arrival(connection, self._address_of(peer[0]), self._refusal)
            if not self._connections.admit(arrival):
                arrival.refuse()
            elif not self._look_at(arrival):
                self._incomplete[connection.fileno()] = arrival
                self._heard.register(connection.fileno(), select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET)
        self._turn_soon()

    def _hear(self) -> None:
        for number, events in self._heard.poll(0, _AT_ONCE):
            arrival = self._incomplete.get(number)
            if arrival is None or arrival.is_closed or self._look_at(arrival, is_over=bool(events & select.EPOLLRDHUP)):
                self._incomplete.pop(number, None)
                with suppress(OSError):  # closed; but a process that is being started may have it too
                    self._heard.unregister(number)
        self._turn_soon()

    def _look_at(self, arrival: Arrival, *, is_over: bool = False) -> bool:
        """See what it has sent, without taking it; return whether that is enough. If no more can come, half a head
        is closed.
        """
        try:
            sent = arrival.connection.recv(_PEEKED, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            sent = b""
        if not sent:
            self._end(arrival)
        elif HEAD_END in sent or len(sent) >= _PEEKED or not _BEGUN.match(sent):
            self._has_sent(arrival, sent)
        elif is_over and _is_ended(arrival.connection):  # not one that had this descriptor before
            self._end(arrival)
        else:
            return False
        return True

    def _has_sent(self, arrival: Arrival, sent: bytes) -> None:
        arrival.heard = self._loop.time()
        arrival.credential = self._known.credential_in(sent)
        caller = self._known.caller_of(arrival.credential)
        if caller is not None:
            arrival.line = caller, False
        self._waiting.setdefault(arrival.line, deque()).append(arrival)
        self._count += 1
        if self._count >= _MANY:
            self._many_until = arrival.heard + _LATELY

    def _turn_soon(self) -> None:
        """Have the next turn now, unless one is scheduled for the next turn of the event loop."""
        if self._next_turn is None or isinstance(self._next_turn, asyncio.TimerHandle):
            self._turn()

    def _turn(self) -> None:
        """Take up one whose turn it is, and close those before it that have left."""
        if self._next_turn is not None:
            self._next_turn.cancel()
        self._next_turn = None
        for _ in range(_CLOSED_AT_ONCE):
            arrival = self._next()
            if arrival is None:
                if self._waiting:
                    self._next_turn = self._loop.call_later(_PAUSE, self._turn)
                return
            if not arrival.is_closed and not self.has_left(arrival.connection):
                self._connections.leave(arrival)
                self._take_up(arrival)
                break
            self._end(arrival)
        self._next_turn = self._loop.call_soon(self._turn)

    def _next(self) -> Arrival | None:
        """The next that has waited long enough, or is closed."""
        until = self._loop.time() - self.stays
        for line, queue in self._waiting.items():
            if len(queue) < _MANY or queue[0].heard <= until or queue[0].is_closed:
                del self._waiting[line]
                if len(queue) > 1:
                    self._waiting[line] = queue  # behind the others
                self._count -= 1
                return queue.popleft()
        return None

    def _end(self, arrival: Arrival) -> None:
        self._connections.leave(arrival)
        arrival.connection.close()


def _is_ended(connection: HasFileno) -> bool:
    """True if the client sends no more, or is gone."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    return bool(poll.poll(0))
