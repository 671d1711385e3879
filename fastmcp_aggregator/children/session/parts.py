"""Stand-ins for a child's messages of too many parts: made from their bytes, which are never parsed."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from mcp_types import INTERNAL_ERROR

from fastmcp_aggregator.catalogue.snapshot import CHANGED_KINDS
from fastmcp_aggregator.protocol import raw_json
from fastmcp_aggregator.protocol.parts import ANSWER_PARTS_LIMIT, DIGITS_LIMIT, counting, has_too_many_parts

TOO_MANY_PARTS = (
    f"response too large: more than {ANSWER_PARTS_LIMIT} values, or a number of more than {DIGITS_LIMIT} digits, or "
    "many long ones"
)
LONG = 1024 * 1024
"""Bytes of a message that is worked on in more than one turn of the event loop."""
_REFUSED_METHOD = "request with too many values"
"""The method that a request of the child's is given, so that it is answered with an error."""


def is_too_large(message: bytes) -> bool:
    """True if a child's message would cost too much to parse."""
    return has_too_many_parts(message, ANSWER_PARTS_LIMIT)


def looking_for_parts(message: bytes) -> Generator[None, None, bool]:
    """`is_too_large` in steps."""
    return counting(message, ANSWER_PARTS_LIMIT)


def in_place_of(message: bytes) -> bytes | None:
    """An error for the call that it answers, an unknown request; None for a notification.

    Of one that lists have changed, that is all there is to know.

    Raises:
        Malformed: it is no JSON object.
    """
    envelope = raw_json.read_envelope(message)
    short: dict[str, Any] = {"jsonrpc": "2.0"}
    if isinstance(envelope.method, str):
        if envelope.id is not None:
            short |= {"id": envelope.id, "method": _REFUSED_METHOD}
        elif envelope.method in CHANGED_KINDS:
            short |= {"method": envelope.method}
        else:
            return None
    elif envelope.id is not None:
        short |= {"id": envelope.id, "error": {"code": INTERNAL_ERROR, "message": TOO_MANY_PARTS}}
    else:
        return None
    return raw_json.encode(short)
