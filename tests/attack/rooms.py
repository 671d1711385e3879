"""The rooms in which attacks take place: hubs as processes, with the servers, keys and files that they need."""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import psutil
from support.harness import TALKING_CHILD, ServerProcess, config, free_port, lean, running, talking
from support.processes import complaints
from support.redis_server import RedisServer
from support.remote_server import RemoteServer, Request, remote_server
from support.talking_server import talking_server
from support.tokens import AUDIENCE, ISSUER, PAIR, token
from support.wire import PATIENCE
from support.wire_http import HttpClient
from support.wire_sse import SseClient

from fastmcp_aggregator import AggregatorSettings
from fastmcp_aggregator.access.keys import ApiKey, new_key
from fastmcp_aggregator.access.keys_file import write_keys
from fastmcp_aggregator.access.roles import ROLES, USUAL

HOSTILE_CHILD = TALKING_CHILD.with_name("hostile_child.py")
PLANTED = "planted-in-the-environment"
MEMORY = 6 * 1024**3
"""Bytes that a hub may address: an attack must not take the machine along."""
QUICK = 5.0
"""Seconds within which `/health` answers whatever is going on; generous, for the machine may be busy."""
EXPECTED = (
    "error: all API keys are rejected until this is fixed",
    "error: Error parsing JSON response",
    "error: Error calling tool 'call_tool'",
    "error: Error calling tool 'get_prompt': NotFoundError",
    "error: Error calling tool 'read_resource': NotFoundError",
)
"""How lines of the log may begin that tell of an error."""
KEYS: dict[str, tuple[str, ...] | None] = {
    "ann": ("red", "both", "own", "solo"),
    "bob": ("blue", "both", "own", "solo"),
    "eve": ("blue", "both", "own", "solo", "bare", "search"),
    "root": None,
    "few": ("red", "search"),
}
"""The groups of each holder of a key; None: all."""
OTHER_ROLES = {"watch": "observe", "meter": "metrics", "chief": "operate"}
"""The role of each holder of a key that is not for calls."""
GROUPS: dict[str, Any] = {
    "red": {"servers": ["red"]},
    "blue": {"servers": ["blue", "hostile"]},
    "both": {"servers": ["shared", "modern", "remote", "passing"]},
    "own": {"servers": ["own"]},
    "solo": {"servers": ["asking"]},
    "pair": {"servers": ["red", "hostile"]},
    "bare": {"servers": ["good", "evil"], "tools": ["send"]},
    "search": {"servers": ["red"], "tool_search": True},
}


