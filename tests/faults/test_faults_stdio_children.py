"""What a misbehaving process can do, and what the others and the callers notice of it."""

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.harness import PATIENCE, RawClient, config, connected, lean, running, until
from support.processes import is_gone

from fastmcp_aggregator import Aggregator, ChildState, build_aggregator

pytestmark = pytest.mark.process


async def back_again(app: Aggregator, key: str) -> None:
    await until(lambda: app.health()[key].restarts and app.health()[key].state is ChildState.RUNNING)


async def answers(client: RawClient, key: str) -> bool:
    return bool((await client.call(f"{key}:echo"))["tool"] == "echo")


async def test_no_answer_ends_the_connection_of_clients_that_read_10_mib_and_no_server_is_ended_for_one() -> None:
    """As those on the TypeScript SDK do, on stdio; with whatever we add to it."""
    most_read = 10 * 1024**2 - 64 * 1024  # what comes with it counts
    async with build_aggregator(config(a=lean())) as app, connected(app) as client:
        largest = int(app.settings.max_response_size_mb * 1024**2)
        result = await client.result("tools/call", {"name": "a:big", "arguments": {"size": largest - 1000}})
        assert largest - 1500 < len(json.dumps(result, separators=(",", ":"))) < most_read
        for size in (largest, 4 * largest):
            error = await client.error("tools/call", {"name": "a:big", "arguments": {"size": size}})
            assert error["message"].endswith("more than 9.5 MiB; raise `max_response_size_mb` to take it")
        assert await answers(client, "a")
        assert app.health()["a"].restarts == 0


async def test_an_answer_over_the_size_limit_fails_that_call_and_no_other() -> None:
    app = build_aggregator(config(a=lean()), max_response_size_mb=1)
    async with app, connected(app) as client:
        _, held = client.begin("tools/call", {"name": "a:hold", "arguments": {"n": 1}})
        error = await client.error("tools/call", {"name": "a:big", "arguments": {"size": 3_000_000}})
        assert error["message"] == "response too large: more than 1 MiB; raise `max_response_size_mb` to take it"
        assert await answers(client, "a")
        await client.call("a:release")
        assert "result" in await asyncio.wait_for(held, PATIENCE)
        assert app.health()["a"].restarts == 0


async def test_a_line_that_never_ends_takes_no_more_memory_than_the_limit_and_the_child_is_replaced() -> None:
    app = build_aggregator(config(a=lean(), b=lean()), max_response_size_mb=2)
    async with app, connected(app) as client:
        before = psutil.Process().memory_info().rss
        _, held = client.begin("tools/call", {"name": "a:hold"})
        error = await client.error("tools/call", {"name": "a:endless"})
        why = "response too large: it wrote a line of more than 2 MiB to its stdout"
        assert error["message"] == f"server 'a': {why} while it was answering tools/call"
        assert (await asyncio.wait_for(held, PATIENCE))["error"]["message"] == error["message"]
        status = app.health()["a"]
        assert status.state is ChildState.RUNNING or status.last_error == why
        assert psutil.Process().memory_info().rss - before < 64 * 1024 * 1024
        assert await answers(client, "b")
        await back_again(app, "a")
        assert await answers(client, "a")


@pytest.mark.parametrize("line", [b"junk", b"\xff\xfe\xfa", b'{"jsonrpc": "2.0"', b"[1]", b"Traceback (most recent"])
async def test_lines_that_are_no_messages_are_ignored_and_reported_at_most_once_a_second(
    line: bytes, caplog: Any
) -> None:
    async with build_aggregator(config(a=lean())) as app, connected(app) as client:
        began = time.monotonic()
        assert await client.call("a:junk", lines=200, hex=line.hex()) == {"written": 200}
        assert await answers(client, "a")
        seconds = time.monotonic() - began
        assert app.health()["a"].restarts == 0
        assert app.health()["a"].ignored_lines == 200
    reports = [message for message in caplog.messages if "not an MCP message" in message]
    assert 1 <= len(reports) <= 1 + seconds


MALFORMED = [
    {"method": "notifications/resources/updated", "params": {"uri": []}},
    {"method": "notifications/cancelled", "params": {"requestId": {}}},
    {"method": "notifications/progress", "params": {"progressToken": [], "progress": 10**400}},
    {"method": "notifications/tools/list_changed", "params": {"_meta": 5}},
    {"method": "notifications/subscriptions/acknowledged", "params": {}},
]


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("message", MALFORMED, ids=lambda message: message["method"])
async def test_notifications_that_are_malformed_are_ignored_without_a_word(
    message: dict[str, Any], era: str, caplog: Any
) -> None:
    line = json.dumps({"jsonrpc": "2.0", **message}).encode()
    async with build_aggregator(config(a=lean(era=era))) as app, connected(app) as client:
        assert await client.call("a:junk", lines=200, hex=line.hex()) == {"written": 200}
        assert await answers(client, "a")
        assert app.health()["a"].restarts == 0
    assert caplog.messages == []


async def test_questions_to_nobody_are_refused_and_reported_at_most_once_a_second(caplog: Any) -> None:
    line = b'{"jsonrpc": "2.0", "id": 1, "method": "roots/list"}'
    async with build_aggregator(config(a=lean())) as app, connected(app) as one, connected(app) as other:
        began = time.monotonic()
        other.begin("tools/call", {"name": "a:hold"})
        await until(lambda: app.health()["a"].in_flight == 1)
        assert await one.call("a:junk", lines=200, hex=line.hex()) == {"written": 200}
        assert await answers(one, "a")
        seconds = time.monotonic() - began
    reports = [message for message in caplog.messages if "cannot be determined for which client" in message]
    assert 1 <= len(reports) <= 1 + seconds


