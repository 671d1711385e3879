"""The error that answers a client's message of too many parts."""

from __future__ import annotations

import re

from mcp_types import INVALID_REQUEST, ErrorData, JSONRPCError

from fastmcp_aggregator.protocol.parts import DIGITS_LIMIT, PARTS_LIMIT

TOO_MANY_PARTS = (
    f"the message has more than {PARTS_LIMIT} values, or a number of more than {DIGITS_LIMIT} digits, or many "
    "long ones; send it in several requests, or as text"
)
_ID = rb'"id"\s*:\s*(?:(\d{1,15})|"([\w.:-]{1,100})")\s*'
_ID_AT_HEAD = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2.0"\s*,\s*)?' + _ID + rb",")
_ID_AT_END = re.compile(rb",\s*" + _ID + rb'(?:,\s*"jsonrpc"\s*:\s*"2.0"\s*)?\}\s*\Z')
_EDGE = 256


def too_many_parts(message: bytes) -> JSONRPCError:
    """The error that answers such a message, with its id where an edge of it tells."""
    found = _ID_AT_HEAD.match(message[:_EDGE]) or _ID_AT_END.search(message[-_EDGE:])
    number, text = found.groups() if found else (None, None)
    request_id = int(number) if number else text.decode() if text else None
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=INVALID_REQUEST, message=TOO_MANY_PARTS))
