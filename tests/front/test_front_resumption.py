"""Legacy clients over HTTP that lose the connection on which they wait, or are told to hang up, and come back."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from support.harness import PATIENCE, RawClient, config, connected, talking, until
from support.memory import build_aggregator
from support.remote_server import Request, remote_server
from support.serving import served
from support.wire_events import Event, EventClient, event_client

import fastmcp_aggregator
from fastmcp_aggregator import Aggregator
from fastmcp_aggregator.front.http.resume.event_store import KeptEvents

PROGRESS = "notifications/progress"
IN_TWO_PARTS = [{"progress": [1]}, {"wait": "gate"}, {"progress": [2]}]


@dataclass
class Place:
    """A served app with a talking child `a`; `client` is to leave and to come back, `other` stays."""

    app: Aggregator
    url: str
    client: EventClient
    other: RawClient

    async def is_called(self) -> None:
        """Wait until a call is at the child."""
        await until(lambda: self.app.health()["a"].in_flight == 1)

    async def is_free(self) -> None:
        """Wait until no call is at the child."""
        await until(lambda: self.app.health()["a"].in_flight == 0)

    async def is_admitted(self) -> None:
        """Wait until the client is not turned away."""
        status = 503
        async with asyncio.timeout(PATIENCE):
            while status == 503:
                async with self.client.call("a:echo") as response:
                    status = response.status
        assert status == 200

    async def open_gate(self) -> None:
        """Let the script go on that waits."""
        await self.other.call("a:open", gate="gate")


@asynccontextmanager
async def place_with(
    *,
    version: str = "2025-11-25",
    build: Callable[..., Aggregator] = build_aggregator,
    events: KeptEvents | None = None,
    **settings: Any,
) -> AsyncIterator[Place]:
    settings = {"reconnect_wait": 3600, **settings}
    async with (
        build(config(a=talking()), **settings) as app,
        connected(app) as other,
        served(app, event_store=events) as front,
        event_client(front.url, version=version) as client,
    ):
        yield Place(app, front.url, client, other)


def said(events: list[Event]) -> list[Any]:
    return [event.says for event in events]


async def test_the_stream_of_a_call_begins_with_an_id_and_the_time_after_which_to_come_back() -> None:
    async with place_with(resumable="always") as place, place.client.call("a:echo") as response:
        first, *rest = await response.rest()
    assert first.event_id
    assert (first.message, first.retry) == ({}, "1000")
    assert said(rest) == ["result"]


async def test_an_answer_that_comes_at_once_is_the_whole_response() -> None:
    async with place_with(fast_path=True) as place, place.client.call("a:echo") as response:
        assert response.status == 200
        assert (await response.json())["result"]["content"]


async def test_a_client_that_lost_its_connection_gets_all_that_came_meanwhile_and_then_the_response_ends() -> None:
    async with place_with() as place:
        async with place.client.call("a:play", script=IN_TWO_PARTS) as response:
            await response.next()
            last = await response.next()
            assert last is not None
            assert last.says == PROGRESS
        await place.open_gate()
        await place.is_free()
        async with place.client.listen(last.event_id) as response:
            events = await response.rest()
    assert said(events) == [PROGRESS, "result"]
    assert events[0].message["params"]["progress"] == 2


async def test_a_client_that_is_back_before_the_answer_gets_it_as_soon_as_it_comes() -> None:
    async with place_with() as place:
        async with place.client.call("a:play", script=IN_TWO_PARTS) as response:
            first = await response.next()
        assert first is not None
        async with place.client.listen(first.event_id) as response:
            before = await response.next()
            assert before is not None
            assert before.says == PROGRESS
            await place.open_gate()
            assert said(await response.rest()) == [PROGRESS, "result"]


async def test_a_client_may_lose_its_connection_again_and_again() -> None:
    async with place_with() as place:
        async with place.client.call("a:play", script=[{"progress": [1]}, *IN_TWO_PARTS]) as response:
            last = await response.next()
        for _ in range(2):
            assert last is not None
            async with place.client.listen(last.event_id) as response:
                last = await response.next()
        assert last is not None
        await place.open_gate()
        async with place.client.listen(last.event_id) as response:
            assert said(await response.rest()) == [PROGRESS, "result"]


async def test_a_client_that_is_back_before_its_old_connection_is_known_to_be_lost_is_answered_on_the_new_one() -> None:
    async with place_with() as place, place.client.call("a:play", script=IN_TWO_PARTS) as old:
        first = await old.next()
        await old.next()
        assert first is not None
        async with place.client.listen(first.event_id) as new:
            assert await old.rest() == []
            await place.open_gate()
            assert said(await new.rest()) == [PROGRESS, PROGRESS, "result"]


async def test_a_client_that_does_not_come_back_in_time_ends_its_call_at_the_child() -> None:
    async with place_with(reconnect_wait=0.05) as place:
        async with place.client.call("a:hold") as response:
            await response.next()
            await place.is_called()
        await place.is_free()
        assert await place.other.call("a:release") == {"released": 0}


@pytest.mark.process
async def test_the_time_is_counted_from_when_the_client_left_last_whatever_the_child_says_meanwhile() -> None:
    async with place_with(reconnect_wait=0.2, build=fastmcp_aggregator.build_aggregator) as place:
        async with place.client.call("a:progress", steps=100_000, pause=0.02) as response:
            await response.next()
        await place.is_free()


async def test_a_call_whose_client_is_away_keeps_its_place_among_those_that_run() -> None:
    limits = {"max_concurrent_requests": 1, "max_waiting_requests": 0, "max_concurrent_calls": 2}
    async with place_with(**limits) as place:
        async with place.client.call("a:hold") as response:
            first = await response.next()
            await place.is_called()
        assert first is not None
        async with place.client.call("a:echo") as response:
            assert response.status == 503
        async with place.client.listen(first.event_id) as response:
            assert await place.other.call("a:release") == {"released": 1}
            assert said(await response.rest()) == ["result"]
        await place.is_admitted()


async def test_the_place_of_a_call_whose_client_does_not_come_back_is_free_again() -> None:
    async with place_with(reconnect_wait=0.05, max_concurrent_requests=1, max_waiting_requests=0) as place:
        async with place.client.call("a:hold") as response:
            await response.next()
        await place.is_admitted()


async def test_a_session_that_is_ended_ends_its_call_though_its_client_was_away_and_comes_back_no_more() -> None:
    async with place_with() as place:
        async with place.client.call("a:hold") as response:
            first = await response.next()
            await place.is_called()
        await place.client.end()
        await place.is_free()
        assert first is not None
        async with place.client.listen(first.event_id) as response:
            assert response.status == 404


async def test_a_session_that_is_ended_ends_the_response_of_a_client_that_had_come_back() -> None:
    async with place_with(events=KeptEvents(3600, answer_bound=0.05)) as place:
        async with place.client.call("a:hold") as response:
            first = await response.next()
            await place.is_called()
        assert first is not None
        async with place.client.listen(first.event_id) as response:
            await place.client.end()
            assert await response.rest() == []


async def test_nothing_is_kept_once_the_time_to_come_back_is_over() -> None:
    events = KeptEvents(0.05, sweep_pause=0.01)
    async with (
        build_aggregator(config(a=talking()), reconnect_wait=0.05, resumable="always") as app,
        served(app, event_store=events) as front,
        event_client(front.url) as client,
        event_client(front.url) as other,
    ):
        async with client.listen() as stream, other.call("a:hold") as dropped:
            await dropped.next()
            async with client.call("a:add_tool", name="more") as response:
                assert said(await response.rest()) == [None, "result"]
            await stream.next()
            assert len(events.logs) > 0
        await until(lambda: len(events.logs) == 0)
        await until(lambda: app.health()["a"].in_flight == 0)


async def test_without_time_to_come_back_no_event_has_an_id_and_a_lost_connection_ends_the_call() -> None:
    async with place_with(reconnect_wait=0) as place:
        async with place.client.call("a:play", script=IN_TWO_PARTS) as response:
            first = await response.next()
            assert first is not None
            assert (first.event_id, first.says) == ("", PROGRESS)
        await place.is_free()


async def test_a_client_of_a_version_without_a_first_id_ends_its_call_with_its_connection() -> None:
    async with place_with(version="2025-06-18") as place:
        async with place.client.call("a:play", script=IN_TWO_PARTS) as response:
            first = await response.next()
            assert first is not None
            assert first.says == PROGRESS
        await place.is_free()


async def test_nobody_else_gets_what_a_client_could_come_back_for() -> None:
    async with place_with(resumable="always") as place, event_client(place.url) as thief:
        async with place.client.call("a:echo") as response:
            first = await response.next()
        assert first is not None
        async with thief.listen(first.event_id) as response:
            assert response.status == 400
        async with place.client.listen(first.event_id) as response:
            assert said(await response.rest()) == ["result"]


@pytest.mark.parametrize("change", [lambda event_id: event_id + "0" * 5000, lambda event_id: "a" + event_id])
async def test_a_client_that_comes_back_for_what_is_not_kept_is_told_so(change: Any) -> None:
    async with place_with(resumable="always") as place:
        async with place.client.call("a:echo") as response:
            first = await response.next()
        assert first is not None
        async with place.client.listen(change(first.event_id)) as response:
            assert response.status == 400
            assert (await response.json())["error"]["message"].startswith("Last-Event-ID: ")


async def test_what_the_session_s_stream_missed_comes_when_the_client_is_back() -> None:
    changed = "notifications/tools/list_changed"
    async with place_with() as place:
        async with place.client.listen() as stream:
            await place.other.call("a:add_tool", name="one")
            first = await stream.next()
        assert first is not None
        await place.other.call("a:add_tool", name="two")
        await place.other.heard(changed)
        await place.other.heard(changed)
        async with place.client.listen(first.event_id) as stream:
            missed = await stream.next()
    assert missed is not None
    assert said([first, missed]) == [changed, changed]
    assert missed.event_id != first.event_id


class PollingServer:
    """A remote server that ends the response to a call at once, and lets each poll wait for what is in `polls`."""

    def __init__(self, *polls: str) -> None:
        self.polls: asyncio.Queue[str] = asyncio.Queue()
        for poll in polls:
            self.polls.put_nowait(poll)
        self._call: Any = None

    def end(self) -> None:
        """End the response to a poll, without an answer."""
        self.polls.put_nowait("")

    def answer(self) -> None:
        """Answer the call."""
        result = {"content": [{"type": "text", "text": "polled"}]}
        message = {"jsonrpc": "2.0", "id": self._call, "result": result}
        self.polls.put_nowait(f"id: e9\ndata: {json.dumps(message)}\n\n")

    async def __call__(self, request: Request) -> bool:
        if request.is_bad:
            self._call = request.message["id"]
            events = "id: e0\nretry: 1\ndata:\n\n"
        elif "last-event-id" in request.headers:
            events = await self.polls.get()
        else:
            return False
        await request.respond(200, events, content_type="text/event-stream")
        return True


async def test_a_client_polls_a_call_as_often_as_the_server_has_it_polled() -> None:
    polled = PollingServer()
    async with remote_server(polled) as server:
        app = build_aggregator(config(r={"url": server.url}), reconnect_wait=3600)
        async with served(app) as front, event_client(front.url) as client:
            async with client.call("r:bad") as response:
                [first] = await response.rest()
            assert first.message == {}
            for _ in range(2):
                async with client.listen(first.event_id) as response:
                    polled.end()
                    assert await response.rest() == []
            async with client.listen(first.event_id) as response:
                polled.answer()
                assert said(await response.rest()) == ["result"]


@pytest.mark.parametrize("modern", [False, True], ids=["legacy client", "modern client"])
async def test_clients_that_cannot_poll_wait_on_while_the_server_is_polled(modern: bool) -> None:
    polled = PollingServer("", "")
    async with (
        remote_server(polled) as server,
        build_aggregator(config(r={"url": server.url})) as app,
        connected(app, modern=modern) as client,
    ):
        _, response = client.begin("tools/call", {"name": "r:bad"})
        await until(polled.polls.empty)
        polled.answer()
        result = (await asyncio.wait_for(response, PATIENCE))["result"]
    assert result["content"] == [{"type": "text", "text": "polled"}]
