"""The aggregator as an object in your program: its health, its tools, a call.

python examples/async_with.py [CONFIG]
"""

import asyncio
import sys
from pathlib import Path

from fastmcp_aggregator import build_aggregator

CONFIG = Path(__file__).with_name("config.json")


async def main(config: str | Path = CONFIG) -> None:
    async with build_aggregator(config) as hub:
        for key, status in hub.health().items():
            print(f"{key}: {status.state}, {status.tools} tools")
        tools = await hub.list_tools()
        print(f"{len(tools)} tools, the first is {tools[0].name}")
        if any(tool.name == "time:convert_time" for tool in tools):
            arguments = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
            result = await hub.call_tool("time:convert_time", arguments)
            print(result.structured_content)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
