"""What the fast path takes, what it leaves, and how the full path goes on with what it began."""

from __future__ import annotations

import asyncio
import math
import re
from pathlib import Path
from typing import Any

import pytest
from support.harness import PATIENCE, config, connected, lean, talking, until
from support.memory import build_aggregator, scripted
from support.serving import served

import fastmcp_aggregator
from fastmcp_aggregator import Aggregator
from fastmcp_aggregator.children.session.direct import PipeRequests
from fastmcp_aggregator.front.fast_path import http, path
from fastmcp_aggregator.policies.metrics import Metrics
from fastmcp_aggregator.relay.tasks import Tasks
from fastmcp_aggregator.status.path_counts import PathCounts

pytestmark = [pytest.mark.usefixtures("nothing_takes_long"), pytest.mark.parametrize("modern", [False, True])]
CANCELLED = "notifications/cancelled"


def counts(app: Aggregator) -> PathCounts:
    return app._backend.path_counts


async def is_quiet(app: Aggregator) -> None:
    """Wait until nothing is on its way."""
    await until(lambda: app._pipeline.in_flight._count == 0)
    assert {server.in_flight for server in app.health().values()} == {0}
    assert not app._pipeline.fast_path._cancellable


async def test_plain_calls_are_answered_on_a_pipe_and_over_http(modern: bool) -> None:
    async with build_aggregator(config(a=lean())) as app:
        async with connected(app, modern=modern) as client:
            await client.call("a:echo")
            before = counts(app).answered
            assert await client.call("a:echo", x=1) == {"arguments": {"x": 1}, "server": "lean", "tool": "echo"}
        async with served(app) as front:
            await (await front.connect(modern=modern)).call("a:echo")
        await is_quiet(app)
    assert counts(app).answered == before + 2
    assert not counts(app).taken_over


async def test_lists_and_pings_need_no_child(modern: bool) -> None:
    async with build_aggregator(config(a=lean())) as app, connected(app, modern=modern) as client:
        first = await client.result("tools/list")
        before = counts(app).answered
        assert await client.result("tools/list") == first
        assert counts(app).answered == before + 1
        if not modern:
            assert await client.result("ping") == {}
            assert counts(app).answered == before + 2


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ([{"progress": [1]}], "notification"),
        ([{"fail": {"code": -5, "message": "no"}}], "error"),
    ],
)
async def test_what_turns_out_unusual_is_taken_over(script: list[Any], reason: str, modern: bool) -> None:
    async with build_aggregator(config(a=talking())) as app, connected(app, modern=modern) as client:
        await client.call("a:echo")
        params = {"name": "a:play", "arguments": {"script": script}, "_meta": {"progressToken": "mine"}}
        response = await client.send("tools/call", params)
        assert ("error" in response) is (reason == "error")
        assert counts(app).taken_over == {reason: 1}
        if reason == "notification":
            assert (await client.heard("notifications/progress"))["params"]["progressToken"] == "mine"
        await is_quiet(app)


async def test_metrics_show_what_was_answered_declined_and_taken_over(modern: bool) -> None:
    app = build_aggregator(config(a=talking()), metrics=True)
    async with served(app) as front:
        client = await front.connect(modern=modern)
        await client.call("a:echo")
        await client.call("a:echo")
        await client.send("x", {})
        params = {"name": "a:play", "arguments": {"script": [{"progress": [1]}]}, "_meta": {"progressToken": "p"}}
        await client.result("tools/call", params)
        async with front.browser() as http:
            text = (await http.get("/metrics")).text
    shown = re.findall(r'fast_path_requests_total\{outcome="(.*)",reason="(.*)"\} (\d+)', text)
    assert {(outcome, reason): int(count) for outcome, reason, count in shown} == {
        (outcome, reason): count for outcome, reason, count in counts(app).samples()
    }
    assert {"answered": "", "declined": "method", "taken over": "notification"}.items() <= {
        (outcome, reason) for outcome, reason, _ in shown
    }


