"""Answers of more than a mebibyte: worked on in turns, and passed on as shorter ones are."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from support.harness import PATIENCE, config, connected, lean, until
from support.memory import scripted
from test_odd_answers import answer_with, is_quiet

import fastmcp_aggregator
from fastmcp_aggregator.children.session.direct import DirectRequest, PipeRequests
from fastmcp_aggregator.children.session.parts import LONG
from fastmcp_aggregator.front.fast_path import call
from fastmcp_aggregator.protocol import raw_json

TEXT = 'She said: "grün [1, 2]"\n' * (LONG // 20)
CONTENT: dict[str, Any] = {
    "text": {"type": "text", "text": TEXT},
    "image": {"type": "image", "mimeType": "image/png", "data": "iVBOR" * (LONG // 4)},
    "link": {"type": "resource_link", "name": TEXT, "uri": "demo://x"},
    "resource": {"type": "resource", "resource": {"uri": "demo://x/1", "text": TEXT, "_meta": {"a": [1]}}},
    "blob": {"type": "resource", "resource": {"uri": "demo://x/2", "blob": "iVBOR" * (LONG // 4)}},
    "of no kind": {"x": TEXT, "uri": 7},
}

NUMBER = b"1.%s5e-300" % (b"7" * 70)
QUOTES = 'ü"' * (2 * LONG)
"""As JSON it takes several turns to look at."""


@pytest.mark.parametrize("fast_path", [True, False])
@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("block", CONTENT.values(), ids=CONTENT)
async def test_a_long_answer_arrives_whole_with_public_addresses(block: Any, modern: bool, fast_path: bool) -> None:
    app = fastmcp_aggregator.build_aggregator(config(a=lean()), fast_path=fast_path)
    scripts = scripted(app)
    result = {"content": [{"type": "text", "text": "short"}, block], "structuredContent": {"text": TEXT}}
    async with app, connected(app, modern=modern) as client:
        await client.call("a:echo")
        answer_with(scripts, json.dumps(result, ensure_ascii=False).encode())
        sent = client.send("tools/call", {"name": "a:echo", "arguments": {}})
        answer = (await asyncio.wait_for(sent, PATIENCE))["result"]
        expected = json.loads(json.dumps(block).replace('"demo://x', '"demo://a/x'))
        assert answer["content"] == [{"type": "text", "text": "short"}, expected]
        assert answer["structuredContent"] == {"text": TEXT}
        is_quiet(app)


@pytest.mark.parametrize(
    "result",
    [
        b'{"content":[{"type":"text","text":"%s"}]}' % (b'\xc3\xbc\\",' * (2 * LONG)),
        b'{"content":[{"type":"image","data":"%s"}]}' % (b"x" * (9 * LONG)),
    ],
    ids=["a text with quotes", "an image"],
)
async def test_others_have_turns_while_a_long_answer_is_worked_on(
    result: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its arrival and its answer."""
    app = fastmcp_aggregator.build_aggregator(config(a=lean()))
    scripts = scripted(app)
    turns: list[int] = []
    take_long = PipeRequests.take_long

    async def counted(direct: PipeRequests, line: bytes) -> bool:
        async def others() -> None:
            while True:
                turns[-1] += 1
                await asyncio.sleep(0)

        turns.append(0)
        task = asyncio.create_task(others())
        try:
            return await take_long(direct, line)
        finally:
            task.cancel()

    monkeypatch.setattr(PipeRequests, "take_long", counted)
    async with app, connected(app) as client:
        await client.call("a:echo")
        answer_with(scripts, result)
        sent = client.send("tools/call", {"name": "a:echo", "arguments": {}})
        assert "result" in await asyncio.wait_for(sent, PATIENCE)
    assert len(turns) == 1
    assert turns[0] >= len(result) // LONG - 3 if b"\\" in result else turns[0] >= 2


