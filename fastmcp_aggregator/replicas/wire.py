"""What replicas send each other, as JSON of limited size. Pure.

| message | is |
|---|---|
| `{"from", "notices": […]}` | what has changed, for all |
| `{"from", "ask": N, "question"}` | a question, for one |
| `{"from", "part": N, "of"}` | a part of the answer |
| `{"from", "reply": N, "answer"}` | the answer |
| `{"from", "cancel": N}` | the asker has given up |

N is the asker's number for its question. What is not understood is left out: a newer replica may say more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

SIZE_LIMIT = 4 * 1024 * 1024
"""Bytes of one message. Redis cuts off a subscriber for which 32 MiB wait."""
_ID = re.compile("[0-9a-f]{16}")


class TooLargeError(Exception):
    """The message is larger than replicas send."""


def is_replica_id(text: str) -> bool:
    """Whether it looks like the id of a replica."""
    return _ID.fullmatch(text) is not None


def encoded(message: Mapping[str, Any]) -> bytes:
    """As it is sent.

    Raises:
        TooLargeError: it is not sent.
    """
    data = json.dumps(message, separators=(",", ":")).encode()
    if len(data) > SIZE_LIMIT:
        raise TooLargeError
    return data


def decoded(data: Any) -> dict[str, Any] | None:
    """What another replica has sent; None if it is nothing that one would send."""
    if not isinstance(data, bytes) or len(data) > SIZE_LIMIT:
        return None
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or not isinstance(message.get("from"), str) or not is_replica_id(message["from"]):
        return None
    return message
