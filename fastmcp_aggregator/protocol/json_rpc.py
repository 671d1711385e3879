"""JSON-RPC: the types of parameters and results as plain JSON, and the error code of this program."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

Params = Mapping[str, Any]
Result = dict[str, Any]

SERVER_UNAVAILABLE = -32000
"""The server cannot be asked now. `data` names it, and says when it is retried, in seconds."""


def json_size(value: Any) -> int:
    """Bytes that a JSON value takes when it is written without spaces."""
    return len(json_text(value))


def json_text(value: Any) -> bytes:
    """A JSON value, written without spaces."""
    try:
        return to_json(value)
    except ValueError:  # half of a surrogate pair, which has no UTF-8
        return json.dumps(value, separators=(",", ":"), default=str).encode()
