"""Resources that clients follow, in both eras on both sides.

Theory. Each followed resource of a child has one entry with its followers: connections of legacy clients
(`resources/subscribe`), and streams of modern ones (`subscriptions/listen`). The child is asked once, when the first
follower comes, in its own era's way, and asked no more when the last one leaves. A child that has a new session is
asked again, for it has forgotten. Followers are told under the address that they used; an update of something
below a followed address counts too. Whoever does not follow is told nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

from mcp.server.connection import Connection
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST

from fastmcp_aggregator.callers.outbox import outbox_of
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.children.session.session import ChildSession
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.protocol.methods import RESOURCE_UPDATED, SUBSCRIBE, UNSUBSCRIBE

logger = logging.getLogger(__name__)

LIMIT = 1000
"""Resources that one client may follow."""

Follower = Connection | object


@dataclass(frozen=True, slots=True)
class _Following:
    """How one follows: under which address, and as which principal."""

    public: str
    principal: Hashable


Locate = Callable[[str], Awaitable[tuple[Child, str] | None]]


class Followed:
    """One resource of a child that somebody follows."""

    def __init__(self, place: Hashable, original: str) -> None:
        self.place = place
        self.original = original
        self.followers: dict[Follower, _Following] = {}
        self._lock = asyncio.Lock()
        self._session: ChildSession | None = None
        self._stream: asyncio.Task[None] | None = None

    async def ask(self, child: Child, principals: Iterable[Hashable]) -> None:
        """Make the child tell these principals of updates, unless it does already.

        Raises:
            ChildServerError: the child cannot be asked.
            MCPError: the child's own error.
        """
        session = await child.calls.session()
        for principal in principals:
            session.serves(principal)
        async with self._lock:
            session = await child.calls.session()
            if self._session is session:
                return
            await self._close()
            if session.era == "modern":
                self._stream = await _open_stream(session, self.original)
            else:
                await child.calls.request(SUBSCRIBE.name, {"uri": self.original})
            self._session = session

    def is_followed_by(self, follower: Follower, public: str) -> bool:
        """Whether somebody follows it under this address."""
        following = self.followers.get(follower)
        return following is not None and following.public == public

    async def ask_no_more(self) -> None:
        """The child may stop telling, unless somebody has come meanwhile."""
        async with self._lock:
            if self.followers:
                return
            session, self._session = self._session, None
            await self._close()
            if session is not None and session.era == "legacy" and not session.lost.is_set():
                with suppress(MCPError):
                    await session.request(UNSUBSCRIBE.name, {"uri": self.original})

    async def _close(self) -> None:
        if self._stream is not None:
            self._stream.cancel()
            await asyncio.wait({self._stream})
            self._stream = None


async def _open_stream(session: ChildSession, uri: str) -> asyncio.Task[None]:
    is_open: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    stream = asyncio.create_task(session.follow(uri, is_open), name=f"follow:{uri}")
    # How it ends is no accident to be reported: the end of a session is told elsewhere.
    stream.add_done_callback(lambda done: done.cancelled() or done.exception())
    await asyncio.wait({stream, is_open}, return_when=asyncio.FIRST_COMPLETED)
    if not is_open.done():
        is_open.cancel()
        stream.result()
        raise MCPError(INVALID_REQUEST, f"the server does not tell of updates of {uri}")
    return stream


class Subscriptions:
    """All followed resources. Owned by one run of the aggregator."""

    def __init__(self, publish: Callable[[str], Awaitable[None]]) -> None:
        """`publish` tells modern clients' streams of an update, by the address that they follow."""
        self._publish = publish
        self._followed: dict[Hashable, dict[str, Followed]] = {}
        self._connections: WeakSet[Connection] = WeakSet()
        """Those whose end is watched for."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def follow(
        self, follower: Follower, child: Child, original: str, public: str, principal: Hashable = None
    ) -> None:
        """Tell a follower of updates from now on.

        Raises:
            ChildServerError: the child cannot be asked.
            MCPError: the child's own error, or the client follows too many.
        """
        own = [entry for entry in self._entries() if follower in entry.followers]
        if len(own) >= LIMIT:
            raise MCPError(INVALID_REQUEST, f"a client can follow {LIMIT} resources")
        if isinstance(follower, Connection) and follower not in self._connections:
            self._connections.add(follower)
            follower.exit_stack.callback(self._forget, follower)
        entry = self._followed.setdefault(child.place, {}).setdefault(original, Followed(child.place, original))
        entry.followers[follower] = _Following(public, principal)
        try:
            await entry.ask(child, [principal])
        except BaseException:
            entry.followers.pop(follower, None)
            self._start(self._let_go(entry))
            raise

    async def leave(self, follower: Follower, public: str) -> None:
        """Tell a follower no more of what it follows under this address."""
        for entry in [entry for entry in self._entries() if entry.is_followed_by(follower, public)]:
            del entry.followers[follower]
            await self._let_go(entry)

    @asynccontextmanager
    async def followed_by_stream(
        self, wanted: Sequence[str], locate: Locate, principal: Hashable = None
    ) -> AsyncIterator[list[str]]:
        """While a modern client's stream is open: which of the wanted addresses are followed."""
        stream = object()
        followed: list[str] = []
        try:
            for uri in dict.fromkeys(wanted):
                found = await locate(uri)
                with suppress(ChildServerError, MCPError):
                    if found is not None:
                        await self.follow(stream, *found, uri, principal)
                        followed.append(uri)
            yield followed
        finally:
            self._forget(stream)

    def updated(self, child: Child, uri: str) -> None:
        """A child says that a resource has changed."""
        of_child = self._followed.get(child.place, {})
        for followed in (of_child[address] for address in _addresses_above(uri) if address in of_child):
            below = uri.removeprefix(followed.original)
            of_streams = set()
            for follower, following in followed.followers.items():
                if isinstance(follower, Connection):
                    outbox_of(follower).put(RESOURCE_UPDATED.name, {"uri": f"{following.public}{below}"})
                else:
                    of_streams.add(following.public)  # the SDK's streams pass on the very addresses that they follow
            if of_streams:
                self._start(self._publish_all(of_streams))

    def connected(self, child: Child) -> None:
        """A child has a new session: ask it again for everything that is followed."""
        for followed in list(self._followed.get(child.place, {}).values()):
            self._start(self._ask_again(child, followed))

    async def close(self) -> None:
        """Forget everything."""
        entries = list(self._entries())
        self._followed.clear()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, *(entry._close() for entry in entries), return_exceptions=True)

    def _entries(self) -> Iterator[Followed]:
        return (entry for of_child in self._followed.values() for entry in of_child.values())

    def _forget(self, follower: Follower) -> None:
        for entry in [entry for entry in self._entries() if follower in entry.followers]:
            del entry.followers[follower]
            self._start(self._let_go(entry))

    async def _let_go(self, entry: Followed) -> None:
        """A follower has left: when it was the last one, the child is asked no more, and the entry is done with."""
        await entry.ask_no_more()
        of_child = self._followed.get(entry.place, {})
        if not entry.followers and of_child.get(entry.original) is entry:
            del of_child[entry.original]

    async def _ask_again(self, child: Child, followed: Followed) -> None:
        try:
            if followed.followers:
                await followed.ask(child, {following.principal for following in followed.followers.values()})
        except (ChildServerError, MCPError) as error:
            logger.warning("server %r no longer tells of updates of %s: %s", child.key, followed.original, error)

    async def _publish_all(self, addresses: set[str]) -> None:
        for address in sorted(addresses):
            await self._publish(address)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _addresses_above(uri: str) -> Iterator[str]:
    """The address itself and those that it lies below."""
    yield uri
    while "/" in uri and not uri.endswith("//"):
        uri = uri.rpartition("/")[0]
        yield uri
        yield f"{uri}/"
