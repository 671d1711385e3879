"""Installation as newcomers do it: `uvx` and `pipx install`, with the wheel that the build makes, from an index."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from support.harness import config, lean

from fastmcp_aggregator.version import VERSION

ROOT = Path(__file__).parents[2]
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
ASKED = [
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "Zed", "version": "1"}},
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
]

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif("INSTALLS" not in os.environ, reason="`nox -s install` installs what this needs"),
]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A package index with nothing but the wheel, made of the sdist as PyPI's users get it."""
    folder = tmp_path_factory.mktemp("index")
    place = folder / "simple" / "fastmcp-aggregator"
    place.mkdir(parents=True)
    command = [sys.executable, "-m", "build", "--installer", "uv", "--outdir", place, ROOT]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = place.glob("*.whl")
    (place / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()


@pytest.fixture
def served(tmp_path: Path) -> Path:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps(config(a=lean())))
    return path


def run(*command: str | Path, stdin: str = "", **environ: str) -> str:
    found = subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=300, env={**os.environ, **environ}, check=False
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


def answers(*command: str | Path, **environ: str) -> list[str]:
    """The names of the tools that a client is told which starts the server like this."""
    out = run(*command, stdin="".join(json.dumps(message) + "\n" for message in ASKED), **environ)
    listed = next(message for line in out.splitlines() if (message := json.loads(line)).get("id") == 2)
    return [tool["name"] for tool in listed["result"]["tools"]]


def test_uvx_runs_it_without_an_installation(index: str, served: Path, tmp_path: Path) -> None:
    uvx = ("uvx", "--python", PYTHON, "--index", index, "fastmcp-aggregator")
    cache = {"UV_CACHE_DIR": str(tmp_path / "cache")}
    assert run(*uvx, "--version", **cache) == f"fastmcp-aggregator {VERSION}\n"
    assert "a:echo" in answers(*uvx, served, **cache)


def test_pipx_installs_its_command(index: str, served: Path, tmp_path: Path) -> None:
    places = {name: str(tmp_path / name) for name in ("PIPX_HOME", "PIPX_BIN_DIR", "PIPX_MAN_DIR")}
    places["PIPX_COMPLETION_DIR"] = str(tmp_path / "completions")
    pip = f"--extra-index-url {index}"
    run("pipx", "install", "--python", sys.executable, "--pip-args", pip, "fastmcp-aggregator", **places)
    program = Path(places["PIPX_BIN_DIR"]) / "fastmcp-aggregator"
    assert run(program, "--version") == f"fastmcp-aggregator {VERSION}\n"
    assert "a:echo" in answers(program, served)
    assert shutil.which("fastmcp-aggregator", path=places["PIPX_BIN_DIR"])
