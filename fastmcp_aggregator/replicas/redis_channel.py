"""The connection to the other replicas: Redis publish/subscribe channels. Nothing is stored there.

Theory. One task keeps the connection: it subscribes to two channels, the broadcast channel and this replica's inbox,
and then receives and sends until either fails; then both end, so that a replica with a request for this one finds no
subscriber on its inbox. After a back-off it reconnects. What was sent meanwhile is lost, and cannot be known.
Redis counts the subscribers of a channel: that is how a dead replica is known, without a registry to clean up.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastmcp_aggregator.errors import SharedStateError
from fastmcp_aggregator.pipe.bucket import TokenBucket
from fastmcp_aggregator.replicas.peers import MalformedMessageError, Message, PeerLostError
from fastmcp_aggregator.replicas.redis_connection import (
    LOST,
    Outages,
    RedisTimings,
    address_of,
    channel_scope,
    connect,
    require_reachable,
)
from fastmcp_aggregator.replicas.seal import OVERHEAD, Seal, SealError
from fastmcp_aggregator.replicas.wire import MESSAGE_SIZE_LIMIT, TooLargeError, decoded, encoded

logger = logging.getLogger(__name__)

_CANCEL_AGAIN = 0.5
"""Seconds after which a task is cancelled once more."""
_STEADY = 60.0
"""Seconds after which a connection has been a good one, and the back-off begins anew."""
BROADCAST = "all"
"""The receiver of messages to every replica."""


class RedisChannel:
    """The connection to the other replicas. `on_message` gets the sender's id and the message.

    With a `secret` that the replicas share, what they send is sealed, and what is not is ignored; without, Redis is
    trusted. Whatever comes from Redis, what cannot be used costs a record of the log a minute, and nothing else.
    """

    def __init__(
        self,
        url: str,
        secret: str | None,
        timings: RedisTimings,
        *,
        on_message: Callable[[str, Message], None],
        on_connected: Callable[[], None],
        on_lost: Callable[[], Awaitable[None]],
    ) -> None:
        """Raises: ConfigError, if this cannot be the address of a Redis. Connects when it is opened."""
        self.own_id = secrets.token_hex(8)
        self.is_connected = asyncio.Event()
        self.redis = connect(url)
        self._url = url
        self._timings = timings
        self._on_message = on_message
        self._on_connected = on_connected
        self._on_lost = on_lost
        self._scope = channel_scope(self.redis)
        self.seal = None if secret is None else Seal(secret, self._scope, self.own_id)
        self._ignored = 0
        self._outages = Outages(
            "until it is back, replicas receive no notices of each other", "replicas receive notices of each other"
        )
        self._alarms = TokenBucket.once_a_minute()
        self._queue: deque[tuple[str, bytes]] = deque()
        self._queued = 0
        self._to_send = asyncio.Event()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """While this replica serves. Raises: SharedStateError."""
        await require_reachable(self._url)
        if self.seal is None:
            logger.warning(
                "Redis at %s is trusted: anyone who can write to it can act as this hub; set redis_key, the same for "
                "all replicas, to have their messages sealed",
                address_of(self.redis),
            )
        staying = asyncio.create_task(self._stay_connected(), name="replicas")
        try:
            try:
                await asyncio.wait_for(self.is_connected.wait(), self._timings.subscribe_timeout)
            except TimeoutError:
                raise SharedStateError(
                    "redis_url: Redis does not let this user SUBSCRIBE to the channels of replicas; allow it in its ACL"
                ) from None
            yield
        finally:
            await ended([staying])
            await self.redis.aclose()

    def send(self, replica: str, message: Mapping[str, Any]) -> None:
        """Queue a message; it is lost while there is no connection. Raises: TooLargeError, also for a full queue."""
        data = self._encoded(replica, message)
        if not self.is_connected.is_set():
            return
        if self._queued + len(data) > self._timings.most_queued_bytes:
            raise TooLargeError
        self._queue.append((replica, data))
        self._queued += len(data)
        self._to_send.set()

    async def send_now(self, replica: str, message: Mapping[str, Any]) -> None:
        """Send a message to a replica that is there. Raises: PeerLostError, TooLargeError."""
        data = self._encoded(replica, message)
        if not self.is_connected.is_set():
            raise PeerLostError
        try:
            listeners = await self.redis.publish(self._channel(replica), data)
        except LOST as error:
            raise PeerLostError from error
        if not listeners:
            raise PeerLostError

    async def require_there(self, replica: str) -> None:
        """Raises: PeerLostError."""
        try:
            [(_, listeners)] = await self.redis.pubsub_numsub(self._channel(replica))
        except LOST as error:
            raise PeerLostError from error
        if not listeners:
            raise PeerLostError

    def reject(self) -> None:
        """Count a message that cannot be used, and log it, once in a while for all."""
        self._ignored += 1
        if self._alarms.take(time.monotonic()):
            whose = "this hub" if self.seal is None else "a replica with this redis_key, whose clock is right"
            logger.warning("ignored messages in Redis that are not from %s: %d so far", whose, self._ignored)

    def _encoded(self, replica: str, message: Mapping[str, Any]) -> bytes:
        data = encoded({"from": self.own_id, **message})
        return data if self.seal is None else self.seal.sealed(data, replica)

    def _channel(self, replica: str) -> str:
        return f"{self._scope}:to:{replica}"

    async def _stay_connected(self) -> None:
        backoff = self._timings.backoff
        pauses = iter(backoff)
        while True:
            began = time.monotonic()
            try:
                await self._connection()
            except Exception as error:
                if time.monotonic() - began > _STEADY:
                    pauses = iter(backoff)
                self._outages.begin(error)
            finally:
                await self._disconnect()
            await asyncio.sleep(next(pauses, backoff[-1]))

    async def _connection(self) -> None:
        """Raises: one of LOST, in the end."""
        redis = connect(self._url)
        channels = redis.pubsub()
        tasks: list[asyncio.Task[None]] = []
        try:
            await channels.subscribe(self._channel(BROADCAST), self._channel(self.own_id))
            tasks = [asyncio.create_task(self._listen(channels)), asyncio.create_task(self._send_all(redis))]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await ended(tasks)
            with suppress(*LOST):
                await channels.aclose()  # type: ignore[no-untyped-call]
            await redis.aclose()

    async def _disconnect(self) -> None:
        was_connected = self.is_connected.is_set()
        self.is_connected.clear()
        self._queue.clear()
        self._queued = 0
        if was_connected:
            await self._on_lost()

    async def _listen(self, channels: Any) -> None:
        """Receive messages. Raises: one of LOST."""
        confirmed = 0
        is_asked = False
        while True:
            message = await channels.get_message(timeout=self._timings.ping_after)
            if message is None:
                if is_asked:
                    raise TimeoutError
                await channels.ping()
            is_asked = message is None
            if message is not None and message["type"] == "subscribe":
                confirmed += 1
                if confirmed == 2:
                    self.is_connected.set()
                    self._outages.end()
                    self._on_connected()
            elif message is not None and message["type"] == "message":
                self._take(
                    BROADCAST if message["channel"] == self._channel(BROADCAST).encode() else self.own_id,
                    message["data"],
                )
                await asyncio.sleep(0)  # or who floods the channels has all turns

    def _take(self, recipient: str, data: bytes) -> None:
        """Handle a message of another replica, or of an impostor: it must not end the connection."""
        if len(data) > MESSAGE_SIZE_LIMIT + OVERHEAD:
            self.reject()
            return
        try:
            sender, opened = (None, data) if self.seal is None else self.seal.opened(data, recipient)
            message = decoded(opened)
            if message is None or message["from"] != (sender or message["from"]):
                self.reject()
            elif message["from"] != self.own_id:
                self._on_message(message["from"], message)
        except Exception as error:
            if not isinstance(error, SealError | MalformedMessageError):
                logger.debug("a message of another replica could not be handled", exc_info=error)
            self.reject()

    async def _send_all(self, redis: Any) -> None:
        """Send what is queued. Raises: one of LOST."""
        while True:
            await self._to_send.wait()
            self._to_send.clear()
            while self._queue:
                replica, data = self._queue.popleft()
                self._queued -= len(data)
                await redis.publish(self._channel(replica), data)


async def ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait for their end.

    The client of Redis uses `asyncio.wait_for`, which before Python 3.12 may lose a cancellation that comes just when
    what it waits for is done: https://github.com/python/cpython/issues/86296
    """
    while going_on := [task for task in tasks if not task.done()]:
        for task in going_on:
            task.cancel()
        await asyncio.wait(going_on, timeout=_CANCEL_AGAIN)