@pytest.mark.parametrize("count", [2000, 20_000])
@pytest.mark.parametrize(
    "result",
    [
        b'{"content":[],"_meta":{"x":[%s]}}',
        b'{"content":[{"type":"text","text":"x","uri":"demo://x","_meta":{"x":[%s]}}]}',
    ],
    ids=["the result's", "an item's"],
)
async def test_numbers_that_msgspec_takes_long_for_are_read_by_the_other_parser(
    result: bytes, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """8 µs each, where their digits lie between two floats."""
    app = fastmcp_aggregator.build_aggregator(config(a=lean()))
    scripts = scripted(app)
    decoded: list[int] = []
    decode = raw_json.decode

    def counted(part: Any) -> Any:
        decoded.append(bytes(part).count(NUMBER))
        return decode(part)

    monkeypatch.setattr(raw_json, "decode", counted)
    async with app, connected(app) as client:
        await client.call("a:echo")
        answer_with(scripts, result % b",".join([NUMBER] * count))
        answer = await client.result("tools/call", {"name": "a:echo", "arguments": {}})
        is_quiet(app)
    assert json.dumps(answer).count(repr(float(NUMBER))) == count
    assert max(decoded) < 2000


async def test_others_have_turns_while_the_full_path_decodes_a_long_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    app = fastmcp_aggregator.build_aggregator(config(a=lean()))
    scripts = scripted(app)
    turns = 0
    adopted = DirectRequest.adopted

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def counted(request: DirectRequest, *args: Any) -> Any:
        task = asyncio.create_task(others())
        try:
            return await adopted(request, *args)
        finally:
            task.cancel()

    def unusual(*_: Any, **__: Any) -> Any:
        raise call.Unusual

    monkeypatch.setattr(DirectRequest, "adopted", counted)
    monkeypatch.setattr(call, "shaped", unusual)
    async with app, connected(app) as client:
        await client.call("a:echo")
        turns = 0
        answer_with(scripts, json.dumps({"content": [CONTENT["text"]]}).encode())
        answer = await client.result("tools/call", {"name": "a:echo", "arguments": {}})
    assert answer["content"] == [CONTENT["text"]]
    assert turns == 2


async def test_a_long_answer_to_a_call_that_is_cancelled_meanwhile_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    app = fastmcp_aggregator.build_aggregator(config(a=lean()))
    scripts = scripted(app)
    take_long = PipeRequests.take_long
    taken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def cancelled(direct: PipeRequests, line: bytes) -> bool:
        client.notify("notifications/cancelled", {"requestId": request_id})
        taking = asyncio.ensure_future(take_long(direct, line))
        await asyncio.wait_for(until(lambda: not direct._pending), PATIENCE)
        assert not taking.done()
        taken.set_result(await taking)
        return True

    async with app, connected(app) as client:
        await client.call("a:echo")
        monkeypatch.setattr(PipeRequests, "take_long", cancelled)
        usual = scripts["a"].life.child.reply
        answer_with(scripts, json.dumps({"content": [CONTENT["text"]] * 20}).encode())
        request_id, _ = client.begin("tools/call", {"name": "a:echo", "arguments": {}})
        assert await asyncio.wait_for(taken, PATIENCE)
        scripts["a"].life.child.reply = usual  # type: ignore[method-assign]
        assert await client.call("a:echo")
        is_quiet(app)


@pytest.mark.parametrize("fast_path", [True, False])
async def test_a_long_answer_of_a_server_that_ends_at_once_arrives(fast_path: bool) -> None:
    app = fastmcp_aggregator.build_aggregator(config(a=lean()), fast_path=fast_path)
    scripts = scripted(app)
    async with app, connected(app) as client:
        await client.call("a:echo")
        life = scripts["a"].life
        answer_with(scripts, json.dumps({"content": [{"type": "text", "text": QUOTES}]}, ensure_ascii=False).encode())
        answering = life.child.reply

        def answer_and_end(request_id: Any, result: Any) -> None:
            answering(request_id, result)
            life.die(0)

        life.child.reply = answer_and_end  # type: ignore[method-assign]
        sent = client.send("tools/call", {"name": "a:echo", "arguments": {}})
        answer = await asyncio.wait_for(sent, PATIENCE)
        assert answer.get("error") is None
        assert answer["result"]["content"][0]["text"] == QUOTES
        assert await client.call("a:echo")
