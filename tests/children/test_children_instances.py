"""Servers that have more than one instance: one for each client session, or one more for legacy clients."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from fastmcp.server.auth import StaticTokenVerifier
from support.harness import config, connected, lean, talking, timed, until
from support.memory import build_aggregator, scripted
from support.serving import served
from support.wire import EVERYTHING

from fastmcp_aggregator import Aggregator
from fastmcp_aggregator.children.timings import Timings
from fastmcp_aggregator.settings.model import ServerSettings

SESSION = {"servers": {"lean": ServerSettings(isolation="session")}}
NOTE = {"uri": "note://lean//a"}
UPDATED = "notifications/resources/updated"
SUBSCRIBING = ("resources/subscribe", "subscriptions/listen")


def isolated(**options: Any) -> Aggregator:
    return build_aggregator(config(lean=lean(**options)), **SESSION)


def pids_of(hub: Aggregator) -> set[int]:
    """The processes of all instances, the first one among them."""
    children = [*hub.children.values(), *(instance for instance, _ in hub._backend.runtime.instances)]
    return {pid for child in children if (pid := child.status().pid) is not None}


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_each_client_session_has_a_process_of_its_own_and_keeps_it(era: str) -> None:
    async with isolated(era=era) as hub, connected(hub) as one, connected(hub) as two:
        assert await one.call("lean:pid") == await one.call("lean:pid")
        assert await one.call("lean:pid") != await two.call("lean:pid")


async def test_a_session_that_only_lists_starts_nothing() -> None:
    async with isolated() as hub, connected(hub) as client:
        assert "lean:pid" in await client.names()
        assert len(pids_of(hub)) == 1


@pytest.mark.parametrize("modern", [False, True])
async def test_the_process_ends_with_the_session(modern: bool) -> None:
    async with isolated() as hub:
        async with connected(hub, modern=modern) as client:
            await client.call("lean:pid")
            assert len(pids_of(hub)) == 2
        await until(lambda: len(pids_of(hub)) == 1)


async def test_a_process_that_crashed_is_replaced_for_its_session_alone() -> None:
    async with isolated() as hub, connected(hub) as one, connected(hub) as two:
        before = await one.call("lean:pid"), await two.call("lean:pid")
        await one.error("tools/call", {"name": "lean:leave", "arguments": {"code": 1}})
        assert await one.call("lean:pid") not in before
        assert await two.call("lean:pid") == before[1]


async def test_one_user_cannot_take_the_instances_of_all() -> None:
    tokens = {name: {"client_id": name, "scopes": []} for name in ("ann", "bob", "carol")}
    hub = build_aggregator(config(lean=lean()), **SESSION, max_isolated_sessions=2, auth=StaticTokenVerifier(tokens))
    async with served(hub) as front:
        clients = [await front.connect(headers={"Authorization": "Bearer ann"}) for _ in range(3)]
        answers = [await client.send("tools/call", {"name": "lean:pid", "arguments": {}}) for client in clients]
        assert ["error" in answer for answer in answers] == [False, False, True]
        bob = await front.connect(headers={"Authorization": "Bearer bob"})
        assert await bob.call("lean:pid")
        usage = hub.shares()["instances of lean"]
        assert (usage.total, usage.taken, usage.holders, usage.largest[1], usage.refused) == (3, 3, 2, 2, 1)


async def test_who_has_most_gives_up_what_is_unused_for_longest_and_its_session_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    tokens = {name: {"client_id": name, "scopes": []} for name in ("ann", "bob", "carol", "dave")}
    audit = tmp_path / "audit.jsonl"
    about = {"auth": StaticTokenVerifier(tokens), "audit": str(audit), "max_isolated_sessions": 3}
    hub = build_aggregator(config(lean=lean()), **SESSION, **about)
    async with served(hub) as front:
        first, second, third = [await front.connect(headers={"Authorization": "Bearer ann"}) for _ in range(3)]
        kept = [await client.call("lean:pid") for client in (first, second, third)]
        assert await first.call("lean:pid") == kept[0]
        bob, carol, dave = [
            await front.connect(headers={"Authorization": f"Bearer {who}"}) for who in ("bob", "carol", "dave")
        ]
        assert await bob.call("lean:pid")
        assert await carol.call("lean:pid")
        assert await first.call("lean:pid") == kept[0]
        told = await second.error("tools/call", {"name": "lean:pid", "arguments": {}})
        assert "another caller needed an instance" in told["message"]
        assert "max_isolated_sessions" in (await second.error("tools/call", {"name": "lean:pid"}))["message"]
        holding = asyncio.create_task(third.call("lean:hold"))
        await until(lambda: any(each.calls.in_flight for each, _ in hub._backend.runtime.instances))
        assert await dave.call("lean:pid")
        assert "another caller" in (await first.error("tools/call", {"name": "lean:pid"}))["message"]
        await third.call("lean:release")
        await holding
    entries = [json.loads(line) for line in audit.read_text().splitlines()]
    told = [(each["principal"], each["server"], each["to"]) for each in entries if each["event"] == "gave_way"]
    assert told == [("client:ann", "lean", "client:carol"), ("client:ann", "lean", "client:dave")]
    assert "an instance of server 'lean' of client:ann was closed: client:carol needed one" in caplog.messages


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_subscriptions_keep_no_more_than_is_fair_and_are_renewed_with_the_next_instance(era: str) -> None:
    tokens = {name: {"client_id": name, "scopes": []} for name in ("ann", "bob", "carol")}
    entry = talking(era=era)
    hub = build_aggregator(config(lean=entry), **SESSION, max_isolated_sessions=3, auth=StaticTokenVerifier(tokens))
    lives = scripted(hub)["lean"].lives
    async with served(hub) as front:
        first, second, third, bob, carol = [
            await front.connect(headers={"Authorization": f"Bearer {who}"})
            for who in ("ann", "ann", "ann", "bob", "carol")
        ]
        for client in (first, second, third):
            await client.result("resources/subscribe", NOTE)
        assert await bob.call("lean:pid")
        assert await carol.call("lean:pid")
        assert (await first.heard(UPDATED))["params"] == NOTE
        assert "another caller needed an instance" in (await first.error("resources/read", NOTE))["message"]
        for client in (second, bob):
            await client.close()
        await until(lambda: len(list(hub._backend.runtime.instances)) == 2)
        assert await first.call("lean:pid") == {"pid": lives[-1].pid}
        await until(lambda: any(each.get("method") in SUBSCRIBING for each in lives[-1].received))
        await first.play("lean", {"update": "note:///a"})
        assert (await first.heard(UPDATED))["params"] == NOTE


async def test_who_has_most_gives_up_what_is_idle_before_what_has_a_subscription() -> None:
    tokens = {name: {"client_id": name, "scopes": []} for name in ("ann", "bob", "carol")}
    hub = build_aggregator(config(lean=talking()), **SESSION, max_isolated_sessions=3, auth=StaticTokenVerifier(tokens))
    async with served(hub) as front:
        first, second, third, *others = [
            await front.connect(headers={"Authorization": f"Bearer {who}"})
            for who in ("ann", "ann", "ann", "bob", "carol")
        ]
        for client in (first, second):
            await client.result("resources/subscribe", NOTE)
        await third.call("lean:pid")
        for other in others:
            assert await other.call("lean:pid")
        assert "another caller" in (await third.error("tools/call", {"name": "lean:pid"}))["message"]
        for client in (first, second):
            assert await client.call("lean:pid")


async def test_clients_at_a_place_whose_instance_was_given_up_are_told_once() -> None:
    tokens = {name: {"client_id": name, "scopes": []} for name in ("ann", "bob", "carol")}
    by_folder = {"servers": {"lean": ServerSettings(isolation="directory")}}
    app = build_aggregator(config(lean=lean()), **by_folder, max_isolated_sessions=2, auth=StaticTokenVerifier(tokens))

    async with served(app) as front:
        clients = [
            await front.connect(headers={"Authorization": f"Bearer {who}"}, capabilities={"roots": {}})
            for who in ("ann", "ann", "bob", "carol")
        ]
        for number, client in enumerate(clients):
            roots = [{"uri": f"file:///{number}"}]
            client.on_question = lambda method, params, roots=roots: {"result": {"roots": roots}}
            assert await client.call("lean:pid")
        told = await clients[0].error("tools/call", {"name": "lean:pid", "arguments": {}})
        assert "was closed with what it kept" in told["message"]
        instances = app._backend.runtime.instances
        assert not instances._given_up
        assert "max_isolated_sessions" in (await clients[0].error("tools/call", {"name": "lean:pid"}))["message"]


async def test_an_instance_that_was_only_asked_whether_it_lives_ends_when_nobody_has_used_it_for_a_while() -> None:
    tokens = {"ann": {"client_id": "ann", "scopes": []}}
    hub = build_aggregator(config(lean=lean()), **SESSION, auth=StaticTokenVerifier(tokens))
    timed(hub, Timings(health_interval=0.02, session_idle=0.3))
    async with served(hub) as front:
        client = await front.connect(modern=True, headers={"Authorization": "Bearer ann"})
        await client.call("lean:pid")
        (instance,) = [instance for instance, _ in hub._backend.runtime.instances]
        used = instance.calls.last_answer
        await until(lambda: instance.calls.last_answer > used)
        await until(lambda: not list(hub._backend.runtime.instances))


async def test_who_has_more_than_others_takes_nothing_from_them() -> None:
    tokens = {name: {"client_id": name, "scopes": []} for name in ("ann", "bob")}
    hub = build_aggregator(config(lean=lean()), **SESSION, max_isolated_sessions=2, auth=StaticTokenVerifier(tokens))
    async with served(hub) as front:
        ann = [await front.connect(headers={"Authorization": "Bearer ann"}) for _ in range(3)]
        bob = await front.connect(headers={"Authorization": "Bearer bob"})
        before = await bob.call("lean:pid")
        answers = [await client.send("tools/call", {"name": "lean:pid", "arguments": {}}) for client in ann]
        assert ["error" in answer for answer in answers] == [False, True, True]
        assert await bob.call("lean:pid") == before


async def test_a_session_that_ends_has_nothing_left_to_be_told() -> None:
    tokens = {name: {"client_id": name, "scopes": []} for name in ("ann", "bob", "carol")}
    hub = build_aggregator(config(lean=lean()), **SESSION, max_isolated_sessions=2, auth=StaticTokenVerifier(tokens))
    async with served(hub) as front:
        ann = [await front.connect(headers={"Authorization": "Bearer ann"}) for _ in range(2)]
        others = [await front.connect(headers={"Authorization": f"Bearer {who}"}) for who in ("bob", "carol")]
        for client in (*ann, *others):
            assert await client.call("lean:pid")
        instances = hub._backend.runtime.instances
        assert len(instances._given_up) == 1
        await ann[0].close()
        await until(lambda: not instances._given_up)
        assert len(instances._holders) == 3


async def test_too_many_sessions_are_told_so_and_a_place_is_free_when_one_ends() -> None:
    hub = build_aggregator(config(lean=lean()), **SESSION, max_isolated_sessions=1)
    async with hub, connected(hub) as second:
        async with connected(hub) as first:
            await first.call("lean:pid")
            error = await second.error("tools/call", {"name": "lean:pid", "arguments": {}})
            assert "'lean'" in error["message"]
            assert "max_isolated_sessions" in error["message"]
        await until(lambda: not list(hub._backend.runtime.instances))
        assert await second.call("lean:pid")


async def test_modern_clients_on_pipes_keep_their_process_from_call_to_call() -> None:
    async with isolated() as hub, connected(hub, modern=True) as one, connected(hub, modern=True) as two:
        assert await one.call("lean:pid") == await one.call("lean:pid")
        assert await one.call("lean:pid") != await two.call("lean:pid")


async def test_a_modern_client_without_a_session_has_one_process_for_a_call_and_all_its_questions(
    tmp_path: Path,
) -> None:
    record = tmp_path / "pids"
    hub = build_aggregator(
        config(talk=talking(record=str(record))), servers={"talk": ServerSettings(isolation="session")}
    )
    question = {"ask": {"a": {"method": "roots/list"}}}
    async with served(hub) as front:
        client = await front.connect(modern=True, capabilities=EVERYTHING)
        client.on_question = lambda method, params: {"result": {"roots": []}}
        assert await client.play("talk", question, question) == [{"a": {"roots": []}}] * 2
        assert len(record.read_text().split()) == 2
        error = await client.error("tools/call", {"name": "talk:play", "requestState": "held-by-nobody"})
        assert error["code"] == -32602
        await until(lambda: not list(hub._backend.runtime.instances))
    assert len(record.read_text().split()) == 2


async def test_a_child_that_is_gone_from_the_config_takes_its_instances_along() -> None:
    hub = isolated()
    async with hub, connected(hub) as client:
        await client.call("lean:pid")
        await hub.reload(config(other=lean()))
        assert list(hub._backend.runtime.instances) == []
        await until(lambda: len(pids_of(hub)) == 1)


async def test_nothing_is_left_of_the_instances_when_the_app_ends() -> None:
    hub = isolated()
    async with hub, connected(hub) as client:
        pid = await client.call("lean:pid")
    with pytest.raises(ProcessLookupError):
        os.kill(pid["pid"], 0)


async def test_a_shared_server_has_one_process_for_all() -> None:
    hub = build_aggregator(config(lean=lean()))
    async with hub, connected(hub) as one, connected(hub, modern=True) as two:
        assert await one.call("lean:pid") == await two.call("lean:pid")
        assert await asyncio.gather(one.call("lean:pid"), two.call("lean:pid"))
        assert len(pids_of(hub)) == 1
