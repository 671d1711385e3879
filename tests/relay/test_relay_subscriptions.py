"""Resources that clients follow: in both eras on both sides, and nobody else is told."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp_types import INVALID_PARAMS
from support.harness import RawClient, config, connected, talking, until
from support.serving import Served, served
from support.talking_server import TalkingServer, talking_server
from support.wire import Message
from support.wire_http import HttpClient

from fastmcp_aggregator import build_aggregator

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.process]

UPDATED = "notifications/resources/updated"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
ASKING = ("resources/subscribe", "subscriptions/listen")
A, B = "note://a//a", "note://a//b"
"""Public addresses; the child's own are `note:///a` and `note:///b`."""
CHILD_ERAS = pytest.mark.parametrize("era", ["legacy", "modern"], ids=["legacy child", "modern child"])
CLIENT_ERAS = pytest.mark.parametrize("modern", [False, True], ids=["legacy client", "modern client"])
BOTH_FRONTS = pytest.mark.parametrize("is_http", [False, True], ids=["on a pipe", "over HTTP"])


@asynccontextmanager
async def followable(era: str = "legacy", **options: Any) -> AsyncIterator[tuple[TalkingServer, Served]]:
    """A remote talking child `a`, and a way to become a client in front of it."""
    async with (
        talking_server(era=era, **options) as server,
        served(build_aggregator(config(a=server.entry))) as front,
    ):
        yield server, front


async def follow(client: RawClient, uri: str) -> Any:
    """Follow a resource in the client's way; for a modern one, what the stream is known by."""
    if not client.is_modern:
        assert await client.result("resources/subscribe", {"uri": uri}) == {}
        return None
    stream, _ = client.begin("subscriptions/listen", {"notifications": {"resourceSubscriptions": [uri]}})
    agreed = await client.heard(ACKNOWLEDGED)
    assert agreed["params"]["notifications"] == {"resourceSubscriptions": [uri]}
    return stream


async def leave(client: RawClient, uri: str, stream: Any) -> None:
    """Follow it no more."""
    if not client.is_modern:
        assert await client.result("resources/unsubscribe", {"uri": uri}) == {}
    elif isinstance(client, HttpClient):
        client.hang_up(stream)
    else:
        client.notify("notifications/cancelled", {"requestId": stream})


async def told_up_to(client: RawClient, uri: str) -> list[str]:
    """What the client is told of, up to the update of this one."""
    updated: list[str] = []
    while not updated or updated[-1] != uri:
        updated.append((await client.heard(UPDATED))["params"]["uri"])
    return updated


def tell(server: TalkingServer, *uris: str) -> None:
    """Let the child tell that resources have changed."""
    server.child.play_outside(*({"update": uri} for uri in uris))


def followed(server: TalkingServer) -> list[str]:
    """The addresses that the child is asked to tell of, now."""
    if server.is_modern:
        filters = list(server.child.followed.values())
        return sorted(uri for wanted in filters for uri in wanted.get("resourceSubscriptions", []))
    asked = set()
    for method, params in server.child.requests:
        if method == "resources/subscribe":
            asked.add(params["uri"])
        elif method == "resources/unsubscribe":
            asked.discard(params["uri"])
    return sorted(asked)


@CHILD_ERAS
@CLIENT_ERAS
@BOTH_FRONTS
async def test_who_follows_is_told_under_its_own_address_until_it_leaves(era: str, modern: bool, is_http: bool) -> None:
    async with talking_server(era=era) as server:
        app = build_aggregator(config(a=server.entry))
        async with served(app) as front, connected(app, modern=modern) as on_a_pipe:
            client: RawClient = await front.connect(modern=modern) if is_http else on_a_pipe
            stream = await follow(client, A)
            await follow(client, B)
            assert followed(server) == ["note:///a", "note:///b"]
            tell(server, "note:///a", "note:///other", "note:///b")
            assert await told_up_to(client, B) == [A, B]
            await leave(client, A, stream)
            await until(lambda: followed(server) == ["note:///b"])
            tell(server, "note:///a", "note:///b")
            assert await told_up_to(client, B) == [B]


