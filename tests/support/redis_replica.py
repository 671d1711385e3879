"""Replicas at a Redis of a test's own: one that answers as a test wants, and the app as one that is quick."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from fastmcp_aggregator import Aggregator
from fastmcp_aggregator.replicas.changes import Changes
from fastmcp_aggregator.replicas.peers import MalformedMessageError, Message, OnMessage, PeerEvents
from fastmcp_aggregator.replicas.redis_connection import DEFAULT_TIMINGS, RedisTimings
from fastmcp_aggregator.replicas.redis_peers import RedisPeers

_QUICK = RedisTimings(backoff=(0.05,))


class Replica:
    """A replica that answers as its requester wants, and keeps what it hears."""

    def __init__(self, url: str, secret: str | None = None, timings: RedisTimings = DEFAULT_TIMINGS) -> None:
        self.peers = RedisPeers(url, secret, timings)
        self.notices: list[Message] = []
        self.questions: list[Message] = []
        self.missed = 0
        self.asked = asyncio.Event()
        self.given_up = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.stop: Any = None

    async def start(self, stack: AsyncExitStack) -> None:
        """Open it, until the stack or the test closes it."""
        own = await stack.enter_async_context(AsyncExitStack())
        self.stop = own.aclose
        await own.enter_async_context(self.peers.open(PeerEvents(self.notices.append, self._miss, self._answer)))

    def _miss(self) -> None:
        self.missed += 1

    async def _answer(self, question: Message, say: OnMessage) -> Message:
        self.questions.append(question)
        self.asked.set()
        for part in question.get("parts", []):
            say({"part": part})
        if question.get("fails"):
            raise ValueError(question)
        try:
            if question.get("waits"):
                await self.may_answer.wait()
        except asyncio.CancelledError:
            self.given_up.set()
            raise
        if "answer" not in question:
            raise MalformedMessageError
        return {"answer": question["answer"]}

    async def ask(self, other: Replica, **question: Any) -> tuple[Message, list[Message]]:
        """The answer of another replica, and the parts before it."""
        parts: list[Message] = []
        return await self.peers.request(other.peers.id, question, parts.append), parts


def quick_replica(app: Aggregator, *, grace: float = 0.05, timings: RedisTimings = _QUICK) -> Aggregator:
    """The app, as a replica that waits less for Redis and for its own sessions."""
    backend, settings = app._backend, app._backend.settings
    assert settings.redis_url is not None
    secret = None if settings.redis_key is None else settings.redis_key.get_secret_value()
    backend.peers = RedisPeers(settings.redis_url.get_secret_value(), secret, timings)
    backend.changes = Changes(
        backend.peers,
        children=lambda: backend.children,
        updated=backend._updated_elsewhere,
        read_files=backend._read_files,
        grace=grace,
    )
    return app
