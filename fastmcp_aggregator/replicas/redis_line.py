"""The way to the other replicas: channels of Redis. Nothing is stored there.

Theory. One task has one life after the other. A life subscribes to two channels, that of all replicas and that of this
one, and then listens and sends until either fails; then both end, so that whoever asks this replica finds that nobody
listens on its channel any more. After a pause comes the next life. What was said meanwhile is lost, and nobody knows
what it was. Redis tells who listens to a channel: that is how a replica that has died is known, without a register
that somebody would have to clean.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastmcp_aggregator.errors import SharedStateError
from fastmcp_aggregator.replicas.peers import Message, PeerLostError
from fastmcp_aggregator.replicas.redis_connection import LOST, START_BOUND, channel_scope, connect, require_reachable
from fastmcp_aggregator.replicas.wire import TooLargeError, decoded, encoded

logger = logging.getLogger(__name__)

_QUEUE_LIMIT = 32 * 1024 * 1024
"""Bytes that wait to be sent, at most."""
_SILENCE = 10.0
"""Seconds of silence after which Redis is asked for a sign of life, and again until it is given up."""
_CANCEL_AGAIN = 0.5
"""Seconds after which a task is cancelled once more."""
_PAUSES = (0.5, 1.0, 2.0, 5.0)
"""Seconds between two lives, of which the last is repeated."""
ALL = "all"
"""In place of a replica's id: every replica."""


class RedisChannel:
    """See `Line`. `hear` is told what the others say, and who; `up` and `down` when the way is there, or lost."""

    def __init__(
        self,
        url: str,
        *,
        hear: Callable[[str, Message], None],
        up: Callable[[], None],
        down: Callable[[], Awaitable[None]],
    ) -> None:
        """Raises: ConfigError, if this cannot be the address of a Redis. Connects when it is opened."""
        self.own_id = secrets.token_hex(8)
        self.is_up = asyncio.Event()
        self.redis = connect(url)
        self._url = url
        self._hear = hear
        self._up = up
        self._down = down
        self._scope = channel_scope(self.redis)
        self._queue: deque[tuple[str, bytes]] = deque()
        self._queued = 0
        self._to_send = asyncio.Event()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """While this replica serves. Raises: SharedStateError."""
        await require_reachable(self._url)
        living = asyncio.create_task(self._live(), name="replicas")
        try:
            try:
                await asyncio.wait_for(self.is_up.wait(), START_BOUND)
            except TimeoutError:
                raise SharedStateError(
                    "redis_url: Redis answers, but does not let this user SUBSCRIBE to what replicas say; allow it"
                ) from None
            yield
        finally:
            await _ended([living])
            await self.redis.aclose()

    def send(self, replica: str, message: Mapping[str, Any]) -> None:
        """See `Line`."""
        data = encoded({"from": self.own_id, **message})
        if not self.is_up.is_set():
            return
        if self._queued + len(data) > _QUEUE_LIMIT:
            raise TooLargeError
        self._queue.append((replica, data))
        self._queued += len(data)
        self._to_send.set()

    async def send_now(self, replica: str, message: Mapping[str, Any]) -> None:
        """See `Line`."""
        data = encoded({"from": self.own_id, **message})
        if not self.is_up.is_set():
            raise PeerLostError
        try:
            listeners = await self.redis.publish(self._channel(replica), data)
        except LOST as error:
            raise PeerLostError from error
        if not listeners:
            raise PeerLostError

    async def require_there(self, replica: str) -> None:
        """See `Line`."""
        try:
            [(_, listeners)] = await self.redis.pubsub_numsub(self._channel(replica))
        except LOST as error:
            raise PeerLostError from error
        if not listeners:
            raise PeerLostError

    def _channel(self, replica: str) -> str:
        return f"{self._scope}:to:{replica}"

    async def _live(self) -> None:
        pauses = iter(_PAUSES)
        is_away = False
        while True:
            try:
                await self._one_life()
            except Exception as error:
                if self.is_up.is_set():
                    pauses, is_away = iter(_PAUSES), False
                if not is_away:
                    is_away = True
                    name = error.__class__.__name__
                    logger.warning("Redis does not answer (%s); replicas do not hear of each other meanwhile", name)
            finally:
                await self._end_life()
            await asyncio.sleep(next(pauses, _PAUSES[-1]))

    async def _one_life(self) -> None:
        """Raises: one of LOST, in the end."""
        redis = connect(self._url)
        channels = redis.pubsub()
        tasks: list[asyncio.Task[None]] = []
        try:
            await channels.subscribe(self._channel(ALL), self._channel(self.own_id))
            tasks = [asyncio.create_task(self._listen(channels)), asyncio.create_task(self._send_all(redis))]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await _ended(tasks)
            with suppress(*LOST):
                await channels.aclose()  # type: ignore[no-untyped-call]
            await redis.aclose()

    async def _end_life(self) -> None:
        was_up = self.is_up.is_set()
        self.is_up.clear()
        self._queue.clear()
        self._queued = 0
        if was_up:
            await self._down()

    async def _listen(self, channels: Any) -> None:
        """Hear what comes. Raises: one of LOST."""
        confirmed = 0
        is_asked = False
        while True:
            message = await channels.get_message(timeout=_SILENCE)
            if message is None:
                if is_asked:
                    raise TimeoutError
                await channels.ping()
            is_asked = message is None
            if message is not None and message["type"] == "subscribe":
                confirmed += 1
                if confirmed == 2:
                    self.is_up.set()
                    self._up()
            elif message is not None and message["type"] == "message":
                self._take(decoded(message["data"]))

    def _take(self, message: Message | None) -> None:
        if message is None or message["from"] == self.own_id:
            return
        try:
            self._hear(message["from"], message)
        except (LookupError, TypeError, ValueError):
            logger.debug("a replica said something else than expected: %.200r", message)

    async def _send_all(self, redis: Any) -> None:
        """Send what is to be sent. Raises: one of LOST."""
        while True:
            await self._to_send.wait()
            self._to_send.clear()
            while self._queue:
                replica, data = self._queue.popleft()
                self._queued -= len(data)
                await redis.publish(self._channel(replica), data)


async def _ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait for their end.

    The client of Redis uses `asyncio.wait_for`, which before Python 3.12 may lose a cancellation that comes just when
    what it waits for is done: https://github.com/python/cpython/issues/86296
    """
    while going_on := [task for task in tasks if not task.done()]:
        for task in going_on:
            task.cancel()
        await asyncio.wait(going_on, timeout=_CANCEL_AGAIN)
