"""Large messages of a remote child, which pass beside the SDK's reader: it is given a short one in place of each.

Theory. To decode an event of some MiB, and to validate its JSON as each kind of message, takes the SDK a tenth of a
second or more, in which all others wait. So a large message is parsed here, once, and kept; what stands for it
has its id, its method and a mark that only this object knows, by which the message is put in its place again before
the session sees it.

The SDK does not pass all on that it is given: not the answer to a request that was cancelled meanwhile, nor one whose
status says that there is none. So a message belongs to the task that reads its response, which is the SDK's: it passes
one message on before it reads the next. At most one is kept for each request in flight, and for the session's stream.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import Any

from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCResponse

from fastmcp_aggregator.message_streams import read_message

LARGE = 16 * 1024
"""Bytes of a message that passes as it is."""
_MARK = "fastmcp_aggregator"
_NO_MESSAGE = b'"no JSON-RPC message"'


class LargeMessages:
    """The large messages of one connection that the session has not read yet."""

    def __init__(self) -> None:
        self._secret = secrets.token_hex(16)
        self._kept: dict[str, JSONRPCMessage] = {}
        self._latest: dict[asyncio.Task[Any], str] = {}
        """The mark of the latest message that a task has read, until it ends."""
        self._count = 0

    def in_place_of(self, text: bytes) -> bytes:
        """The text that the SDK reads, in this task, in place of a message, or of what is none."""
        if len(text) <= LARGE:
            return text
        try:
            message = read_message(text)
        except ValueError:
            return _NO_MESSAGE
        self._count += 1
        mark = f"{self._secret}/{self._count}"
        self._keep(mark, message)
        return json.dumps(_stand_in(message, {_MARK: mark})).encode()

    def restored(self, message: Any) -> Any:
        """The message that one of the SDK's stands for, under the id that it has there; any other as it is.

        None if it is forgotten, and no longer awaited.
        """
        content = _content_of(message)
        mark = content.get(_MARK) if isinstance(content, dict) and len(content) == 1 else None
        if not isinstance(mark, str) or not mark.startswith(f"{self._secret}/"):
            return message
        kept = self._kept.pop(mark, None)
        if isinstance(kept, JSONRPCResponse | JSONRPCError):
            kept.id = message.id
        return kept

    def _keep(self, mark: str, message: JSONRPCMessage) -> None:
        reader = asyncio.current_task()
        assert reader is not None
        if reader in self._latest:
            self._kept.pop(self._latest[reader], None)
        else:
            reader.add_done_callback(self._forget)
        self._latest[reader] = mark
        self._kept[mark] = message

    def _forget(self, reader: asyncio.Task[Any]) -> None:
        self._kept.pop(self._latest.pop(reader), None)


def _stand_in(message: JSONRPCMessage, content: dict[str, Any]) -> dict[str, Any]:
    match message:
        case JSONRPCResponse():
            return {"jsonrpc": "2.0", "id": message.id, "result": content}
        case JSONRPCError():
            error = {"code": message.error.code, "message": "", "data": content}
            return {"jsonrpc": "2.0", "id": message.id, "error": error}
    return {**message.model_dump(exclude={"params"}), "params": content}


def _content_of(message: Any) -> Any:
    match message:
        case JSONRPCResponse():
            return message.result
        case JSONRPCError():
            return message.error.data
    return getattr(message, "params", None)
