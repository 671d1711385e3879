"""Connections of a listening socket that are accepted, and taken up when they have sent something and it is their turn.

Theory. To take a connection up (a transport, a protocol, a parser) costs ten times as much as to accept it, and the
system's queue knows no addresses: who only connects and leaves would have all others wait behind that. So many are
accepted at once, and one that is left before it has sent anything costs no more. The others are taken up one in each
turn of the event loop, by their addresses in turn; while many wait, those that their clients have left are closed, and
of an address with many each waits for some milliseconds, in which that shows. What this asks of the system only Linux
has (`epoll`, `EPOLLRDHUP`).
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from fastmcp_aggregator.concurrency.connections import Connections
from fastmcp_aggregator.concurrency.limiter import Holder

_ACCEPTED_AT_ONCE = 64
"""Connections accepted in a turn of the event loop."""
_CLOSED_AT_ONCE = 16
_MANY = 16
"""Connections that wait. While fewer do, one whose client has ended its half is taken up: it may wait for an answer."""
_MOST_WAITING = 256
"""Connections that wait, to be closed as well: then others stay in the system's queue."""
_PAUSE = 0.001
"""Seconds between two looks, while all have to wait."""

TakeUp = Callable[[socket.socket], None]


class HasFileno(Protocol):
    """A socket, or what stands for one."""

    def fileno(self) -> int: ...


class Arrival:
    """A connection that is not taken up. It has a place among all connections."""

    unread = 0

    def __init__(self, connection: socket.socket, address: Holder) -> None:
        self.connection = connection
        self.address = self.holder = address
        self.heard = 0.0
        """When it had sent something."""

    def abort(self) -> None:
        self.connection.close()

    @property
    def is_closed(self) -> bool:
        return self.connection.fileno() < 0


class Arrivals:
    """Accepts the connections of a listening socket."""

    _heard: select.epoll
    _take_up: TakeUp

    def __init__(
        self,
        listener: socket.socket,
        connections: Connections,
        address_of: Callable[[str], Holder],
        refusal: bytes,
        *,
        retry_delay: float = 1.0,
    ) -> None:
        """`address_of` tells whose share a host takes; a connection that has no room is sent the `refusal`. When none
        can be accepted, it is tried again after `retry_delay` seconds.
        """
        self.stays = 0.005
        """Seconds that one waits at least while many of its address do: most that leave have left by then."""
        self._retry_delay = retry_delay
        self._listener = listener
        self._connections = connections
        self._address_of = address_of
        self._refusal = refusal
        self._loop = asyncio.get_running_loop()
        self._silent: dict[int, Arrival] = {}
        """Connections that have sent nothing, by file descriptor; or were closed for others, until it is another's."""
        self._waiting: dict[Holder, deque[Arrival]] = {}
        """Connections that wait to be taken up, by address."""
        self._count = 0
        """The number of those."""
        self._left: deque[Arrival] = deque()
        """Connections that wait to be closed."""
        self._is_full = False
        """True if others stay in the system's queue."""
        self._next_turn: asyncio.Handle | None = None
        self._retry: asyncio.TimerHandle | None = None

    def start(self, take_up: TakeUp) -> None:
        """Accept connections from now on. On Linux."""
        self._take_up = take_up
        self._heard = select.epoll()
        self._loop.add_reader(self._heard.fileno(), self._hear)
        self._listen()

    def has_left(self, connection: HasFileno) -> bool:
        """True if a client has ended its half of a connection, and many others wait."""
        return self._count >= _MANY and _is_ended(connection)

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
        for queue in (self._silent.values(), self._left, *self._waiting.values()):
            for arrival in queue:
                self._end(arrival)

    def _listen(self) -> None:
        self._is_full = False
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        if self._count + len(self._left) >= _MOST_WAITING:
            self._is_full = True
            self._loop.remove_reader(self._listener.fileno())
            return
        self._accept_some()
        self._hear()  # most that leave have left: they take no room from others

    def _accept_some(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connection, peer = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # a lack of file descriptors, as a rule
                context = {"message": "no connection can be accepted", "exception": error, "socket": self._listener}
                self._loop.call_exception_handler(context)
                self._loop.remove_reader(self._listener.fileno())
                self._retry = self._loop.call_later(self._retry_delay, self._listen)
                return
            self._admit(Arrival(connection, self._address_of(peer[0])))

    def _admit(self, arrival: Arrival) -> None:
        arrival.connection.setblocking(False)
        if not self._connections.admit(arrival):
            with suppress(OSError):
                arrival.connection.send(self._refusal)
            arrival.abort()
            return
        number = arrival.connection.fileno()
        self._silent[number] = arrival
        self._heard.register(number, select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLONESHOT)

    def _hear(self) -> None:
        now = self._loop.time()
        for number, events in self._heard.poll(0, _ACCEPTED_AT_ONCE):
            arrival = self._silent.pop(number, None)
            if arrival is None or arrival.is_closed:
                continue
            is_ended = events & select.EPOLLRDHUP and (self._count >= _MANY or not _has_sent(arrival.connection))
            if is_ended or events & (select.EPOLLHUP | select.EPOLLERR):
                self._connections.leave(arrival)
                self._left.append(arrival)
            else:
                self._count += 1
                arrival.heard = now
                self._waiting.setdefault(arrival.address, deque()).append(arrival)
        if self._next_turn is None or isinstance(self._next_turn, asyncio.TimerHandle):
            self._turn()

    def _turn(self) -> None:
        """Take up one whose turn it is, and close a few."""
        if self._next_turn is not None:
            self._next_turn.cancel()
        closed, is_done = 0, False
        while closed < _CLOSED_AT_ONCE and not is_done and (arrival := self._next()) is not None:
            is_done = not arrival.is_closed and not self.has_left(arrival.connection)
            if is_done:
                self._connections.leave(arrival)
                self._take_up(arrival.connection)
            else:
                self._end(arrival)
                closed += 1
        while self._left and closed < _CLOSED_AT_ONCE:
            self._left.popleft().abort()
            closed += 1
        if self._is_full and self._count + len(self._left) < _MOST_WAITING:
            self._listen()
        if is_done or closed == _CLOSED_AT_ONCE:
            self._next_turn = self._loop.call_soon(self._turn)
        else:
            self._next_turn = self._loop.call_later(_PAUSE, self._turn) if self._waiting else None

    def _next(self) -> Arrival | None:
        """The next that has waited long enough."""
        until = self._loop.time() - self.stays
        for address, queue in self._waiting.items():
            if len(queue) < _MANY or queue[0].heard <= until:
                del self._waiting[address]
                arrival = queue.popleft()
                if queue:
                    self._waiting[address] = queue  # behind the others
                self._count -= 1
                return arrival
        return None

    def _end(self, arrival: Arrival) -> None:
        self._connections.leave(arrival)
        arrival.abort()


def _is_ended(connection: HasFileno) -> bool:
    """True if the client sends no more, or is gone."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    return bool(poll.poll(0))


def _has_sent(connection: socket.socket) -> bool:
    with suppress(OSError):
        return bool(connection.recv(1, socket.MSG_PEEK))
    return False
