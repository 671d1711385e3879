"""Sessions of clients up to 2025-11-25 that go on at another replica; what replicas share is in memory here."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastmcp.server.auth import StaticTokenVerifier
from support.harness import config, lean, talking, until
from support.memory import build_aggregator
from support.serving import Served, served
from support.wire import LEGACY
from support.wire_http import HttpClient

from fastmcp_aggregator import Aggregator
from fastmcp_aggregator.front.http.resume.kept_sessions import SessionState
from fastmcp_aggregator.oauth.vault.errors import VaultError
from fastmcp_aggregator.oauth.vault.vault import Vault
from fastmcp_aggregator.protocol.methods import SUBSCRIBE, UNSUBSCRIBE

NOTE = "note://old//a"
SAY_LOG = {"say": "notifications/message", "params": {"level": "debug", "data": "heard"}}
ALICE = {"Authorization": "Bearer alice"}
MALLORY = {"Authorization": "Bearer mallory"}


class SharedMemory(Vault):
    """What replicas share, in this process."""

    def __init__(self) -> None:
        self.documents: dict[tuple[str, str], bytes] = {}
        self.is_away = False
        self.reads = 0
        self.may_read = asyncio.Event()
        self.may_read.set()
        self._locks: dict[str, asyncio.Lock] = {}

    def _ask(self) -> None:
        if self.is_away:
            raise VaultError("away")

    async def read(self, kind: str, name: str) -> bytes | None:
        self._ask()
        self.reads += 1
        await self.may_read.wait()
        return self.documents.get((kind, name))

    async def keep(self, kind: str, name: str, document: bytes, *, lifetime: float | None = None) -> None:
        self._ask()
        assert lifetime is not None
        self.documents[kind, name] = document

    async def remove(self, kind: str, name: str) -> bool:
        self._ask()
        return self.documents.pop((kind, name), None) is not None

    async def all(self, kind: str) -> list[bytes]:
        return [document for (each, _), document in self.documents.items() if each == kind]

    @asynccontextmanager
    async def locked(self, kind: str, name: str) -> AsyncIterator[None]:  # type: ignore[override]
        self._ask()
        async with self._locks.setdefault(name, asyncio.Lock()):
            yield


class Replicas:
    """Two replicas of one hub."""

    def __init__(self, shared: SharedMemory, apps: list[Aggregator], fronts: list[Served]) -> None:
        self.shared = shared
        self.apps = apps
        self.fronts = fronts

    def sessions(self, number: int) -> dict[str, Any]:
        """The open sessions of one of them."""
        endpoint = next(route.endpoint for route in self.fronts[number].asgi.routes if route.path == "/mcp")
        manager = getattr(endpoint, "app", endpoint).session_manager
        sessions: dict[str, Any] = manager._server_instances
        return sessions

    async def moved(self, client: HttpClient, number: int = 1) -> HttpClient:
        """The client, whose load balancer sends it to another replica from now on. It opens its stream again there."""
        client._url = self.fronts[number].url
        await client.listen_again({})
        return client


@asynccontextmanager
async def replicas(**options: Any) -> AsyncIterator[Replicas]:
    shared = SharedMemory()
    apps, fronts = [], []
    document = options.pop("document", None) or config(a=lean(), old=talking())
    async with AsyncExitStack() as stack:
        for _ in range(2):
            app = build_aggregator(document, **options)
            app._backend.shared_sessions = shared
            apps.append(app)
            fronts.append(await stack.enter_async_context(served(app)))
        yield Replicas(shared, apps, fronts)


_NUMBERS = itertools.count(1)


def call(name: str) -> dict[str, Any]:
    params = {"name": name, "arguments": {}}
    return {"jsonrpc": "2.0", "id": next(_NUMBERS), "method": "tools/call", "params": params}


async def post(front: Served, session: str, headers: dict[str, str] | None = None, **more: str) -> httpx2.Response:
    """A call in a session."""
    told = {"Accept": "application/json, text/event-stream", "Mcp-Session-Id": session, "MCP-Protocol-Version": LEGACY}
    async with front.browser(**told, **(headers or {}), **more) as http:
        return await http.post("/mcp", json=call("a:pid"))


def session_of(client: HttpClient) -> str:
    return client._session["Mcp-Session-Id"]


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
        taken = hub.apps[1]._backend.places.sessions
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
        entries = await until(lambda: [line for line in audit.read_text().splitlines() if "somebody else" in line])
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
        await until(lambda: hub.apps[1]._backend.places.counts()[0] == 2)
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
        places = hub.apps[1]._backend.places.sessions
        places.total, before = 0, places.total
        assert (await post(hub.fronts[1], session_of(client))).status_code == 404
        places.total = before
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