async def test_an_answer_that_takes_long_comes_from_the_transport(
    modern: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = build_aggregator(config(a=talking()))
    async with served(app) as front:
        client, other = await front.connect(modern=modern), await front.connect()
        monkeypatch.setattr(http.Exchange, "answer_timeout", 0.0)
        _, answer = client.begin("tools/call", {"name": "a:play", "arguments": {"script": [{"wait": "gate"}]}})
        await until(lambda: counts(app).taken_over["takes long"] > 0)
        monkeypatch.setattr(http.Exchange, "answer_timeout", 60.0)
        await other.call("a:open", gate="gate")
        assert "result" in await answer
        await is_quiet(app)


async def test_a_list_that_waits_long_for_servers_is_left_to_the_transport_where_it_can_be_cancelled(
    modern: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(http.Exchange, "answer_timeout", 0.0)
    app = build_aggregator(config(a=lean(wait_for_file=str(tmp_path / "gate"))))
    async with served(app) as front:
        client = await front.connect(modern=modern)
        listing, answer = client.begin("tools/list", {})
        await until(lambda: counts(app).declined["list"] == 1)
        if not modern:
            client.notify(CANCELLED, {"requestId": listing})
            assert (await asyncio.wait_for(answer, PATIENCE))["error"]["code"] == -32800
        (tmp_path / "gate").touch()
        await client.call("a:echo")
        assert "error" in await answer or len((await answer)["result"]["tools"]) > 1
        await is_quiet(app)


async def test_a_call_that_is_cancelled_ends_at_the_child(modern: bool) -> None:
    app = build_aggregator(config(a=talking()))
    scripts = scripted(app)
    async with app, connected(app, modern=modern) as client:
        await client.call("a:echo")
        request_id, answer = client.begin("tools/call", {"name": "a:play", "arguments": {"script": [{"wait": "gate"}]}})
        await until(lambda: app.health()["a"].in_flight == 1)
        client.notify(CANCELLED, {"requestId": request_id})
        await until(lambda: any(message.get("method") == CANCELLED for message in scripts["a"].life.received))
        await is_quiet(app)
        assert not answer.done()
        assert counts(app).taken_over == {"abandoned": 1}


async def test_a_call_that_is_cancelled_while_it_is_handed_over_ends_too(modern: bool) -> None:
    """The transport does not know it yet then, and the fast path no longer waits for it."""
    app = build_aggregator(config(a=talking()))
    async with app, served(app) as front:
        client = await front.connect()
        await client.call("a:echo")
        path = app._pipeline.fast_path
        _, answer = client.begin("tools/call", {"name": "a:play", "arguments": {"script": [{"wait": "gate"}]}})
        await until(lambda: path._cancellable)
        (fast,) = path._cancellable.values()
        fast.take_over("takes long")
        fast.abandon()
        assert (await asyncio.wait_for(answer, PATIENCE))["error"]["code"] == -32800
        await is_quiet(app)


async def test_calls_in_flight_fail_with_their_server(modern: bool) -> None:
    app = build_aggregator(config(a=talking()))
    scripts = scripted(app)
    async with app, connected(app, modern=modern) as client:
        await client.call("a:echo")
        _, answer = client.begin("tools/call", {"name": "a:play", "arguments": {"script": [{"wait": "gate"}]}})
        await until(lambda: app.health()["a"].in_flight == 1)
        scripts["a"].life.die()
        error = (await asyncio.wait_for(answer, PATIENCE))["error"]
        assert error["message"].startswith("server 'a': it was ended by signal SIGKILL while it was answering")
        assert counts(app).taken_over == {"error": 1}
        await is_quiet(app)


async def test_a_deadline_is_kept(modern: bool) -> None:
    app = build_aggregator(config(a=talking()))
    async with app, connected(app, modern=modern) as client:
        await client.call("a:echo")
        app._backend.children["a"].calls._deadline = 0.05
        error = await client.error("tools/call", {"name": "a:play", "arguments": {"script": [{"wait": "gate"}]}})
        assert error["message"] == "server 'a': it did not answer tools/call within 0.05 s"
        assert counts(app).taken_over == {"deadline": 1}
        assert app.health()["a"].unanswered == 1
        await is_quiet(app)


async def test_policies_are_asked_once_and_told_once(modern: bool) -> None:
    app = fastmcp_aggregator.build_aggregator(config(a=lean(), t=talking()), validate_arguments=True)
    scripted(app)
    async with app, connected(app, modern=modern) as client:
        recorded = app._backend.policies.record_calls()
        await client.call("a:echo")
        await client.call("a:echo")
        assert recorded.count == 2
        script = [{"progress": [1]}]
        params = {"name": "t:play", "arguments": {"script": script}, "_meta": {"progressToken": 1}}
        for _ in range(2):
            await client.result("tools/call", params)
        assert recorded.count == 4
        assert counts(app).taken_over == {"notification": 1}
        assert counts(app).declined["policy has to wait"] > 0


@pytest.mark.parametrize("setting", [{"fast_path": False}, {"resumable": "always"}])
async def test_it_can_be_turned_off(setting: dict[str, Any], modern: bool) -> None:
    """Clients of 2026-07-28 cannot come back for answers, so it is not turned off for them where others can."""
    app = build_aggregator(config(a=lean()), **setting)
    async with served(app) as front:
        client = await front.connect(modern=modern)
        await client.call("a:echo")
        await client.call("a:echo")
    assert (counts(app).answered > 0) is (modern and "resumable" in setting)
    assert (counts(app).declined["resumable"] > 0) is (not modern and "resumable" in setting)


async def test_a_request_that_comes_with_the_handshake_waits_for_it(modern: bool) -> None:
    async with build_aggregator(config(a=lean())) as app, connected(app, modern=modern, handshake=False) as client:
        _, early = client.begin("tools/call", {"name": "a:echo"})
        await client.start()
        assert ("result" in await early) is modern
        await client.call("a:echo")
        await is_quiet(app)


async def test_a_call_whose_client_leaves_while_it_is_resumed_ends_at_the_child(
    modern: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cancelled(*_: Any) -> Any:
        raise asyncio.CancelledError

    app = build_aggregator(config(a=talking()))
    scripts = scripted(app)
    async with app, connected(app, modern=modern) as client:
        await client.call("a:echo")
        monkeypatch.setattr(Tasks, "ask", cancelled)
        script = [{"progress": [1]}, {"wait": "gate"}]
        params = {"name": "a:play", "arguments": {"script": script}, "_meta": {"progressToken": 1}}
        client.begin("tools/call", params)
        await until(lambda: any(message.get("method") == CANCELLED for message in scripts["a"].life.received))
        await is_quiet(app)


async def test_calls_of_clients_that_can_be_asked_are_taken_too(modern: bool) -> None:
    async with (
        build_aggregator(config(a=lean())) as app,
        connected(app, modern=modern, capabilities={"roots": {}}) as client,
    ):
        await client.call("a:echo")
        before = counts(app).answered
        await client.call("a:echo")
        assert counts(app).answered == before + 1
        await is_quiet(app)


async def test_calls_to_a_server_with_subscribers_keep_the_full_path_so_that_no_answer_overtakes_an_update(
    modern: bool,
) -> None:
    document = config(a=talking(resources=[{"uri": "note://a", "name": "a"}]))
    async with build_aggregator(document) as app, connected(app, modern=modern) as client:
        if modern:
            client.begin("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["note://a/a"]}})
            await client.heard("notifications/subscriptions/acknowledged")
        else:
            await client.result("resources/subscribe", {"uri": "note://a/a"})
        before = counts(app).declined["subscribed"]
        await client.call("a:echo")
        assert counts(app).declined["subscribed"] == before + 1


async def test_requests_that_come_while_others_are_read_are_counted(modern: bool) -> None:
    async with build_aggregator(config(a=lean())) as app, connected(app, modern=modern) as client:
        await client.call("a:echo")
        before = counts(app).declined.copy()
        begun = [client.begin(method, params)[1] for method, params in (("x", {}), *2 * [("tools/list", {})])]
        for answer in begun:
            await answer
        assert counts(app).declined - before == {"method": 1, "busy reader": 2}


async def test_a_policy_that_breaks_is_told_as_an_error_and_once(modern: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("hunter2")

    app = build_aggregator(config(a=lean()), metrics=True)
    async with app, connected(app, modern=modern) as client:
        await client.call("a:echo")
        monkeypatch.setattr(Metrics, "after", broken)
        error = await client.error("tools/call", {"name": "a:echo"})
        assert error["message"].startswith("Internal error (id ")
        assert counts(app).taken_over == {"policy failed": 1}
        await is_quiet(app)


async def test_a_call_that_could_not_be_written_is_sent_by_the_full_path(
    modern: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_written(*_: Any) -> Any:
        raise ValueError

    async with build_aggregator(config(a=lean())) as app, connected(app, modern=modern) as client:
        await client.call("a:echo")
        monkeypatch.setattr(PipeRequests, "send", not_written)
        assert (await client.call("a:echo", x=1))["arguments"] == {"x": 1}
        assert counts(app).taken_over == {"not sent": 1}
        await is_quiet(app)


async def test_whether_spans_are_collected_is_looked_at_again_after_a_second(
    modern: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with build_aggregator(config(a=lean())) as app, connected(app, modern=modern) as client:
        await client.call("a:echo")
        app._pipeline.fast_path._next_look = math.inf
        monkeypatch.setattr(path, "is_tracing", lambda: True)
        await client.call("a:echo")
        assert counts(app).declined["tracing"] == 0
        app._pipeline.fast_path._next_look = 0.0
        await client.call("a:echo")
        assert counts(app).declined["tracing"] == 1
