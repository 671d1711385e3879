"""Resource subscriptions, in both eras on both sides.

Theory. Each subscribed resource of a child has one entry with its subscribers: connections of legacy clients
(`resources/subscribe`), and streams of modern ones (`subscriptions/listen`). The child is asked once, when the first
subscriber comes, in its own era's way, and asked no more when the last one leaves. A child that has a new session is
asked again, for it has forgotten. Subscribers are notified under the address that they used; an update of something
below a subscribed address counts too. Nobody else is notified.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakSet

from mcp.server.connection import Connection
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, INVALID_REQUEST

from fastmcp_aggregator.callers.fanout import Fanout, Send
from fastmcp_aggregator.callers.outbox import outbox_of
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.children.session.session import ChildSession
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.naming.uris import LONGEST_WATCHED
from fastmcp_aggregator.protocol.methods import RESOURCE_UPDATED, SUBSCRIBE, UNSUBSCRIBE

logger = logging.getLogger(__name__)

_MOST_LEVELS = 64
"""Levels above a resource that changed at which subscribers are looked for."""

Subscriber = Connection | object


@dataclass(frozen=True, slots=True)
class _Subscription:
    """The address that a subscriber used, its principal, whose share it takes, and whether it is still
    theirs to hear.
    """

    public: str
    principal: Hashable
    holder: Hashable
    may_hear: Callable[[], bool]


class SubscribedResource:
    """One resource of a child, its subscribers, and what the child was asked for them."""

    def __init__(self, instance_id: Hashable, original: str) -> None:
        self.instance_id = instance_id
        self.original = original
        self.subscribers: dict[Subscriber, _Subscription] = {}
        self._of_principal: dict[Hashable, dict[Subscriber, _Subscription]] = {}
        self._lock = asyncio.Lock()
        self._session: ChildSession | None = None
        self._stream: asyncio.Task[None] | None = None

    async def ensure(self, child: Child, subscriptions: Iterable[_Subscription], holder: Hashable = None) -> None:
        """Have the child report updates for these, unless it does already; `holder` is whose share the request takes.

        Raises:
            ChildServerError: the child cannot be asked.
            MCPError: the child's own error.
        """
        session = await child.calls.session()
        for each in subscriptions:
            session.serves(each.principal, each.holder)
        async with self._lock:
            session = await child.calls.session()
            if self._session is session:
                return
            await self._close()
            if session.era == "modern":
                self._stream = await _open_stream(child, session, self.original)
            else:
                await child.calls.request(SUBSCRIBE.name, {"uri": self.original}, holder=holder)
            self._session = session

    def add(self, subscriber: Subscriber, subscription: _Subscription) -> None:
        """Notify this subscriber too; what it has subscribed to before is forgotten."""
        self.discard(subscriber)
        self.subscribers[subscriber] = subscription
        self._of_principal.setdefault(subscription.principal, {})[subscriber] = subscription

    def discard(self, subscriber: Subscriber) -> None:
        subscription = self.subscribers.pop(subscriber, None)
        if subscription is not None:
            others = self._of_principal[subscription.principal]
            del others[subscriber]
            if not others:
                del self._of_principal[subscription.principal]

    @property
    def principals(self) -> Collection[Hashable]:
        return self._of_principal.keys()

    def of_principal(self, principal: Hashable) -> Mapping[Subscriber, _Subscription]:
        return self._of_principal.get(principal, {})

    async def release(self) -> None:
        """Unsubscribe at the child, unless there is a new subscriber."""
        async with self._lock:
            if self.subscribers:
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


class _Own:
    """The subscriptions of one subscriber, by the address that it used."""

    def __init__(self) -> None:
        self.addresses: dict[SubscribedResource, str] = {}
        self._entries: dict[str, dict[SubscribedResource, None]] = {}

    def add(self, entry: SubscribedResource, public: str) -> None:
        self.discard(entry)
        self.addresses[entry] = public
        self._entries.setdefault(public, {})[entry] = None

    def discard(self, entry: SubscribedResource) -> None:
        public = self.addresses.pop(entry, None)
        if public is not None:
            del self._entries[public][entry]
            if not self._entries[public]:
                del self._entries[public]

    def at(self, public: str) -> list[SubscribedResource]:
        """The entries under an address."""
        return list(self._entries.get(public, ()))


async def _open_stream(child: Child, session: ChildSession, uri: str) -> asyncio.Task[None]:
    """A stream to which the child has agreed, within the time that it has for a read."""
    limit = child.options.deadlines.read
    is_open: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    stream = asyncio.create_task(session.listen_for_updates(uri, is_open), name=f"subscription:{uri}")
    # How it ends is no accident to be reported: the end of a session is told elsewhere.
    stream.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        await asyncio.wait({stream, is_open}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not is_open.done():
            is_open.cancel()
            stream.cancel()
    if is_open.cancelled():
        if not stream.done():
            raise ChildServerError(child.key, "runtime", f"it did not acknowledge the subscription within {limit:g} s")
        stream.result()
        raise MCPError(INVALID_REQUEST, f"the server does not report updates of {uri}")
    return stream


class Subscriptions:
    """All subscribed resources. Owned by one `Runtime`."""

    def __init__(
        self, publish: Callable[[str, Collection[Hashable]], Awaitable[None]], fanout: Fanout, *, limit: int = 1000
    ) -> None:
        """`publish` passes an update on to modern clients' streams, by the address that they have subscribed to, and by
        principal. One client has `limit` subscriptions at most.
        """
        self.limit = limit
        self._publish = publish
        self._fanout = fanout
        self.resources: dict[Hashable, dict[str, SubscribedResource]] = {}
        """Subscribed resources, by the child's instance id and original URI."""
        self._own: dict[Subscriber, _Own] = {}
        """The subscriptions of each subscriber."""
        self._connections: WeakSet[Connection] = WeakSet()
        """Connections whose end is watched for."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def subscribe(
        self,
        subscriber: Subscriber,
        child: Child,
        original: str,
        public: str,
        principal: Hashable = None,
        *,
        holder: Hashable = None,
        may_hear: Callable[[], bool] = lambda: True,
    ) -> None:
        """Notify a subscriber of updates from now on, as long as it may hear of them. `holder` is whose share
        the request to the child takes.

        Raises:
            ChildServerError: the child cannot be asked.
            MCPError: the child's own error, the URI is too long, or the client has too many subscriptions.
        """
        if len(original) > LONGEST_WATCHED:
            raise MCPError(INVALID_PARAMS, f"uri: at most {LONGEST_WATCHED} characters can be subscribed to")
        if subscriber in self._own and len(self._own[subscriber].addresses) >= self.limit:
            raise MCPError(INVALID_REQUEST, f"a client can subscribe to at most {self.limit} resources")
        if isinstance(subscriber, Connection) and subscriber not in self._connections:
            self._connections.add(subscriber)
            subscriber.exit_stack.callback(self._forget, subscriber)
        of_child = self.resources.setdefault(child.instance_id, {})
        entry = of_child.setdefault(original, SubscribedResource(child.instance_id, original))
        subscription = _Subscription(public, principal, holder, may_hear)
        entry.add(subscriber, subscription)
        self._own.setdefault(subscriber, _Own()).add(entry, public)
        try:
            await entry.ensure(child, [subscription], holder)
        except BaseException:
            self._discard(subscriber, entry)
            self._start(self._release(entry))
            raise

    async def unsubscribe(self, subscriber: Subscriber, public: str) -> None:
        """End a subscriber's subscriptions under this address."""
        own = self._own.get(subscriber)
        for entry in [] if own is None else own.at(public):
            self._discard(subscriber, entry)
            await self._release(entry)

    @asynccontextmanager
    async def of_stream(self) -> AsyncIterator[Subscriber]:
        """The subscriber that a modern client's stream is, while it is open."""
        stream = object()
        try:
            yield stream
        finally:
            self._forget(stream)

    def has_subscribers(self, child: Child) -> bool:
        """True if somebody has subscribed to a resource of the child, and is not just leaving."""
        return any(entry.subscribers for entry in self.resources.get(child.instance_id, {}).values())

    def updated(self, child: Child, uri: str) -> None:
        """Notify the subscribers of a resource that has changed. Too long a URI has none."""
        of_child = self.resources.get(child.instance_id)
        if not of_child or len(uri) > LONGEST_WATCHED:
            return
        for subscribed in (of_child[address] for address in _addresses_above(uri) if address in of_child):
            self._notify(subscribed, uri.removeprefix(subscribed.original))

    def interrupted(self, child: Child) -> None:
        """Notify the subscribers of a child that was closed, for nothing tells of changes until it is called again."""
        for subscribed in self.resources.get(child.instance_id, {}).values():
            self._notify(subscribed)

    def connected(self, child: Child) -> None:
        """Subscribe again in a child's new session."""
        for subscribed in list(self.resources.get(child.instance_id, {}).values()):
            self._start(self._subscribe_again(child, subscribed))

    async def close(self) -> None:
        entries = list(self._entries())
        self.resources.clear()
        self._own.clear()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, *(entry._close() for entry in entries), return_exceptions=True)

    def _entries(self) -> Iterator[SubscribedResource]:
        return (entry for of_child in self.resources.values() for entry in of_child.values())

    def _notify(self, subscribed: SubscribedResource, below: str = "") -> None:
        """Notify the subscribers of a resource that it has changed, or what lies so far below it."""
        for principal in subscribed.principals:
            told = below if self._fanout.has_room(principal) else ""
            self._fanout.put(principal, (subscribed, told), partial(self._sends, subscribed, told, principal))

    def _forget(self, subscriber: Subscriber) -> None:
        own = self._own.pop(subscriber, None)
        for entry in () if own is None else own.addresses:
            entry.discard(subscriber)
            self._start(self._release(entry))

    def _discard(self, subscriber: Subscriber, entry: SubscribedResource) -> None:
        entry.discard(subscriber)
        if own := self._own.get(subscriber):
            own.discard(entry)
            if not own.addresses:
                del self._own[subscriber]

    async def _release(self, entry: SubscribedResource) -> None:
        """Drop an entry whose last subscriber has left."""
        await entry.release()
        of_child = self.resources.get(entry.instance_id, {})
        if not entry.subscribers and of_child.get(entry.original) is entry:
            del of_child[entry.original]

    async def _subscribe_again(self, child: Child, subscribed: SubscribedResource) -> None:
        try:
            if subscribed.subscribers:
                await subscribed.ensure(child, list(subscribed.subscribers.values()))
        except (ChildServerError, MCPError) as error:
            logger.warning("server %r no longer reports updates of %s: %s", child.key, subscribed.original, error)

    def _sends(self, subscribed: SubscribedResource, below: str, principal: Hashable) -> Iterator[Send]:
        for subscriber, subscription in list(subscribed.of_principal(principal).items()):
            if subscribed.subscribers.get(subscriber) is subscription and subscription.may_hear():
                yield partial(self._send, subscriber, subscription.public, below)

    async def _send(self, subscriber: Subscriber, public: str, below: str) -> None:
        if isinstance(subscriber, Connection):
            outbox_of(subscriber).put_once(RESOURCE_UPDATED.name, f"{public}{below}")
        else:
            # The SDK's streams pass on the very addresses that they have subscribed to.
            await self._publish(public, [subscriber])

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _addresses_above(uri: str) -> Iterator[str]:
    """The address itself and those that it lies below, of the nearest levels."""
    yield uri
    for _ in range(_MOST_LEVELS):
        if "/" not in uri or uri.endswith("//"):
            return
        uri = uri.rpartition("/")[0]
        yield uri
        yield f"{uri}/"
