"""JSON whose parts stay the bytes that came: an object's values are decoded only where somebody looks at them.

What is not JSON for every parser (invalid UTF-8, half a surrogate pair, NaN, a leading zero, a number too long to be
read) is refused here.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Generator, Mapping
from struct import Struct
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType
from pydantic_core import from_json

from fastmcp_aggregator.protocol.parts import DIGITS_AS_ZEROS

Malformed = (msgspec.MsgspecError, ValueError, RecursionError)
"""Raised for what cannot be decoded."""


class RequestLine(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A JSON-RPC request, with the values of its parameters as they came."""

    jsonrpc: Literal["2.0"]
    id: Raw
    method: str
    params: dict[str, Raw] = {}


class AnswerLine(msgspec.Struct, gc=False):
    """A JSON-RPC response that has a result, with the values of that as they came; `method` is that of a request."""

    jsonrpc: Literal["2.0"]
    id: int | str
    result: dict[str, Raw]
    error: Raw | UnsetType = UNSET
    method: str | UnsetType = UNSET


class Envelope(msgspec.Struct, gc=False):
    """The fields that make a JSON-RPC message a request, a notification or a response. The rest is skipped."""

    id: int | str | None = None
    method: str | None = None


_QUOTE = ord('"')
_TEXTS = ("text", "data", "blob")
"""The keys of long content."""
_SHORT = 4096
"""Bytes of a text that is decoded with the rest."""
_SLICE = 1024 * 1024
_MOST_BRACKETS = 100
"""Brackets in a text that is surely not nested too deeply."""
_MOST_DIGITS = 4300
"""Digits of a number that Python and pydantic read."""
_LONG_NUMBER = b"0" * (_MOST_DIGITS + 1)
_SLOW_NUMBER = b"0" * 20
"""Digits of a number that msgspec may take 8 µs to read, and the other parser a tenth of one."""
_MOST_SLOW = 2000
_REQUEST = msgspec.json.Decoder(RequestLine)
_ENVELOPE = msgspec.json.Decoder(Envelope)
_PARTS = msgspec.json.Decoder(dict[str, Raw])
_OBJECTS = msgspec.json.Decoder(list[dict[str, Raw]])
# C functions, where that is possible: they are on the way of every call.
encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode
"""JSON as bytes; parts that were not decoded stay as they came."""
encode_lines: Callable[[list[Any]], bytes] = msgspec.json.Encoder().encode_lines
"""The same for each value of a list, with line breaks behind them. Of what is no list, msgspec 0.22 leaks an
iterator each time.
"""
encode_sorted: Callable[[Any], bytes] = msgspec.json.Encoder(order="sorted").encode
decode: Callable[[Raw | bytes], Any] = msgspec.json.Decoder().decode
"""Decode a part whole. Raises: Malformed."""
read_id: Callable[[Raw], int | str] = msgspec.json.Decoder(int | str).decode
"""Raises: Malformed."""
read_answer: Callable[[bytes], AnswerLine] = msgspec.json.Decoder(AnswerLine).decode
"""Read a text that is UTF-8, which is not looked at where it stays undecoded. Raises: Malformed."""
read_envelope: Callable[[bytes], Envelope] = _ENVELOPE.decode
"""Raises: Malformed."""
read_parts: Callable[[bytes], dict[str, Raw]] = _PARTS.decode
"""The values of an object, each undecoded. Raises: Malformed."""
bytes_of: Callable[[Raw], bytes] = bytes
"""The text of a part."""
first_of: Callable[[Raw], tuple[bytes]] = Struct("c").unpack_from
"""The first character of a part, which tells of which type it is, without a copy of it."""
FIRST_OF_OBJECT = (b"{",)


def read_request(text: bytes) -> RequestLine:
    """Its parts have no line breaks. Raises: Malformed; also for what takes long to be decoded here."""
    return _REQUEST.decode(_readable(text))


def reading_answer(text: bytes) -> Generator[None, None, AnswerLine]:
    """Read an answer in steps. Raises: Malformed."""
    if not text.isascii():
        decoder = codecs.getincrementaldecoder("utf-8")()
        for start in range(0, len(text), _SLICE):
            decoder.decode(text[start : start + _SLICE])
            yield
        decoder.decode(b"", final=True)
    yield
    return read_answer(text)


def read_object(text: bytes) -> dict[str, Raw]:
    """The values of an object from outside, each undecoded, without line breaks. Raises: Malformed."""
    return _PARTS.decode(_readable(text))


def is_undecoded(parts: Mapping[str, Any]) -> bool:
    """True if the values of an object, or some, are raw."""
    return any(isinstance(part, Raw) for part in parts.values())


def decode_but_texts(raw: Raw) -> list[dict[str, Any]]:
    """Decode a long list of objects, but for what is long in them, or in objects in them. Raises: Malformed."""
    return [{name: _decoded_but_texts(name, value) for name, value in item.items()} for item in _OBJECTS.decode(raw)]


def _decoded_but_texts(name: str, value: Raw) -> Any:
    if _is_long_text(name, value):
        return value
    if len(memoryview(value)) <= _SHORT or not is_object(value):
        return decode_as_read(value)
    parts = read_parts(value)
    return {each: part if _is_long_text(each, part) else decode_as_read(part) for each, part in parts.items()}


def _is_long_text(name: str, value: Raw) -> bool:
    view = memoryview(value)
    return name in _TEXTS and len(view) > _SHORT and view[0] == _QUOTE


def decode_as_read(raw: Raw | bytes) -> Any:
    """Decode a part whole, as the session's reader does, to which no number is too large, or takes long. Raises:
    ValueError.
    """
    return from_json(bytes(raw))


def compact_size(text: bytes) -> int:
    """Bytes of a JSON text without the spaces between its values. Raises: Malformed."""
    return len(msgspec.json.format(text, indent=-1))


def is_object(value: Any) -> bool:
    """True if a value, decoded or not, is a JSON object."""
    return first_of(value) == FIRST_OF_OBJECT if isinstance(value, Raw) else isinstance(value, dict)


def _readable(text: bytes) -> bytes:
    """The same without line breaks, which may stand between values. What the other parser does not read is refused: too
    deep, or a number too long. It is asked only if that may be.
    """
    _require_utf8(text)
    may_be_deep = text.count(b"[") + text.count(b"{") > _MOST_BRACKETS
    digits = text.translate(DIGITS_AS_ZEROS) if len(text) > _MOST_DIGITS else b""
    if digits.count(_SLOW_NUMBER) > _MOST_SLOW:
        raise ValueError("many long numbers")
    if may_be_deep or _LONG_NUMBER in digits:
        from_json(text)
    return msgspec.json.format(text, indent=-1) if b"\n" in text or b"\r" in text else text


def _require_utf8(text: bytes) -> None:
    """Look at all of it: what stays undecoded is not looked at otherwise."""
    if not text.isascii():
        text.decode()
