"""RPC between replicas: requests of this one that are pending, and requests of others that are being answered.

A request has a number of its sender's. Its answer is the last of its stream parts; they arrive in the order sent.
While a request is being answered, its sender is told so again and again: somebody else may listen in the place of a
replica that is gone, and one that hangs still listens.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastmcp_aggregator.replicas.peers import MalformedMessageError, Message, OnMessage, PeerHandler, PeerLostError
from fastmcp_aggregator.replicas.wire import TooLargeError

if TYPE_CHECKING:
    from fastmcp_aggregator.replicas.redis_channel import RedisChannel

logger = logging.getLogger(__name__)

_MOST_SILENT = 3
"""Checks in a row before which it has said nothing; at the next it is lost."""
TOO_LARGE: Message = {"too_large": True}
"""The answer in place of one that is larger than replicas send."""


@dataclass(slots=True)
class _Pending:
    """A request of this replica."""

    answer: asyncio.Future[Message]
    on_part: OnMessage
    silent: int = 0
    """Checks since the other replica was heard."""

    def count_silence(self) -> None:
        """Raises: PeerLostError, if it was not heard for too long."""
        self.silent += 1
        if self.silent > _MOST_SILENT:
            raise PeerLostError


class Rpc:
    """All requests, in both directions, over one channel."""

    def __init__(self, channel: RedisChannel, liveness_interval: float) -> None:
        self._channel = channel
        self._liveness_interval = liveness_interval
        self._numbers = itertools.count(1)
        self._pending: dict[tuple[str, int], _Pending] = {}
        self._answering: dict[tuple[str, int], asyncio.Task[None]] = {}

    async def request(self, replica: str, question: Mapping[str, Any], on_part: OnMessage) -> Message:
        number = next(self._numbers)
        pending = _Pending(asyncio.get_running_loop().create_future(), on_part)
        self._pending[replica, number] = pending
        try:
            await self._channel.send_now(replica, {"ask": number, "question": question})
            while not (await asyncio.wait({pending.answer}, timeout=self._liveness_interval))[0]:
                await self._channel.require_there(replica)
                pending.count_silence()
            return pending.answer.result()
        except (asyncio.CancelledError, PeerLostError):
            with suppress(TooLargeError):
                self._channel.send(replica, {"cancel": number})
            raise
        finally:
            del self._pending[replica, number]

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
            case {"answering": int(number)}:
                self._heard(sender, number)
            case {"part": int(number), "of": dict(part)}:
                if pending := self._heard(sender, number):
                    pending.on_part(part)
            case {"reply": int(number), "answer": dict(answer)}:
                if (pending := self._heard(sender, number)) and not pending.answer.done():
                    pending.answer.set_result(answer)
            case {"ask": _} | {"part": _} | {"reply": _}:
                raise MalformedMessageError

    def _heard(self, sender: str, number: int) -> _Pending | None:
        pending = self._pending.get((sender, number))
        if pending is not None:
            pending.silent = 0
        return pending

    async def connection_lost(self) -> None:
        """Fail what is pending, and cancel what is being answered: no answer can arrive any more."""
        for pending in self._pending.values():
            if not pending.answer.done():
                pending.answer.set_exception(PeerLostError())
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

        telling = asyncio.create_task(self._tell_of_answering(sender, number))
        try:
            answer = await handler(question, send_part)
        except MalformedMessageError:
            self._channel.reject()
            answer = {}
        except Exception:
            logger.exception("unhandled exception while a request of another replica was answered")
            answer = {}
        finally:
            telling.cancel()
        try:
            self._channel.send(sender, {"reply": number, "answer": answer})
        except TooLargeError:
            self._channel.send(sender, {"reply": number, "answer": TOO_LARGE})

    async def _tell_of_answering(self, sender: str, number: int) -> None:
        while True:
            await asyncio.sleep(self._liveness_interval)
            with suppress(TooLargeError):  # much waits to be sent, and will be heard
                self._channel.send(sender, {"answering": number})
