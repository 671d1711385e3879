"""What operators do over HTTP, who may, and what is recorded of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from support.credentials import Credentials
from support.harness import config, connected, lean, until
from support.keyed_hub import KeyedHub, keyed_hub
from support.memory import build_aggregator
from support.wire import until_answered

import fastmcp_aggregator
from fastmcp_aggregator.pinning.pins_file import read_pins, write_pins

ROUTES = [
    ("POST", "/restart/a"),
    ("POST", "/stop/a"),
    ("GET", "/stderr/a"),
    ("POST", "/withdraw/a"),
    ("POST", "/reinstate/a"),
    ("GET", "/keys"),
    ("GET", "/pins"),
    ("POST", "/pins/a"),
]


@asynccontextmanager
async def hub(folder: Path, *, a: Any = None, b: Any = None, **settings: Any) -> AsyncIterator[KeyedHub]:
    """A hub with keys: `chief` operates, `viewer` observes, `ann` calls."""
    roles = {"chief": {"operate"}, "viewer": {"observe", "call"}, "ann": {"call"}}
    credentials = Credentials(folder, dict.fromkeys(roles), roles)
    document = config(a=a or lean(), **({"b": b} if b else {}))
    async with keyed_hub(folder, credentials, document, rate_limit=0, **settings) as here:
        yield here


async def recorded(here: KeyedHub, count: int) -> list[tuple[str, str, str | None]]:
    """The operations in the audit log, once there are so many."""
    lines = await here.audited(count, "operation")
    return [(line["principal"], line["operation"], line.get("server")) for line in lines]


async def test_only_operators_may(tmp_path: Path) -> None:
    async with hub(tmp_path) as here:
        for method, path in ROUTES:
            assert (await here.ask(None, method, path)).status_code == 401
            for who in ("viewer", "ann"):
                answer = await here.ask(who, method, path, {"tool": "echo"})
                assert (answer.status_code, answer.text) == (403, "Forbidden: you lack the role `operate`")
        assert here.app.health()["a"].state == "running"
        assert (await here.ask("chief", "POST", "/mcp/tools/call", {"name": "a:echo"})).status_code == 403
        for method, path in ROUTES:
            if path.endswith("/a"):
                assert (await here.ask("chief", method, path.replace("/a", "/none"))).status_code == 404


async def test_a_server_is_stopped_until_it_is_restarted(tmp_path: Path) -> None:
    async with hub(tmp_path, b=lean()) as here, connected(here.app) as client:
        assert "a:pid" in await client.names()
        assert (await here.ask("chief", "POST", "/stop/a")).status_code == 202
        await until(lambda: here.app.health()["a"].state == "stopped")
        assert here.app.health()["a"].pid is None
        await client.heard("notifications/tools/list_changed")
        assert {name.partition(":")[0] for name in await client.names()} == {"b"}
        refused = await here.call("ann", None, "a:pid")
        assert (refused.status_code, "an operator has stopped it" in refused.text) == (503, True)
        assert (await here.ask("ann", "POST", "/wake/a")).status_code == 202
        assert here.app.health()["a"].state == "stopped"
        assert (await here.ask(None, "GET", "/ready")).status_code == 200
        assert (await here.ask("chief", "POST", "/restart/a")).status_code == 202
        await until(lambda: here.app.health()["a"].state == "running")
        assert (await here.call("ann", None, "a:pid")).status_code == 200
        assert "a:pid" in await client.names()
        done = [("key:chief", "stop", "a"), ("key:ann", "wake", "a"), ("key:chief", "restart", "a")]
        assert await recorded(here, 3) == done


@pytest.mark.parametrize("modern", [False, True])
async def test_no_instance_of_a_server_that_was_stopped_begins_with_the_next_call(tmp_path: Path, modern: bool) -> None:
    """Of servers with an instance for each client."""
    isolated = hub(tmp_path, servers={"a": {"isolation": "session"}})
    async with isolated as here, connected(here.app, modern=modern) as client:
        await client.call("a:pid")
        assert (await here.ask("chief", "POST", "/stop/a")).status_code == 202
        await until(lambda: here.app.health()["a"].state == "stopped")
        for _ in range(2):
            error = await client.error("tools/call", {"name": "a:pid", "arguments": {}})
            assert "an operator has stopped it" in error["message"]
        refused = await here.call("ann", None, "a:pid")
        assert (refused.status_code, "an operator has stopped it" in refused.text) == (503, True)
        assert (await here.ask("chief", "POST", "/restart/a")).status_code == 202
        await until(lambda: here.app.health()["a"].state == "running")
        await client.call("a:pid")


async def test_a_tool_is_taken_out_of_service_and_put_back(tmp_path: Path) -> None:
    async with hub(tmp_path) as here, connected(here.app) as client:
        assert "a:echo" in await client.names()
        out = await here.ask("chief", "POST", "/withdraw/a", body={"tool": "echo"})
        assert out.json() == {"withdrawn": ["echo"]}
        await client.heard("notifications/tools/list_changed")
        names = await client.names()
        assert ("a:echo" in names, "a:pid" in names) == (False, True)
        assert (await here.call("ann", None, "a:echo")).json()["error"]["code"] == -32602
        assert (await here.call("ann", None, "a:pid")).status_code == 200
        assert (await here.ask("chief", "POST", "/withdraw/a", body={"tool": "none"})).status_code == 404
        for wrong in ({}, {"tool": 1}, [], {"tool": ""}):
            assert (await here.ask("chief", "POST", "/withdraw/a", body=wrong)).status_code == 400
        view = (await here.ask("chief", "GET", "/dashboard/state")).json()
        assert view["servers"][0]["withdrawn"] == ["echo"]
        assert (await here.ask("chief", "POST", "/reinstate/a", body={"tool": "echo"})).json() == {"withdrawn": []}
        assert (await here.call("ann", None, "a:echo")).status_code == 200
        done = [operation for _, operation, _ in await recorded(here, 7)]
        assert done == [*["withdraw"] * 6, "reinstate"]  # with five that could not be done


async def test_a_tool_that_is_out_of_service_keeps_its_name() -> None:
    """Without prefixes, nobody else gets the calls that are meant for it."""
    app = build_aggregator(config(a=lean(), b=lean()), prefix=False, strict=False)
    async with app, Client(app) as client:
        assert await client.call_tool("pid")
        app.withdraw("a", "pid")
        with pytest.raises(Exception, match="not found"):
            await client.call_tool("pid")


@pytest.mark.process
async def test_the_last_words_of_a_server_are_shown(tmp_path: Path) -> None:
    async with hub(tmp_path, a=lean(stderr=["something is odd"]), build=fastmcp_aggregator.build_aggregator) as here:
        shown = await until_answered(
            lambda: here.ask("chief", "GET", "/stderr/a"), lambda answer: answer.json()["lines"]
        )
        assert "something is odd" in shown.json()["lines"]
        assert shown.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "path", ["status", "groups", "metrics", "openapi.json", "keys", "dashboard/state", "dashboard/names"]
)
async def test_no_cache_may_keep_what_depends_on_who_asks(tmp_path: Path, path: str) -> None:
    async with hub(tmp_path) as here:
        assert (await here.ask("chief", "GET", f"/{path}")).headers["cache-control"] == "no-store"


async def test_keys_are_shown_without_secrets_and_with_their_last_use(tmp_path: Path) -> None:
    async with hub(tmp_path) as here:
        await here.call("ann", None, "a:pid")
        keys = (await here.ask("chief", "GET", "/keys")).json()["keys"]
        assert {key["name"]: (key["roles"], key["last_used"] is not None) for key in keys} == {
            "chief": (["operate"], True),
            "viewer": (["call", "observe"], False),
            "ann": (["call"], True),
        }
        assert not [kept for key in keys for kept in key if kept in ("sha256", "key")]


async def test_what_is_not_as_pinned_is_shown_and_approved(tmp_path: Path) -> None:
    pins = tmp_path / "pins.json"
    pins.write_text(json.dumps({"format": 1, "servers": {"a": {k: {} for k in ("tool", "resource", "template")}}}))
    first = build_aggregator(config(a=lean()), pins=None)
    async with first:
        pass
    pins.unlink()

    write_pins(pins, {})
    async with hub(tmp_path, pins=str(pins), on_pin_mismatch="block") as here:
        assert (await here.call("ann", None, "a:pid")).status_code == 400
        found = (await here.ask("chief", "GET", "/pins")).json()
        assert (found["is_on"], found["differences"][0]["kind"]) == (True, "new")
        assert {each["server"] for each in found["differences"]} == {"a"}
        assert (await here.ask("chief", "POST", "/pins/a")).status_code == 400
        assert (await here.ask("chief", "POST", "/pins/a", body={"offer": found["offers"]["a"]})).status_code == 202
        assert (await here.ask("chief", "GET", "/pins")).json()["differences"] == []
        assert "a" in read_pins(pins)
        await until_answered(lambda: here.call("ann", None, "a:pid"), lambda answer: answer.status_code == 200)
        done = [operation for _, operation, _ in await recorded(here, 4)]
        assert done == ["pins", "approve", "approve", "pins"]  # the first without what was looked at


async def test_what_has_changed_since_it_was_looked_at_is_not_approved(tmp_path: Path) -> None:
    pins = tmp_path / "pins.json"
    write_pins(pins, {})
    async with hub(tmp_path, pins=str(pins)) as here:
        await until_answered(lambda: here.call("ann", None, "a:pid"), lambda answer: answer.status_code == 200)
        looked_at = (await here.ask("chief", "GET", "/pins")).json()["offers"]
        await here.call("ann", None, "a:add_tool", name="late")

        async def offers() -> Any:
            return (await here.ask("chief", "GET", "/pins")).json()["offers"]

        await until_answered(offers, lambda now: now != looked_at)
        refused = await here.ask("chief", "POST", "/pins/a", body={"offer": looked_at["a"]})
        assert (refused.status_code, refused.json()) == (
            409,
            {"error": "the server 'a' offers something else by now; look at it again"},
        )
        assert read_pins(pins) == {}
        assert (await here.ask("chief", "POST", "/pins/a", body={"offer": (await offers())["a"]})).status_code == 202


@pytest.mark.parametrize("body", [None, {}, {"offer": None}, {"offer": ["x"]}, {"offer": ""}, [], "x"])
async def test_who_does_not_say_what_was_looked_at_approves_nothing(tmp_path: Path, body: Any) -> None:
    pins = tmp_path / "pins.json"
    write_pins(pins, {})
    async with hub(tmp_path, pins=str(pins)) as here:
        await until_answered(lambda: here.call("ann", None, "a:pid"), lambda answer: answer.status_code == 200)
        assert (await here.ask("chief", "POST", "/pins/a", body=body)).status_code == 400
        assert read_pins(pins) == {}


async def test_without_pins_there_is_nothing_to_approve(tmp_path: Path) -> None:
    async with hub(tmp_path) as here:
        assert (await here.ask("chief", "GET", "/pins")).json() == {"is_on": False, "differences": [], "offers": {}}
        assert (await here.ask("chief", "POST", "/pins/a", body={"offer": "0" * 64})).status_code == 409


@pytest.mark.parametrize(
    ("path", "body", "status", "operation"),
    [
        ("/restart/none", None, 404, "restart"),
        ("/stderr/none", None, 404, "stderr"),
        ("/withdraw/a", {"tool": "none"}, 404, "withdraw"),
        ("/withdraw/a", {}, 400, "withdraw"),
        ("/pins/a", {"offer": "stale"}, 409, "approve"),
    ],
)
async def test_what_could_not_be_done_is_recorded_too(
    path: str, body: Any, status: int, operation: str, tmp_path: Path
) -> None:
    async with hub(tmp_path) as here:
        method = "GET" if operation == "stderr" else "POST"
        assert (await here.ask("chief", method, path, body=body)).status_code == status
        assert await recorded(here, 1) == [("key:chief", operation, path.rpartition("/")[2])]
        assert '"outcome":"error"' in (tmp_path / "audit.jsonl").read_text()


async def test_who_looks_at_the_pins_of_all_servers_is_recorded_and_who_wakes_a_server(tmp_path: Path) -> None:
    async with hub(tmp_path) as here:
        assert (await here.ask("chief", "GET", "/pins")).status_code == 200
        assert (await here.ask("ann", "POST", "/wake/a")).status_code == 202
        assert await recorded(here, 2) == [("key:chief", "pins", None), ("key:ann", "wake", "a")]
