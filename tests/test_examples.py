"""The examples run, each as its reader would start it, on a config of lean children."""

import asyncio
import importlib.util
import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastmcp import Client
from support.harness import PATIENCE, config, lean, running, until

from fastmcp_aggregator import load_config

pytestmark = pytest.mark.process

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def mcp_json(tmp_path: Path) -> str:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps(config(a=lean(), b=lean(era="modern"))))
    return str(path)


@pytest.fixture
def run(mcp_json: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """Run an example as a program, in this process; what it prints."""

    def run(example: str) -> str:
        monkeypatch.setattr(sys, "argv", [example, mcp_json])
        runpy.run_path(str(EXAMPLES / example), run_name="__main__")
        return capsys.readouterr().out

    return run


def module_of(example: str) -> Any:
    spec = importlib.util.spec_from_file_location(example.removesuffix(".py"), EXAMPLES / example)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_run_on_stdio(mcp_json: str) -> None:
    async with running(sys.executable, str(EXAMPLES / "run_stdio.py"), mcp_json) as server:
        assert (await server.client.call("b:echo", x=1))["arguments"] == {"x": 1}
        assert server.client.introduction["serverInfo"]["name"] == "my-tools"
        assert await server.end() == 0


def test_client_in_memory(run: Callable[[str], str]) -> None:
    assert {"a:echo", "b:echo"} <= set(run("in_memory.py").split())


def test_mounted_under_a_namespace(run: Callable[[str], str]) -> None:
    assert {"greet", "hub_a__echo", "hub_b__echo"} <= set(run("mount.py").split())


def test_async_with(run: Callable[[str], str]) -> None:
    assert "a: running" in run("async_with.py")


async def test_asgi_app_inside_an_application(mcp_json: str) -> None:
    server = uvicorn.Server(uvicorn.Config(module_of("asgi.py").make_app(mcp_json), port=0, log_level="warning"))
    serving = asyncio.create_task(server.serve())
    try:
        await until(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        async with Client(f"http://127.0.0.1:{port}/tools/mcp") as client:
            assert "a:echo" in {tool.name for tool in await client.list_tools()}
    finally:
        server.should_exit = True
        await asyncio.wait_for(serving, PATIENCE)


def test_every_example_has_its_test_here() -> None:
    tested = {"run_stdio.py", "in_memory.py", "mount.py", "async_with.py", "asgi.py"}
    assert {path.name for path in EXAMPLES.glob("*.py")} == tested


def test_the_config_of_the_readme_is_valid_without_any_variable_set() -> None:
    assert list(load_config(EXAMPLES / "config.json", environ={}).servers) == ["time", "git"]
