"""Tasks and skills of servers made with FastMCP, taken by FastMCP's client, directly and through an aggregator."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from conformance.processes import serving
from install_servers import python_bin
from real_programs import printed
from real_servers import FOLDER, aggregator_command, requires_servers
from support.harness import free_port

pytestmark = [pytest.mark.real, requires_servers, pytest.mark.asyncio(loop_scope="module")]

HERE = Path(__file__).parent
PYTHON = str(python_bin(FOLDER) / "python")
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("add", {"a": 1, "b": 2}),
    ("required", {"word": "x"}),
    ("links", {}),
    ("fails", {}),
    ("asks", {}),
]
TASKS: list[tuple[str, dict[str, Any]]] = [("add", {"a": 1, "b": 2}), ("required", {"word": "y"}), ("endless", {})]
MADE_BY_A_TASK = "file:///made/by/a/task"


@pytest.fixture(scope="module")
def skills(tmp_path_factory: pytest.TempPathFactory) -> Path:
    skills = tmp_path_factory.mktemp("skills")
    for name in ("sew", "knit"):
        folder = skills / name
        (folder / "more").mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: How to {name}.\n---\n\nSee more/why.md\n")
        (folder / "more" / "why.md").write_text("Because — ünder all circumstances.\n", encoding="utf-8")
    return skills


@contextmanager
def reached(transport: str, skills: Path, folder: Path) -> Iterator[dict[str, Any]]:
    """How the server is reached."""
    program = [str(HERE / "servers" / "extensions.py"), str(skills)]
    if transport == "stdio":
        yield {"command": PYTHON, "args": program}
        return
    with serving([PYTHON, *program, str(free_port())], folder / "server.log", "Uvicorn running on") as origin:
        yield {"url": f"{origin}/mcp"}


@asynccontextmanager
async def fronted(transport: str, entry: dict[str, Any], folder: Path) -> AsyncIterator[dict[str, Any]]:
    """How an aggregator with this server is reached."""
    document = folder / "config.json"
    document.write_text(json.dumps({"mcpServers": {"hub": entry}}))
    command, *arguments = aggregator_command(document)
    if transport == "stdio":
        yield {"command": command, "args": arguments}
        return
    with serving([command, *arguments, "--transport", "http", "--port", "0"], folder / "hub.log", "serving on") as url:
        yield {"url": url}


async def told_by(server: dict[str, Any], home: Path, *, prefix: str = "") -> Any:
    """What a client is told, by its mode."""
    calls = [[f"{prefix}{name}", arguments] for name, arguments in CALLS]
    tasks = [[f"{prefix}{name}", arguments] for name, arguments in TASKS]
    about = json.dumps({"server": server, "calls": calls, "tasks": tasks})
    return await printed(PYTHON, HERE / "clients" / "fastmcp_tasks_client.py", about, home=home)


def published(told: Any) -> Any:
    """What is told directly, with the addresses that it has through the aggregator."""
    text = json.dumps(told)
    return json.loads(text.replace("file:///", "file://hub//").replace("skill://", "skill://hub/"))


@dataclass(frozen=True)
class Direct:
    """The server, and what clients are told by it directly, by their mode."""

    entry: dict[str, Any]
    told: Any


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["stdio", "http"])
async def direct(
    request: pytest.FixtureRequest, skills: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Direct]:
    folder = tmp_path_factory.mktemp("direct")
    with reached(request.param, skills, folder) as entry:
        yield Direct(entry, await told_by(entry, folder))


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["stdio", "http"])
async def through(request: pytest.FixtureRequest, direct: Direct, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the same clients are told through an aggregator."""
    folder = tmp_path_factory.mktemp("hub")
    async with fronted(request.param, direct.entry, folder) as hub:
        return await told_by(hub, folder, prefix="hub:")


async def test_a_modern_client_gets_what_it_gets_directly(through: Any, direct: Direct) -> None:
    directly = direct.told["auto"]
    assert directly["tasks"] == ["completed", "completed"]
    assert directly["cancelled"] == "cancelled"
    assert len(directly["skills"]) == 2
    assert through["auto"] == published(directly)


async def test_a_legacy_client_gets_results_where_a_server_only_makes_tasks(through: Any, direct: Direct) -> None:
    assert [call.get("error") for call in direct.told["legacy"]["calls"]] == [None, *["MCPError"] * 4]
    assert through["legacy"] == {name: published(direct.told["auto"])[name] for name in ("calls", "asked")}
