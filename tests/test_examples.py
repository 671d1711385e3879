"""The examples run, each as its reader would start it, on a config of lean children."""

import asyncio
import importlib.util
import json
import sys
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


async def output_of(example: str, mcp_json: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(EXAMPLES / example), mcp_json, stdout=asyncio.subprocess.PIPE
    )
    stdout, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode == 0
    return stdout.decode()


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


async def test_client_in_memory(mcp_json: str) -> None:
    assert {"a:echo", "b:echo"} <= set((await output_of("in_memory.py", mcp_json)).split())


async def test_mounted_under_a_namespace(mcp_json: str) -> None:
    assert {"greet", "hub_a__echo", "hub_b__echo"} <= set((await output_of("mount.py", mcp_json)).split())


async def test_async_with(mcp_json: str) -> None:
    assert "a: running" in await output_of("async_with.py", mcp_json)


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
