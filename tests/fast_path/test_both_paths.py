"""The two paths answer alike: the same bytes are sent to an app with the fast path, and to one without."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from faults.fuzzing import Draw, draws
from support.harness import LEGACY, MODERN, PipeClient, config, connected, lean, talking, until
from support.memory import build_aggregator
from support.serving import served
from support.talking_server import talking_server

from fastmcp_aggregator import Aggregator
from fastmcp_aggregator.front.wire.errors import cut_off

pytestmark = [pytest.mark.usefixtures("nothing_takes_long"), pytest.mark.asyncio(loop_scope="module")]

ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "both", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
SERVERS = {
    "a": lean(resources=[{"uri": "test://a/one", "name": "one"}], prompts=[{"name": "greet"}]),
    "m": lean(era="modern"),
    "t": talking(),
}
REMOTE = {"r": "legacy", "n": "modern"}
"""Servers over HTTP, and their eras."""
_ITEMS = [{"name": f"n{number}", "description": "Many words. " * 9000} for number in range(12)]
LONG_LISTS = lean(
    results={"tools/list": {"tools": [{**item, "inputSchema": {"type": "object"}} for item in _ITEMS]}},
    prompts=_ITEMS,
    resources=[{**item, "uri": f"test://l/{item['name']}"} for item in _ITEMS],
    templates=[{**item, "uriTemplate": f"test://l/{item['name']}/{{x}}"} for item in _ITEMS],
)


JSON = {"content-type": "application/json"}


@dataclass
class Side:
    """One app, and a client of either era."""

    app: Aggregator
    url: str
    http: httpx2.AsyncClient
    asgi: Any
    session: str = ""

    async def post(self, body: bytes, headers: dict[str, str]) -> tuple[int, Any]:
        """The status of the response, and the JSON-RPC response in it."""
        given = {"content-type": "application/json", "accept": "application/json, text/event-stream", **headers}
        response = await self.http.post(self.url, content=body, headers=given)
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            events = [line[6:] for line in response.text.splitlines() if line.startswith("data: {")]
            return response.status_code, json.loads(events[-1])
        try:
            return response.status_code, response.json()
        except ValueError:
            return response.status_code, response.text

    async def legacy(self, body: bytes, **headers: str) -> tuple[int, Any]:
        """Within the session of a legacy client."""
        return await self.post(body, {"mcp-session-id": self.session, "mcp-protocol-version": LEGACY, **headers})

    @property
    def counts(self) -> Any:
        """What its fast path has done."""
        return self.app._backend.path_counts


@dataclass
class Sides:
    """An app with the fast path, and one without."""

    fast: Side
    full: Side

    async def agree(self, body: bytes, headers: dict[str, str] | None = None, *, modern: bool) -> Any:
        """Send the same to both; the answer, which must be the same but for ids of incidents and ports."""
        answers = []
        for side in (self.fast, self.full):
            send = side.post(body, headers or {}) if modern else side.legacy(body, **(headers or {}))
            answers.append(re.sub(r"id [0-9a-f]{8}\)|127.0.0.1:\d+", "…", json.dumps(await send, sort_keys=True)))
        assert answers[0] == answers[1], body
        return json.loads(answers[0])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sides() -> AsyncIterator[Sides]:
    async with both(SERVERS, REMOTE) as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def long_sides() -> AsyncIterator[Sides]:
    """In front of a server whose lists are longer than what is sent in one turn."""
    async with both({"l": LONG_LISTS}, {}) as found:
        yield found


@asynccontextmanager
async def both(servers: dict[str, Any], remote_eras: dict[str, str]) -> AsyncIterator[Sides]:
    async with AsyncExitStack() as stack:
        made = []
        for is_fast in (True, False):
            remote = {
                key: (await stack.enter_async_context(talking_server(era=era))).entry
                for key, era in remote_eras.items()
            }
            app = build_aggregator(config(**servers, **remote), fast_path=is_fast)
            front = await stack.enter_async_context(served(app))
            client = await stack.enter_async_context(httpx2.AsyncClient(trust_env=False, timeout=30))
            side = Side(app, front.url, client, front.asgi)
            hello = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "both", "version": "1"}}
            greeting = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
            first = await client.post(
                side.url, json=greeting, headers={"accept": "application/json, text/event-stream"}
            )
            side.session = first.headers["mcp-session-id"]
            await side.legacy(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
            for kind in ("tools", "prompts", "resources"):  # the first list waits for the servers
                await side.legacy(request(f"{kind}/list", "{}", modern=False))
            made.append(side)
        yield Sides(*made)


def request(method: str, params: str, *, modern: bool, request_id: str = "7") -> bytes:
    """A request, as text; of a modern client with its envelope."""
    if modern:
        inner = params.strip()[1:-1].strip()
        params = "{" + ", ".join(filter(None, (inner, f'"_meta": {json.dumps(ENVELOPE)}'))) + "}"
    return f'{{"jsonrpc": "2.0", "id": {request_id}, "method": "{method}", "params": {params}}}'.encode()


def routed(method: str, name: str | None = None) -> dict[str, str]:
    """The headers of a modern request."""
    headers = {"mcp-protocol-version": MODERN, "mcp-method": method}
    return headers if name is None else {**headers, "mcp-name": name}


PLAIN = [
    ("tools/call", '{"name": "a:echo", "arguments": {"text": "hi"}}', "a:echo"),
    ("tools/call", '{"name": "a:echo"}', "a:echo"),
    ("tools/call", '{"name": "a_echo", "arguments": {"é": "ü\\u00e9", "n": [1, -0.0, 1e3, null]}}', "a_echo"),
    ("tools/call", '{"name": "m:echo", "arguments": {}}', "m:echo"),
    ("tools/call", '{"name": "a:params", "arguments": {"x": 1}, "x-unknown": {"y":\n [2]}, "task": {}}', "a:params"),
    ("tools/call", '{\n "name": "m:params",\r\n "arguments": {"x":\n\t"a\\nb"}\n}', "m:params"),
    ("tools/call", '{"name": "r:echo", "arguments": {"é": "ü\\u00e9", "n": [1, -0.0, 1e3, null]}}', "r:echo"),
    ("tools/call", '{"name": "n:params", "arguments": {"x": 1}, "x-unknown": {"y":\n [2]}, "task": {}}', "n:params"),
    ("resources/read", '{"uri": "test://a/a/one"}', "test://a/a/one"),
    ("resources/read", '{"uri": "note://r//a"}', "note://r//a"),
    ("prompts/get", '{"name": "n:play", "arguments": {"script": "[]"}}', "n:play"),
    ("tools/list", "{}", None),
    ("prompts/list", "{}", None),
    ("resources/list", "{}", None),
    ("resources/templates/list", "{}", None),
]
RESULTS = [
    {"content": [{"type": "text", "text": "x"}], "isError": True},
    {"content": [], "structuredContent": {"a": [1, 2]}},
    {"content": [], "structuredContent": [1]},
    {"content": [], "structuredContent": None, "_meta": {"k": 1}},
    {"content": [{"type": "resource_link", "uri": "file:///x", "name": "x"}]},
    {"content": [{"type": "resource", "resource": {"uri": "file:///x", "text": "é"}}]},
    {"content": [{"type": "text", "text": "a \\u0072esource"}], "_meta": {"ui": {"resourceUri": "ui://p"}}},
    {"content": [], "ttlMs": 5, "cacheScope": "public", "resultType": "complete", "more": {"deep": [{}]}},
    {"content": [], "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "x", "version": "1"}}},
    {},
]
ODD = [
    '{"name": "a:nothing"}',
    '{"name": 7}',
    '{"name": "a:echo", "arguments": []}',
    '{"name": "a:echo", "arguments": null}',
    '{"name": "a:echo", "_meta": null}',
    '{"name": "a:echo", "_meta": []}',
    '{"name": "a:echo", "arguments": {"x": NaN}}',
    '{"name": "a:echo", "arguments": {"x": "\\ud83d"}}',
    '{"name": "a:echo", "arguments": {"x": 01}}',
    '{"name": "a:echo", "requestState": "held-x"}',
    '{"name": "a:echo", "inputResponses": {}}',
    '{"name": "a:error", "arguments": {"code": -5, "message": "no", "data": {"x": 1}}}',
    '{"name": "a:fail", "arguments": {}}',
    '{"name": "a:echo", "arguments": {"a": {"b": 1, "b": 2}}}',
    '{"name": "a:echo", "name": "m:echo"}',
    '{"name": "r:nothing"}',
    '{"name": "r:error", "arguments": {"code": -5, "message": "no", "data": {"x": 1}}}',
    '{"name": "n:error", "arguments": {"code": -5, "message": "no", "data": {"x": 1}}}',
    '{"name": "r:fail", "arguments": {}}',
    '{"name": "r:echo", "arguments": null}',
    '{"name": "r:echo", "arguments": {"x": "\\ud83d"}}',
    '{"name": "r:echo", "arguments": {"a": {"b": 1, "b": 2}}}',
    '{"name": "r:echo", "arguments": {"x": [1e999, 12345678901234567890123, 0.1e-400]}}',
    '{"name": "n:echo", "arguments": {"x": ' + "[" * 150 + "]" * 150 + "}}",
    '{"name": "a:echo", "arguments": {"x": ' + "[" * 150 + "]" * 150 + "}}",
    '{"name": "a:echo", "arguments": {"x": ' + "[" * 250 + "]" * 250 + "}}",
    '{"name": "a:echo", "arguments": {"x": [' + "[]," * 250 + "{}]}}",
    "[]",
    "null",
    "7",
]


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize(("method", "params", "name"), PLAIN)
async def test_plain_requests_take_the_fast_path(
    sides: Sides, method: str, params: str, name: str | None, modern: bool
) -> None:
    before = sides.fast.counts.answered
    status, answer = await sides.agree(
        request(method, params, modern=modern), routed(method, name) if modern else None, modern=modern
    )
    assert status == 200
    assert "result" in answer
    assert sides.fast.counts.answered == before + 1
    assert sides.full.counts.answered == 0


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize(
    ("reason", "headers", "more"),
    [
        ("headers", {"accept": "*/*", "last-event-id": "1"}, ""),
        ("malformed", {}, ', "more": 1'),
        ("method", {}, None),
        ("too large", {}, f', "x": "{"x" * 2**20}"'),
    ],
    ids=["headers", "malformed", "method", "too large"],
)
async def test_what_is_declined_over_http_is_counted_by_its_reason(
    sides: Sides, reason: str, headers: dict[str, str], more: str | None, modern: bool
) -> None:
    before = sides.fast.counts.declined.copy()
    method = "x" if more is None else "tools/call"
    body = request(method, '{"name": "a:echo"}', modern=modern)
    own = routed(method, "a:echo") if modern else {}
    await sides.agree(body[:-1] + (more or "").encode() + b"}", {**own, **headers}, modern=modern)
    assert sides.fast.counts.declined - before == {reason: 1}


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("server", ["a", "m", *REMOTE])
@pytest.mark.parametrize("result", RESULTS)
async def test_results_have_the_same_shape(sides: Sides, result: dict[str, Any], server: str, modern: bool) -> None:
    params = json.dumps({"name": f"{server}:raw", "arguments": result})
    headers = routed("tools/call", f"{server}:raw") if modern else None
    await sides.agree(request("tools/call", params, modern=modern), headers, modern=modern)


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("params", ODD)
async def test_odd_parameters_are_answered_alike(sides: Sides, params: str, modern: bool) -> None:
    body = (
        request("tools/call", params, modern=modern)
        if params.startswith("{")
        else request("tools/call", params, modern=False)
    )
    named = re.search(r'"name": "([^"]*)"', params)
    headers = routed("tools/call", named[1] if named else "a:echo") if modern else None
    await sides.agree(body, headers, modern=modern)


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("text", [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80"])
async def test_what_is_no_utf8_is_refused_alike(sides: Sides, text: bytes, modern: bool) -> None:
    body = request("tools/call", '{"name": "a:echo", "arguments": {"x": "?"}}', modern=modern).replace(b"?", text)
    status, _ = await sides.agree(body, routed("tools/call", "a:echo") if modern else None, modern=modern)
    assert status == 400


@pytest.mark.parametrize(
    "request_id", ["7", '"7"', '"x"', "1.5", "true", "null", "[]", "12345678901234567890", "-1", '""']
)
async def test_ids_of_every_kind_are_answered_alike(sides: Sides, request_id: str) -> None:
    await sides.agree(request("tools/call", '{"name": "a:echo"}', modern=False, request_id=request_id), modern=False)


@pytest.mark.parametrize(
    "headers",
    [
        {"accept": "application/json"},
        {"accept": "*/*"},
        {"content-type": "text/plain"},
        {"content-type": "application/json; charset=utf-8"},
        {"content-type": "application/jsonx"},
        {"mcp-method": "tools/list"},
        {"mcp-name": "m:echo"},
        {"mcp-name": "=?base64?YTplY2hv?="},
        {"mcp-protocol-version": "2099-01-01"},
        {"mcp-session-id": "f" * 32},
        {"mcp-param-x": "1"},
        {"origin": "http://evil.example"},
        {"content-encoding": "gzip"},
    ],
)
@pytest.mark.parametrize("modern", [False, True])
async def test_headers_are_judged_alike(sides: Sides, headers: dict[str, str], modern: bool) -> None:
    own = routed("tools/call", "a:echo") if modern else {}
    before = sides.fast.counts.answered, sides.fast.counts.declined.total()
    await sides.agree(request("tools/call", '{"name": "a:echo"}', modern=modern), {**own, **headers}, modern=modern)
    after = sides.fast.counts.answered, sides.fast.counts.declined.total()
    # Some are refused before the fast path, and of a legacy client the headers that describe a request say nothing.
    assert sum(after) - sum(before) <= 1
    if after == before:
        assert set(headers) & {"content-type", "mcp-session-id", "mcp-protocol-version", "origin"}


@pytest.mark.parametrize(
    ("method", "body"),
    [
        ("tools/call", '{"name": "a:echo", "arguments": {"x": [1, "\\u00e9"]}}'),
        ("tools/call", '{"name": "a:params", "_meta": {"k": 1}}'),
        ("tools/call", '{"name": "echo"}'),
        ("tools/call", '{"name": "nothing"}'),
        ("tools/call", '{"name": "a:echo", "_meta": []}'),
        ("tools/call", '{"name": "a:error", "arguments": {"code": -5, "message": "no"}}'),
        ("tools/call", "[]"),
        ("tools/call", "{"),
        ("tools/call", ""),
        ("resources/read", '{"uri": "test://a/a/one"}'),
        ("resources/read", '{"uri": "test://a/a/two"}'),
        ("tools/list", ""),
        ("tools/list", '{"cursor": "x"}'),
        ("prompts/list", "{}"),
        ("ping", "{}"),
    ],
)
async def test_the_json_api_answers_alike(sides: Sides, method: str, body: str) -> None:
    answers = []
    for side in (sides.fast, sides.full):
        response = await side.http.post(f"{side.url}/{method}", content=body.encode(), headers=JSON)
        answers.append((response.status_code, response.headers["content-type"], response.json()))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("kind", ["tools", "prompts", "resources", "resources/templates"])
async def test_a_list_that_is_made_and_sent_by_and_by_is_the_same(long_sides: Sides, kind: str) -> None:
    sides = long_sides
    before, method = sides.fast.counts.answered, f"{kind}/list"
    await sides.agree(request(method, "{}", modern=False, request_id='"\\"tools\\":["'), modern=False)
    await sides.agree(request(method, "{}", modern=True), routed(method), modern=True)
    told = [(await side.http.post(f"{side.url}/{method}")).json() for side in (sides.fast, sides.full)]
    assert told[0] == told[1]
    assert sides.fast.counts.answered == before + 3
    refused = await sides.agree(request(method, '{"cursor": "x"}', modern=False), modern=False)
    assert "one page" in refused[1]["error"]["message"]


def asking_for_tools() -> tuple[Any, Any]:
    """The scope and the messages of a request of the JSON API."""
    scope = {"type": "http", "method": "POST", "path": "/mcp/tools/list", "root_path": "", "query_string": b""}
    scope |= {"headers": [(b"host", b"127.0.0.1")], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2)}
    messages = iter([{"type": "http.request", "body": b""}])

    async def receive() -> Any:
        return next(messages)

    return scope, receive


async def test_a_list_is_made_in_turns_when_it_is_asked_for_first(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sides.fast.app._directory, "turn", -1)  # however fast the machine is
    sides.fast.app._directory.invalidate()
    sides.fast.app._directory._sections.clear()
    sent: list[list[bytes]] = []
    turns = list[int]()
    for _ in range(2):
        parts = list[bytes]()

        async def send(message: Any, parts: list[bytes] = parts) -> None:
            parts.append(message.get("body", b""))

        listing = asyncio.create_task(sides.fast.asgi(*asking_for_tools(), send))
        turns.append(0)
        while not listing.done():
            turns[-1] += 1
            await asyncio.sleep(0)
        sent.append(parts)
    assert b"".join(sent[0]) == b"".join(sent[1])
    assert turns[0] > turns[1] + len(SERVERS)


async def test_a_list_is_made_in_turns_on_a_pipe_too(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sides.fast.app._directory, "turn", -1)
    answers = []
    turns = list[int]()
    async with connected(sides.fast.app) as client:
        await client.call("a:echo")
        sides.fast.app._directory.invalidate()
        sides.fast.app._directory._sections.clear()
        before = sides.fast.counts.answered
        for _ in range(2):
            _, answer = client.begin("tools/list")
            turns.append(0)
            while not answer.done():
                turns[-1] += 1
                await asyncio.sleep(0)
            answers.append(answer.result()["result"])
    assert answers[0] == answers[1]
    assert turns[0] > turns[1] + len(SERVERS)
    assert sides.fast.counts.answered == before + 2


async def test_a_long_list_on_a_pipe_is_the_same(long_sides: Sides) -> None:
    async with connected(long_sides.fast.app) as fast, connected(long_sides.full.app) as full:
        for kind in ("tools", "prompts", "resources", "resources/templates"):
            assert await fast.send(f"{kind}/list") == await full.send(f"{kind}/list")
        assert "one page" in (await fast.error("tools/list", {"cursor": "x"}))["message"]


async def test_a_list_on_a_pipe_that_is_cancelled_meanwhile_is_not_answered(
    long_sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_made = asyncio.Event()

    async def made(_: Any) -> Any:
        await is_made.wait()
        return long_sides.fast.app._directory.table

    async with connected(long_sides.fast.app) as client:
        await client.send("ping")
        monkeypatch.setattr(long_sides.fast.app._directory, "made", made)
        cancelled, cancelled_answer = client.begin("tools/list")
        client.notify("notifications/cancelled", {"requestId": cancelled})
        await client.send("ping")
        is_made.set()
        assert (await client.result("tools/list"))["tools"]
        assert not cancelled_answer.done()


async def test_a_list_that_is_made_when_the_pipe_is_closed_gets_an_error(
    long_sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def made(_: Any) -> Any:
        await asyncio.Event().wait()

    async with connected(long_sides.fast.app) as client:
        await client.send("ping")
        monkeypatch.setattr(long_sides.fast.app._directory, "made", made)
        _, answer = client.begin("tools/list")
    assert answer.result()["error"]["message"] == cut_off().error.message


async def test_who_reads_a_long_list_slowly_takes_no_turn(long_sides: Sides) -> None:
    running = long_sides.fast.app._backend.admission.slots
    read, is_reading = asyncio.Event(), asyncio.Event()
    sent: list[bytes] = []

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))
        if message.get("more_body"):
            assert running.taken == 0
            is_reading.set()
            await read.wait()

    listing = asyncio.create_task(long_sides.fast.asgi(*asking_for_tools(), send))
    await is_reading.wait()
    read.set()
    await listing
    assert json.loads(b"".join(sent)) == (await long_sides.full.http.post(f"{long_sides.full.url}/tools/list")).json()
    assert len(sent) > 4
    assert running.taken == 0


BODY = request("tools/call", '{"name": "a:echo", "arguments": {"text": "hi", "n": [1, 2.5, null]}}', modern=False)
BODIES = [BODY, *(request(method, params, modern=False) for method, params, _ in PLAIN)]
BITS = [b"", b"\xff", b'"', b"\\", b"{", b"]", b"\n", b"0", b"\xed\xa0\x80", b",", b"\x00", b"\\u0061", b"null", b"\r"]


def mutated(body: bytes, draw: random.Random) -> bytes:
    """The body with a few bytes left out, doubled or replaced."""
    text = bytearray(body)
    for _ in range(draw.choice([1, 1, 2, 5])):
        place = draw.randrange(max(1, len(text)))
        text[place : place + draw.choice([0, 1, 1, 3])] = draw.choice(BITS)
    return bytes(text)


async def test_random_bytes_are_answered_alike(sides: Sides) -> None:
    draw = random.Random(4711)
    for _ in range(150):
        await sides.agree(mutated(BODY, draw), modern=False)


@pytest.mark.fuzz
@pytest.mark.timeout(3600)
async def test_many_random_bytes_are_answered_alike(sides: Sides) -> None:
    for modern in (False, True):
        before = sides.fast.counts.answered
        for draw in draws(f"both paths over HTTP, {MODERN if modern else LEGACY}", 125):
            random_ = draw.random
            method, params, name = random_.choice(PLAIN)
            headers = routed(method, name) if modern else None
            body = mutated(request(method, params, modern=modern), random_)
            await sides.agree(body, headers, modern=modern)
        assert sides.fast.counts.answered > before
    assert sides.full.counts.answered == 0


@pytest.mark.fuzz
@pytest.mark.timeout(3600)
async def test_many_random_bytes_are_answered_alike_by_the_json_api(sides: Sides) -> None:
    before = sides.fast.counts.answered
    for draw in draws("both paths of the JSON API", 100):
        random_ = draw.random
        method, params, _ = random_.choice(PLAIN)
        body = mutated(params.encode(), random_)
        answers = []
        for side in (sides.fast, sides.full):
            response = await side.http.post(f"{side.url}/{method}", content=body, headers=JSON)
            told = re.sub(r"id [0-9a-f]{8}\)|127.0.0.1:\d+", "…", json.dumps(response.json(), sort_keys=True))
            answers.append((response.status_code, told))
        assert answers[0] == answers[1], (method, body, str(draw))
    assert sides.fast.counts.answered > before
    assert sides.full.counts.answered == 0


@pytest.mark.fuzz
@pytest.mark.timeout(3600)
async def test_many_random_lines_are_answered_alike(sides: Sides) -> None:
    async with connected(sides.fast.app) as fast, connected(sides.full.app) as full:
        for client in (fast, full):
            await client.call("a:echo")
        before = sides.fast.counts.answered
        for batch in batched(draws("both paths on a pipe", 1500), 25):
            lines = []
            for draw in batch:
                body = draw.random.choice(BODIES).replace(b"\n", b" ").replace(b"\r", b" ")
                lines.append(mutated(body.replace(b'"id": 7', b'"id": %d' % (100_000 + 17 * draw.number)), draw.random))
            answers = [
                await answers_to(lines, client, side.app) for client, side in ((fast, sides.fast), (full, sides.full))
            ]
            assert answers[0] == answers[1], (lines, str(batch[0]))
        assert sides.fast.counts.answered > before
        assert sides.full.counts.answered == 0


def batched(draws: Iterator[Draw], size: int) -> Iterator[list[Draw]]:
    while batch := list(islice(draws, size)):
        yield batch


async def answers_to(lines: list[bytes], client: PipeClient, app: Aggregator) -> list[str]:
    """What the client is answered to these lines, in any order, but for ids of incidents."""
    client.forget()
    for line in lines:
        client._write(line + b"\n")
    await client.call("a:echo")  # what was sent before has begun by then
    await until(lambda: not app._pipeline.in_flight._count)
    await client.call("a:echo")
    own = {str(client._next_id - 1), str(client._next_id)}
    told = [message for message in client.messages if str(message.get("id")) not in own]
    return sorted(re.sub(r"id [0-9a-f]{8}\)", "…", json.dumps(message, sort_keys=True)) for message in told)


async def test_everything_is_back_where_it_began(sides: Sides) -> None:
    for side in (sides.fast, sides.full):
        status = side.app.health()
        assert {server.in_flight for server in status.values()} == {0}
        assert {server.waiting for server in status.values()} == {0}
        assert not side.app._pipeline.fast_path._cancellable
        assert side.app._pipeline.in_flight._count == 0
