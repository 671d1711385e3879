"""Sessions of clients up to 2025-11-25 that go on at another replica; what replicas share is in memory here."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from fastmcp.server.auth import StaticTokenVerifier
from support.harness import PATIENCE, config, lean, until
from support.two_replicas import post, replicas, session_of
from support.wire import LEGACY

from fastmcp_aggregator.front.http.resume.kept_sessions import SESSION_LIFETIME, KeptSessions, SessionState
from fastmcp_aggregator.oauth.vault.vault import FileVault
from fastmcp_aggregator.protocol.methods import SUBSCRIBE, UNSUBSCRIBE

NOTE = "note://old//a"
SAY_LOG = {"say": "notifications/message", "params": {"level": "debug", "data": "heard"}}
ALICE = {"Authorization": "Bearer alice"}
MALLORY = {"Authorization": "Bearer mallory"}


async def test_a_session_goes_on_at_another_replica_with_what_the_client_has_asked_for() -> None:
    async with replicas() as hub:
        client = await hub.fronts[0].connect(name="editor", capabilities={"roots": {}})
        await client.result("logging/setLevel", {"level": "debug"})
        await client.result("resources/subscribe", {"uri": NOTE})
        await client.result("resources/subscribe", {"uri": "note://old//b"})
        await client.result("resources/unsubscribe", {"uri": "note://old//b"})
        await hub.moved(client)
        (connection,) = hub.apps[1]._live_clients.connections
        assert connection.session_id == session_of(client)
        assert connection.client_params is not None
        assert connection.client_params.client_info.name == "editor"
        assert connection.protocol_version == LEGACY
        client.forget()
        await client.play("old", SAY_LOG)
        await client.heard("notifications/message")
        updated = {"say": "notifications/resources/updated", "params": {"uri": "note:///a"}}
        await client.play("old", updated)
        assert (await client.heard("notifications/resources/updated"))["params"] == {"uri": NOTE}
        subscriptions = hub.apps[1]._backend.runtime
        assert subscriptions is not None
        assert len(list(subscriptions.subscriptions._entries())) == 1


async def test_a_session_is_opened_once_for_all_requests_that_come_for_it_and_gives_its_place_back() -> None:
    async with replicas(document=config(a=lean())) as hub:
        client = await hub.fronts[0].connect()
        answers = await asyncio.gather(*(post(hub.fronts[1], session_of(client)) for _ in range(20)))
        assert {answer.status_code for answer in answers} == {200}
        assert list(hub.sessions(1)) == [session_of(client)]
        taken = hub.apps[1]._backend.admission.sessions
        assert taken.taken == 1
        async with hub.fronts[1].browser(**client._session) as http:
            assert (await http.delete("/mcp")).status_code == 200
        await until(lambda: taken.taken == 0 and not hub.sessions(1))
        assert hub.shared.documents == {}


async def test_the_client_that_ends_its_session_ends_it_for_all_replicas_that_have_not_taken_it_over() -> None:
    async with replicas(document=config(a=lean())) as hub:
        client = await hub.fronts[0].connect()
        async with hub.fronts[0].browser(**client._session) as http:
            assert (await http.delete("/mcp")).status_code == 200
        assert (await post(hub.fronts[1], session_of(client))).status_code == 404


async def test_what_was_kept_of_an_ended_session_opens_it_no_more_when_somebody_puts_it_back() -> None:
    async with replicas(document=config(a=lean())) as hub:
        client = await hub.fronts[0].connect()
        session, kept = session_of(client), dict(hub.shared.documents)
        async with hub.fronts[0].browser(**client._session) as http:
            assert (await http.delete("/mcp")).status_code == 200
        hub.apps[1]._backend.changes.on_notice({"kind": "session", "group": "default", "id": session})
        hub.shared.documents.update(kept)
        for front in hub.fronts:
            assert (await post(front, session)).status_code == 404


async def test_of_ended_sessions_so_many_are_remembered_for_as_long_as_they_could_be_put_back() -> None:
    now = 0.0
    kept = KeptSessions(FileVault(Path()), "default", lambda: now, most_ended=3)
    for session in "abca":
        kept.ended(session)
    assert list(kept._ended) == ["b", "c", "a"]
    kept.ended("d")
    assert list(kept._ended) == ["c", "a", "d"]
    now = SESSION_LIFETIME + 1
    kept.ended("c")
    assert list(kept._ended) == ["c"]


async def test_a_session_that_ends_while_another_replica_takes_it_over_has_ended_there_too() -> None:
    async with replicas(document=config(a=lean())) as hub:
        client = await hub.fronts[0].connect()
        session = session_of(client)
        hub.shared.may_keep.clear()
        late = asyncio.create_task(post(hub.fronts[1], session))
        await until(lambda: hub.shared.waiting)  # it was opened there, and is to be kept
        async with hub.fronts[0].browser(**client._session) as http:
            assert (await http.delete("/mcp")).status_code == 200
        hub.apps[1]._backend.changes.on_notice({"kind": "session", "group": "default", "id": session})
        hub.shared.may_keep.set()
        await late
        await until(lambda: not hub.sessions(1))
        assert hub.shared.documents == {}
        assert (await post(hub.fronts[1], session)).status_code == 404


async def test_a_session_is_its_owners_at_every_replica_and_an_attempt_of_others_is_in_the_audit_log(
    tmp_path: Path,
) -> None:
    tokens: dict[str, dict[str, Any]] = {name: {"client_id": name, "scopes": []} for name in ("alice", "mallory")}
    audit = tmp_path / "audit.jsonl"
    options = {"auth": StaticTokenVerifier(tokens), "audit": str(audit), "document": config(a=lean())}
    async with replicas(**options) as hub:
        client = await hub.fronts[0].connect(headers=ALICE)
        for _ in range(2):
            assert (await post(hub.fronts[1], session_of(client), MALLORY)).status_code == 404
            assert (await post(hub.fronts[1], session_of(client))).status_code == 401
        assert hub.sessions(1) == {}
        entries = await until(lambda: [line for line in audit.read_text().splitlines() if "another caller" in line])
        assert "mallory" in json.loads(entries[0])["principal"]
        assert (await post(hub.fronts[1], session_of(client), ALICE)).status_code == 200
        assert (await post(hub.fronts[1], session_of(client), MALLORY)).status_code == 404


async def test_who_tries_to_take_a_session_over_does_not_keep_its_owner_from_it() -> None:
    tokens: dict[str, dict[str, Any]] = {name: {"client_id": name, "scopes": []} for name in ("alice", "mallory")}
    async with replicas(document=config(a=lean()), auth=StaticTokenVerifier(tokens)) as hub:
        client = await hub.fronts[0].connect(headers=ALICE)
        hub.shared.may_read.clear()
        theirs = asyncio.create_task(post(hub.fronts[1], session_of(client), MALLORY))
        await until(lambda: hub.shared.reads == 1)
        own = asyncio.create_task(post(hub.fronts[1], session_of(client), ALICE))
        await until(lambda: hub.apps[1]._backend.admission.counts()[0] == 2)
        hub.shared.may_read.set()
        assert [(await answer).status_code for answer in (theirs, own)] == [404, 200]


async def test_a_session_of_a_group_is_of_this_group_alone() -> None:
    groups = {"web": {"servers": ["a"]}, "default": {"servers": ["a"]}}
    async with replicas(document=config(a=lean()), groups=groups) as hub:
        client = await hub.fronts[0].connect("web")
        assert (await post(hub.fronts[1], session_of(client))).status_code == 404
        client._url = hub.fronts[1].url_of("web")
        assert await client.call("a:pid")


async def test_an_answer_of_another_replica_is_not_waited_for() -> None:
    """The call is gone with its replica: the client is told, and does not wait for what never comes."""
    async with replicas(document=config(a=lean())) as hub:
        client = await hub.fronts[0].connect()
        headers = {"Accept": "text/event-stream", "Last-Event-ID": "a0123456789abcdef.0", **client._session}
        async with hub.fronts[1].browser(**headers) as http:
            assert (await http.get("/mcp")).status_code == 404
        assert hub.sessions(1) == {}


async def test_without_what_is_shared_sessions_are_as_on_one_replica() -> None:
    async with replicas(document=config(a=lean())) as hub:
        hub.shared.is_away = True
        client = await hub.fronts[0].connect()
        await client.result("logging/setLevel", {"level": "debug"})
        assert await client.call("a:pid")
        assert (await post(hub.fronts[1], session_of(client))).status_code == 404
        hub.shared.is_away = False
        for unknown in ("0" * 32, "x", "0" * 5000):
            assert (await post(hub.fronts[1], unknown)).status_code == 404


async def test_nobody_takes_over_more_sessions_than_are_his_share() -> None:
    async with replicas(document=config(a=lean())) as hub:
        client = await hub.fronts[0].connect()
        slots = hub.apps[1]._backend.admission.sessions
        slots.total, before = 0, slots.total
        assert (await post(hub.fronts[1], session_of(client))).status_code == 404
        slots.total = before
        assert (await post(hub.fronts[1], session_of(client))).status_code == 200


@pytest.mark.parametrize("level", [None, 7])
def test_what_is_no_level_and_no_address_changes_nothing(level: Any) -> None:
    state = SessionState(None, {})
    assert state.after("logging/setLevel", {"level": level}) == state
    assert state.after(SUBSCRIBE.name, {"uri": level}) == state


def test_an_address_is_kept_once_until_it_is_given_up() -> None:
    state = SessionState(None, {}).after(SUBSCRIBE.name, {"uri": "a:b"}).after(SUBSCRIBE.name, {"uri": "a:b"})
    assert state.subscriptions == ("a:b",)
    assert state.after(UNSUBSCRIBE.name, {"uri": "a:b"}).subscriptions == ()


async def test_a_change_of_a_session_that_others_keep_locked_is_given_up(tmp_path: Path) -> None:
    vault = FileVault(tmp_path)
    kept = KeptSessions(vault, "default", timeout=0.01)
    await kept.keep("a", SessionState(None, {}))
    async with vault.locked("session", "default a"):
        await asyncio.wait_for(kept.change("a", None, SUBSCRIBE.name, {"uri": NOTE}), PATIENCE)
    assert await kept.read("a") == SessionState(None, {})
