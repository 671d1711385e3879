"""The program itself, with keys of three groups, tokens and Redis: who may do what, what is recorded, and what ends."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.credentials import Credentials, bearer
from support.harness import PATIENCE, config, free_port, running, talking, until
from support.redis_server import RedisServer, needs_redis
from support.tokens import ISSUER
from support.wire_http import HttpClient

pytestmark = [pytest.mark.process, needs_redis]

PROGRAM = [sys.executable, "-m", "fastmcp_aggregator"]
GROUPS = {"red": {"servers": ["a"]}, "blue": {"servers": ["b"]}, "both": {"servers": ["a", "b"]}}


def toml(settings: dict[str, Any]) -> str:
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())


async def test_a_hub_of_three_groups_with_keys_tokens_and_redis(tmp_path: Path) -> None:
    redis = RedisServer(tmp_path)
    await redis.start()
    credentials = Credentials(tmp_path, {"red": ["red"], "blue": ["blue"], "both": ["both"]})
    audit, port = tmp_path / "audit.jsonl", free_port()
    settings = {"audit": str(audit), "redis_url": redis.url, "rate_limit": 0.001, "rate_burst": 6}
    (tmp_path / "settings.toml").write_text(toml({**credentials.settings, **settings}))
    (tmp_path / "mcp.json").write_text(json.dumps(config(a=talking(), b=talking())))
    (tmp_path / "group.json").write_text(json.dumps(GROUPS))
    files = ["--settings", str(tmp_path / "settings.toml"), "--groups", str(tmp_path / "group.json")]
    options = [str(tmp_path / "mcp.json"), "--transport", "http", "--port", str(port), *files]
    origin = f"http://127.0.0.1:{port}"

    def lines() -> list[dict[str, Any]]:
        return [json.loads(line) for line in audit.read_text().splitlines()]

    def client(group: str, headers: dict[str, str]) -> HttpClient:
        return HttpClient(f"{origin}/groups/{group}/mcp", headers=headers, modern=False, name="test")

    async with running(*PROGRAM, *options, handshake=False) as program:
        await program.said("serving on")
        red, ann = client("red", credentials.of("red")), client("red", bearer(sub="red"))
        both = client("both", credentials.of("both"))
        async with httpx2.AsyncClient(base_url=origin, trust_env=False, timeout=PATIENCE) as http:
            try:
                for each in (red, ann, both):
                    await each.start()
                # One name of two sources, and each has a bucket of its own, in Redis.
                for each, name in ((red, "key:red"), (ann, f"jwt:{ISSUER}#red")):
                    await each.result("logging/setLevel", {"level": "error"})
                    await each.result("resources/subscribe", {"uri": "note://a//a"})
                    await each.error("tools/call", {"name": "b:open", "arguments": {"gate": "x"}})
                    for _ in range(3):
                        await each.call("a:open", gate="x")
                    assert (await each.error("tools/call", {"name": "a:open"}))["code"] == -32029
                    mine = await recorded(lines, name, 7)
                    assert [line["outcome"] for line in mine] == ["ok", "ok", "denied", "ok", "ok", "ok", "denied"]
                # The session of another, and another's group.
                theft = {**bearer(sub="both", groups=["both"]), **both._session, "accept": "*/*"}
                assert (await http.get("/groups/both/mcp", headers=theft)).status_code == 404
                assert (await http.post("/groups/blue/mcp/tools/list", headers=bearer())).status_code == 404
                assert len(await recorded(lines, f"jwt:{ISSUER}#both", 1)) == 1
                assert len(await recorded(lines, f"jwt:{ISSUER}#ann", 1)) == 1
                # A key that is revoked by the command, while its stream is open.
                revoke = ["keys", "revoke", "red", "--file", str(credentials.file)]
                revoking = await asyncio.create_subprocess_exec(*PROGRAM, *revoke, stderr=asyncio.subprocess.DEVNULL)
                assert await revoking.wait() == 0
                async with asyncio.timeout(PATIENCE):
                    await red.ended()
                assert not ann._posts[None, "listen"].done()
                # Redis goes away: everybody is counted here.
                redis.stop()
                open_ = {"name": "a:open", "arguments": {"gate": "x"}}
                outcomes = [await both.send("tools/call", open_) for _ in range(7)]
                assert ["result" in outcome for outcome in outcomes] == [True] * 6 + [False]
                written = lines()
                assert len({line["id"] for line in written}) == len(written)
            finally:
                for each in (red, ann, both):
                    await each.close()
                redis.stop()


async def recorded(lines: Any, principal: str, count: int) -> list[dict[str, Any]]:
    """The entries of a principal, which are so many."""

    def mine() -> list[dict[str, Any]]:
        return [line for line in lines() if line.get("principal") == principal]

    await until(lambda: len(mine()) >= count)
    return mine()
