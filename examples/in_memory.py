"""FastMCP's client on the aggregator in the same process: no port, no pipe. Good for scripts and tests.

python examples/in_memory.py [CONFIG]
"""

import asyncio
import sys
from pathlib import Path

from fastmcp import Client

from fastmcp_aggregator import build_aggregator

CONFIG = Path(__file__).with_name("config.json")


async def main(config: str | Path = CONFIG) -> None:
    async with Client(build_aggregator(config)) as client:
        for tool in await client.list_tools():
            print(tool.name)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
