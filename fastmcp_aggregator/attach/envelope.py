"""The envelope of a JSON-RPC message on a line: its id and its method, found without parsing a long line. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_HUB_ANSWER = re.compile(rb'\{"jsonrpc":"2\.0","id":(-?\d{1,18}|"[^"\\\x00-\x1f]{0,200}"),"(result|error)":')
_END = re.compile(rb',"id":(-?\d{1,18}|"[^"\\\x00-\x1f]{0,200}")\}\s*\Z')
"""The last member of a message: the brace is its own, for nothing else can stand there."""
_METHOD = re.compile(rb'\A\s*\{(?:"jsonrpc":"2\.0",)?"method":"([\w/.-]{1,100})",')
_USUAL_CALL = re.compile(rb'\{"jsonrpc": ?"2\.0", ?"id": ?(\d{1,18}), ?"method": ?"tools/call"')
_QUOTE = ord('"')
_LONG = 64 * 1024
"""Bytes from which on a line is not parsed if its id stands at an end of it."""

Id = int | str


class LineEnvelope(NamedTuple):
    """The id and method of a message. `params` are set for short messages but calls, and for those that had to be
    parsed.
    """

    id: Id | None
    method: str | None
    params: Mapping[str, Any]


class HubAnswer(NamedTuple):
    """An answer of a hub. `start` is where its result or error begins."""

    id: Id
    is_error: bool
    start: int


_UNREAD: Mapping[str, Any] = {}
_NONE = LineEnvelope(None, None, _UNREAD)


def read_answer(line: bytes) -> HubAnswer | None:
    """An answer, as hubs write them; None: it is something else."""
    found = _HUB_ANSWER.match(line)
    if found is None:
        return None
    answered = found[1]
    return HubAnswer(
        json.loads(answered) if answered[0] == _QUOTE else int(answered), found[2] == b"error", found.end()
    )


def read(line: bytes) -> LineEnvelope:
    """The envelope of any message; an empty one of what is none."""
    if call := _USUAL_CALL.match(line):
        return LineEnvelope(int(call[1]), "tools/call", _UNREAD)
    if len(line) > _LONG and (method := _METHOD.match(line)) and (end := _END.search(line, len(line) - 300)):
        return LineEnvelope(json.loads(end[1]), method[1].decode(), {})
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return _NONE
    if not isinstance(message, dict):
        return _NONE
    params, method_name, request_id = message.get("params"), message.get("method"), message.get("id")
    return LineEnvelope(
        request_id if type(request_id) in (int, str) else None,
        method_name if isinstance(method_name, str) else None,
        params if isinstance(params, dict) else {},
    )