@CHILD_ERAS
async def test_a_child_is_asked_once_for_all_followers_and_no_more_when_the_last_has_left(era: str) -> None:
    async with followable(era) as (server, front):
        legacy, modern, other = await front.connect(), await front.connect(modern=True), await front.connect()
        stream = await follow(modern, A)
        for client in (legacy, other):
            await follow(client, A)
        asked = [params for method, params in server.child.requests if method in ASKING and "note:///a" in str(params)]
        assert len(asked) == 1
        tell(server, "note:///a")
        for client in (legacy, modern, other):
            assert await told_up_to(client, A) == [A]
        await leave(modern, A, stream)
        await leave(legacy, A, None)
        tell(server, "note:///a")
        assert await told_up_to(other, A) == [A]
        assert followed(server) == ["note:///a"]
        await leave(other, A, None)
        await until(lambda: followed(server) == [])


@CHILD_ERAS
async def test_whoever_does_not_follow_is_told_nothing(era: str) -> None:
    async with followable(era) as (server, front):
        followers = [await front.connect(), await front.connect(modern=True)]
        others = [await front.connect(), await front.connect(modern=True)]
        for client in followers:
            await follow(client, A)
        for client in others:
            await follow(client, B)
        tell(server, "note:///a", "note:///b")
        assert [await told_up_to(client, A) for client in followers] == [[A], [A]]
        assert [await told_up_to(client, B) for client in others] == [[B], [B]]
        assert [client.notifications for client in (*followers, *others)] == [[]] * 4


async def test_an_address_without_end_stops_nobody_and_cannot_be_followed() -> None:
    endless = "note:///a" + "/x" * 500_000
    async with followable() as (server, front):
        client = await front.connect()
        await follow(client, A)
        tell(server, endless, "note:///a")
        assert await told_up_to(client, A) == [A]
        error = await client.error("resources/subscribe", {"uri": f"note://a//a{'/x' * 5000}"})
        assert error["code"] == INVALID_PARAMS
        assert "8192 characters" in error["message"]


@CHILD_ERAS
async def test_an_update_below_what_is_followed_counts_too(era: str) -> None:
    async with followable(era) as (server, front):
        legacy, modern = await front.connect(), await front.connect(modern=True)
        for client in (legacy, modern):
            await follow(client, A)
        tell(server, "note:///a/below/it", "note:///abelow")
        assert await told_up_to(legacy, f"{A}/below/it") == [f"{A}/below/it"]
        assert await told_up_to(modern, A) == [A], "the address that its stream follows"
        tell(server, "note:///a")
        assert await told_up_to(legacy, A) == [A]


@CHILD_ERAS
@CLIENT_ERAS
async def test_a_client_that_is_gone_follows_no_more(era: str, modern: bool) -> None:
    async with followable(era) as (server, front):
        client, other = await front.connect(modern=modern), await front.connect()
        for uri in (A, B):
            await follow(client, uri)
        await follow(other, B)
        await client.close()
        await until(lambda: followed(server) == ["note:///b"])


async def test_one_stream_of_a_modern_client_brings_updates_and_list_changes() -> None:
    async with followable() as (server, front):
        client = await front.connect(modern=True)
        await client.result("tools/list")
        wanted = {"toolsListChanged": True, "resourceSubscriptions": [A, B]}
        stream, _ = client.begin("subscriptions/listen", {"notifications": wanted})
        assert (await client.heard(ACKNOWLEDGED))["params"]["notifications"] == wanted
        server.child.play_outside({"update": "note:///b"}, {"changed": "tools"}, {"changed": "prompts"})
        await client.heard(UPDATED)
        await client.heard("notifications/tools/list_changed")
        messages = client.streams[stream]
        assert all(m["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": stream} for m in messages)
        assert len(messages) == 3


# What cannot be followed.


