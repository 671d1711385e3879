"""A server over HTTP that answers at once, without an SDK: `python remote_server.py`. It prints its port."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from support.talking_server import talking_server


async def serve() -> None:
    """Serve until the process is ended."""
    async with talking_server() as server:
        print(f"serving on port {server.port}", flush=True)
        while True:
            await asyncio.sleep(60)
            server.requests.clear()


if __name__ == "__main__":
    asyncio.run(serve())
