"""JSON whose parts stay the bytes that came: an object's values are decoded only where somebody looks at them.

What is not JSON for every parser (invalid UTF-8, half a surrogate pair, NaN, a leading zero) is refused here.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType
from pydantic_core import from_json

Malformed = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Raised for what cannot be decoded."""


class RequestLine(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A JSON-RPC request, with the values of its parameters as they came."""

    jsonrpc: Literal["2.0"]
    id: Raw
    method: str
    params: dict[str, Raw] = {}


class AnswerLine(msgspec.Struct, gc=False):
    """A JSON-RPC response, with its result as it came; `method` is that of a request."""

    jsonrpc: Literal["2.0"]
    id: int | str
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET
    method: str | UnsetType = UNSET


_REQUEST = msgspec.json.Decoder(RequestLine)
_ANSWER = msgspec.json.Decoder(AnswerLine)
_ID: msgspec.json.Decoder[int | str] = msgspec.json.Decoder(int | str)
_PARTS = msgspec.json.Decoder(dict[str, Raw])
encode = msgspec.json.Encoder().encode
"""JSON as bytes; parts that were not decoded stay as they came."""


def read_request(text: bytes) -> RequestLine:
    """Raises: Malformed."""
    _require_utf8(text)
    return _REQUEST.decode(text)


def read_answer(text: bytes) -> AnswerLine:
    """Raises: Malformed."""
    _require_utf8(text)
    return _ANSWER.decode(text)


def read_id(raw: Raw) -> int | str:
    """Raises: Malformed."""
    return _ID.decode(raw)


def read_parts(raw: Raw) -> dict[str, Any]:
    """The values of an object, each undecoded. Raises: Malformed."""
    return _PARTS.decode(raw)


def decode(raw: Raw | bytes) -> Any:
    """Decode a part whole. Raises: Malformed."""
    return msgspec.json.decode(raw)


def decode_as_read(raw: Raw) -> Any:
    """Decode a part whole, as the session's reader does, to which no number is too large. Raises: ValueError."""
    return from_json(bytes_of(raw))


def bytes_of(raw: Raw) -> bytes:
    """The text of a part."""
    return memoryview(raw).tobytes()


def begins_with(raw: Raw, first: bytes) -> bool:
    """Whether a part is a value that begins so, such as an object."""
    return bytes(memoryview(raw)[:1]) == first


def is_object(value: Any) -> bool:
    """Whether a value, decoded or not, is a JSON object."""
    return begins_with(value, b"{") if isinstance(value, Raw) else isinstance(value, dict)


def on_one_line(raw: Raw) -> Raw:
    """A part without line breaks, which may stand between its values."""
    text = bytes_of(raw)
    if b"\n" not in text and b"\r" not in text:
        return raw
    return Raw(msgspec.json.format(text, indent=-1))


def _require_utf8(text: bytes) -> None:
    """Look at all of it: what stays undecoded is not looked at otherwise."""
    if not text.isascii():
        text.decode()
