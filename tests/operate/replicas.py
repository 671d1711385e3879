"""Two replicas with a Redis, and the load balancers of `deploy/` before them, as processes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import httpx2
from support.harness import ServerProcess, config, free_port, lean, running
from support.redis_server import RedisServer

from fastmcp_aggregator.access.keys import new_key
from fastmcp_aggregator.access.keys_file import write_keys
from fastmcp_aggregator.access.roles import ROLES

DEPLOY = Path(__file__).parents[2] / "deploy"
_NOTICED = 3.0
"""Seconds in which a load balancer notices that a replica is back."""


class Replica:
    """One replica, which can be started anew at its port."""

    def __init__(self, folder: Path, port: int, environment: dict[str, str]) -> None:
        self.port = port
        self._folder = folder
        self._environment = environment
        self._life: AsyncExitStack | None = None
        self.process: ServerProcess | None = None

    async def start(self) -> None:
        options = ["--settings", str(self._folder / "settings.toml"), "--transport", "http", "--port", str(self.port)]
        command = [sys.executable, "-m", "fastmcp_aggregator", "serve", str(self._folder / "config.json"), *options]
        self._life = AsyncExitStack()
        self.process = await self._life.enter_async_context(running(*command, handshake=False, env=self._environment))
        async with httpx2.AsyncClient(trust_env=False) as http:
            while True:
                with suppress(httpx2.TransportError):
                    if (await http.get(f"http://127.0.0.1:{self.port}/ready")).status_code == 200:
                        return
                await asyncio.sleep(0.05)

    async def end(self) -> None:
        """Tell it to end, as a service manager does, and wait for that."""
        assert self.process is not None
        self.process.process.send_signal(signal.SIGTERM)
        assert await self.process.wait() == 0
        await self.close()

    async def close(self) -> None:
        if self._life is not None:
            await self._life.aclose()
            self._life = None


class Cluster:
    """The replicas, a key for each of some callers, and the addresses of the load balancers."""

    def __init__(self, replicas: list[Replica], keys: list[str], balancers: dict[str, str]) -> None:
        self.replicas = replicas
        self.keys = keys
        self.balancers = balancers

    async def restart(self) -> None:
        """Restart the replicas in turn."""
        await asyncio.sleep(2)
        for replica in self.replicas:
            await replica.end()
            await replica.start()
            await asyncio.sleep(_NOTICED)


@asynccontextmanager
async def cluster(folder: Path, *, callers: int = 10) -> AsyncIterator[Cluster]:
    """Two replicas with the settings of `deploy/`, behind HAProxy and nginx."""
    made = [new_key(f"caller-{number}", None, None, ROLES) for number in range(callers)]
    write_keys(folder / "keys.json", [kept for _, kept in made])
    (folder / "config.json").write_text(json.dumps(config(a=lean())))
    text = (DEPLOY / "hub" / "settings.toml").read_text()
    text = text.replace("rate_limit = 100", "rate_limit = 0").replace('audit = "stdout"', "")
    (folder / "settings.toml").write_text(text)
    async with AsyncExitStack() as stack:
        redis = RedisServer(folder)
        stack.callback(redis.stop)
        await redis.start()
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "FASTMCP_AGGREGATOR_REDIS_URL": redis.url,
            "FASTMCP_AGGREGATOR_REDIS_KEY": secrets.token_urlsafe(32),
            "FASTMCP_AGGREGATOR_KEYS_FILE": str(folder / "keys.json"),
        }
        replicas = [Replica(folder, free_port(), environment) for _ in range(2)]
        for replica in replicas:
            stack.push_async_callback(replica.close)
        await asyncio.gather(*(replica.start() for replica in replicas))
        balancers = {"HAProxy": await _haproxy(stack, folder, replicas), "nginx": await _nginx(stack, folder, replicas)}
        for url in balancers.values():
            await _until_open(url)
        yield Cluster(replicas, [key for key, _ in made], balancers)


async def _haproxy(stack: AsyncExitStack, folder: Path, replicas: list[Replica]) -> str:
    port = free_port()
    text = (DEPLOY / "haproxy.cfg").read_text().replace("bind :8080", f"bind 127.0.0.1:{port}")
    (folder / "haproxy.cfg").write_text(_with_addresses(text, replicas))
    await stack.enter_async_context(running("haproxy", "-db", "-f", str(folder / "haproxy.cfg"), handshake=False))
    return f"http://127.0.0.1:{port}"


async def _nginx(stack: AsyncExitStack, folder: Path, replicas: list[Replica]) -> str:
    port = free_port()
    text = (DEPLOY / "nginx" / "hub.conf").read_text().replace("listen 8080", f"listen 127.0.0.1:{port}")
    (folder / "hub.conf").write_text(_with_addresses(text, replicas))
    head = f"pid {folder}/pid; daemon off; master_process off; error_log stderr;"
    paths = " ".join(
        f"{what}_temp_path {folder}/{what};" for what in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    http = f"http {{ access_log off; {paths} include {folder}/hub.conf; }}"
    (folder / "nginx.conf").write_text(f"{head} events {{}} {http}")
    command = [shutil.which("nginx") or "nginx", "-c", str(folder / "nginx.conf"), "-p", str(folder), "-e", "stderr"]
    await stack.enter_async_context(running(*command, handshake=False, env=dict(os.environ)))
    return f"http://127.0.0.1:{port}"


def _with_addresses(text: str, replicas: list[Replica]) -> str:
    for number, replica in enumerate(replicas, 1):
        text = re.sub(rf"hub-{number}:8000", f"127.0.0.1:{replica.port}", text)
    return text


async def _until_open(url: str) -> None:
    async with httpx2.AsyncClient(trust_env=False) as http:
        while True:
            with suppress(httpx2.TransportError):
                if (await http.get(f"{url}/ready")).status_code == 200:
                    return
            await asyncio.sleep(0.05)
