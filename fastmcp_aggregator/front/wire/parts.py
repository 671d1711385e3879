"""The bound on the parts of a client's message, told from its bytes before anything parses them.

Theory. What parsing costs goes by the parts of a message, hardly by its bytes: 4 MiB of text are read in a hundredth of
a second, 4 MiB of `[[],[],…]` keep the event loop for seconds and become some hundred MiB of objects. Counting errs on
the side of more: only a message that seems to have too many parts is looked at again without its texts, in which commas
and brackets mean nothing.
"""

from __future__ import annotations

import re

from mcp_types import INVALID_REQUEST, ErrorData, JSONRPCError

PARTS_LIMIT = 50_000
"""Values that a message may have: about what is parsed, checked and passed on within 50 ms."""
_DIGITS_LIMIT = 1000
"""Digits that a number may have, in a message that is long: reading them takes time by their square."""
_BLOCK = b"0" * 100
_BLOCKS_LIMIT = 400
"""Hundreds of digits in all its long numbers together."""
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * (_DIGITS_LIMIT + 1)
TOO_MANY_PARTS = (
    f"the message has more than {PARTS_LIMIT} values, or a number of more than {_DIGITS_LIMIT} digits, or many "
    "long ones; send it in several requests, or as text"
)
_ID = rb'"id"\s*:\s*(?:(\d{1,15})|"([\w.:-]{1,100})")\s*'
_ID_AT_HEAD = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2.0"\s*,\s*)?' + _ID + rb",")
_ID_AT_END = re.compile(rb",\s*" + _ID + rb'(?:,\s*"jsonrpc"\s*:\s*"2.0"\s*)?\}\s*\Z')
_EDGE = 256


def has_too_many_parts(message: bytes) -> bool:
    """Whether a message would cost too much to parse. One with NULs (UTF-16 and UTF-32) does when it is long."""
    if len(message) <= PARTS_LIMIT:
        return False
    return b"\0" in message or (_exceeds(message) and _exceeds_outside_of_texts(message))


def too_many_parts(message: bytes) -> JSONRPCError:
    """The error that answers such a message, with its id where an edge of it tells."""
    found = _ID_AT_HEAD.match(message[:_EDGE]) or _ID_AT_END.search(message[-_EDGE:])
    number, text = found.groups() if found else (None, None)
    request_id = int(number) if number else text.decode() if text else None
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=INVALID_REQUEST, message=TOO_MANY_PARTS))


def _exceeds(message: bytes) -> bool:
    parts = len(message) - len(message.translate(None, b",[{"))  # a third of the time that counting takes
    if parts > PARTS_LIMIT:
        return True
    digits = message.translate(_DIGITS)
    return _LONG_NUMBER in digits or digits.count(_BLOCK) > _BLOCKS_LIMIT


def _exceeds_outside_of_texts(message: bytes) -> bool:
    unescaped = message.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Each value may have a name and be a text: four quotes. Cutting at many more would cost what is to be prevented.
    return unescaped.count(b'"') > 4 * PARTS_LIMIT or _exceeds(b'"'.join(unescaped.split(b'"')[::2]))
