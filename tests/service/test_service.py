"""The limits that every call, read and prompt is held to, shown on a small server of these tests' own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from fastmcp import Client
from fastmcp.exceptions import ToolError
from fastmcp.server.providers import LocalProvider
from mcp import MCPError

from fastmcp_aggregator.service import Service, ServiceSettings, limits, load_settings, runs
from fastmcp_aggregator.service.errors import ConfigurationError, InvalidServerError
from fastmcp_aggregator.service.http import http_app
from fastmcp_aggregator.service.offer import checked_tools
from fastmcp_aggregator.service.requests import Lifecycle

PATIENCE = 20
SECRET = "0123456789abcdef"
HTTP = {"transport": "http", "host": "127.0.0.1", "port": 8000, "auth_token": SECRET, "api_key": SECRET}


class Workshop:
    """Tools whose calls wait until they are let go, and what has come of them."""

    def __init__(self) -> None:
        self.provider = LocalProvider()
        self.begun = asyncio.Semaphore(0)
        self.let_go = asyncio.Event()
        self.running = self.most_running = self.attempts = self.reads = 0
        self.provider.tool(name="alone")(self.work)
        self.provider.tool(name="together")(runs(concurrent=True)(self.work))
        self.provider.tool(name="flaky")(runs(attempts=3, on=ConnectionError)(self.flaky))
        self.provider.tool(name="hasty", timeout=0.05)(self.work)
        self.provider.resource("test://static", name="static", mime_type="text/plain")(self.read)
        self.provider.resource("test://of/{key}", name="templated", mime_type="text/plain")(self.read_one)

    async def work(self) -> int:
        """Work until let go."""
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        self.begun.release()
        try:
            await self.let_go.wait()
            return self.running
        finally:
            self.running -= 1

    async def flaky(self) -> int:
        """Fail at first."""
        self.attempts += 1
        if self.attempts < 3:
            raise ConnectionError("not yet")
        return self.attempts

    async def read(self) -> str:
        """Be read."""
        self.reads += 1
        return "content"

    async def read_one(self, key: str) -> str:
        """Be read, one of many."""
        self.reads += 1
        return key

    def server(self, **settings: Any) -> Service:
        return Service("test", settings=ServiceSettings(**settings), version="1.0.0", providers=[self.provider])


@pytest.fixture
async def workshop() -> AsyncIterator[Workshop]:
    workshop = Workshop()
    async with asyncio.timeout(PATIENCE):
        yield workshop


async def begun(workshop: Workshop, client: Client[Any], tool: str, calls: int) -> list[asyncio.Task[Any]]:
    tasks = [asyncio.create_task(client.call_tool(tool)) for _ in range(calls)]
    await workshop.begun.acquire()
    return tasks


def test_the_limits_are_those_that_are_documented() -> None:
    assert (limits.TOOL_TIMEOUT, limits.LONGEST_TIMEOUT) == (30, 300)
    assert (limits.RESOURCE_TIMEOUT, limits.PROMPT_TIMEOUT, limits.DRAIN_TIMEOUT) == (10, 5, 30)
    assert (limits.RATE_LIMIT_PER_MINUTE, limits.RATE_LIMIT_BURST, limits.MAX_RESPONSE_SIZE_MB) == (100, 20, 100)
    assert limits.STATES == ("initializing", "ready", "shutting_down", "stopped")


async def test_a_tool_runs_one_call_at_a_time(workshop: Workshop) -> None:
    async with Client(workshop.server()) as client:
        calls = await begun(workshop, client, "alone", 3)
        workshop.let_go.set()
        assert [(await call).data for call in calls] == [1, 1, 1]


async def test_calls_of_a_concurrent_tool_run_together(workshop: Workshop) -> None:
    async with Client(workshop.server()) as client:
        calls = await begun(workshop, client, "together", 3)
        await workshop.begun.acquire()
        await workshop.begun.acquire()
        workshop.let_go.set()
        assert (await calls[0]).data == 3
        await asyncio.gather(*calls)


async def test_so_many_requests_run_and_so_many_wait(workshop: Workshop) -> None:
    assert (limits.MAX_RUNNING, limits.MAX_WAITING) == (100, 1000)
    async with Client(workshop.server()) as client:
        calls = await begun(workshop, client, "together", 1101)
        done, waiting = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        refused = done.pop().exception()
        assert isinstance(refused, MCPError)
        assert refused.error.code == limits.SERVER_ERROR
        assert "waiting already" in str(refused)
        while workshop.running < 100:
            await asyncio.sleep(0)
        workshop.let_go.set()
        assert len([await call for call in waiting]) == 1100
        assert workshop.most_running == 100


async def test_a_call_that_takes_too_long_is_ended(workshop: Workshop) -> None:
    async with Client(workshop.server(tool_timeout=0.05)) as client:
        for tool in ("alone", "hasty"):
            with pytest.raises(MCPError, match=r"took more than 0\.05 s") as ended:
                await client.call_tool(tool)
            assert ended.value.error.code == limits.INTERNAL_ERROR
    assert workshop.running == 0


async def test_a_tool_is_tried_again_as_often_as_it_says(workshop: Workshop) -> None:
    async with Client(workshop.server()) as client:
        assert (await client.call_tool("flaky")).data == 3


async def test_on_stdio_no_request_comes_too_fast(workshop: Workshop) -> None:
    async with Client(workshop.server(rate_limit_per_minute=1, rate_limit_burst=1)) as client:
        reads = [client.read_resource("test://of/a") for _ in range(40)]
        assert len(await asyncio.gather(*reads)) == 40


async def test_over_http_requests_that_come_too_fast_are_refused(workshop: Workshop) -> None:
    server = workshop.server(**HTTP, rate_limit_per_minute=1, rate_limit_burst=2)
    async with Client(server) as client:
        await client.read_resource("test://static")
        await client.read_resource("test://static")
        with pytest.raises(MCPError, match="too many requests: at most 1 a minute, and 2 at once") as refused:
            await client.read_resource("test://static")
    assert refused.value.error.code == limits.SERVER_ERROR


async def test_a_response_that_is_too_large_is_not_sent(workshop: Workshop) -> None:
    async with Client(workshop.server(max_response_size_mb=0.00001)) as client:
        with pytest.raises(MCPError, match="has more than 1e-05 MB"):
            await client.read_resource("test://static")


async def test_a_resource_is_read_each_time(workshop: Workshop) -> None:
    async with Client(workshop.server()) as client:
        for uri in ("test://static", "test://of/a") * 2:
            await client.read_resource(uri)
    assert workshop.reads == 4


async def test_an_unknown_tool_is_an_error_of_the_request(workshop: Workshop) -> None:
    async with Client(workshop.server()) as client:
        with pytest.raises(MCPError) as refused:
            await client.call_tool("missing")
    assert refused.value.error.code == limits.INVALID_PARAMS


async def test_in_production_clients_get_no_details_of_errors() -> None:
    provider = LocalProvider()

    @provider.tool
    async def leak() -> str:
        """Fail."""
        raise ValueError("a secret")

    production = ServiceSettings(profile="production")
    async with Client(Service("test", settings=production, version="1.0.0", providers=[provider])) as client:
        with pytest.raises(ToolError) as failed:
            await client.call_tool("leak")
    assert "a secret" not in str(failed.value)


def state_of(server: Service) -> str:
    return server.requests.lifecycle.state


async def test_the_server_goes_through_all_states_in_each_run(workshop: Workshop) -> None:
    server = workshop.server()
    for _ in range(2):
        async with Client(server) as client:
            assert state_of(server) == "ready"
            calls = await begun(workshop, client, "together", 1)
            drained = asyncio.create_task(server.requests.drain(PATIENCE))
            await asyncio.sleep(0)
            assert state_of(server) == "shutting_down"
            with pytest.raises(MCPError, match="the server is shutting down"):
                await client.read_resource("test://static")
            workshop.let_go.set()
            await drained
            assert (await calls[0]).data == 1
        assert state_of(server) == "stopped"


def test_no_state_is_skipped() -> None:
    lifecycle = Lifecycle()
    with pytest.raises(RuntimeError, match="initializing, and cannot become stopped"):
        lifecycle.advance("stopped")


@pytest.mark.parametrize("name", ["two words", "ä", "x" * 129])
async def test_a_bad_name_keeps_the_server_from_starting(name: str) -> None:
    provider = LocalProvider()
    provider.resource("test://x", name=name)(Workshop().read)
    with pytest.raises(InvalidServerError, match="a name has up to 128"):
        await started(provider)


async def test_everything_that_is_wrong_is_told_at_once() -> None:
    provider = LocalProvider()

    @provider.tool(name="slow", timeout=301)
    async def slow() -> None:
        """Be slow."""

    @provider.tool(name="plain", description="")
    def plain() -> None: ...

    @provider.prompt(name="plain")
    async def twice() -> str:
        return ""

    with pytest.raises(InvalidServerError) as refused:
        await started(provider, version="one")
    message = str(refused.value)
    assert "'one' is not a semantic version" in message
    assert "slow: the timeout must be above 0 and at most 300 s" in message
    assert "plain: the tool needs a description" in message
    assert "plain is the name of more than one" in message


async def test_a_server_without_anything_to_offer_does_not_start() -> None:
    with pytest.raises(InvalidServerError, match="no tool, no resource and no prompt"):
        await started(LocalProvider())


async def started(provider: LocalProvider, version: str = "1.0.0") -> None:
    server = Service("test", settings=ServiceSettings(), version=version, providers=[provider])
    await checked_tools(server)


def test_the_environment_comes_before_the_file_and_the_file_before_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Settings(ServiceSettings):
        file = "team-notes"

    monkeypatch.chdir(tmp_path)
    (tmp_path / "team-notes.json").write_text(json.dumps({"log_level": "error", "tool_timeout": 7}))
    monkeypatch.setenv("MCP_LOG_LEVEL", "DEBUG")
    settings = load_settings(Settings)
    assert (settings.log_level, settings.tool_timeout, settings.prompt_timeout) == ("debug", 7, 5)
    (tmp_path / "team-notes.toml").write_text('transport = "stdio"\ntool_timeout = 8\n')
    with pytest.raises(ConfigurationError, match=r"there are team-notes\.toml and team-notes\.json"):
        load_settings(Settings)
    (tmp_path / "team-notes.json").unlink()
    assert load_settings(Settings).tool_timeout == 8
    monkeypatch.setenv("MCP_CONFIG", "other.toml")
    (tmp_path / "other.toml").write_text("tool_timeout = 9\n")
    assert load_settings(Settings).tool_timeout == 9


def test_a_file_of_another_project_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.toml").write_text("[database]\nhost = 'db'\n")
    assert load_settings(ServiceSettings) == ServiceSettings()


def test_a_wrong_setting_is_told_with_its_file_and_what_may_be_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Settings(ServiceSettings):
        file = "team-notes"
        folder: str

    monkeypatch.chdir(tmp_path)
    (tmp_path / "team-notes.toml").write_text('foldr = "notes"\nnonsense = 1\napi_key = "short"\n')
    monkeypatch.setenv("MCP_PORT", "70000")
    with pytest.raises(ConfigurationError) as refused:
        load_settings(Settings)
    assert str(refused.value).splitlines() == [
        "the settings cannot be used:",
        "  MCP_PORT must be less than or equal to 65535",
        "  `api_key` in team-notes.toml must have at least 16 characters",
        "  MCP_FOLDER is not set, and `folder` is not in team-notes.toml",
        "  `foldr` in team-notes.toml is not a setting; did you mean `folder`?",
        "  `nonsense` in team-notes.toml is not a setting; remove it",
    ]


def test_a_misspelt_variable_is_not_ignored_in_silence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MCP_PROFIL", "production")
    monkeypatch.setenv("MCP_TIMEOUT", "5000")  # of a client
    load_settings(ServiceSettings)
    (record,) = caplog.records
    assert record.getMessage() == "MCP_PROFIL is not a setting, and is ignored; did you mean MCP_PROFILE?"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("MCP_PORT", "80", "  MCP_PORT must be greater than or equal to 1024"),
        ("MCP_PORT", "x", "  MCP_PORT must be a valid integer, unable to parse string as an integer"),
        ("MCP_TOOL_TIMEOUT", "301", "  MCP_TOOL_TIMEOUT must be less than or equal to 300"),
        ("MCP_SERVER_NAME", "Not This", "  MCP_SERVER_NAME cannot be used: String should match pattern"),
        ("MCP_TRANSPORT", "http", "  transport http needs host, port, auth_token or api_key"),
        ("MCP_API_KEY", "short", "  MCP_API_KEY must have at least 16 characters"),
        ("MCP_CONFIG", "missing.toml", "there is no file missing.toml"),
    ],
)
def test_a_wrong_setting_is_told_without_its_value(
    name: str, value: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=words) as refused:
        load_settings(ServiceSettings)
    assert "short" not in str(refused.value)


async def test_http_lets_in_the_token_and_the_key_and_nobody_else(workshop: Workshop) -> None:
    app = http_app(workshop.server(**HTTP))
    web = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8000")
    async with app.router.lifespan_context(app), web as client:

        async def status(path: str = "/mcp", host: str = "127.0.0.1:8000", **headers: str) -> int:
            names = {name.replace("_", "-"): value for name, value in headers.items()}
            accept = {"Accept": "application/json, text/event-stream", "Host": host}
            ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            method = "GET" if path == "/health" else "POST"
            response = await client.request(method, path, headers={**accept, **names}, json=ping)
            return int(response.status_code)

        assert await status() == 401
        assert await status(Authorization="Bearer wrong") == 401
        assert await status(X_API_Key="wrong") == 401
        assert await status("/health") == 200
        assert await status(host="evil.example", Authorization=f"Bearer {SECRET}") == 421
        assert await status(Origin="https://evil.example", Authorization=f"Bearer {SECRET}") == 403
        # It has no session yet, but it is let in.
        assert await status(Authorization=f"Bearer {SECRET}") == 400
        assert await status(X_API_Key=SECRET) == 400


SLOW_SERVER = """
import sys
import anyio
from fastmcp_aggregator.service import Service, ServiceSettings, run

mcp = Service("slow", settings=ServiceSettings(), version="1.0.0")

@mcp.tool
async def slow() -> str:
    "Say that it has begun, and take a while."
    print("begun", file=sys.stderr, flush=True)
    print("printed")
    await anyio.sleep(0.5)
    return "done"

run(mcp)
"""


@pytest.mark.process
@pytest.mark.usefixtures("counted_processes")
@pytest.mark.skipif(os.name == "nt", reason="there is no SIGTERM on Windows")
def test_a_call_in_flight_is_finished_when_a_signal_comes() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_SERVER],
        env={**os.environ, "PYTHONUNBUFFERED": ""},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    info = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    for message in (
        {"id": 1, "method": "initialize", "params": info},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "slow", "arguments": {}}},
    ):
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    process.stdin.flush()
    while "begun" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    answers = [json.loads(line) for line in process.stdout]
    assert [answer["id"] for answer in answers] == [1, 2]
    assert answers[1]["result"]["content"][0]["text"] == "done"
    assert process.wait(PATIENCE) == 0
    assert "printed" in process.stderr.read()
    process.stdin.close()
    process.stderr.close()
    process.stdout.close()
