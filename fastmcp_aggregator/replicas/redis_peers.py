"""`Peers` over Redis: notices, published in batches without duplicates, and RPC."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastmcp_aggregator.errors import SharedStateError
from fastmcp_aggregator.pipe.bucket import TokenBucket
from fastmcp_aggregator.replicas.peers import MalformedMessageError, Message, OnMessage, PeerEvents, Peers
from fastmcp_aggregator.replicas.redis_channel import BROADCAST, RedisChannel, ended
from fastmcp_aggregator.replicas.redis_connection import DEFAULT_TIMINGS, LOST, PREFIX, RedisTimings, is_of_wrong_type
from fastmcp_aggregator.replicas.rpc import Rpc

logger = logging.getLogger(__name__)

_BATCH_TIME = 0.1
_KEY_BYTES = 32
_KEY_NAME = f"{PREFIX}:request-state-key"
_NOTICE_LIMIT = 1000
"""Notices in one batch; if there are more, the others are told that they have missed some."""


class RedisPeers(Peers):
    """The other replicas of one hub, at one Redis."""

    def __init__(self, url: str, secret: str | None = None, timings: RedisTimings = DEFAULT_TIMINGS) -> None:
        """With a `secret`, which they share outside of it, what is sent through Redis is sealed.

        Raises: ConfigError, if this cannot be the address of a Redis. Connects when it is opened.
        """
        self._channel = RedisChannel(
            url,
            secret,
            timings,
            on_message=self._received,
            on_connected=self._connected,
            on_lost=self._connection_lost,
        )
        self._rpc = Rpc(self._channel, timings.liveness_interval)
        self._key_interval = timings.key_interval
        self._events: PeerEvents | None = None
        self._key = b""
        """The key of request states, once `_has_key`: Redis keeps it."""
        self._has_key = asyncio.Event()
        self._notices: dict[str, Message] = {}
        """The next batch, by content."""
        self._has_lost_some = False
        """True if notices were lost, so that the others have to look at everything."""
        self._was_lost = False
        self._flush: asyncio.TimerHandle | None = None

    @property
    def id(self) -> str:
        return self._channel.own_id if self._channel.is_connected.is_set() else ""

    @asynccontextmanager
    async def open(self, events: PeerEvents) -> AsyncIterator[None]:
        self._events = events
        self._was_lost = False
        try:
            async with self._channel.open():
                keeping = asyncio.create_task(self._keep_key(), name="request-state key")
                try:
                    yield
                finally:
                    await ended([keeping])
        finally:
            self._events = None
            if self._flush is not None:
                self._flush.cancel()
                self._flush = None

    def publish(self, notice: Message) -> None:
        if self._events is None:
            return
        if len(self._notices) < _NOTICE_LIMIT:
            self._notices[json.dumps(notice, sort_keys=True)] = notice
        else:
            self._has_lost_some = True
        self._send_soon()

    async def request(self, replica: str, question: Mapping[str, Any], on_part: OnMessage) -> Message:
        return await self._rpc.request(replica, question, on_part)

    async def shared_key(self) -> bytes | None:
        """Derived from the secret; without one, the first replica that asks makes the key, which is kept in Redis.

        Raises:
            SharedStateError: Redis does not answer.
        """
        if self._channel.seal is not None:
            return self._channel.seal.key_for("request state")
        try:
            found = await self._kept_key(secrets.token_bytes(_KEY_BYTES))
        except LOST as error:
            if not is_of_wrong_type(error):
                reason = error.__class__.__name__
                raise SharedStateError(
                    f"redis_url: Redis does not let the hub keep its key ({reason}); allow it"
                ) from None
            found = b""
        if len(found) == _KEY_BYTES:
            self._key = found
            self._has_key.set()
            return found
        logger.warning(
            "%s in Redis is not a sealing key: sealed states are good at one replica alone; delete it", _KEY_NAME
        )
        return None

    async def _kept_key(self, key: bytes) -> bytes:
        """The key that Redis keeps; this one is stored if it had none.

        Raises:
            one of LOST.
        """
        await self._channel.redis.set(_KEY_NAME, key, nx=True)
        found: Any = await self._channel.redis.getrange(_KEY_NAME, 0, _KEY_BYTES)
        return bytes(found)

    async def _keep_key(self) -> None:
        """Put the key back once Redis has lost it, before a replica that starts makes another; tell of one that has."""
        warnings = TokenBucket.once_a_minute()
        await self._has_key.wait()
        found = self._key
        while True:
            await asyncio.sleep(self._key_interval)
            before = found
            with suppress(*LOST):
                found = await self._kept_key(self._key)
            if found not in (self._key, before) and warnings.take(time.monotonic()):
                logger.warning(
                    "Redis has another key for requestState than this replica: it has lost its data, and a replica "
                    "that has started since has made one; restart this one"
                )

    def _send_soon(self) -> None:
        if self._flush is None:
            self._flush = asyncio.get_running_loop().call_later(_BATCH_TIME, self._send_notices)

    def _send_notices(self) -> None:
        self._flush = None
        notices = list(self._notices.values())
        self._notices.clear()
        if not self.id:
            self._has_lost_some = True
            return
        has_lost_some, self._has_lost_some = self._has_lost_some, False
        self._channel.send(BROADCAST, {"notices": notices, "missed": has_lost_some})

    def _received(self, sender: str, message: Message) -> None:
        events = self._events
        assert events is not None  # the channel is open no longer than this is
        if "notices" not in message:
            self._rpc.received(sender, message, events.answer)
            return
        notices = message["notices"]
        if not isinstance(notices, list) or not all(isinstance(notice, dict) for notice in notices[:_NOTICE_LIMIT]):
            raise MalformedMessageError
        if message.get("missed"):
            events.on_missed()
        for notice in notices[:_NOTICE_LIMIT]:
            events.on_notice(notice)

    def _connected(self) -> None:
        if not self._was_lost:
            return
        self._has_lost_some = True
        self._send_soon()
        assert self._events is not None  # as above
        self._events.on_missed()

    async def _connection_lost(self) -> None:
        self._was_lost = True
        await self._rpc.connection_lost()
