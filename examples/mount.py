"""All servers of a config inside a FastMCP server of your own, beside its tools, under a namespace.

python examples/mount.py [CONFIG]
"""

import asyncio
import sys
from pathlib import Path

from fastmcp import Client, FastMCP

from fastmcp_aggregator import build_aggregator

CONFIG = Path(__file__).with_name("config.json")


def make_server(config: str | Path = CONFIG) -> FastMCP:
    server: FastMCP = FastMCP("my-server")

    @server.tool
    def greet(name: str) -> str:
        return f"Hello, {name}!"

    server.mount(build_aggregator(config, separator="__"), namespace="hub")
    return server


async def main(config: str | Path = CONFIG) -> None:
    async with Client(make_server(config)) as client:
        for tool in await client.list_tools():
            print(tool.name)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
