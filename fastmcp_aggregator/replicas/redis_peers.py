"""The other replicas, reached through Redis: notices, collected and each sent once, and questions."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

from fastmcp_aggregator.errors import SharedStateError
from fastmcp_aggregator.replicas.peers import Message, PeerEvents, Say
from fastmcp_aggregator.replicas.questions import Questions
from fastmcp_aggregator.replicas.redis_connection import LOST, PREFIX
from fastmcp_aggregator.replicas.redis_line import ALL, RedisChannel

logger = logging.getLogger(__name__)

_COLLECT = 0.1
"""Seconds in which notices are collected into one message."""
_NOTICE_LIMIT = 1000
"""Notices in one message; of more, the others are told that they have missed some."""


class RedisPeers:
    """See `Peers`."""

    def __init__(self, url: str) -> None:
        """Raises: ConfigError, if this cannot be the address of a Redis. Connects when it is opened."""
        self._line = RedisChannel(url, hear=self._hear, up=self._up, down=self._down)
        self._questions = Questions(self._line)
        self._ears: PeerEvents | None = None
        self._notices: dict[str, Message] = {}
        """Those that are being collected."""
        self._has_lost_some = False
        """Whether notices were lost, so that the others have to look at everything."""
        self._was_down = False
        self._flush: asyncio.TimerHandle | None = None

    @property
    def id(self) -> str:
        """See `Peers`."""
        return self._line.own_id if self._line.is_up.is_set() else ""

    @asynccontextmanager
    async def open(self, ears: PeerEvents) -> AsyncIterator[None]:
        """See `Peers`."""
        self._ears = ears
        self._was_down = False
        try:
            async with self._line.open():
                yield
        finally:
            self._ears = None
            if self._flush is not None:
                self._flush.cancel()
                self._flush = None

    def tell(self, notice: Message) -> None:
        """See `Peers`."""
        if self._ears is None:
            return
        if len(self._notices) < _NOTICE_LIMIT:
            self._notices[json.dumps(notice, sort_keys=True)] = notice
        else:
            self._has_lost_some = True
        self._send_soon()

    async def ask(self, replica: str, question: Mapping[str, Any], hear: Say) -> Message:
        """See `Peers`."""
        return await self._questions.ask(replica, question, hear)

    async def shared_key(self) -> bytes | None:
        """See `Peers`. The first replica that asks makes it, and it is kept for good.

        Raises:
            SharedStateError: Redis does not answer.
        """
        name = f"{PREFIX}:request-state-key"
        try:
            await self._line.redis.set(name, secrets.token_bytes(32), nx=True)
            return cast(bytes, await self._line.redis.get(name))
        except LOST as error:
            reason = error.__class__.__name__
            raise SharedStateError(f"redis_url: Redis does not let the hub keep its key ({reason}); allow it") from None

    def _send_soon(self) -> None:
        if self._flush is None:
            self._flush = asyncio.get_running_loop().call_later(_COLLECT, self._send_notices)

    def _send_notices(self) -> None:
        self._flush = None
        notices = list(self._notices.values())
        self._notices.clear()
        if not self.id:
            self._has_lost_some = True
            return
        has_lost_some, self._has_lost_some = self._has_lost_some, False
        self._line.send(ALL, {"notices": notices, "missed": has_lost_some})

    def _hear(self, sender: str, message: Message) -> None:
        ears = self._ears
        assert ears is not None  # the line is open no longer than this is
        if "notices" not in message:
            self._questions.heard(sender, message, ears.answer)
            return
        if message.get("missed"):
            ears.missed()
        for notice in message["notices"]:
            ears.notice(notice)

    def _up(self) -> None:
        if not self._was_down:
            return
        logger.warning("Redis answers again; replicas hear of each other")
        self._has_lost_some = True
        self._send_soon()
        assert self._ears is not None  # as above
        self._ears.missed()

    async def _down(self) -> None:
        self._was_down = True
        await self._questions.lost()
