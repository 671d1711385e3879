"""The policies of a hub, as its users meet them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx2
from fastmcp.server.auth import StaticTokenVerifier
from support.harness import PATIENCE, config, connected, free_port, lean, running
from test_hub_http import browser

from fastmcp_aggregator import build_aggregator
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
        refused = (await http.post("/mcp/tools/call", json=call, headers=one)).json()["error"]
        assert refused["data"]["retryIn"] > 0
        assert (await http.post("/mcp/tools/call", json=call, headers=two)).status_code == 200


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
