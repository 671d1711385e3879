"""Log messages of children: as they were sent, from the level on that each client wants, and to nobody else."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest
from support.harness import RawClient, config, connected, talking, until
from support.memory import build_aggregator, scripted
from support.serving import served
from support.talking_server import talking_server
from support.wire import META, until_answered
from support.wire_http import HttpClient
from ways import EVERY_WAY, Way, ways

import fastmcp_aggregator
from fastmcp_aggregator.protocol.log_levels import LEVELS

pytestmark = pytest.mark.asyncio(loop_scope="session")

OF_EVERY_LEVEL = [{"say": "notifications/message", "params": {"level": level, "data": level}} for level in LEVELS]
METHOD = "notifications/message"


def wanting(way: Way, level: str) -> dict[str, Any]:
    """The `_meta` of a request of a client that wants log messages from this level on, if it says so there."""
    return {f"{META}logLevel": level} if way.is_modern else {}


def levels_heard(client: RawClient) -> list[str]:
    return [message["params"]["level"] for message in client.notifications if message["method"] == METHOD]


@EVERY_WAY
async def test_level_logger_and_data_come_as_they_were_sent(way: Way, client: RawClient) -> None:
    messages = [
        {"level": "info", "logger": "db", "data": "text"},
        {"level": "emergency", "data": {"deep": [1, 1.0, None, {"x": "é"}]}, "_meta": {"own": True}},
        {"level": "debug", "data": None},
    ]
    said = [{"say": METHOD, "params": params} for params in messages]
    await client.play(way.server, *said, **wanting(way, "debug"))
    assert [json.dumps(message["params"]) for message in client.notifications] == [json.dumps(m) for m in messages]


@ways(lambda way: way.is_modern)
@pytest.mark.parametrize("level", ["debug", "warning", "emergency"])
async def test_a_modern_client_is_shown_what_it_wants_with_each_request(
    way: Way, client: RawClient, level: str
) -> None:
    await client.play(way.server, *OF_EVERY_LEVEL, **wanting(way, level))
    assert levels_heard(client) == list(LEVELS[LEVELS.index(level) :])


@ways(lambda way: way.is_modern)
async def test_a_modern_client_that_wants_no_log_messages_gets_none(way: Way, client: RawClient) -> None:
    await client.play(way.server, *OF_EVERY_LEVEL)
    assert client.notifications == []


@ways(lambda way: way.is_modern and way.child_is_modern)
async def test_a_modern_child_is_told_with_each_request_what_is_wanted(way: Way, client: RawClient) -> None:
    report = await client.result("tools/call", {"name": f"{way.server}:report", "_meta": wanting(way, "notice")})
    assert json.loads(report["content"][0]["text"])["meta"][f"{META}logLevel"] == "notice"
    report = await client.call(f"{way.server}:report")
    assert f"{META}logLevel" not in report["meta"]


@ways(lambda way: not way.is_modern and way.front == "http")
async def test_a_legacy_client_is_shown_everything_until_it_names_a_level(way: Way, client: RawClient) -> None:
    await client.play(way.server, *OF_EVERY_LEVEL)
    assert levels_heard(client) == list(LEVELS)
    client.forget()
    assert await client.result("logging/setLevel", {"level": "error"}) == {}
    await client.play(way.server, *OF_EVERY_LEVEL)
    assert levels_heard(client) == ["error", "critical", "alert", "emergency"]


@ways(lambda way: way.server == "old" and not way.is_modern)
@pytest.mark.parametrize("params", [{"level": "loud"}, {"level": 1}, {}])
async def test_a_level_that_there_is_not_is_refused(way: Way, client: RawClient, params: dict[str, Any]) -> None:
    assert (await client.error("logging/setLevel", params))["code"] == -32602


@ways(lambda way: way.server == "old" and way.is_modern)
async def test_a_modern_client_has_no_level_to_set(way: Way, client: RawClient) -> None:
    assert (await client.error("logging/setLevel", {"level": "error"}))["code"] == -32601


# What several clients want of one legacy child.


async def levels_told(client: RawClient, server: str = "a") -> list[str]:
    """The levels that the child has been told, in order."""
    report = await client.call(f"{server}:report")
    return [params["level"] for method, params in report["requests"] if method == "logging/setLevel"]


async def test_a_legacy_child_is_told_the_most_verbose_level_that_any_client_wants_and_each_is_shown_its_own() -> None:
    async with served(build_aggregator(config(a=talking()))) as front:
        one, other = await front.connect(), await front.connect()
        await one.report("a")
        await one.result("logging/setLevel", {"level": "alert"})
        assert await levels_told(one) == ["debug"], "the other has never named one, and sees everything"
        await other.result("logging/setLevel", {"level": "error"})
        await one.result("logging/setLevel", {"level": "critical"})
        assert await levels_told(one) == ["debug", "error"]
        for client, expected in ((one, 3), (other, 4)):
            client.forget()
            await client.play("a", *OF_EVERY_LEVEL)
            assert levels_heard(client) == list(LEVELS[-expected:])


async def test_a_modern_client_makes_a_legacy_child_say_more_and_never_less() -> None:
    async with served(build_aggregator(config(a=talking()))) as front:
        legacy, modern = await front.connect(), await front.connect(modern=True)
        await legacy.report("a")
        await legacy.result("logging/setLevel", {"level": "error"})
        for level in ("alert", "info", "error"):
            await modern.play("a", **{f"{META}logLevel": level})
        assert await levels_told(legacy) == ["error", "info"]
        legacy.forget()
        await legacy.play("a", *OF_EVERY_LEVEL)
        assert levels_heard(legacy) == ["error", "critical", "alert", "emergency"]


@pytest.mark.process
async def test_a_child_that_has_come_back_is_told_the_level_again() -> None:
    async with fastmcp_aggregator.build_aggregator(config(a=talking())) as app, connected(app) as client:
        await client.result("logging/setLevel", {"level": "error"})
        os.kill((await client.call("a:pid"))["pid"], signal.SIGKILL)
        await until(lambda: app.health()["a"].restarts == 1)
        await until(lambda: app.health()["a"].state == "running")
        await until_answered(lambda: levels_told(client), lambda levels: levels == ["error"])


async def test_a_child_that_does_not_declare_logging_is_told_no_level() -> None:
    document = config(a=talking(), b=talking(capabilities={"tools": {}}))
    async with build_aggregator(document) as app, connected(app) as client:
        await client.result("logging/setLevel", {"level": "error"})
        assert await levels_told(client, "a") == ["error"]
        assert await levels_told(client, "b") == []


# Outside of any request.


@pytest.mark.process
async def test_what_a_child_says_between_requests_is_for_the_only_client_on_stdio(fronts: Any) -> None:
    client = fronts.on_stdio(modern=False)
    client.forget()
    message = {"level": "info", "data": "between"}
    await client.play("old", {"later": [{"say": METHOD, "params": message}]})
    os.kill((await client.call("old:pid"))["pid"], signal.SIGUSR1)
    assert (await client.heard(METHOD))["params"] == message


async def test_what_a_child_says_between_requests_is_for_nobody_where_there_may_be_many() -> None:
    async with talking_server() as server, served(build_aggregator(config(a=server.entry))) as front:
        clients: list[HttpClient] = [await front.connect(), await front.connect(), await front.connect(modern=True)]
        for client in clients:
            await client.result("tools/list")
        server.child.play_outside(*OF_EVERY_LEVEL, {"changed": "tools"})
        for client in clients[:2]:
            await client.heard("notifications/tools/list_changed")
        assert all(levels_heard(client) == [] for client in clients)


async def test_the_level_of_a_client_reaches_the_servers_of_its_group_alone() -> None:
    groups = {"red": {"servers": ["a"]}, "blue": {"servers": ["b"]}}
    app = fastmcp_aggregator.build_aggregator(config(a=talking(), b=talking()), groups=groups)
    scripts = scripted(app)
    async with served(app) as front:
        client = await front.connect("red")
        await client.result("logging/setLevel", {"level": "error"})
        told = {
            key: [m for m in script.life.received if m["method"] == "logging/setLevel"]
            for key, script in scripts.items()
        }
        assert [message["params"] for message in told["a"]] == [{"level": "error"}]
        assert told["b"] == []
        scripts["b"].life.die()
        await until(lambda: app.health()["b"].restarts == 1 and app.health()["b"].state == "running")
        assert "logging/setLevel" not in [message["method"] for message in scripts["b"].life.received]
