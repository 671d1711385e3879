"""An ASGI app on a real socket of this machine, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastmcp_aggregator.front.http.server import listening_socket, serve_http, url_of
from support.wire import PATIENCE


@asynccontextmanager
async def serving(asgi: Any, stop: asyncio.Event | None = None, *, port: int = 0) -> AsyncIterator[str]:
    """Serve it; its origin. `stop` ends the server, as a signal does."""
    stop, listening = stop or asyncio.Event(), asyncio.Event()
    with listening_socket("127.0.0.1", port) as listener:
        server = asyncio.create_task(serve_http(asgi, listener, stop, on_listening=listening.set))
        try:
            await asyncio.wait_for(listening.wait(), PATIENCE)
            yield url_of(listener, "127.0.0.1")
        finally:
            stop.set()
            await asyncio.wait_for(server, PATIENCE)
