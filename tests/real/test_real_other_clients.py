"""Clients that others wrote: each sees every tool of every server, and is answered as by server-everything itself."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from real_answers import Event, canonical, public, unenveloped
from real_fronts import Entries, Front, Opened, opened
from real_programs import MODULES, SPOKEN, aggregating_server, attaching_server, direct_server, inspect, run
from real_servers import LISTS, Place, requires_servers, server_entries
from support.harness import running
from support.wire import EVERYTHING, LEGACY, MODERN, until_answered

pytestmark = [pytest.mark.real, requires_servers, pytest.mark.asyncio(loop_scope="module")]

MODEL_API_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What the APIs of OpenAI and Anthropic take as the name of a tool."""
LOGGED_BETWEEN_CALLS = "ubscribe Resource request"
"""What server-everything logs over a subscription: it belongs to no call."""
SUM = ["--tool-arg", "a=1", "b=2"]
DOCUMENT = "resource/static/document/features.md"
CALLS = [
    ("get-sum", {"a": 1, "b": 2}),
    ("get-structured-content", {"location": "Chicago"}),
    ("get-tiny-image", {}),
    ("trigger-long-running-operation", {"duration": 0.2, "steps": 3}),
    ("echo", {"message": 7}),
]
PROGRESS = "notifications/progress"
STEPS = [{"progress": step, "total": 3} for step in (1, 2)]
"""What server-everything tells of a long operation before its end."""

