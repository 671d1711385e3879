"""Components whose calls say something before they are answered: the full path serves them at once, for a while."""

from __future__ import annotations

import json

import pytest
from support.harness import config, connected, lean, talking
from support.memory import build_aggregator
from support.serving import served

from fastmcp_aggregator.front.fast_path.call import FastCall
from fastmcp_aggregator.front.fast_path.path import Talkers


@pytest.fixture
def talkers() -> Talkers:
    return Talkers()


@pytest.mark.usefixtures("nothing_takes_long")
@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("front", ["pipe", "http"])
async def test_a_tool_that_tells_its_progress_is_tried_again_ever_more_rarely(
    talkers: Talkers, front: str, modern: bool
) -> None:
    async with build_aggregator(config(a=lean())) as app, served(app) as http:
        async with connected(app, modern=modern) as pipe:
            client = pipe if front == "pipe" else await http.connect(modern=modern)
            await client.result("tools/list")
            counts = app._backend.path_counts
            for _ in range(10):
                meta = {"progressToken": "p"}
                params = {"name": "a:progress", "arguments": {"steps": 1}, "_meta": meta}
                await client.result("tools/call", params)
            assert counts.taken_over == {"notification": 3}
            assert counts.declined["talks"] == 7
            before = counts.answered
            await client.call("a:echo")
            assert counts.answered == before + 1
        assert len([one for one in client.notifications if one["method"] == "notifications/progress"]) == 10


@pytest.mark.parametrize("name", ["a:echo", [], {}, None])
@pytest.mark.parametrize("front", ["pipe", "http"])
async def test_what_calls_nothing_that_is_known_is_looked_at_as_always(
    talkers: Talkers, front: str, name: object
) -> None:
    async with build_aggregator(config(a=lean())) as app, served(app) as http, connected(app) as pipe:
        client = pipe if front == "pipe" else await http.connect()
        await client.result("tools/list")
        app._pipeline.fast_path.talkers.ended("x", has_talked=True)
        response = await client.send("tools/call", {"name": name})
        assert ("result" in response) == (name == "a:echo")
        assert app._backend.path_counts.declined["talks"] == 0


@pytest.mark.parametrize(
    ("method", "params"),
    [("resources/read", {"uri": "NAME"}), ("completion/complete", {"ref": {"type": "ref/resource", "uri": "NAME"}})],
)
async def test_of_a_long_name_nothing_is_kept(
    talkers: Talkers, method: str, params: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FastCall, "settled", lambda call: call.take_over("result"))
    async with build_aggregator(config(a=talking())) as app, connected(app) as client:
        await client.result("tools/list")
        for size in (10, 10_000, 10_001):
            named = json.dumps({**params, "argument": {"name": "id", "value": "x"}})
            await client.send(method, json.loads(named.replace("NAME", f"note://a//{'x' * size}")))
        known = app._pipeline.fast_path.talkers.known
        assert len(known) == 2
        assert max(len(str(component)) for component in known) < 100


def test_a_call_that_says_nothing_makes_it_one_like_others(talkers: Talkers) -> None:
    for _ in range(3):
        talkers.ended("x", has_talked=True)
    assert [talkers.is_left("x") for _ in range(5)] == [True] * 4 + [False]
    talkers.ended("x", has_talked=False)
    assert not talkers.is_left("x")
    talkers.ended("x", has_talked=True)
    assert [talkers.is_left("x") for _ in range(2)] == [True, False]


def test_the_oldest_are_forgotten_where_there_are_too_many(talkers: Talkers) -> None:
    for number in range(1500):
        talkers.ended(number, has_talked=True)
    assert len(talkers.known) == 1000
    assert not talkers.is_left(0)
    assert talkers.is_left(1499)