@dataclass
class Hub:
    """A hub that runs, and ways to reach it."""

    server: ServerProcess
    origin: str
    folder: Path
    keys: Mapping[str, str]
    stack: AsyncExitStack
    _silence: int = field(default=0)

    @property
    def port(self) -> int:
        return int(self.origin.rpartition(":")[2])

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(self.server.process.pid)

    def credentials(self, who: str | None) -> dict[str, str]:
        """The header of somebody's key; who is no name of a key is a token itself."""
        return {} if who is None else {"Authorization": f"Bearer {self.keys.get(who, who)}"}

    async def ask(self, method: str, path: str, who: str | None = None, **options: Any) -> httpx2.Response:
        """One request, over a connection of its own."""
        headers = {**self.credentials(who), **(options.pop("headers", None) or {})}
        async with httpx2.AsyncClient(base_url=self.origin, trust_env=False, timeout=PATIENCE) as http:
            return await http.request(method, path, headers=headers, **options)

    async def status_of(self, method: str, path: str, who: str | None = None, **headers: str) -> int:
        """The status of an answer whose body may never end."""
        async with (
            httpx2.AsyncClient(base_url=self.origin, trust_env=False, timeout=PATIENCE) as http,
            http.stream(method, path, headers={**self.credentials(who), **headers}) as response,
        ):
            return response.status_code

    async def json_api(
        self, who: str | None, method: str, params: Any = None, *, group: str | None = None, **options: Any
    ) -> httpx2.Response:
        """A request to the JSON API."""
        base = "/mcp" if group is None else f"/groups/{group}/mcp"
        return await self.ask("POST", f"{base}/{method}", who, json=params or {}, **options)

    async def call(self, who: str | None, group: str | None, name: str, /, **arguments: Any) -> httpx2.Response:
        """A call of a tool over the JSON API."""
        return await self.json_api(who, "tools/call", {"name": name, "arguments": arguments}, group=group)

    async def connect(
        self, who: str | None, group: str | None = None, *, modern: bool = True, **about: Any
    ) -> HttpClient:
        """A client that has done its handshake; it is closed with the attack."""
        base = "/mcp" if group is None else f"/groups/{group}/mcp"
        about.setdefault("headers", self.credentials(who))
        client = HttpClient(self.origin + base, modern=modern, name="attack", **about)
        self.stack.push_async_callback(client.close)
        await client.start()
        return client

    async def connect_sse(self, who: str | None, group: str | None = None) -> SseClient:
        """A client of the old transport."""
        base = "/mcp" if group is None else f"/groups/{group}/mcp"
        client = SseClient(f"{self.origin}{base}/sse", headers=self.credentials(who))
        self.stack.push_async_callback(client.close)
        await client.start()
        return client

    async def raw(self, data: bytes, *, seconds: float = PATIENCE) -> bytes:
        """Bytes over a connection of their own; all that comes back until it is closed, or nothing more comes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            with suppress(ConnectionError):
                writer.write(data)
                await writer.drain()
            answer = b""
            with suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(seconds):
                    while part := await reader.read(65536):
                        answer += part
            return answer
        finally:
            writer.transport.abort()

    async def health(self) -> float:
        """Seconds until `/health` has answered."""
        began = time.monotonic()
        try:
            answer = await self.ask("GET", "/health", timeout=QUICK)
        except httpx2.TransportError:
            raise AssertionError("`/health` does not answer") from None
        assert answer.status_code == 200
        return time.monotonic() - began

    @asynccontextmanager
    async def watched(self, *, slowest: float = QUICK, grows_by: int = 64) -> AsyncIterator[None]:
        """Meanwhile `/health` goes on answering, and not more than so many MiB are added at the end."""
        before, worst = self.process.memory_info().rss, 0.0

        async def look() -> None:
            nonlocal worst
            while True:
                worst = max(worst, await self.health())
                await asyncio.sleep(0.02)

        looking = asyncio.create_task(look())
        try:
            yield
        finally:
            await asyncio.sleep(0)
            looking.cancel()
            with suppress(asyncio.CancelledError):
                await looking
        worst = max(worst, await self.health())
        assert worst < slowest, f"`/health` was silent for over {slowest:g} s"
        grown = (self.process.memory_info().rss - before) / 1024**2
        assert grown < grows_by, f"the hub grew by over {grows_by} MiB"

    @asynccontextmanager
    async def bounded(self, *, seconds: float = math.inf, peak: float = math.inf) -> AsyncIterator[None]:
        """Meanwhile it works for so many seconds of its processor at most, and never has so many MiB more."""
        (before, rss), process = (sum(self.process.cpu_times()[:2]), self.process.memory_info().rss), self.process
        Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # its peak begins anew
        yield
        worked = sum(process.cpu_times()[:2]) - before
        assert worked < seconds, f"it worked for over {seconds:g} s"
        status = Path(f"/proc/{process.pid}/status").read_text()
        grown = int(status.partition("VmHWM:")[2].split()[0]) / 1024 - rss / 1024**2
        assert grown < peak, f"the hub had over {peak:g} MiB more"

    def audit(self) -> list[dict[str, Any]]:
        """The audit log so far."""
        path = self.folder / "audit.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def log(self) -> str:
        return self.server.stderr.decode(errors="replace")

    async def check(self) -> None:
        """It goes on serving, and has not said that something happened that it did not expect."""
        assert self.server.process.returncode is None, "the hub has ended"
        assert await self.health() < QUICK, f"`/health` was silent for over {QUICK:g} s"
        said = [line for line in complaints(self.server.stderr[self._silence :]) if not line.startswith(EXPECTED)]
        self._silence = len(self.server.stderr)
        assert not said, f"the hub has logged: {said[0]}"


@dataclass
class Team:
    """Two replicas of a hub for people who do not trust each other, and what is around it."""

    one: Hub
    other: Hub
    redis: RedisServer
    asking: RemoteServer
    remote: RemoteServer
    passing: RemoteServer
    trap: RemoteServer
    """Whatever reaches it beside `/bounce` was fetched without need."""
    replica: Callable[[str], AbstractAsyncContextManager[Hub]]
    """One more replica, of this name; another run of it, if there was one."""

    @property
    def trapped(self) -> list[Request]:
        """What was fetched without need."""
        return [request for request in self.trap.requests if request.target != "/bounce"]


@asynccontextmanager
async def hub(
    folder: Path,
    document: Mapping[str, Any],
    settings: str,
    *,
    keys: Mapping[str, str] | None = None,
    groups: Mapping[str, Any] | None = None,
    descriptors: int = 4096,
) -> AsyncIterator[Hub]:
    """A hub of its own process; settings are TOML."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    (folder / "mcp.json").write_text(json.dumps(document))
    (folder / "settings.toml").write_text(settings)
    command = [sys.executable, "-m", "fastmcp_aggregator", str(folder / "mcp.json"), "--transport", "http"]
    command += ["--port", str(port), "--settings", str(folder / "settings.toml")]
    if groups is not None:
        (folder / "group.json").write_text(json.dumps(groups))
        command += ["--groups", str(folder / "group.json")]
    env = {name: value for name, value in os.environ.items() if not name.startswith("FASTMCP_")}
    env["ATTACK_SECRET"] = PLANTED
    limits = partial(_limited, descriptors)
    async with (
        AsyncExitStack() as stack,
        running(*command, handshake=False, cwd=folder, env=env, preexec_fn=limits) as server,
    ):
        await server.said("/mcp")
        yield Hub(server, f"http://127.0.0.1:{port}", folder, keys or {}, stack)


