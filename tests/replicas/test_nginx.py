"""nginx with the file of `deploy/` before two replicas, one of which ends: a real nginx, replicas that only count."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import httpx2
import pytest
from support.harness import free_port, running
from support.wire import PATIENCE, until_answered

pytestmark = [
    pytest.mark.replicas,
    pytest.mark.skipif(shutil.which("nginx") is None, reason="needs nginx"),
]
DEPLOY = Path(__file__).parents[2] / "deploy"
BODY = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'


class Replica:
    """Takes requests, and answers each with its status."""

    def __init__(self) -> None:
        self.status = 200
        self.bodies: list[bytes] = []
        self.port = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head.lower())
            self.bodies.append(await reader.readexactly(int(length[1])) if length else b"")
            text = b"shutting down" if self.status == 503 else b"done"
            told = b"HTTP/1.1 %d X\r\nRetry-After: 5\r\nContent-Length: %d\r\n\r\n" % (self.status, len(text))
            writer.write(told + text)
        writer.close()


@asynccontextmanager
async def behind_nginx(folder: Path) -> AsyncIterator[tuple[httpx2.AsyncClient, Replica, Replica]]:
    """A client of nginx, the replica at which it is kept, and the other one."""
    async with AsyncExitStack() as stack:
        replicas = Replica(), Replica()
        for replica in replicas:
            await stack.enter_async_context(replica.listening())
        port = free_port()
        text = (DEPLOY / "nginx" / "hub.conf").read_text().replace("listen 8080", f"listen 127.0.0.1:{port}")
        for number, replica in enumerate(replicas, 1):
            text = text.replace(f"hub-{number}:8000", f"127.0.0.1:{replica.port}")
        (folder / "hub.conf").write_text(text)
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        paths = " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
        http = f"http {{ access_log off; {paths} include {folder}/hub.conf; }}"
        head = f"pid {folder}/pid; daemon off; master_process off; error_log stderr; events {{}}"
        (folder / "nginx.conf").write_text(f"{head} {http}")
        command = ["nginx", "-c", str(folder / "nginx.conf"), "-p", str(folder), "-e", "stderr"]
        await stack.enter_async_context(running(*command, handshake=False))
        client = httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=PATIENCE)
        http_client = await stack.enter_async_context(client)

        async def ask() -> int | None:
            with suppress(httpx2.TransportError):
                return (await http_client.post("/mcp", content=BODY)).status_code
            return None

        await until_answered(ask, lambda status: status == 200)
        mine, other = sorted(replicas, key=lambda replica: not replica.bodies)
        mine.bodies.clear()
        assert other.bodies == []
        yield http_client, mine, other


@pytest.mark.parametrize("path", ["/mcp", "/groups/web/mcp"])
async def test_what_a_replica_that_ends_turns_away_is_done_by_another_one(tmp_path: Path, path: str) -> None:
    async with behind_nginx(tmp_path) as (http, mine, other):
        mine.status = 503
        for _ in range(10):
            answer = await http.post(path, content=BODY)
            assert (answer.status_code, answer.text) == (200, "done")
        assert set(mine.bodies + other.bodies) == {BODY}
        assert len(other.bodies) == 10


async def test_what_all_replicas_turn_away_is_turned_away_with_their_answer(tmp_path: Path) -> None:
    async with behind_nginx(tmp_path) as (http, mine, other):
        mine.status = other.status = 503
        answer = await http.post("/mcp", content=BODY)
        assert (answer.status_code, answer.text, answer.headers["retry-after"]) == (503, "shutting down", "5")
        assert len(mine.bodies + other.bodies) <= 3


async def test_a_call_of_the_json_api_that_may_have_been_done_is_not_done_again(tmp_path: Path) -> None:
    async with behind_nginx(tmp_path) as (http, mine, other):
        mine.status = 503
        assert (await http.post("/mcp/tools/call", content=BODY)).status_code == 503
        mine.status = 500
        assert (await http.post("/mcp", content=BODY)).status_code == 500
        assert len(mine.bodies) == 2
        assert other.bodies == []
