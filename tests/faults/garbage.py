"""Malformed input, made from random numbers: odd JSON, messages that are nearly right, and bytes that are neither.

A message begins as a good one. Some of its parts are exchanged for odd ones, left out or doubled; some of its bytes are
damaged. So most inputs get past the first check and meet the next one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any

from pydantic_core import from_json

Message = Mapping[str, Any]

_DEPTHS = (20, 120, 180, 190, 195, 199, 205, 260, 500, 900, 1100, 5000, 100_000)

ODD_JSON = [
    *("null", "true", "false", "0", "-0", "-1", "1.5", "1e2", "1e999", "-1e999", "NaN", "Infinity", "-Infinity"),
    *("1" + "0" * 400, "9" * 4301, f'"{"9" * 4301}"', str(2**31), str(2**53 + 1), str(2**63), str(-(2**63) - 1)),
    *('""', '" "', '"x"', '"1"', '"a:echo"', '"\\u0000"', '"\\n\\r\\u2028"', '"é😀"', '"\\uD83D\\uDE00"'),
    *('"\\ud800"', '"\\udfff\\ud800"', '"a:\\udc80"', '"' + "x" * 70_000 + '"', '"' + "😀" * 300 + '"'),
    *("[]", "{}", "[[]]", "[null]", '{"":null}', '{"_meta":[]}', '{"a":1,"a":2}', '{"__proto__":{}}', "[1,2,3]"),
]
"""JSON to stand where a value should; not everybody takes all of it for JSON."""

NO_JSON = ["", "01", "1.", "+1", ".5", "0x1", "'x'", "undefined", "{a:1}", "[1,]", "/**/1", '"\t"', '"\\x41"', '"']

DAMAGE = [b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf", b"\r", b"\x1b[2J"]
DAMAGE += [b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b" ", b"\t", b"0", b"e", b"\x7f", b"\\u", b"\\ud800"]

LEGACY_ENVELOPE: Message = {}
MODERN_ENVELOPE: Message = {
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "fuzz", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"sampling": {}, "elicitation": {"form": {}}, "roots": {}},
        "io.modelcontextprotocol/logLevel": "info",
    }
}


class Text(str):
    """JSON as it is to be written."""

    __slots__ = ()


THIS_CALL = 424242
"""Stands for the number of the call for which a lean child writes it."""


def client_messages(*, modern: bool) -> list[Message]:
    """Good messages of a client, as an aggregator gets them that has a server `a`."""
    envelope = MODERN_ENVELOPE if modern else LEGACY_ENVELOPE
    info = {"name": "fuzz", "version": "1"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {"roots": {}, "sampling": {}}, "clientInfo": info}
    answers = {"1": {"action": "accept", "content": {"x": 1}}}
    uri = {"uri": "test://a/file"}
    requests: list[tuple[str, Message]] = [
        ("initialize", hello),
        ("ping", {}),
        ("server/discover", {}),
        ("tools/list", {"cursor": "1"}),
        ("resources/list", {}),
        ("resources/templates/list", {}),
        ("prompts/list", {}),
        ("tools/call", {"name": "a:echo", "arguments": {"x": [1, {"y": "z"}]}}),
        ("tools/call", {"name": "a:progress", "arguments": {}, "_meta": {"progressToken": 5}}),
        ("tools/call", {"name": "a__params", "arguments": {}, "task": {"ttl": 1}}),
        ("tools/call", {"name": "a:params", "inputResponses": answers, "requestState": "s"}),
        ("tools/call", {"name": "a:raw", "arguments": {"content": [], "structuredContent": {"x": 1.5}}}),
        ("resources/read", uri),
        ("resources/subscribe", uri),
        ("resources/unsubscribe", uri),
        ("prompts/get", {"name": "a:hello", "arguments": {"who": "me"}}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "a:hello"}, "argument": {"name": "n"}}),
        ("logging/setLevel", {"level": "debug"}),
        ("tasks/get", {"taskId": "1"}),
        ("subscriptions/listen", {"notifications": {"toolsListChanged": True}}),
    ]
    notifications: list[tuple[str, Message]] = [
        ("notifications/initialized", {}),
        ("notifications/cancelled", {"requestId": 1, "reason": "no more"}),
        ("notifications/progress", {"progressToken": 1, "progress": 1, "total": 2, "message": "on"}),
        ("notifications/roots/list_changed", {}),
    ]
    return [
        *({"id": 1, "method": method, "params": _merged(params, envelope)} for method, params in requests),
        *({"method": method, "params": params} for method, params in notifications),
        *_answers(),
    ]


def server_messages() -> list[Message]:
    """Good messages of a server, as its client gets them at any time."""
    ask = {"messages": [{"role": "user", "content": {"type": "text", "text": "?"}}], "maxTokens": 5}
    form = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
    return [
        {"id": 1, "method": "sampling/createMessage", "params": ask},
        {"id": 2, "method": "elicitation/create", "params": form},
        {"id": 3, "method": "roots/list"},
        {"id": 4, "method": "ping"},
        {"method": "notifications/progress", "params": {"progressToken": 5, "progress": 1, "total": 2}},
        {"method": "notifications/message", "params": {"level": "info", "data": {"x": 1}}},
        {"method": "notifications/cancelled", "params": {"requestId": 4}},
        {"method": "notifications/tools/list_changed"},
        {"method": "notifications/resources/updated", "params": {"uri": "test://file"}},
        {"method": "notifications/subscriptions/acknowledged", "params": {"notifications": {}}},
        {"method": "notifications/progress", "params": {"progressToken": THIS_CALL, "progress": 1, "total": 2}},
        {"id": THIS_CALL, "result": {"content": [{"type": "text", "text": "?"}], "isError": False}},
        {"id": THIS_CALL, "error": {"code": -32000, "message": "no", "data": {}}},
        *_answers(),
    ]


def results() -> list[Message]:
    """Good results of a tool."""
    text = {"type": "text", "text": "?", "annotations": {"audience": ["user"], "priority": 1}}
    link = {"type": "resource_link", "uri": "test://file", "name": "file", "mimeType": "text/plain"}
    embedded = {"type": "resource", "resource": {"uri": "test://file", "text": "?", "_meta": {"x": 1}}}
    ask = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object"}}}
    return [
        {"content": [text], "isError": False, "_meta": {"x": {"y": 1}}},
        {"content": [link, embedded], "structuredContent": {"x": [1]}},
        {"content": [{"type": "image", "data": "AA==", "mimeType": "image/png"}], "resultType": "complete"},
        {"resultType": "input_required", "inputRequests": {"1": ask}, "requestState": "s"},
    ]


def listings() -> dict[str, Message]:
    """Good results of a server's first requests, by method."""
    schema = {"type": "object", "properties": {"x": {"type": "string", "x-mcp-header": "X"}}, "required": ["x"]}
    tool = {"name": "t", "title": "T", "description": "?", "inputSchema": schema, "outputSchema": schema}
    meta = {"_meta": {"ui": {"resourceUri": "test://ui"}, "x": 1}, "annotations": {"readOnlyHint": True}}
    resource = {"uri": "test://file", "name": "file", "size": 1, "icons": [{"src": "test://i", "sizes": ["1x1"]}]}
    everything = {"tools": {"listChanged": True}, "resources": {}, "prompts": {}, "logging": {}, "completions": {}}
    return {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": everything,
            "serverInfo": {"name": "s", "version": "1"},
            "instructions": "?",
        },
        "server/discover": {
            "supportedVersions": ["2026-07-28"],
            "capabilities": everything,
            "ttlMs": 0,
            "cacheScope": "private",
        },
        "tools/list": {"tools": [{**tool, **meta}, {"name": "u", "inputSchema": {"type": "object"}}]},
        "resources/list": {"resources": [resource]},
        "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "test://{x}", "name": "x"}]},
        "prompts/list": {"prompts": [{"name": "p", "arguments": [{"name": "x", "required": True}]}]},
    }