def _limited(descriptors: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def new_keys(path: Path) -> dict[str, str]:
    """A file of keys for everybody, and for who has one no more: the keys by their holders."""
    made = {name: new_key(name, groups, None, USUAL if groups else ROLES) for name, groups in KEYS.items()}
    made |= {name: new_key(name, None, None, {role}) for name, role in OTHER_ROLES.items()}
    past = datetime.now(UTC) - timedelta(days=1)
    late, revoked = new_key("late", None, past), new_key("gone", None, None)
    kept: list[ApiKey] = [entry for _, entry in [*made.values(), late]]
    write_keys(path, kept)
    return {name: key for name, (key, _) in {**made, "late": late, "gone": revoked}.items()}


TEAM_SETTINGS = f"""
strict = false
audit = "audit.jsonl"
metrics = true
validate_arguments = true
max_isolated_sessions = 3
max_response_size_mb = 8
rate_limit = 60000
rate_burst = 5000
jwt_issuer = "{ISSUER}"
jwt_audience = "{AUDIENCE}"
jwt_public_key_file = "../provider.pem"
jwt_groups_claim = "groups"
jwt_roles_claim = "roles"
keys_file = "../keys.json"
pins = "../pins.json"
[callers.few]
rate_limit = 1
rate_burst = 3
[servers.own]
isolation = "session"
[servers.passing]
pass_headers = ["x-user", "x-note"]
"""


@asynccontextmanager
async def team(folder: Path) -> AsyncIterator[Team]:
    """The hub of three groups, with keys, JWT, Redis, and hostile servers."""
    folder.mkdir(parents=True, exist_ok=True)
    keys = new_keys(folder / "keys.json")
    (folder / "provider.pem").write_text(PAIR.public_key)
    async with AsyncExitStack() as stack:
        trap = await stack.enter_async_context(remote_server())
        asking, remote, passing = [await stack.enter_async_context(talking_server()) for _ in range(3)]
        redis = RedisServer(folder)
        await redis.start()
        stack.callback(redis.stop)
        trap_url = f"http://127.0.0.1:{trap.port}"
        note = {"uri": "note:///a", "name": "a"}
        prompt = {"name": "secret"}
        document = config(
            red=lean(name="red", resources=[note], prompts=[prompt]),
            blue=lean(name="blue", resources=[note], prompts=[prompt]),
            hostile={"command": sys.executable, "args": [str(HOSTILE_CHILD), trap_url]},
            shared=talking(),
            modern=talking(era="modern"),
            own=talking(),
            asking={"url": asking.url},
            good=lean(name="good", tool_names=["send"], exit_at_start=1),
            evil=lean(name="evil", tool_names=["send"]),
            remote={"url": remote.url, "headers": {"X-Config": "of-the-config"}},
            passing={"url": passing.url},
            bouncing={"url": f"{trap_url}/bounce"},
            metadata={"url": "http://[::ffff:169.254.169.254]/mcp"},
        )
        sealed = f'redis_key = "{"s" * 43}"\n' if "redis_key" in AggregatorSettings.model_fields else ""
        settings = f'redis_url = "{redis.url}"\n{sealed}{TEAM_SETTINGS}'
        settings = re.sub('"../', f'"{folder}/', settings).replace(f'pins = "{folder}/pins.json"\n', "")

        def replica(name: str) -> AbstractAsyncContextManager[Hub]:
            return hub(folder / name, document, settings, keys=keys, groups=GROUPS)

        hubs = [await stack.enter_async_context(replica(name)) for name in ("one", "other")]
        yield Team(*hubs, redis, asking, remote, passing, trap, replica)


@asynccontextmanager
async def open_hub(folder: Path) -> AsyncIterator[Hub]:
    """A hub on loopback without authentication, as on somebody's own machine."""
    async with hub(folder, config(a=lean(), talk=talking()), "strict = false\n") as served:
        yield served


SMALL_SETTINGS = """
strict = false
audit = "audit.jsonl"
max_concurrent_requests = 4
max_waiting_requests = 8
max_request_bodies_mb = 16
rate_limit = 0
"""


@asynccontextmanager
async def small(folder: Path) -> AsyncIterator[Hub]:
    """A hub that has little of everything, for two who do not trust each other."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {name: new_key(name, None, None) for name in ("ann", "bob")}
    write_keys(folder / "keys.json", [entry for _, entry in made.values()])
    keys = {name: key for name, (key, _) in made.items()}
    settings = f'keys_file = "{folder / "keys.json"}"\n{SMALL_SETTINGS}'
    async with hub(folder, config(a=lean(), b=lean()), settings, keys=keys, descriptors=700) as served:
        yield served


@dataclass
class Machine:
    """A machine of a person with clients: a home, a project, and the command line."""

    home: Path

    @property
    def project(self) -> Path:
        return self.home / "project"

    def path(self, name: str) -> Path:
        return self.home / name

    async def run(self, *arguments: str, is_alone: bool = False, **variables: str) -> tuple[int, str]:
        """The command line: its exit code, and all that it shows. `is_alone`: without any network but loopback."""
        alone = ["unshare", "--map-root-user", "--net"] if is_alone else []
        env = {"HOME": str(self.home), "PATH": os.environ["PATH"], "TERM": "xterm", **variables}
        process = await asyncio.create_subprocess_exec(
            *alone,
            sys.executable,
            "-m",
            "fastmcp_aggregator",
            *arguments,
            cwd=self.project,
            env=env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        shown, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
        assert process.returncode is not None
        return process.returncode, shown.decode(errors="replace")


@asynccontextmanager
async def hub_of_its_own(
    machine: Machine, document: Mapping[str, Any], settings: str = "", **options: Any
) -> AsyncIterator[Hub]:
    """A hub for one attack, which must go on serving after it as the others must."""
    folder = Path(tempfile.mkdtemp(dir=machine.home, prefix="hub-"))
    async with hub(folder, document, f"strict = false\n{settings}", **options) as served:
        try:
            yield served
        finally:
            await served.stack.aclose()
        await served.check()


@asynccontextmanager
async def machine(folder: Path) -> AsyncIterator[Machine]:
    """A machine of a person."""
    (folder / "project").mkdir(parents=True, exist_ok=True)
    yield Machine(folder)


ROOMS: dict[str, Any] = {"team": team, "open": open_hub, "small": small, "machine": machine}


def hubs_of(room: Any) -> list[Hub]:
    """The hubs in a room."""
    return [room.one, room.other] if isinstance(room, Team) else [room] if isinstance(room, Hub) else []


def jwt_for(sub: str, *groups: str, **claims: Any) -> str:
    """A good token of the identity provider."""
    return token(sub=sub, groups=list(groups), **claims)
