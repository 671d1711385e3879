"""A groups file that changes while the program serves it: clients of both eras are told, and see what is there now."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import httpx2
from support.harness import PATIENCE, config, free_port, lean, running
from support.wire_http import HttpClient
from support.wire_sse import SseClient


async def test_live_clients_of_every_kind_are_told_of_a_new_groups_file(tmp_path: Path) -> None:
    servers, groups, port = tmp_path / "mcp.json", tmp_path / "group.json", free_port()
    servers.write_text(json.dumps(config(fetch=lean(), files=lean())))
    groups.write_text(json.dumps({"web": {"servers": ["fetch"]}}))
    command = [sys.executable, "-m", "fastmcp_aggregator", str(servers), "--groups", str(groups)]
    base = f"http://127.0.0.1:{port}"
    async with running(*command, "--transport", "http", "--port", str(port), handshake=False) as server:
        await server.said("serving on")
        clients = [
            HttpClient(f"{base}/groups/web/mcp", modern=False, name="legacy"),
            HttpClient(f"{base}/groups/web/mcp", modern=True, name="modern"),
            SseClient(f"{base}/groups/web/mcp/sse"),
        ]
        elsewhere = HttpClient(f"{base}/mcp", modern=False, name="elsewhere")
        try:
            for client in (*clients, elsewhere):
                await client.start()
                names = await client.names()
                assert ("files:pid" in names) == (client is elsewhere)
            clients[1].begin("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
            await clients[1].heard("notifications/subscriptions/acknowledged")
            pid = await clients[0].call("fetch:pid")
            groups.write_text(json.dumps({"web": {"servers": ["files", "fetch"], "tools": ["files:pid", "fetch:pid"]}}))
            for client in clients:
                await client.heard("notifications/tools/list_changed")
                assert {name.replace("__", ":") for name in await client.names()} == {"fetch:pid", "files:pid"}
            assert await clients[0].call("fetch:pid") == pid
            groups.write_text("{")
            await server.said("the config in use is kept")
            assert await clients[0].call("files:pid")
            assert not elsewhere.notifications
            async with httpx2.AsyncClient(base_url=base, timeout=PATIENCE, trust_env=False) as http:
                assert [group["id"] for group in (await http.get("/groups")).json()] == ["default", "web"]
        finally:
            for client in (*clients, elsewhere):
                await client.close()
