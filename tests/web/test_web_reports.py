"""What a hub tells of itself: whether it is ready, how each server is, and its metrics; and to whom."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastmcp.server.auth import StaticTokenVerifier
from support.harness import PATIENCE, SLOW_RETRIES, config, lean, timed, until
from support.memory import QUICK, build_aggregator
from support.serving import browser, served
from support.wire import until_answered
from test_web_http import GROUPS

from fastmcp_aggregator import Aggregator
from fastmcp_aggregator.access.keys import ApiKey, new_key
from fastmcp_aggregator.access.keys_file import write_keys
from fastmcp_aggregator.auth.claims import claim_of

METRICS = """
    calls_total call_duration_seconds_bucket request_bytes_total response_bytes_total server_state
    server_restarts_total server_cut_off server_calls_in_flight server_calls_waiting server_unanswered_total
    server_ignored_lines_total server_dropped_notifications_total server_dropped_stderr_lines_total server_tools
    http_requests_running http_requests_waiting authentication_failures_total audit_entries_lost_total audit_failing
"""


async def reason(http: httpx2.AsyncClient) -> str | None:
    """Why the hub is not ready; None: it is."""
    answer = await http.get("/ready")
    assert answer.status_code == (200 if answer.json()["status"] == "ready" else 503)
    assert ("retry-after" in answer.headers) == (answer.status_code == 503)
    return answer.json().get("reason")


async def crash(app: Aggregator, key: str) -> None:
    """Have a server end, and wait until that is known."""
    with pytest.raises(Exception, match="it exited with code 1"):
        await app.call_tool(f"{key}:leave", {"code": 1})
    await until(lambda: app.health()[key].last_error)


async def test_it_is_not_ready_until_each_server_has_started_or_failed(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    app = build_aggregator(config(a=lean(wait_for_file=str(gate)), b=lean()))
    async with browser(app) as http:
        assert await reason(http) == "starting"
        gate.touch()
        assert await until_answered(lambda: reason(http), lambda why: why is None) is None


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(("then", "why"), [("refuse", "the audit log cannot be written"), ("continue", None)])
async def test_it_is_not_ready_while_calls_are_refused_for_want_of_an_audit_log(then: str, why: str | None) -> None:
    app = build_aggregator(config(a=lean()), audit="/dev/full", audit_on_failure=then, metrics=True)
    async with browser(app) as http:
        await http.post("/mcp/tools/call", json={"name": "a:echo", "arguments": {}})
        failing = "fastmcp_aggregator_audit_failing 1.0"
        await until_answered(lambda: http.get("/metrics"), lambda answer: failing in answer.text)
        assert await reason(http) == why


async def test_it_serves_everything_for_a_while_after_it_was_told_to_end_and_says_that_it_is_not_ready() -> None:
    app = build_aggregator(config(a=lean()))
    async with served(app, drain_wait=PATIENCE) as front, front.browser() as http, app:
        legacy, modern = await front.connect(), await front.connect(modern=True)
        before = await http.get("/ready")
        assert "connection" not in before.headers
        front.stop.set()
        assert await until_answered(lambda: reason(http), bool) == "ending"
        assert await legacy.call("a:pid")
        assert await modern.call("a:pid")
        called = await http.post("/mcp/tools/call", json={"name": "a:pid"})
        assert (called.status_code, called.headers["connection"]) == (200, "close")
        await legacy.close()  # whose stream would be waited for
        await front.abort()


async def test_it_is_not_ready_while_it_ends() -> None:
    app = build_aggregator(config(a=lean()))
    async with served(app) as front, front.browser() as http, app:
        client = await front.connect_sse()
        assert await reason(http) is None
        _, held = client.begin("tools/call", {"name": "a:hold", "arguments": {}})
        await until(lambda: app.health()["a"].in_flight == 1)
        front.stop.set()
        assert await until_answered(lambda: reason(http), bool) == "ending"
        assert (await http.get("/health")).status_code == 200
        await app.call_tool("a:release")
        await held


async def test_a_strict_hub_is_not_ready_from_a_servers_failure_until_it_is_back(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    app = timed(build_aggregator(config(a=lean(exit_if_file=str(gone)), b=lean())), SLOW_RETRIES)
    async with browser(app) as http, app:
        gone.touch()
        await crash(app, "a")
        for _ in range(3):
            assert await reason(http) == "a server has failed"
            with pytest.raises(Exception, match="unavailable"):
                await app.call_tool("a:echo")
        gone.unlink()
        assert (await app.call_tool("a:echo")).content
        assert await reason(http) is None


async def test_a_hub_that_is_not_strict_stays_ready_while_a_server_is_tried_again_and_again(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    app = build_aggregator(config(a=lean(wait_for_file=str(gate)), b=lean()), strict=False)
    async with browser(app) as http, app:
        gate.unlink()
        await crash(app, "a")
        calling = asyncio.ensure_future(app.call_tool("a:echo"))
        await until(lambda: app.health()["a"].state == "initializing")
        assert await reason(http) is None
        gate.touch()
        await calling


async def test_a_new_server_of_a_reload_does_not_make_it_unready(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    app = build_aggregator(config(b=lean()))
    async with browser(app) as http, app:
        await app.reload(config(a=lean(wait_for_file=str(gate)), b=lean()))
        await until(lambda: app.health()["a"].state == "initializing")
        assert await reason(http) is None
        gate.touch()


async def test_the_status_of_each_server_has_what_an_operator_looks_for() -> None:
    app = build_aggregator(config(a=lean(), m=lean(era="modern")), servers={"a": {"isolation": "session"}})
    async with served(app) as front, front.browser() as http, app:
        client = await front.connect()
        await client.call("a:echo")
        await crash(app, "m")
        await until(lambda: app.health()["m"].restarts == 1 and app.health()["m"].state == "running")
        _, held = client.begin("tools/call", {"name": "m:hold", "arguments": {}})
        await until(lambda: app.health()["m"].in_flight == 1)
        told = (await http.get("/status")).json()
        health = app.health()
        assert told["ready"] is True
        expected: dict[str, dict[str, Any]] = {
            "a": {"era": "legacy", "instances": 1, "restarts": 0, "in_flight": 0, "last_error": None},
            "m": {"era": "modern", "instances": 0, "restarts": 1, "in_flight": 1, "last_error": None},
        }
        for key, fields in expected.items():
            server = told["servers"][key]
            assert {name: server[name] for name in fields} == fields
            assert (server["state"], server["pid"]) == ("running", health[key].pid)
            assert 0 <= server["since"] <= health[key].since
            assert server["tools"] == health[key].tools > 0
            assert set(server) | {"server_key", "public_error"} == set(health[key].__dataclass_fields__)
        await client.call("m:release")
        await held


async def test_an_instance_that_is_not_up_yet_is_told_and_so_is_who_waits_for_it(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    app = build_aggregator(config(a=lean(wait_for_file=str(gate))), servers={"a": {"isolation": "session"}})
    timed(app, replace(QUICK, report_interval=0.01))
    async with served(app) as front, front.browser() as http, app:
        gate.unlink()
        client = await front.connect()
        meta = {"progressToken": "p"}
        _, answer = client.begin("tools/call", {"name": "a:echo", "arguments": {}, "_meta": meta})
        await until(lambda: app.health()["a"].instances_starting == 1)
        said = await client.heard("notifications/progress")
        assert (said["params"]["progressToken"], said["params"]["message"]) == ("p", "server 'a' is starting")
        told = (await http.get("/status")).json()["servers"]["a"]
        assert (told["state"], told["instances"], told["instances_starting"]) == ("running", 1, 1)
        gate.touch()
        assert "result" in await answer
        assert app.health()["a"].instances_starting == 0


async def test_restart_starts_a_server_anew_for_operators() -> None:
    tokens = {
        "all": {"client_id": "all", "scopes": [], **claim_of("all", None, {"operate"})},
        "web": {"client_id": "web", "scopes": [], **claim_of("web", ["web"])},
    }
    groups = {"web": {"servers": ["fetch"]}}
    app = build_aggregator(config(fetch=lean()), groups=groups, auth=StaticTokenVerifier(tokens))
    async with browser(app, authorization="Bearer all") as http, app:
        await until(lambda: app.health()["fetch"].state == "running")
        before = app.health()["fetch"].pid
        refused = await http.post("/restart/fetch", headers={"Authorization": "Bearer web"})
        assert (refused.status_code, app.health()["fetch"].pid) == (403, before)
        assert (await http.post("/restart/other")).status_code == 404
        assert (await http.post("/restart/fetch")).status_code == 202
        await until(lambda: app.health()["fetch"].pid not in (None, before))


async def test_files_that_are_refused_as_they_are_now_are_told_until_they_can_be_used(tmp_path: Path) -> None:
    files = {what: tmp_path / f"{what}.json" for what in ("config", "groups")}
    right = {"config": json.dumps(config(a=lean())), "groups": '{"web": {"servers": ["a"]}}'}
    for what, file in files.items():
        file.write_text(right[what])
    app = build_aggregator(files["config"], groups=files["groups"], metrics=True)

    async def told(http: httpx2.AsyncClient) -> tuple[dict[str, Any], set[str]]:
        lines = (await http.get("/metrics")).text.splitlines()
        series = dict(line.split() for line in lines if line.startswith("fastmcp_aggregator_file_refused"))
        assert len(series) == 2
        refused = {name.split('"')[1] for name, since in series.items() if float(since) > 1_700_000_000}
        return (await http.get("/status")).json()["refused_files"], refused

    async with browser(app) as http, app:
        assert await told(http) == ({}, set())
        for what, file in files.items():
            for spoilt in ("{", "[]"):
                file.write_text(spoilt)
                await app._read_again()
                status, metrics = await told(http)
                assert status.keys() == metrics == {what}
                assert f"{what}.json" in status[what]["problem"]
                assert 0 <= status[what]["since"] < 3600
            file.write_text(right[what])
            await app._read_again()
            assert await told(http) == ({}, set())


async def test_a_refused_keys_file_is_told_also_to_those_who_have_no_key(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    key, kept = new_key("ann", None, None, ["call", "observe"])
    write_keys(path, [kept])
    app = build_aggregator(config(a=lean()), keys_file=str(path), metrics=True)
    async with browser(app, authorization=f"Bearer {key}") as http, app:
        assert await reason(http) is None
        path.write_text("{")
        assert await reason(http) == "no API key can be checked"
        refused = app.refused_files()["keys"]
        assert refused is not None
        path.write_text("[]")
        again = app.refused_files()["keys"]
        assert again is not None
        assert again.since == refused.since
        rendered = await app.rendered_metrics()
        assert rendered is not None
        assert b'file_refused_time_seconds{file="keys"} 1.' in rendered[0]
        write_keys(path, [kept])
        assert await reason(http) is None
        assert (await http.get("/status")).json()["refused_files"] == {}


async def test_keys_that_expire_soon_are_told_before_they_do(tmp_path: Path) -> None:
    path, now = tmp_path / "keys.json", datetime.now(UTC)

    def made(name: str, groups: list[str] | None, days: float | None, roles: str = "call") -> tuple[str, ApiKey]:
        return new_key(name, groups, None if days is None else now + timedelta(days=days), [roles])

    (key, own), (_, soon) = made("ann", None, None, "observe"), made("bob", ["web", "docs"], 3)
    later = [made(name, groups, days)[1] for name, groups, days in (("eve", ["web"], 90), ("ida", None, 20))]
    write_keys(path, [own, *later, soon, made("old", ["web"], -1)[1]])
    app = build_aggregator(config(a=lean()), keys_file=str(path), metrics=True)
    async with browser(app, authorization=f"Bearer {key}") as http, app:
        (told,) = (await http.get("/status")).json()["expiring_keys"]
        assert soon.expires is not None
        assert told == {"id": soon.id, "name": "bob", "expires": soon.expires.isoformat()}
        rendered = await app.rendered_metrics()
    assert rendered is not None
    lines = [line for line in rendered[0].decode().splitlines() if line.startswith("fastmcp_aggregator_key_expiry")]
    days = {line.split('"')[1]: (float(line.split()[1]) - now.timestamp()) / 86400 for line in lines}
    assert {group: round(left) for group, left in days.items()} == {"web": 3, "docs": 3, "*": 20}


async def test_metrics_have_what_an_operator_looks_for() -> None:
    app = build_aggregator(config(a=lean()), metrics=True)
    async with browser(app) as http:
        await http.post("/mcp/tools/call", json={"name": "a:echo"})
        await http.post("/mcp/tools/call", json={"name": "a:error", "arguments": {"code": 1, "message": ""}})
        text = (await http.get("/metrics")).text
    for name in METRICS.split():
        assert f"\nfastmcp_aggregator_{name}" in text, name
    for sample in ('tool="echo"', 'tool="error"', 'outcome="ok"', 'outcome="error"'):
        assert sample in text


async def test_who_may_use_some_groups_sees_the_state_of_their_servers_alone() -> None:
    tokens = {
        name: {"client_id": name, "scopes": [], **claim_of(name, groups, roles)}
        for name, groups, roles in (
            ("guest", ["web"], {"call"}),
            ("nobody", [], {"call"}),
            ("me", None, {"call"}),
            ("scraper", None, {"metrics"}),
            ("viewer", None, {"observe"}),
        )
    }
    servers = config(fetch=lean(), files=lean())
    app = build_aggregator(servers, groups=GROUPS, auth=StaticTokenVerifier(tokens), metrics=True)
    async with browser(app) as http:
        for name, seen, status in (
            ("guest", {"fetch"}, 403),
            ("nobody", set(), 403),
            ("me", {"fetch", "files"}, 403),
            ("scraper", set(), 200),
            ("viewer", {"fetch", "files"}, 200),
        ):
            headers = {"authorization": f"Bearer {name}"}
            assert set((await http.get("/status", headers=headers)).json()["servers"]) == seen
            assert (await http.get("/metrics", headers=headers)).status_code == status


async def test_who_may_use_some_groups_sees_nothing_of_how_others_use_their_servers() -> None:
    tokens = {"guest": {"client_id": "guest", "scopes": [], **claim_of("guest", ["web"])}}
    groups = {"web": {"servers": ["fetch"], "tools": ["fetch:echo", "fetch:pid"]}}
    app = build_aggregator(config(fetch=lean(), files=lean()), groups=groups, auth=StaticTokenVerifier(tokens))
    async with browser(app, authorization="Bearer guest") as http:
        await http.post("/groups/web/mcp/tools/list")
        (server,) = (await http.get("/status")).json()["servers"].values()
    shared = {"state", "since", "era", "protocol_version", "restarts", "retry_in", "is_cut_off", "last_error"}
    shared |= {"catalogue_since", "isolation"}
    assert server.keys() == shared | {"tools", "resources", "templates", "prompts"}
    assert server["tools"] == 2


async def test_a_server_that_sleeps_is_shown_as_such_and_started_on_demand() -> None:
    document, settings = config(a=lean(tools=3)), {"catalogue": "on", "start": "auto", "strict": False, "metrics": True}
    first = build_aggregator(document, **settings)
    async with first:
        offered = first.health()["a"].tools
    assert first._backend._catalogues is not None
    assert first._backend._catalogues.flush(PATIENCE)
    app = build_aggregator(document, **settings)
    async with browser(app) as http, app:
        status = (await http.get("/status")).json()["servers"]["a"]
        assert (status["state"], status["pid"], status["tools"]) == ("sleeping", None, offered)
        assert status["catalogue_since"] > 1_700_000_000
        metrics = (await http.get("/metrics")).text
        assert 'fastmcp_aggregator_server_state{server="a",state="sleeping"} 1.0' in metrics
        assert 'fastmcp_aggregator_server_catalogue_time_seconds{server="a"}' in metrics
        assert (await http.get("/wake/a")).status_code == 405
        assert (await http.post("/wake/b")).status_code == 404
        assert (await http.post("/wake/a")).status_code == 202
        await until(lambda: app.health()["a"].state == "running")
        assert (await http.get("/status")).json()["servers"]["a"]["catalogue_since"] is None
