"""The policies of a hub, as its users meet them."""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from fastmcp.server.auth import StaticTokenVerifier
from support.harness import PATIENCE, config, connected, free_port, lean, running
from support.memory import build_aggregator
from support.serving import browser

from fastmcp_aggregator.auth.claims import claim_of

SCHEMA = {
    "inputSchema": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
}


async def test_the_audit_log_has_a_line_for_each_call(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    async with build_aggregator(config(a=lean()), audit=str(log)) as hub, connected(hub) as client:
        await client.call("a:echo", secret="hidden")
        await client.error("tools/call", {"name": "a:error", "arguments": {"code": -31999, "message": "mine"}})
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    calls = [line for line in lines if line["event"] == "call"]
    assert [(line["server"], line["tool"], line["outcome"]) for line in calls] == [
        ("a", "echo", "ok"),
        ("a", "error", "error"),
    ]
    assert "hidden" not in log.read_text()


async def test_arguments_are_checked_before_the_server_is_asked() -> None:
    app = build_aggregator(config(a=lean(tool_extra=SCHEMA)), validate_arguments=True)
    async with app, connected(app) as client:
        error = await client.error("tools/call", {"name": "a:echo", "arguments": {"x": "one"}})
        assert error["code"] == -32602
        assert "x" in error["message"]
        assert await client.call("a:echo", x=1)


NUMBERS = {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "number"}, {"type": "null"}]}}
COSTLY = {
    "wrong": ({"properties": {"a": NUMBERS}}, ["wrong"] * 25_000),
    "valid": ({"properties": {"a": NUMBERS}}, list(range(150_000))),
    "alternatives": ({"anyOf": [{"required": [f"p{number}"]} for number in range(3000)]}, list(range(5000))),
    "fewer": ({"anyOf": [{"required": [f"p{number}"]} for number in range(400)]}, list(range(5000))),
    "pattern": ({"properties": {"a": {"pattern": "[ab]*a[ab]{1000}c"}}}, "ab" * 100_000),
    "set": ({"properties": {"a": {"uniqueItems": True}}}, [10**30 + number for number in range(20_000)]),
    "repeated": ({"allOf": [{}], "unevaluatedProperties": False}, list(range(20_000))),
}


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
async def test_health_is_told_while_arguments_that_cost_much_are_checked(tmp_path: Path) -> None:
    """Each of these took seconds, of which the event loop did nothing else, or gigabytes."""
    servers = {
        name: lean(tool_extra={"inputSchema": {"type": "object", **schema}}) for name, (schema, _) in COSTLY.items()
    }
    path, settings = tmp_path / "mcp.json", tmp_path / "settings.toml"
    path.write_text(json.dumps(config(**servers)))
    settings.write_text("validate_arguments = true\n")
    port = free_port()
    options = ["--transport", "http", "--port", str(port), "--settings", str(settings)]
    program = [sys.executable, "-m", "fastmcp_aggregator"]
    async with running(*program, str(path), *options, handshake=False) as server:
        await server.said("serving on")
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=PATIENCE) as http:
            assert (await http.post("/mcp/tools/list")).status_code == 200
            before = memory(server.process.pid)
            for name, (_, value) in COSTLY.items():
                body = {"name": f"{name}:echo", "arguments": {"a": value}}
                call = asyncio.create_task(http.post("/mcp/tools/call", json=body))
                took = await computing_time(server.process.pid, http, call)
                assert call.result().json()["error"]["code"] in (-32602, -32600), name
                assert took < 1.5, name
            assert memory(server.process.pid) - before < 64


async def computing_time(pid: int, http: httpx2.AsyncClient, call: asyncio.Task[Any]) -> float:
    """The longest time for which the program computed between two answers to `/health`, in seconds of processor time,
    while the call was made.
    """
    times, longest = psutil.Process(pid).cpu_times, 0.0
    while not call.done():
        began = times()
        assert (await http.get("/health")).status_code == 200
        ended = times()
        longest = max(longest, ended.user + ended.system - began.user - began.system)
    return longest


def memory(pid: int) -> float:
    """The most that a process has taken, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


async def test_metrics_count_calls_and_are_not_there_unless_asked_for() -> None:
    app = build_aggregator(config(a=lean()), metrics=True)
    async with browser(app) as http:
        assert (await http.post("/mcp/tools/call", json={"name": "a:echo", "arguments": {}})).status_code == 200
        text = (await http.get("/metrics")).text
        assert [line for line in text.splitlines() if 'tool="echo"' in line and 'outcome="ok"' in line]
    async with browser(build_aggregator(config(a=lean()))) as http:
        assert (await http.get("/metrics")).status_code == 404


async def test_a_caller_that_calls_too_often_is_told_when_to_come_back() -> None:
    tokens = {name: {"client_id": name, "scopes": [], **claim_of(name, None)} for name in ("one", "two")}
    app = build_aggregator(config(a=lean()), auth=StaticTokenVerifier(tokens), rate_limit=1, rate_burst=2)
    call = {"name": "a:echo", "arguments": {}}
    async with browser(app) as http:
        one, two = ({"authorization": f"Bearer {name}"} for name in ("one", "two"))
        for _ in range(2):
            assert (await http.post("/mcp/tools/call", json=call, headers=one)).status_code == 200
        refused = await http.post("/mcp/tools/call", json=call, headers=one)
        retry_in = refused.json()["error"]["data"]["retryIn"]
        assert retry_in > 0
        assert (refused.status_code, refused.headers["retry-after"]) == (429, str(math.ceil(retry_in)))
        assert (await http.post("/mcp/tools/call", json=call, headers=two)).status_code == 200


@pytest.mark.process
async def test_a_tool_that_is_not_as_it_was_pinned_is_left_out(tmp_path: Path) -> None:
    servers = tmp_path / "mcp.json"
    servers.write_text(json.dumps(config(a=lean())))
    pins = tmp_path / "pins.json"
    command = [sys.executable, "-m", "fastmcp_aggregator", "pin", str(servers), "--file", str(pins)]
    async with running(*command, handshake=False) as process:
        assert await process.wait() == 0, process.stderr
    changed = config(a=lean(tool_extra={"description": "Now it does something else."}))
    app = build_aggregator(changed, pins=str(pins), on_pin_mismatch="block")
    async with app, connected(app) as client:
        names = await client.names()
        assert "a:echo" not in names
        assert "a:pid" in names


@pytest.mark.process
async def test_the_command_line_lets_in_whoever_has_a_key(tmp_path: Path) -> None:
    servers = tmp_path / "mcp.json"
    servers.write_text(json.dumps(config(a=lean())))
    keys = tmp_path / "keys.json"
    program = [sys.executable, "-m", "fastmcp_aggregator"]
    made = subprocess.run([*program, "keys", "create", "me", "--file", str(keys)], capture_output=True, check=True)
    key = max(made.stdout.decode().split(), key=len)
    settings = tmp_path / "settings.toml"
    settings.write_text(f'keys_file = "{keys}"\n')
    port = free_port()
    options = ["--transport", "http", "--port", str(port), "--settings", str(settings)]
    async with running(*program, str(servers), *options, handshake=False) as server:
        await server.said("serving on")
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=PATIENCE) as http:
            assert (await http.post("/mcp/tools/list")).status_code == 401
            assert (await http.post("/mcp/tools/list", headers={"x-api-key": key})).status_code == 200
            assert (await http.post("/mcp/tools/list", headers={"authorization": f"Bearer {key}"})).status_code == 200
