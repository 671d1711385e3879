"""The HTTP front: streamable HTTP through a uvicorn server whose life we own.

uvicorn's own signal handling would end the process before the children are closed, so it is off; the server ends when
it is told to, and the caller closes the children afterwards.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from sse_starlette.sse import AppStatus

from fastmcp_aggregator.errors import AggregatorError

_DRAIN_BOUND = 30
"""Seconds that requests in flight have to finish once the server is told to end."""


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def require_safe_bind(host: str, *, has_auth: bool) -> None:
    """No network surface without authentication beyond loopback.

    Raises:
        AggregatorError: anybody on the network could call every tool.
    """
    if not has_auth and not is_loopback(host):
        raise AggregatorError(
            f"refusing to listen on {host}: anyone who can reach it could call every tool. "
            "Listen on 127.0.0.1, or give the app an `auth` provider (see the page on embedding)"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def serve_http(app: Any, host: str, port: int, stop: asyncio.Event) -> None:
    """Serve an ASGI app until `stop` is set; requests in flight may finish then, streams that only listen are ended."""
    AppStatus.should_exit = False
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        lifespan="on",
        ws="none",
        timeout_graceful_shutdown=_DRAIN_BOUND,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(), name="http")
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        AppStatus.should_exit = True
        server.should_exit = True
    await serving
