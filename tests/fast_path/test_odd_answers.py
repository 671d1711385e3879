"""What servers answer, or clients ask, that is JSON for some parsers, or for none."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from support.harness import PATIENCE, RawClient, config, connected, lean, talking, until
from support.memory import Scripts, build_aggregator, scripted

import fastmcp_aggregator
from fastmcp_aggregator import Aggregator
from fastmcp_aggregator.children.session.parts import TOO_MANY_PARTS
from fastmcp_aggregator.policies.policy import Policy
from fastmcp_aggregator.protocol import raw_json
from fastmcp_aggregator.protocol.parts import ANSWER_PARTS_LIMIT

pytestmark = pytest.mark.parametrize("modern", [False, True])


def answer_with(scripts: Scripts, result: bytes) -> None:
    """Let the server `a` answer calls with these bytes as the result."""
    child = scripts["a"].life.child

    def reply(request_id: Any, _: Any) -> None:
        child.write_bytes(b'{"jsonrpc":"2.0","id":%d,"result":%s}\n' % (request_id, result))

    child.reply = reply  # type: ignore[method-assign]


async def asked(client: RawClient, scripts: Scripts, result: bytes) -> Any:
    await client.call("a:echo")
    answer_with(scripts, result)
    return await client.send("tools/call", {"name": "a:echo", "arguments": {}})


def is_quiet(app: Aggregator) -> None:
    assert {server.in_flight for server in app.health().values()} == {0}
    assert app._pipeline.in_flight._count == 0
    assert not app._pipeline.fast_path._cancellable


@pytest.mark.parametrize(
    "result",
    [
        b'{"content":[{"type":"text","text":"x"}],"structuredContent":{"x":1e999}}',
        b'{"content":[],"_meta":{"x":1e999}}',
        b'{"content":[],"_meta":{"x":1' + b"0" * 400 + b"}}",
        b'{"content":[],"isError":1e999}',
        b'{"content":[{"type":"resource","x":1e999}]}',
    ],
)
@pytest.mark.parametrize("policies", [True, False])
async def test_a_number_beyond_every_type_is_an_answer_like_others(
    result: bytes, policies: bool, modern: bool, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"audit": str(tmp_path / "audit")} if policies else {}
    app = fastmcp_aggregator.build_aggregator(config(a=lean()), **settings)
    scripts = scripted(app)
    async with app, connected(app, modern=modern) as client:
        response = await asyncio.wait_for(asked(client, scripts, result), PATIENCE)
        assert "result" in response
        is_quiet(app)


MANY = b"[" + b"[]," * ANSWER_PARTS_LIMIT + b"0]"
LINK = b'{"type":"resource_link","name":"x","uri":"demo://x"}'
LINKS = b"[" + (LINK + b",") * (ANSWER_PARTS_LIMIT // 3) + LINK + b"]"


@pytest.mark.parametrize(
    ("result", "is_passed_on"),
    [
        (b'{"content":[],"structuredContent":{"x":%s}}' % MANY, True),
        (b'{"content":%s}' % LINKS, False),
        (b'{"content":[],"_meta":{"x":%s}}' % MANY, False),
        (b'{"content":[],"isError":%s}' % MANY, False),
    ],
    ids=["passed on", "addresses", "meta", "flag"],
)
@pytest.mark.parametrize("policies", [True, False])
async def test_what_has_too_many_values_is_passed_on_as_it_is_or_not_at_all(
    result: bytes, is_passed_on: bool, policies: bool, modern: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"audit": str(tmp_path / "audit")} if policies else {}
    app = fastmcp_aggregator.build_aggregator(config(a=lean()), **settings)
    scripts = scripted(app)
    decoded: list[int] = []
    for name in ("decode", "decode_as_read"):
        original = getattr(raw_json, name)
        monkeypatch.setattr(raw_json, name, lambda raw, of=original: (decoded.append(len(bytes(raw))), of(raw))[1])
    async with app, connected(app, modern=modern) as client:
        response = await asyncio.wait_for(asked(client, scripts, result), PATIENCE)
        if is_passed_on:
            assert len(response["result"]["structuredContent"]["x"]) == ANSWER_PARTS_LIMIT + 1
        else:
            assert response["error"] == {"code": -32603, "message": TOO_MANY_PARTS}
        assert max(decoded, default=0) < ANSWER_PARTS_LIMIT
        is_quiet(app)


@pytest.mark.parametrize("fast_path", [True, False])
async def test_a_type_of_result_that_is_no_text_is_recorded_as_an_answer(fast_path: bool, modern: bool) -> None:
    app = fastmcp_aggregator.build_aggregator(config(a=lean()), fast_path=fast_path)
    scripts = scripted(app)
    async with app, connected(app, modern=modern) as client:
        recent = app._backend.policies.record_calls()
        response = await asyncio.wait_for(asked(client, scripts, b'{"content":[],"resultType":[1]}'), PATIENCE)
        assert response["result"]["content"] == []
        assert [call.outcome for call in recent.latest(9, lambda _: True)] == ["ok", "ok"]
        is_quiet(app)


@pytest.mark.parametrize("part", [b'"_meta":{"x":%b}', b'"isError":%b', b'"resultType":"task","task":%b'])
async def test_a_number_that_no_parser_takes_is_an_error_of_the_server(
    part: bytes, modern: bool, caplog: pytest.LogCaptureFixture
) -> None:
    app = fastmcp_aggregator.build_aggregator(config(a=lean()))
    scripts = scripted(app)
    async with app, connected(app, modern=modern) as client:
        result = b'{"content":[],%b}' % part % (b"1" + b"0" * 5000)
        response = await asyncio.wait_for(asked(client, scripts, result), PATIENCE)
        assert response["error"] == {"code": -32603, "message": TOO_MANY_PARTS}
        assert "unhandled exception" not in caplog.text
        is_quiet(app)


async def test_an_answer_that_is_a_result_and_an_error_is_the_same_on_both_paths(modern: bool) -> None:
    answers = []
    for fast_path in (True, False):
        app = fastmcp_aggregator.build_aggregator(config(a=lean()), fast_path=fast_path)
        scripts = scripted(app)
        async with app, connected(app, modern=modern) as client:
            await client.call("a:echo")
            child = scripts["a"].life.child

            def reply(request_id: Any, _: Any, write: Any = child.write_bytes) -> None:
                both = b'"result":{"content":[]},"error":{"code":-32050,"message":"both"}'
                write(b'{"jsonrpc":"2.0","id":%d,%b}\n' % (request_id, both))

            child.reply = reply  # type: ignore[method-assign]
            response = await asyncio.wait_for(client.send("tools/call", {"name": "a:echo", "arguments": {}}), PATIENCE)
            answers.append({key: value for key, value in response.items() if key != "id"})
            is_quiet(app)
    assert answers[0] == answers[1]
    assert "result" not in answers[0]


class Broken(Policy):
    def after(self, call: Any, end: Any) -> None:
        raise RuntimeError("broken")


async def test_a_policy_that_fails_afterwards_costs_one_answer(modern: bool) -> None:
    app = build_aggregator(config(a=lean()))
    async with app, connected(app, modern=modern) as client:
        await client.call("a:echo")
        stack = app._backend.policies.stack
        before, stack.policies = stack.policies, (Broken(),)
        error = await asyncio.wait_for(client.error("tools/call", {"name": "a:echo"}), PATIENCE)
        assert error["message"].startswith("Internal error (id ")
        assert app._backend.path_counts.taken_over == {"policy failed": 1}
        is_quiet(app)
        stack.policies = before
        await client.call("a:echo")


@pytest.mark.parametrize("fast_path", [True, False])
async def test_a_recorder_that_fails_costs_no_answer(
    fast_path: bool, modern: bool, caplog: pytest.LogCaptureFixture
) -> None:
    app = fastmcp_aggregator.build_aggregator(config(a=lean()), fast_path=fast_path)
    async with app, connected(app, modern=modern) as client:
        recent = app._backend.policies.record_calls()
        app._backend.policies.stack.recorders = (Broken(), recent)
        await client.call("a:echo")
        await client.call("a:echo")
        assert recent.count == 2
        assert caplog.messages.count("a call of tools/call was not recorded") == 2
        assert (app._backend.path_counts.answered > 0) is fast_path
        is_quiet(app)


async def test_policies_see_the_size_of_all_parameters(modern: bool, tmp_path: Path) -> None:
    app = fastmcp_aggregator.build_aggregator(config(t=talking()), audit=str(tmp_path / "audit"))
    scripted(app)
    params = {"ref": {"type": "ref/prompt", "name": "t:play"}, "argument": {"name": "script", "value": ""}}
    sizes = []
    async with app, connected(app, modern=modern) as client:
        for context in ({}, {"context": {"arguments": {"a": "b"}}}):
            for _ in range(2):
                await client.result("completion/complete", {**params, **context})
    for line in (tmp_path / "audit").read_text().splitlines():
        sizes.append(json.loads(line)["request_bytes"])
    assert [size - sizes[0] for size in sizes] == [0, 0, *2 * [len(',"context":{"arguments":{"a":"b"}}')]]


async def test_a_ping_is_judged_as_on_the_full_path(modern: bool) -> None:
    async with build_aggregator(config(a=lean())) as app, connected(app, modern=modern) as client:
        await client.call("a:echo")
        client.write({"id": 99, "method": "ping", "params": {"_meta": -1}})
        await until(lambda: any(message.get("id") == 99 for message in client.messages))
        assert "error" in client.messages[-1]


async def test_line_breaks_of_a_server_do_not_reach_the_client(modern: bool) -> None:
    app = build_aggregator(config(a=lean()))
    scripts = scripted(app)
    async with app, connected(app, modern=modern) as client:
        await client.call("a:echo")
        life = scripts["a"].life

        def reply(request_id: Any, _: Any) -> None:
            life._feed([b'{"jsonrpc":"2.0",\r"id":%d,"result":{"content":[\r],\r"_meta":{}}}\r' % request_id])

        life.child.reply = reply  # type: ignore[method-assign]
        assert (await client.result("tools/call", {"name": "a:echo"}))["content"] == []
        assert b"\r" not in client.lines[-1]


@pytest.mark.parametrize("text", [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80"])
async def test_what_is_no_utf8_answers_nothing(text: bytes, modern: bool) -> None:
    app = build_aggregator(config(a=lean()))
    scripts = scripted(app)
    async with app, connected(app, modern=modern) as client:
        await client.call("a:echo")
        child = scripts["a"].life.child

        def reply(request_id: Any, _: Any) -> None:
            for content in (b'{"type":"text","text":"%s"}' % text, b""):
                child.write_bytes(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[%s]}}\n' % (request_id, content))

        child.reply = reply  # type: ignore[method-assign]
        assert (await client.result("tools/call", {"name": "a:echo"}))["content"] == []
        assert app._backend.path_counts.answered > 0


@pytest.mark.parametrize("place", ["arguments", "_meta", "other"])
async def test_a_number_that_is_too_long_to_be_read_reaches_no_server(place: str, modern: bool) -> None:
    app = fastmcp_aggregator.build_aggregator(config(a=lean()))
    async with app, connected(app, modern=modern) as client:
        before = await client.call("a:pid")
        params = client._enveloped({"name": "a:echo", "arguments": {}, "other": 0})
        message = {"jsonrpc": "2.0", "id": 99, "method": "tools/call", "params": params}
        message["params"][place] = {**(params.get(place) or {}), "x": "NUMBER"}
        client._write(json.dumps(message).replace('"NUMBER"', "9" * 4301).encode() + b"\n")
        assert await client.call("a:pid") == before
