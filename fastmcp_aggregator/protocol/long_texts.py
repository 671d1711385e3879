"""Long JSON texts: encoded once, joined as they are sent, in pieces between which others have their turns."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

_CHUNK = 256 * 1024
"""Bytes that are sent in one turn, at least."""
LONG = _CHUNK
"""Bytes of a result that is long."""
KEY = ""
"""The key of a `LongResult` in its stand-in."""


@dataclass(frozen=True, slots=True)
class LongText:
    """A JSON text with a long part, or with the parts of a long list."""

    head: bytes
    parts: Sequence[bytes]
    tail: bytes

    @classmethod
    def of(cls, encoded: bytes, key: str, parts: Sequence[bytes]) -> LongText:
        """Of a text whose list, which is under a key, is empty. In a JSON text `"key":[` can stand nowhere else."""
        head, mark, tail = encoded.partition(b'"%s":[' % key.encode())
        return cls(head + mark, parts, tail)

    def __len__(self) -> int:
        return len(self.head) + sum(map(len, self.parts)) + max(0, len(self.parts) - 1) + len(self.tail)

    def chunks(self) -> Iterator[bytes]:
        """It in pieces, each of which is sent at once."""
        chunk = bytearray(self.head)
        for number, part in enumerate(self.parts):
            chunk += b"," * bool(number)
            for start in range(0, len(part), _CHUNK):
                chunk += part[start : start + _CHUNK]
                if len(chunk) >= _CHUNK:
                    yield bytes(chunk)
                    chunk.clear()
        yield bytes(chunk) + self.tail

    def whole(self) -> bytes:
        return b"".join((self.head, b",".join(self.parts), self.tail))


class LongResult(str):
    """Stands for a long result wherever that would be encoded again: a text that nobody can guess."""

    __slots__ = ("_encoded",)
    _encoded: bytes

    @classmethod
    def of(cls, encoded: bytes) -> Self:
        long = cls(secrets.token_hex())
        long._encoded = encoded
        return long

    def as_result(self) -> dict[str, Any]:
        return {KEY: self}

    def put_into(self, text: bytes) -> LongText | None:
        """A text with the result where this stands for it; None: it does not."""
        head, found, tail = text.partition(b'{"%s":"%s"}' % (KEY.encode(), self.encode()))
        return LongText(head, [self._encoded], tail) if found else None
