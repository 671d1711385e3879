"""Questions between replicas: those of this one that wait for an answer, and those of others that are being answered.

A question has a number of its asker's. The answer comes as the last of its parts, in the order in which they were sent.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from fastmcp_aggregator.replicas.peers import Message, PeerLostError, Say
from fastmcp_aggregator.replicas.wire import TooLargeError

logger = logging.getLogger(__name__)

_LOOK = 5.0
"""Seconds between two looks whether a replica that is to answer is still there."""
TOO_LARGE: Message = {"too_large": True}
"""In place of an answer that is larger than replicas send."""

Answer = Callable[[Message, Say], Awaitable[Message]]


class Line(Protocol):
    """The way to the others."""

    def send(self, replica: str, message: Mapping[str, Any]) -> None:
        """Send this after everything before it; lost while there is no way. Raises: TooLargeError."""

    async def send_now(self, replica: str, message: Mapping[str, Any]) -> None:
        """Send this, to a replica that is there. Raises: PeerLostError, TooLargeError."""

    async def require_there(self, replica: str) -> None:
        """Raises: PeerLostError."""


class Questions:
    """All of them, over one line."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._numbers = itertools.count(1)
        self._asked: dict[int, tuple[asyncio.Future[Message], Say]] = {}
        self._answering: dict[tuple[str, int], asyncio.Task[None]] = {}

    async def ask(self, replica: str, question: Mapping[str, Any], hear: Say) -> Message:
        """See `Peers`."""
        number = next(self._numbers)
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer, hear
        try:
            await self._line.send_now(replica, {"ask": number, "question": question})
            while not (await asyncio.wait({answer}, timeout=_LOOK))[0]:
                await self._line.require_there(replica)
            return answer.result()
        except asyncio.CancelledError:
            self._line.send(replica, {"cancel": number})
            raise
        finally:
            del self._asked[number]

    def heard(self, sender: str, message: Message, answer: Answer) -> None:
        """Sort what another replica has said. Raises: KeyError, TypeError; it is nothing that one would say."""
        match message:
            case {"ask": int(number)}:
                self._begin_to_answer(sender, number, message["question"], answer)
            case {"cancel": int(number)} if (sender, number) in self._answering:
                self._answering[sender, number].cancel()
            case {"part": int(number)} if number in self._asked:
                self._asked[number][1](message["of"])
            case {"reply": int(number)} if number in self._asked:
                future, _ = self._asked[number]
                if not future.done():
                    future.set_result(message["answer"])

    async def lost(self) -> None:
        """The line is broken: nothing that was said can be answered any more."""
        for answer, _ in self._asked.values():
            if not answer.done():
                answer.set_exception(PeerLostError())
        answering = list(self._answering.values())
        for task in answering:
            task.cancel()
        await asyncio.gather(*answering, return_exceptions=True)

    def _begin_to_answer(self, asker: str, number: int, question: Message, answer: Answer) -> None:
        key = asker, number
        if key not in self._answering:
            task = self._answering[key] = asyncio.create_task(
                self._answer(asker, number, question, answer), name="answering a replica"
            )
            task.add_done_callback(lambda done: self._answering.pop(key, None))

    async def _answer(self, asker: str, number: int, question: Message, answer: Answer) -> None:
        def part(of: Message) -> None:
            try:
                self._line.send(asker, {"part": number, "of": of})
            except TooLargeError:
                return  # it is left out, like what a client cannot take

        try:
            said = await answer(question, part)
        except Exception:
            logger.exception("the question of another replica could not be answered")
            said = {}
        try:
            self._line.send(asker, {"reply": number, "answer": said})
        except TooLargeError:
            self._line.send(asker, {"reply": number, "answer": TOO_LARGE})