async def test_a_child_that_writes_more_than_a_thousand_such_lines_a_minute_is_replaced(caplog: Any) -> None:
    async with build_aggregator(config(a=lean(), b=lean())) as app, connected(app) as client:
        _, held = client.begin("tools/call", {"name": "a:hold"})
        await client.send("tools/call", {"name": "a:junk", "arguments": {"lines": 3000}})
        wrote = "it wrote too much to its stdout that is not an MCP message (logs belong on stderr)"
        why = f"{wrote} while it was answering tools/call"
        assert (await asyncio.wait_for(held, PATIENCE))["error"]["message"] == f"server 'a': {why}"
        await back_again(app, "a")
        assert await answers(client, "a")
        assert app.health()["b"].restarts == 0
    assert sum("writes too much to stdout that is not an MCP message" in message for message in caplog.messages) == 1


async def test_a_flood_of_notifications_is_dropped_and_counted_and_the_answer_behind_it_arrives() -> None:
    async with build_aggregator(config(a=lean(), b=lean())) as app, connected(app) as client:
        began = time.monotonic()
        _, flooded = client.begin("tools/call", {"name": "a:spam", "arguments": {"notifications": 20_000}})
        assert await answers(client, "b")
        answer = await asyncio.wait_for(flooded, PATIENCE)
        passed = 1000 + 200 * (time.monotonic() - began) + 1
        assert json.loads(answer["result"]["content"][0]["text"]) == {"sent": 20_000}
        assert app.health()["a"].restarts == 0
        assert 20_000 - passed <= app.health()["a"].dropped_notifications < 20_000


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_list_change_in_a_flood_of_notifications_is_not_lost(era: str) -> None:
    async with build_aggregator(config(a=lean(era=era))) as app, connected(app) as client:
        await client.call("a:spam", notifications=5000, add_tool="fresh")
        await client.heard("notifications/tools/list_changed")
        assert "a:fresh" in await client.names()


async def test_a_duplicate_answer_is_dropped() -> None:
    async with build_aggregator(config(a=lean())) as app, connected(app) as client:
        assert await client.call("a:twice") == "first"
        assert await answers(client, "a")


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("wrong_id", {}),
        ("hold", {}),
        ("junk", {"lines": 1, "hex": b'{"jsonrpc": "2.0", "id": 5, "resu'.hex(), "answer": False}),
    ],
    ids=["an answer to a request that nobody made", "silence", "broken JSON"],
)
async def test_what_comes_in_place_of_an_answer_fails_the_call_at_its_deadline_and_is_counted(
    tool: str, arguments: dict[str, Any]
) -> None:
    app = build_aggregator(config(a=lean(prompts=[{"name": "greet"}])), call_timeout=0.2)
    async with app, connected(app) as client:
        error = await client.error("tools/call", {"name": f"a:{tool}", "arguments": arguments})
        assert error["message"] == "server 'a': it did not answer tools/call within 0.2 s"
        assert app.health()["a"].unanswered == 1
        assert await client.result("prompts/get", {"name": "a:greet"})


async def test_a_child_that_stops_reading_holds_nobody_up_and_its_calls_fail_at_their_deadline() -> None:
    app = build_aggregator(config(a=lean(), b=lean()), servers={"a": {"call_timeout": 1.0}})
    async with app, connected(app) as client:
        client.begin("tools/call", {"name": "a:deaf"})
        payload = "x" * 300_000
        stuck = [client.begin("tools/call", {"name": "a:echo", "arguments": {"p": payload}})[1] for _ in range(4)]
        assert await answers(client, "b")
        for answer in await asyncio.wait_for(asyncio.gather(*stuck), PATIENCE):
            assert "did not answer tools/call within 1 s" in answer["error"]["message"]
        assert await answers(client, "b")


async def test_a_child_that_closes_its_stdout_but_lives_on_is_replaced() -> None:
    async with build_aggregator(config(a=lean())) as app, connected(app) as client:
        pid = app.health()["a"].pid or 0
        error = await client.error("tools/call", {"name": "a:mute"})
        assert "server 'a'" in error["message"]
        await back_again(app, "a")
        await until(lambda: is_gone(pid))


async def test_grandchildren_are_gone_after_a_crash_and_after_a_polite_end(tmp_path: Path) -> None:
    record = tmp_path / "grandchildren"
    async with build_aggregator(config(a=lean(grandchild=str(record)))) as app, connected(app) as client:
        first = int(record.read_text().split()[0])
        await client.send("tools/call", {"name": "a:leave"})
        await until(lambda: is_gone(first))
        await back_again(app, "a")
        second = int(record.read_text().split()[-1])
        assert not is_gone(second)
    await until(lambda: is_gone(second))


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
async def test_no_child_is_left_when_the_aggregator_is_killed(tmp_path: Path) -> None:
    record, document = tmp_path / "pids", tmp_path / "mcp.json"
    document.write_text(json.dumps(config(a=lean(record=str(record), ignore_eof=True))))
    async with running(sys.executable, "-m", "fastmcp_aggregator", str(document)) as server:
        await server.client.names()
        pid = int(record.read_text())
        os.kill(server.process.pid, signal.SIGKILL)
        await server.wait()
        await until(lambda: is_gone(pid))


async def test_more_tools_than_the_limit_are_left_out(caplog: Any) -> None:
    app = build_aggregator(config(a=lean(tools=50)), max_tools_per_child=30)
    async with app, connected(app) as client:
        assert len(await client.names()) == 30
    assert "server 'a' lists 73 tools; the first 30 are used" in caplog.text