@CLIENT_ERAS
@pytest.mark.parametrize("uri", ["note://nobody//a", "", "no address"])
async def test_an_address_that_is_nobodys_cannot_be_followed(modern: bool, uri: str) -> None:
    async with followable() as (_, front):
        client = await front.connect(modern=modern)
        if not modern:
            assert (await client.error("resources/subscribe", {"uri": uri}))["code"] == -32602
            return
        client.begin("subscriptions/listen", {"notifications": {"resourceSubscriptions": [uri, A]}})
        agreed = await client.heard(ACKNOWLEDGED)
        assert agreed["params"]["notifications"] == {"resourceSubscriptions": [A]}


@CLIENT_ERAS
@CHILD_ERAS
async def test_a_child_that_refuses_says_so_to_a_legacy_client_and_is_left_out_for_a_modern_one(
    era: str, modern: bool
) -> None:
    error = {"code": -31999, "message": "not this one"}
    async with followable(era) as (server, front):
        await (await front.connect()).report("a")
        server.child.errors = {"resources/subscribe": error, "subscriptions/listen": error}
        client = await front.connect(modern=modern)
        if not modern:
            assert await client.error("resources/subscribe", {"uri": A}) == error
        else:
            client.begin("subscriptions/listen", {"notifications": {"resourceSubscriptions": [A]}})
            assert (await client.heard(ACKNOWLEDGED))["params"]["notifications"] == {}
        tell(server, "note:///a")
        await client.report("a")
        assert UPDATED not in [message["method"] for message in client.notifications]


async def test_what_is_not_followed_can_be_left() -> None:
    async with followable() as (server, front):
        client = await front.connect()
        assert await client.result("resources/unsubscribe", {"uri": A}) == {}
        assert followed(server) == []


# When things happen at the same time, or the child comes back.


async def test_who_comes_while_the_last_one_leaves_is_told() -> None:
    async with followable() as (server, front):
        one, other = await front.connect(), await front.connect()
        for _ in range(20):
            await follow(one, A)
            await asyncio.gather(leave(one, A, None), follow(other, A))
            assert followed(server) == ["note:///a"]
            tell(server, "note:///a")
            assert await told_up_to(other, A) == [A]
            await leave(other, A, None)


async def test_the_child_is_not_asked_anew_before_it_has_answered_that_it_tells_no_more() -> None:
    """Over HTTP, the later of two requests may arrive first."""
    async with followable(gate="resources/unsubscribe") as (server, front):
        one, other = await front.connect(), await front.connect()
        await follow(one, A)
        leaving = asyncio.ensure_future(leave(one, A, None))
        await until(lambda: server.child.at_gate)
        following = asyncio.ensure_future(follow(other, A))
        await other.report("a")
        assert [method for method, _ in server.child.requests].count("resources/subscribe") == 1
        server.child.open_gate()
        await asyncio.gather(leaving, following)
        assert followed(server) == ["note:///a"]


@CHILD_ERAS
@CLIENT_ERAS
async def test_a_child_that_has_come_back_is_asked_again(era: str, modern: bool) -> None:
    app = build_aggregator(config(a=talking(era=era)))
    async with app, connected(app, modern=modern) as client:
        stream = await follow(client, A)
        os.kill((await client.call("a:pid"))["pid"], signal.SIGKILL)
        await until(lambda: app.health()["a"].restarts and app.health()["a"].state == "running")
        await client.report("a", is_followed)
        await client.play("a", {"update": "note:///a"})
        assert await told_up_to(client, A) == [A]
        await leave(client, A, stream)
        await client.report("a", lambda report: not is_followed(report))


def is_followed(report: Message) -> bool:
    """Whether a child on stdio is asked to tell of something."""
    methods = [method for method, _ in report["requests"]]
    by_streams = any("resourceSubscriptions" in wanted for wanted in report["followed"])
    return by_streams or methods.count("resources/subscribe") > methods.count("resources/unsubscribe")
