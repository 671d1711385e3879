"""The faces of groups over HTTP: `/groups/{id}/mcp` and what belongs to it, each an MCP server of its own.

Theory. A face has an ASGI app with a session manager, which must be opened and closed in one task. So each runs in
a task of this room, started when the face is first asked for and ended with all the others; a group that is not used
costs nothing, and one that comes with a new groups file needs no restart. One that is gone from the file shows nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from starlette._utils import get_route_path
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_PREFIX = "/groups/"

MakeApp = Callable[[str], ASGIApp | None]


class GroupApps:
    """An ASGI app around that of the default group: hands on to the others what is addressed to them."""

    def __init__(self, app: ASGIApp, groups: RunningGroups) -> None:
        self._app = app
        self._groups = groups

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = get_route_path(scope) if scope["type"] == "http" else ""
        group_id, slash, _ = path.removeprefix(_PREFIX).partition("/")
        if not path.startswith(_PREFIX) or not slash:
            await self._app(scope, receive, send)
        elif (running := self._groups.find(group_id)) is None:
            await PlainTextResponse("Not Found", status_code=404)(scope, receive, send)
        else:
            await running.serve({**scope, "root_path": scope.get("root_path", "") + _PREFIX + group_id}, receive, send)


class RunningGroups:
    """The apps of the groups that have been asked for."""

    def __init__(self, make_app: MakeApp) -> None:
        """`make_app` makes the app of a group; None: there is no such group."""
        self._make_app = make_app
        self._running: dict[str, _Running] = {}
        self._is_open = False

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """While requests may come."""
        self._is_open = True
        try:
            yield
        finally:
            self._is_open = False
            await asyncio.gather(*(running.stop() for running in self._running.values()))
            self._running.clear()

    def find(self, group_id: str) -> _Running | None:
        """The app of a group, which is started if it was not yet; None: there is none."""
        if group_id not in self._running and self._is_open:
            app = self._make_app(group_id)
            if app is not None:
                self._running[group_id] = _Running(app)
        return self._running.get(group_id)


class _Running:
    """An ASGI app with its lifespan, in a task of its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._events: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self._events.put_nowait({"type": "lifespan.startup"})
        self._started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(), name="group face")

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, once the app has started."""
        await asyncio.shield(self._started)
        await self._app(scope, receive, send)

    async def stop(self) -> None:
        """End the app."""
        self._events.put_nowait({"type": "lifespan.shutdown"})
        await asyncio.wait({self._task})

    async def _live(self) -> None:
        async def told(message: dict[str, object]) -> None:
            if message["type"] == "lifespan.startup.complete":
                self._started.set_result(None)
            elif message["type"] == "lifespan.startup.failed":
                self._started.set_exception(RuntimeError(str(message.get("message"))))

        scope: Scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
        await self._app(scope, self._events.get, told)  # type: ignore[arg-type]
