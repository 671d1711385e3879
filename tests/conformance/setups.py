"""The ways in which the suite reaches the fixture."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from support.harness import config, lean

from conformance.installation import Installation
from conformance.processes import serving

Opened = AbstractContextManager[str]
"""The URL of an MCP endpoint, while its servers run."""

STDIO_FIXTURE = "from mcp_everything_server.server import mcp; mcp.run()"
"""The fixture's own command line serves HTTP only."""


@contextmanager
def _direct(installation: Installation, folder: Path) -> Iterator[str]:
    command = [installation.fixture_python, "-m", "mcp_everything_server", "--port", "0"]
    with serving(command, folder / "fixture.log", "Uvicorn running on") as origin:
        yield f"{origin}/mcp"


@contextmanager
def _http_child(installation: Installation, folder: Path) -> Iterator[str]:
    with _direct(installation, folder) as url, _aggregator(folder, fixture={"url": url}) as front:
        yield front


def _stdio_child(installation: Installation, folder: Path) -> Opened:
    return _aggregator(folder, fixture=_stdio_entry(installation))


def _one_of_several(installation: Installation, folder: Path) -> Opened:
    return _aggregator(
        folder,
        before=_neighbour("before", "legacy"),
        fixture=_stdio_entry(installation),
        after=_neighbour("after", "modern"),
    )


SETUPS: dict[str, Callable[[Installation, Path], Opened]] = {
    "direct": _direct,
    "http-child": _http_child,
    "stdio-child": _stdio_child,
    "one-of-several": _one_of_several,
}
"""By name. The folder, an empty one, gets the config and the logs."""


def _stdio_entry(installation: Installation) -> dict[str, Any]:
    return {"command": installation.fixture_python, "args": ["-c", STDIO_FIXTURE]}


def _neighbour(name: str, era: str) -> dict[str, Any]:
    """A lean child that lists one tool, resource and prompt, whose names no other child has."""
    described = {"description": "Of a neighbour."}
    tool = {"name": f"{name}_tool", "inputSchema": {"type": "object"}, **described}
    hints = {"ttlMs": 0, "cacheScope": "private"} if era == "modern" else {}
    return lean(
        era=era,
        tool_names=[tool["name"]],
        resources=[{"uri": f"{name}://resource", "name": f"{name}_resource", **described}],
        prompts=[{"name": f"{name}_prompt", **described}],
        results={"tools/list": {"tools": [tool], **hints}},
    )


@contextmanager
def _aggregator(folder: Path, **entries: dict[str, Any]) -> Iterator[str]:
    document = folder / "config.json"
    document.write_text(json.dumps(config(**entries)))
    command = [sys.executable, "-m", "fastmcp_aggregator", str(document)]
    options = ["--no-prefix", "--transport", "http", "--port", "0"]
    with serving([*command, *options], folder / "aggregator.log", "serving on") as url:
        yield url
