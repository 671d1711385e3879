"""RPC between replicas: requests of this one that are pending, and requests of others that are being answered.

A request has a number of its sender's. Its answer is the last of its stream parts; they arrive in the order sent.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fastmcp_aggregator.replicas.peers import MalformedMessageError, Message, OnMessage, PeerHandler, PeerLostError
from fastmcp_aggregator.replicas.wire import TooLargeError

if TYPE_CHECKING:
    from fastmcp_aggregator.replicas.redis_channel import RedisChannel

logger = logging.getLogger(__name__)

_LIVENESS_INTERVAL = 5.0
"""Seconds between two checks whether the replica that is to answer is still there."""
TOO_LARGE: Message = {"too_large": True}
"""In place of an answer that is larger than replicas send."""


class Rpc:
    """All requests, in both directions, over one channel."""

    def __init__(self, channel: RedisChannel) -> None:
        self._channel = channel
        self._numbers = itertools.count(1)
        self._pending: dict[int, tuple[asyncio.Future[Message], OnMessage]] = {}
        self._answering: dict[tuple[str, int], asyncio.Task[None]] = {}

    async def request(self, replica: str, question: Mapping[str, Any], on_part: OnMessage) -> Message:
        number = next(self._numbers)
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._pending[number] = answer, on_part
        try:
            await self._channel.send_now(replica, {"ask": number, "question": question})
            while not (await asyncio.wait({answer}, timeout=_LIVENESS_INTERVAL))[0]:
                await self._channel.require_there(replica)
            return answer.result()
        except asyncio.CancelledError:
            self._channel.send(replica, {"cancel": number})
            raise
        finally:
            del self._pending[number]

    def received(self, sender: str, message: Message, handler: PeerHandler) -> None:
        """Dispatch a message of another replica. An unknown one is ignored: a newer replica may send more.

        Raises:
            MalformedMessageError: it is none that a replica sends.
        """
        match message:
            case {"ask": int(number), "question": dict(question)}:
                self._begin_to_answer(sender, number, question, handler)
            case {"cancel": int(number)} if (sender, number) in self._answering:
                self._answering[sender, number].cancel()
            case {"part": int(number), "of": dict(part)}:
                if number in self._pending:
                    self._pending[number][1](part)
            case {"reply": int(number), "answer": dict(answer)}:
                if number in self._pending and not self._pending[number][0].done():
                    self._pending[number][0].set_result(answer)
            case {"ask": _} | {"part": _} | {"reply": _}:
                raise MalformedMessageError

    async def connection_lost(self) -> None:
        """Fail what is pending, and cancel what is being answered: no answer can arrive any more."""
        for answer, _ in self._pending.values():
            if not answer.done():
                answer.set_exception(PeerLostError())
        answering = list(self._answering.values())
        for task in answering:
            task.cancel()
        await asyncio.gather(*answering, return_exceptions=True)

    def _begin_to_answer(self, sender: str, number: int, question: Message, handler: PeerHandler) -> None:
        key = sender, number
        if key not in self._answering:
            task = self._answering[key] = asyncio.create_task(
                self._answer(sender, number, question, handler), name="answering a replica"
            )
            task.add_done_callback(lambda done: self._answering.pop(key, None))

    async def _answer(self, sender: str, number: int, question: Message, handler: PeerHandler) -> None:
        def send_part(of: Message) -> None:
            try:
                self._channel.send(sender, {"part": number, "of": of})
            except TooLargeError:
                return  # dropped, like a notification that a client cannot take

        try:
            answer = await handler(question, send_part)
        except MalformedMessageError:
            self._channel.reject()
            answer = {}
        except Exception:
            logger.exception("unhandled exception while a request of another replica was answered")
            answer = {}
        try:
            self._channel.send(sender, {"reply": number, "answer": answer})
        except TooLargeError:
            self._channel.send(sender, {"reply": number, "answer": TOO_LARGE})
