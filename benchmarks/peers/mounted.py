"""FastMCP with a proxy mounted for each server of a config: `python mounted.py CONFIG stdio|http PORT`.

The clients of the servers stay connected; without that, each call would start its server anew.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from fastmcp import Client, FastMCP
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy


async def main(config: Path, front: str, port: int) -> None:
    """Connect all servers at once, and serve them."""
    server: FastMCP = FastMCP("mounted")
    entries = json.loads(config.read_text())["mcpServers"]
    clients = {name: Client(StdioTransport(entry["command"], entry["args"])) for name, entry in entries.items()}
    async with AsyncExitStack() as stack:
        await asyncio.gather(*(stack.enter_async_context(client) for client in clients.values()))
        for name, client in clients.items():
            server.mount(create_proxy(client), namespace=name)
        if front == "stdio":
            await server.run_stdio_async(show_banner=False)
        else:
            await server.run_http_async(show_banner=False, port=port, log_level="warning")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
