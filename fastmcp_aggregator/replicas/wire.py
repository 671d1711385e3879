"""The wire format of messages between replicas: JSON of limited size. Pure.

| message | is |
|---|---|
| `{"from", "notices": […], "missed"}` | a batch of notices, broadcast; `missed`: some were lost before |
| `{"from", "ask": N, "question"}` | a request, to one |
| `{"from", "answering": N}` | the request is still being answered |
| `{"from", "part": N, "of"}` | a stream part, before the answer |
| `{"from", "reply": N, "answer"}` | the answer |
| `{"from", "cancel": N}` | the sender of the request has given up |

N is the sender's number for its request. An unknown message is ignored: a newer replica may send more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

MESSAGE_SIZE_LIMIT = 4 * 1024 * 1024
"""Bytes of one message. Redis cuts off a subscriber for which 32 MiB wait."""
_ID = re.compile("[0-9a-f]{16}")


class TooLargeError(Exception):
    """The message is larger than replicas send."""


def is_replica_id(text: str) -> bool:
    """True if the text has the form of a replica's id."""
    return _ID.fullmatch(text) is not None


def encoded(message: Mapping[str, Any]) -> bytes:
    """Encode a message. Raises TooLargeError: it is larger than MESSAGE_SIZE_LIMIT."""
    data = json.dumps(message, separators=(",", ":")).encode()
    if len(data) > MESSAGE_SIZE_LIMIT:
        raise TooLargeError
    return data


def decoded(data: Any) -> dict[str, Any] | None:
    """Decode a message; None if no replica would send it."""
    if not isinstance(data, bytes) or len(data) > MESSAGE_SIZE_LIMIT:
        return None
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or not isinstance(message.get("from"), str) or not is_replica_id(message["from"]):
        return None
    return message
