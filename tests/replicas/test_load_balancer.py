"""Two replicas as processes, a Redis, and HAProxy with the file of `deploy/` before them; clients of both eras."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from support.harness import PATIENCE, ServerProcess, config, free_port, lean, running, talking, until
from support.redis_server import RedisServer, needs_redis
from support.wire import EVERYTHING, Message, text_of, until_answered
from support.wire_http import HttpClient

from fastmcp_aggregator.access.keys import new_key
from fastmcp_aggregator.access.keys_file import write_keys
from fastmcp_aggregator.access.roles import ROLES

pytestmark = [
    pytest.mark.replicas,
    needs_redis,
    pytest.mark.skipif(shutil.which("haproxy") is None, reason="needs haproxy"),
    pytest.mark.asyncio(loop_scope="module"),
]

DEPLOY = Path(__file__).parents[2] / "deploy"
SETTINGS = """
strict = false
[callers.free]
rate_limit = 0
[callers.limited]
rate_limit = 1
rate_burst = 5
"""


def balancer_file(port: int, replicas: list[str]) -> str:
    """The file of `deploy/`, for these replicas."""
    text = (DEPLOY / "haproxy.cfg").read_text()
    text, binds = re.subn(r"bind :8080", f"bind 127.0.0.1:{port}", text)
    assert binds == 1
    for number, address in enumerate(replicas, 1):
        text, servers = re.subn(rf"hub-{number}:8000", address, text)
        assert servers == 2
    return text


class Cluster:
    """The replicas and the way to them. `url` is that of the load balancer."""

    def __init__(self, url: str, keys: dict[str, str], replicas: list[ServerProcess]) -> None:
        self.url = url
        self.replicas = replicas
        self._keys = keys
        self._clients: list[HttpClient] = []
        self._http = httpx2.AsyncClient(trust_env=False, timeout=PATIENCE)

    async def client(self, *, modern: bool, name: str = "free") -> HttpClient:
        client = HttpClient(self.url, modern=modern, name="c", capabilities=EVERYTHING, headers=self.authorized(name))
        self._clients.append(client)
        await client.start()
        return client

    def authorized(self, name: str = "free") -> dict[str, str]:
        return {"Authorization": f"Bearer {self._keys[name]}"}

    async def ask(self, tool: str, *, name: str = "free", **arguments: Any) -> tuple[int, Message]:
        """One call over the JSON API, which any replica serves: the HTTP status, and the answer."""
        body = {"name": tool, "arguments": arguments}
        answer = await self._http.post(f"{self.url}/tools/call", json=body, headers=self.authorized(name))
        is_json = answer.headers.get("content-type", "").startswith("application/json")
        return answer.status_code, answer.json() if is_json else {}

    async def pid(self) -> int:
        """The process of the server `a` at some replica."""
        status, answer = await self.ask("a:pid")
        assert status == 200, answer
        pid: int = text_of(answer)["pid"]
        return pid

    async def in_flight(self, replica: ServerProcess) -> int:
        """The calls to the server `slow` at one replica."""
        answer = await self._http.get(f"http://{await address_of(replica)}/status", headers=self.authorized())
        calls: int = answer.json()["servers"]["slow"]["in_flight"]
        return calls

    async def turns_away(self, replica: ServerProcess) -> bool:
        """Whether one replica is not ready any more."""
        return (await self._http.get(f"http://{await address_of(replica)}/ready")).status_code == 503

    async def close(self) -> None:
        await asyncio.gather(*(client.close() for client in self._clients), return_exceptions=True)
        await self._http.aclose()


@asynccontextmanager
async def cluster_in(folder: Path) -> AsyncIterator[Cluster]:
    keys = {name: new_key(name, None, None, ROLES) for name in ("free", "limited")}
    write_keys(folder / "keys.json", [kept for _, kept in keys.values()])
    (folder / "config.json").write_text(json.dumps(config(a=lean(), slow=lean(), old=talking())))
    (folder / "settings.toml").write_text(SETTINGS)
    async with AsyncExitStack() as stack:
        redis = RedisServer(folder)
        stack.callback(redis.stop)
        await redis.start()
        options = ["--settings", str(folder / "settings.toml"), "--transport", "http", "--port", "0"]
        command = [sys.executable, "-m", "fastmcp_aggregator", "serve", str(folder / "config.json"), *options]
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "FASTMCP_AGGREGATOR_REDIS_URL": redis.url,
            "FASTMCP_AGGREGATOR_KEYS_FILE": str(folder / "keys.json"),
        }
        replicas = [
            await stack.enter_async_context(running(*command, handshake=False, env=environment)) for _ in range(2)
        ]
        addresses = [await address_of(replica) for replica in replicas]
        port = free_port()
        (folder / "haproxy.cfg").write_text(balancer_file(port, addresses))
        proxy = ["haproxy", "-db", "-f", str(folder / "haproxy.cfg")]
        await stack.enter_async_context(running(*proxy, handshake=False))
        cluster = Cluster(f"http://127.0.0.1:{port}/mcp", {name: key for name, (key, _) in keys.items()}, replicas)
        stack.push_async_callback(cluster.close)
        await until_up(cluster)
        yield cluster


async def address_of(replica: ServerProcess) -> str:
    pattern = re.compile(rb"serving on http://([\d.:]+)/mcp")
    found = await until(lambda: pattern.search(replica.stderr))
    return str(found[1].decode())


async def until_up(cluster: Cluster) -> None:
    """Wait until the load balancer has both replicas."""

    async def pids() -> set[int]:
        try:
            return {await cluster.pid() for _ in range(4)}
        except (AssertionError, httpx2.TransportError):
            return set()

    await until_answered(pids, lambda found: len(found) == 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    async with cluster_in(folder) as cluster:
        yield cluster


async def test_calls_go_to_both_replicas_and_those_of_a_legacy_session_to_its_own(cluster: Cluster) -> None:
    legacy = [await cluster.client(modern=False) for _ in range(4)]
    modern = await cluster.client(modern=True)
    at = [{(await client.call("a:pid"))["pid"] for _ in range(6)} for client in legacy]
    assert [len(pids) for pids in at] == [1] * 4
    assert len(set.union(*at)) == 2
    assert len({(await modern.call("a:pid"))["pid"] for _ in range(6)}) == 2


async def test_what_a_server_says_reaches_the_legacy_client_that_listens_at_its_replica(cluster: Cluster) -> None:
    client = await cluster.client(modern=False)
    await client.names()
    await client.call("a:add_tool", name="new")
    await client.heard("notifications/tools/list_changed")
    assert "a:new" in await client.names()
    await client.call("a:remove_tool", name="new")


@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
async def test_a_server_asks_its_client_through_the_load_balancer(cluster: Cluster, modern: bool) -> None:
    client = await cluster.client(modern=modern)
    client.on_question = lambda method, params: {"result": {"roots": []}}
    questions = [{"ask": {"a": {"method": "roots/list"}}} for _ in range(5)]
    for _ in range(2):
        assert await client.play("old", *questions) == [{"a": {"roots": []}}] * 5


async def test_a_browser_keeps_to_the_replica_that_its_dashboard_shows(cluster: Cluster) -> None:
    origin = cluster.url.removesuffix("/mcp")
    async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE, headers=cluster.authorized()) as http:
        assert (await http.get(f"{origin}/")).status_code == 200
        states = [(await http.get(f"{origin}/dashboard/state")).json() for _ in range(12)]
    assert len({server["pid"] for state in states for server in state["servers"] if server["key"] == "a"}) == 1


async def test_one_limit_holds_for_all_replicas_together(cluster: Cluster) -> None:
    answers = [await cluster.ask("a:pid", name="limited") for _ in range(12)]
    passed = [text_of(answer)["pid"] for status, answer in answers if status == 200]
    assert len(passed) == 5
    assert len(set(passed)) == 2
    refused = [answer["error"] for status, answer in answers if status != 200]
    assert {error["code"] for error in refused} == {-32029}


async def test_a_session_that_a_replica_does_not_know_is_answered_with_404(cluster: Cluster) -> None:
    headers = {"Mcp-Session-Id": "0" * 32, "Accept": "application/json, text/event-stream", **cluster.authorized()}
    async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE) as http:
        answer = await http.post(cluster.url, json={"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers=headers)
        listening = await http.get(cluster.url, headers={**headers, "Last-Event-ID": "a0123456789abcdef.1"})
    assert (answer.status_code, listening.status_code) == (404, 404)


async def test_a_replica_that_is_killed_takes_its_own_calls_with_it_and_nothing_else(tmp_path: Path) -> None:
    async with cluster_in(tmp_path) as cluster:
        pids = {await cluster.pid() for _ in range(4)}
        sessions = [await cluster.client(modern=False) for _ in range(4)]
        homes = [(await client.call("a:pid"))["pid"] for client in sessions]
        held = [asyncio.create_task(cluster.ask("a:hold", number=number)) for number in range(8)]
        await until(lambda: sum(replica.stderr.count(b"holding") for replica in cluster.replicas) == 8)
        dying, surviving = cluster.replicas
        lost = dying.stderr.count(b"holding")
        assert 0 < lost < 8
        dying.process.kill()
        await dying.wait()

        new = [await cluster.ask("a:pid") for _ in range(20)]
        assert [status for status, _ in new] == [200] * 20
        alive = {text_of(answer)["pid"] for _, answer in new}
        assert len(alive) == 1
        assert alive < pids
        await until(lambda: sum(call.done() for call in held) == lost)
        assert (await cluster.ask("a:release"))[0] == 200
        ends = await asyncio.gather(*held, return_exceptions=True)
        # On a connection that has had answers before, HAProxy may end it in place of a 502.
        failed = [
            end
            for end in ends
            if isinstance(end, httpx2.TransportError) or (not isinstance(end, BaseException) and end[0] == 502)
        ]
        assert len(failed) == lost
        assert sum(not isinstance(end, BaseException) and end[0] == 200 for end in ends) == 8 - lost
        assert surviving.process.returncode is None

        for client, home in zip(sessions, homes, strict=True):
            client.begin("tools/list")
            await client.posted()
            assert client.statuses[client._next_id] == (200 if home in alive else 404)
        anew = await cluster.client(modern=False)
        assert {(await anew.call("a:pid"))["pid"]} == alive


async def test_a_replica_that_is_told_to_end_finishes_its_calls_and_new_ones_go_to_the_other(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with cluster_in(tmp_path) as cluster:
        waiting = [asyncio.create_task(cluster.ask("slow:wait", file=str(gate))) for _ in range(4)]
        ending, other = cluster.replicas
        await until_answered(lambda: cluster.in_flight(ending), bool)
        await until_answered(lambda: cluster.in_flight(other), bool)
        ending.process.send_signal(signal.SIGTERM)

        async def several() -> set[int]:
            return {status for status, _ in [await cluster.ask("a:echo") for _ in range(6)]}

        seen = await several()
        while seen != {200} or not await cluster.turns_away(ending):
            assert seen <= {200, 503}
            seen = await several()
        gate.touch()
        assert [status for status, _ in await asyncio.gather(*waiting)] == [200] * 4
        assert await ending.wait() == 0
        assert await several() == {200}
