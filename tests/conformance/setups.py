"""The ways in which the suite reaches the fixture."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.harness import config, lean

from conformance.installation import Installation
from conformance.processes import serving

Opened = AbstractContextManager[str]
"""The URL of an MCP endpoint, while its servers run."""

STDIO_FIXTURE = "from mcp_everything_server.server import mcp; mcp.run()"
"""The fixture's own command line serves HTTP only."""
OF_EXTENSIONS = str(Path(__file__).with_name("extensions_server.py"))
"""The fixture for the scenarios of extensions."""


@dataclass(frozen=True, slots=True)
class Fixture:
    """A server, by the arguments of its Python: over HTTP, on a port that it chooses, and on stdio."""

    http: tuple[str, ...]
    stdio: tuple[str, ...]


CORE = Fixture(("-m", "mcp_everything_server", "--port", "0"), ("-c", STDIO_FIXTURE))
EXTENSIONS = Fixture((OF_EXTENSIONS, "--port", "0"), (OF_EXTENSIONS,))


@contextmanager
def _direct(installation: Installation, folder: Path, fixture: Fixture) -> Iterator[str]:
    command = [installation.fixture_python, *fixture.http]
    with serving(command, folder / "fixture.log", "Uvicorn running on") as origin:
        yield f"{origin}/mcp"


@contextmanager
def _http_child(installation: Installation, folder: Path, fixture: Fixture) -> Iterator[str]:
    with _direct(installation, folder, fixture) as url, _aggregator(folder, fixture={"url": url}) as front:
        yield front


def _stdio_child(installation: Installation, folder: Path, fixture: Fixture) -> Opened:
    return _aggregator(folder, fixture=_stdio_entry(installation, fixture))


def _one_of_several(installation: Installation, folder: Path, fixture: Fixture) -> Opened:
    return _aggregator(
        folder,
        before=_neighbour("before", "legacy"),
        fixture=_stdio_entry(installation, fixture),
        after=_neighbour("after", "modern"),
    )


def _behind_bridge(installation: Installation, folder: Path, fixture: Fixture) -> Opened:
    """The suite speaks HTTP, so an aggregator is the client of the bridge, and passes everything on."""
    document = folder / "hub.json"
    document.write_text(json.dumps(config(fixture=_stdio_entry(installation, fixture))))
    arguments = ["-P", "-m", "fastmcp_aggregator", "attach", str(document), "--no-prefix", "--no-strict"]
    entry = {"command": sys.executable, "args": arguments, "env": {"FASTMCP_AGGREGATOR_HUB_IDLE": "1"}}
    return _aggregator(folder, bridge=entry)


SETUPS: dict[str, Callable[[Installation, Path, Fixture], Opened]] = {
    "direct": _direct,
    "http-child": _http_child,
    "stdio-child": _stdio_child,
    "one-of-several": _one_of_several,
    "behind-bridge": _behind_bridge,
}
"""By name. The folder, an empty one, gets the config and the logs."""


def _stdio_entry(installation: Installation, fixture: Fixture) -> dict[str, Any]:
    return {"command": installation.fixture_python, "args": list(fixture.stdio)}


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