def _answers() -> list[Message]:
    return [
        {"id": 1_000_000, "result": {"content": [{"type": "text", "text": "?"}]}},
        {"id": 1_000_000, "error": {"code": -32000, "message": "no", "data": {}}},
        {"id": None, "error": {"code": -32700, "message": "Parse error"}},
    ]


def _merged(params: Message, envelope: Message) -> Message:
    meta = {**params.get("_meta", {}), **envelope.get("_meta", {})}
    return {**params, "_meta": meta} if meta else params


class Garbage:
    """Makes malformed input out of good messages."""

    def __init__(self, random: Random, good: Sequence[Message]) -> None:
        self.random = random
        self._good = good

    def line(self) -> bytes:
        """One line without its newline; anything at all, and mostly nearly right."""
        made: Callable[[], bytes] = self.random.choices(
            [self.message, self.damaged_message, self.batch, self.odd_json, self.noise], [50, 25, 5, 10, 10]
        )[0]
        return made().replace(b"\n", b" ")

    def message(self, good: Message | None = None) -> bytes:
        """A message with odd parts."""
        return self.mutated({"jsonrpc": "2.0", **(good or self.random.choice(self._good))})

    def mutated(self, good: Any) -> bytes:
        """A value with odd parts."""
        return self._written(self._mutated(good))

    def value(self, good: Message) -> Any:
        """A value with odd parts that can be put into a message as every parser takes it."""
        while True:
            with suppress(ValueError):
                return from_json(b"[[[[[" + self.mutated(good) + b"]]]]]")[0][0][0][0][0]

    def damaged_message(self) -> bytes:
        """A message with damaged bytes."""
        return self.damaged(self.message())

    def batch(self) -> bytes:
        """Several messages in one, which MCP no longer has."""
        return b"[" + b",".join(self.message() for _ in range(self.random.randrange(4))) + b"]"

    def odd_json(self) -> bytes:
        """A value that is no message, or no value."""
        return self._written(self.odd_value())

    def noise(self) -> bytes:
        """Any bytes."""
        return self.random.randbytes(self.random.choice((0, 1, 3, 30, 300)))

    def odd_value(self) -> Text:
        """Something to stand where a value should; some are nested deeply, closed or not."""
        if (kind := self.random.random()) < 0.9:
            return Text(self.random.choice(ODD_JSON if kind < 0.8 else NO_JSON))
        depth = self.random.choices(_DEPTHS, [10] * (len(_DEPTHS) - 2) + [2, 1])[0]
        opening, closing = self.random.choice([("[", "]"), ('{"a":', "}")])
        inside = "" if opening == "[" else "1"
        return Text(opening * depth + inside + closing * (depth if self.random.random() < 0.8 else 0))

    def damaged(self, data: bytes) -> bytes:
        """The same with a few bytes exchanged, left out, doubled or added."""
        damaged = bytearray(data)
        for _ in range(self.random.randint(1, 3)):
            start = self.random.randrange(len(damaged) + 1)
            end = min(len(damaged), start + self.random.choice((0, 1, 1, 5, 50)))
            damaged[start:end] = self.random.choice(
                [b"", bytes(damaged[start:end] * 2), self.random.choice(DAMAGE), self.random.randbytes(2)]
            )
        return bytes(damaged)

    def _mutated(self, value: Any) -> Any:
        """The value with something odd in it, or, from time to time, as it is."""
        places = list(_places(value)) or [()]
        for _ in range(self.random.choice((0, 1, 1, 1, 2, 3))):
            path = self.random.choice(places)
            value = _exchanged(value, path, self._odd_part) if path else self.odd_value()
        return value

    def _odd_part(self, parts: dict[str, Any] | list[Any], step: Any) -> None:
        action = self.random.randrange(10)
        if action == 0:
            del parts[step]
        elif action == 1 and isinstance(parts, dict):
            parts[self.random.choice(["", "\0", "_meta", "id", "x" * 300, "params", "method", "result"])] = parts[step]
        else:
            parts[step] = self.odd_value()

    def _written(self, value: Any) -> bytes:
        return written(value).encode("utf-8", "surrogatepass")


def written(value: Any) -> str:
    """JSON, with each `Text` as it is."""
    if isinstance(value, Text):
        return value
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{json.dumps(name)}:{written(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    return json.dumps(value)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Any:
    """The path of every part of a value."""
    steps = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for step, part in steps:
        yield (*path, step)
        yield from _places(part, (*path, step))


def _exchanged(value: Any, path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Any:
    """A copy in which `change` was made to what stands at the path, if that is still there."""
    parts = dict(value) if isinstance(value, Mapping) else list(value) if isinstance(value, list) else None
    there: Any = parts if isinstance(parts, dict) else range(len(parts or ()))
    if path[0] not in there:
        return value
    if len(path) == 1:
        change(parts, path[0])
    else:
        parts[path[0]] = _exchanged(parts[path[0]], path[1:], change)  # type: ignore[index]
    return parts
