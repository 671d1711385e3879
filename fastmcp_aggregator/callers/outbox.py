"""Messages for one client, queued and sent by one task, in the order in which the child sent them.

What waits for an answer, and the result itself, come after them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Mapping
from functools import partial
from typing import Any

from mcp.server.connection import Connection
from mcp.shared.exceptions import MCPError

logger = logging.getLogger(__name__)

_KEY = "fastmcp_aggregator.outbox"
_MOST_WAITING = 1000

SendNotification = Callable[[str, Mapping[str, Any] | None], Awaitable[None]]


class Outbox:
    """Messages to one client, sent one after the other."""

    def __init__(self, send: SendNotification) -> None:
        self._send = send
        self._waiting: deque[Callable[[], Awaitable[None]]] = deque()
        self._once: set[Hashable] = set()
        self._sending: asyncio.Task[None] | None = None

    def put(self, method: str, params: Mapping[str, Any]) -> None:
        """Send this after everything before it; dropped if too much waits already."""
        self.then(partial(self._send, method, params))

    def put_once(self, method: str, uri: str | None = None) -> None:
        """Send this after everything before it, unless the same waits already."""
        message = method, uri
        if message not in self._once and self.then(partial(self._send_once, method, uri)):
            self._once.add(message)

    def then(self, action: Callable[[], Awaitable[None]]) -> bool:
        """Do this after everything before it; left out if too much waits already. Return whether it is done."""
        if len(self._waiting) >= _MOST_WAITING:
            logger.debug("dropped a message: the client does not take its messages")
            return False
        self._waiting.append(action)
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all(), name="messages to a client")
        return True

    async def flush(self) -> None:
        if self._sending is not None:
            await asyncio.wait({self._sending})

    async def turn(self) -> None:
        """Wait until everything before is sent.

        What the caller does next, up to where it waits, is done before everything that is put here later.
        """
        if self._sending is None:
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(partial(_give, turn))
        self._sending.add_done_callback(lambda _: _resolve(turn))
        await turn

    def close(self) -> None:
        self._waiting.clear()
        self._once.clear()
        if self._sending is not None:
            self._sending.cancel()

    async def _send_once(self, method: str, uri: str | None) -> None:
        self._once.discard((method, uri))
        await self._send(method, None if uri is None else {"uri": uri})

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                action = self._waiting.popleft()
                try:
                    await action()
                except (OSError, MCPError):
                    logger.debug("a message has not reached the client", exc_info=True)
        finally:
            self._sending = None


async def _give(turn: asyncio.Future[None]) -> None:
    _resolve(turn)
    await asyncio.sleep(0)  # who waited for it goes on first


def _resolve(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


def outbox_of(connection: Connection) -> Outbox:
    """The messages to a legacy client that belong to none of its requests."""
    outbox = connection.state.get(_KEY)
    if not isinstance(outbox, Outbox):
        outbox = connection.state[_KEY] = Outbox(connection.notify)
        connection.exit_stack.callback(outbox.close)
    return outbox