each_transport = pytest.mark.parametrize("transport", ["stdio", "attach", "http"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub(place: Place, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    """An aggregator of all servers on HTTP, with names that every model API takes."""
    folder = tmp_path_factory.mktemp("hub")
    entries = server_entries(place, folder)
    async with opened(Front("http", LEGACY), folder, entries, "--separator", "__") as aggregator:
        yield aggregator


@pytest.fixture(scope="module")
def directly() -> dict[Any, Any]:
    """What clients have been told by server-everything itself, which is the same for each transport of the hub."""
    return {}


async def expected_tools(transport: str, hub: Opened, direct: list[str], separator: str) -> list[str]:
    """What a client of an aggregator is to see, if it sees `direct` of server-everything when it starts it itself.

    Where there are many clients, over HTTP or at a hub, a server offers what it has for a client that can be asked
    anything.
    """
    names = await hub.client.names("tools/list")
    if transport != "stdio":
        return [name.replace("__", separator, 1) for name in names]
    others = [name.replace("__", separator, 1) for name in names if not name.startswith("everything__")]
    return [f"everything{separator}{name}" for name in direct] + others


def server_for(transport: str, hub: Opened, entries: Entries, folder: Path, *options: str) -> dict[str, Any]:
    """How a client reaches all servers."""
    if transport == "http":
        return {"url": hub.url}
    start = attaching_server if transport == "attach" else aggregating_server
    return start(entries, folder, *options)


@asynccontextmanager
async def served_already(server: dict[str, Any], home: Path) -> AsyncIterator[None]:
    """While another client is attached, which has seen the last tools that server-everything offers."""
    env = {**server["env"], "HOME": str(home)}
    async with running(server["command"], *server["args"], env=env, capabilities=EVERYTHING) as other:
        await until_answered(other.client.names, lambda names: "everything:trigger-elicitation-request" in names)
        yield


def settled(heard: list[Any]) -> list[Event]:
    """What a client of the TypeScript SDK has heard, without what depends on its era, its transport or its timing."""
    events = []
    for kind, method, content in heard:
        if kind == "answered":
            events.append((kind, method, unenveloped(content)))
        elif method != "notifications/progress" or content["progress"] < content.get("total", 0):
            # The SDK drops the last progress if the result is in the same chunk, and reports its own over questions.
            events.append((kind, method, {name: value for name, value in content.items() if name != "_meta"}))
    return sorted(events, key=lambda event: event[1] == "notifications/resources/updated")


@each_transport
@pytest.mark.parametrize(
    ("sdk", "era", "version"),
    [
        (1, "legacy", *SPOKEN["@modelcontextprotocol/sdk"]),
        *zip((2, 2), ("legacy", "auto"), SPOKEN["@modelcontextprotocol/client"], strict=True),
    ],
)
async def test_the_typescript_sdk_lists_calls_answers_questions_and_follows_resources(
    transport: str,
    sdk: int,
    era: str,
    version: str,
    hub: Opened,
    entries: Entries,
    directly: dict[Any, Any],
    tmp_path: Path,
) -> None:
    async def client(server: dict[str, Any], era: str, separator: str = "") -> Any:
        how = {"sdk": sdk, "modules": str(MODULES), "era": era, "separator": separator}
        return await run("typescript_client.mjs", tmp_path, server=server, **how)

    server = server_for(transport, hub, entries, tmp_path)
    separator = "__" if transport == "http" else ":"
    got = await client(server, era, separator)
    if sdk not in directly:
        directly[sdk] = await client(direct_server(entries), "legacy")
    direct = directly[sdk]
    assert got["version"] == version
    assert got["names"] == {
        "tools/list": await expected_tools(transport, hub, direct["names"]["tools/list"], separator),
        "resources/list": await hub.client.names("resources/list"),
        "resources/templates/list": await hub.client.names("resources/templates/list"),
        "prompts/list": [f"everything{separator}{name}" for name in direct["names"]["prompts/list"]],
    }
    heard, expected = settled(got["heard"]), public("everything", settled(direct["heard"]))
    if transport == "http" or version != LEGACY:
        expected = [event for event in expected if LOGGED_BETWEEN_CALLS not in canonical(event)]
    # The SDK drops progress that it reads together with the answer, as it may on a busy machine.
    assert canonical(without_progress(heard)) == canonical(without_progress(expected))
    assert [content for _, method, content in heard if method == PROGRESS and content not in STEPS] == []


def without_progress(events: list[Any]) -> list[Any]:
    return [event for event in events if event[1] != PROGRESS]


@each_transport
@pytest.mark.parametrize(
    ("package", "program", "further"),
    [
        # It can be asked.
        ("langchain-mcp-adapters", "langchain_client.py", [("trigger-elicitation-request", {})]),
        ("openai-agents", "openai_agents_client.py", []),
    ],
)
async def test_an_agent_framework_lists_and_calls_under_names_that_model_apis_take(
    transport: str,
    package: str,
    program: str,
    further: list[Any],
    hub: Opened,
    entries: Entries,
    directly: dict[Any, Any],
    tmp_path: Path,
) -> None:
    async def client(server: dict[str, Any], prefix: str) -> Any:
        calls = [(f"{prefix}{name}", arguments) for name, arguments in (*CALLS, *further)]
        return await run(program, tmp_path, server=server, calls=calls)

    got = await client(server_for(transport, hub, entries, tmp_path, "--separator", "__"), "everything__")
    if package not in directly:
        directly[package] = await client(direct_server(entries), "")
    direct = directly[package]
    assert [got["version"]] == SPOKEN[package]
    assert got["tools"] == await expected_tools(transport, hub, direct["tools"], "__")
    assert [name for name in got["tools"] if not MODEL_API_NAME.fullmatch(name)] == []
    assert canonical(got["answers"]) == canonical(direct["answers"])
    assert got["events"] == direct["events"]


@pytest.mark.parametrize("transport", ["stdio", "attach"])
async def test_the_inspector_lists_and_calls_over_stdio(
    transport: str, hub: Opened, entries: Entries, tmp_path: Path
) -> None:
    # By its name: the Inspector starts its servers with other variables than it has itself.
    options = ["--hub", f"{tmp_path.name} {os.getpid()}"] if transport == "attach" else []
    server = server_for(transport, hub, entries, tmp_path, *options)
    async with served_already(server, tmp_path) if transport == "attach" else nullcontext():
        listed = await inspect(server, tmp_path, LEGACY, "tools/list")
        direct = await inspect(direct_server(entries), tmp_path, LEGACY, "tools/list")
        names = [tool["name"] for tool in listed["result"]["tools"]]
        alone = [tool["name"] for tool in direct["result"]["tools"]]
        assert names == await expected_tools(transport, hub, alone, ":")
        answer = await inspect(server, tmp_path, MODERN, "tools/call", "--tool-name", "everything:get-sum", *SUM)
        assert answer["result"]["content"] == [{"type": "text", "text": "The sum of 1 and 2 is 3."}]


@pytest.mark.parametrize("method", ["resources/templates/list", "prompts/list"])
async def test_the_inspector_lists_over_http(method: str, hub: Opened, tmp_path: Path) -> None:
    list_key, id_field = LISTS[method]
    listed = await inspect({"url": hub.url}, tmp_path, LEGACY, method)
    assert [each[id_field] for each in listed["result"][list_key]] == await hub.client.names(method)


@pytest.mark.parametrize(
    ("method", "option", "target", "public_target", "more"),
    [
        ("tools/call", "--tool-name", "get-sum", "everything__get-sum", SUM),
        ("prompts/get", "--prompt-name", "args-prompt", "everything__args-prompt", ["--prompt-args", "city=Bern"]),
        ("resources/read", "--uri", f"demo://{DOCUMENT}", f"demo://everything/{DOCUMENT}", []),
    ],
    ids=["call", "prompt", "read"],
)
async def test_the_inspector_is_answered_over_http_as_directly(
    method: str,
    option: str,
    target: str,
    public_target: str,
    more: list[str],
    hub: Opened,
    entries: Entries,
    tmp_path: Path,
) -> None:
    answer = await inspect({"url": hub.url}, tmp_path, MODERN, method, option, public_target, *more)
    direct = await inspect(direct_server(entries), tmp_path, LEGACY, method, option, target, *more)
    assert unenveloped(answer) == public("everything", direct)
