"""An app on a real socket of this machine, in this process, with clients of every kind."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
import uvicorn.server

from fastmcp_aggregator.access.listening import listening_socket, url_of
from fastmcp_aggregator.front.http.server import HttpTimings, serve_http
from support.connections import OneConnectionEach
from support.wire import PATIENCE
from support.wire_http import HttpClient
from support.wire_sse import SseClient


class _ShouldExit:
    """The flag of uvicorn's server, which can be waited for."""

    def __get__(self, server: Any, owner: type) -> bool:
        return self.event_of(server).is_set()

    def __set__(self, server: Any, is_set: bool) -> None:
        if is_set:
            self.event_of(server).set()
        else:
            self.event_of(server).clear()

    def event_of(self, server: Any) -> asyncio.Event:
        event: asyncio.Event = vars(server).setdefault("_told_to_exit", asyncio.Event())
        return event


_SHOULD_EXIT = _ShouldExit()


async def _until_told_to_exit(server: Any) -> None:
    """In place of looks every 100 ms."""
    await server.on_tick(0)
    await _SHOULD_EXIT.event_of(server).wait()


uvicorn.server.Server.should_exit = _SHOULD_EXIT  # type: ignore[assignment]
uvicorn.server.Server.main_loop = _until_told_to_exit  # type: ignore[method-assign]


class _Asyncio:
    """asyncio, as uvicorn's server has it here: while it ends, it looks every 2 ms, and not every 100 ms."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, delay: float) -> None:
        await asyncio.sleep(delay / 50)


uvicorn.server.asyncio = _Asyncio()  # type: ignore[assignment]
QUICK = HttpTimings(look_interval=0.001)
"""At the end, three looks whether somebody has just connected take 3 ms, and not 15."""


class Served:
    """An app that is served; its clients are closed with it. `stop` ends the server, as a signal does."""

    def __init__(
        self, asgi: Any, origin: str, stop: asyncio.Event, stack: AsyncExitStack, server: asyncio.Task[None]
    ) -> None:
        self.asgi = asgi
        self.origin = origin
        self.stop = stop
        self._stack = stack
        self._server = server

    @property
    def url(self) -> str:
        """That of its MCP endpoint."""
        return self.url_of(None)

    def url_of(self, group: str | None) -> str:
        """That of the MCP endpoint of a group."""
        return self.origin + ("/mcp" if group is None else f"/groups/{group}/mcp")

    async def connect(
        self, group: str | None = None, *, modern: bool = False, name: str = "test", **about: Any
    ) -> HttpClient:
        """A client that has done its handshake; `about` has further parameters of `HttpClient`."""
        client = HttpClient(self.url_of(group), modern=modern, name=name, **about)
        self._stack.push_async_callback(self._close, client)
        await client.start()
        return client

    async def _close(self, client: HttpClient) -> None:
        """A server that is to end takes no new connections, which would be tried again after a second."""
        await client.close(ends_session=not self.stop.is_set())

    async def connect_sse(self, group: str | None = None, **about: Any) -> SseClient:
        """A client of the old transport that has done its handshake."""
        client = self.sse_client(group, **about)
        await client.start()
        return client

    def sse_client(self, group: str | None = None, **about: Any) -> SseClient:
        """A client of the old transport that has opened its stream, and nothing else."""
        client = SseClient(f"{self.url_of(group)}/sse", **about)
        self._stack.push_async_callback(client.close)
        return client

    async def abort(self) -> None:
        """End now, whatever it waits for."""
        self._server.cancel()
        await asyncio.wait({self._server})

    def browser(self, path: str = "", **headers: str) -> httpx2.AsyncClient:
        """A plain HTTP client, to be entered; its addresses begin with the origin, and with this path."""
        transport = OneConnectionEach()
        return httpx2.AsyncClient(base_url=self.origin + path, headers=headers, timeout=PATIENCE, transport=transport)


@asynccontextmanager
async def served(
    app: Any,
    *,
    listener: socket.socket | None = None,
    drain_wait: float = 0.0,
    timings: HttpTimings = QUICK,
    **options: Any,
) -> AsyncIterator[Served]:
    """Serve a server with these options of its `http_app`, or an ASGI app. An app that must know its origin before
    it is made is given the `listener` that the origin is of.
    """
    asgi = app.http_app(path="/mcp", **options) if hasattr(app, "http_app") else app
    backend = getattr(app, "_backend", None)
    shares = {} if backend is None else {"open_ones": backend.admission.connections, "unread": backend.admission.unread}
    stop, listening = asyncio.Event(), asyncio.Event()
    with listener or listening_socket("127.0.0.1", 0) as listener:
        times: Any = {"drain_wait": drain_wait, "timings": timings}
        server = asyncio.create_task(serve_http(asgi, listener, stop, on_listening=listening.set, **times, **shares))
        try:
            ready = asyncio.create_task(listening.wait())
            await asyncio.wait({ready, server}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
            ready.cancel()
            assert listening.is_set(), "the app has not started"
            async with AsyncExitStack() as clients:
                yield Served(asgi, url_of(listener, "127.0.0.1"), stop, clients, server)
        finally:
            stop.set()
            if not server.cancelled():
                await asyncio.wait_for(server, PATIENCE)


@asynccontextmanager
async def browser(app: Any, path: str = "", **headers: str) -> AsyncIterator[httpx2.AsyncClient]:
    """A plain HTTP client of an app that is served."""
    async with served(app) as front, front.browser(path, **headers) as http:
        yield http
