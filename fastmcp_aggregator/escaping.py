"""Escaping of untrusted text for logs, terminals and messages: nothing in it ends a line or moves the cursor."""

from __future__ import annotations

import json
from typing import Any


def printable(text: str, keep: str = "") -> str:
    """Escape what is not printable, as in Python; characters in `keep` stay. The result is one line.

    Line separators, direction marks and half surrogates are not printable either.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode("ascii") for c in text)


def json_text(value: Any, indent: int | None = None) -> str:
    """Encode a value as JSON, with JSON escapes for what is not printable in its texts."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
