"""The HTTP apps of groups: `/groups/{id}/mcp` and what is below, each a virtual server of its own.

Theory. They stand inside of the hub's app, behind its check of Host and Origin and its authentication, and before its
gate: who is rejected reaches no group's app, has none made, and does not learn whether there is such a group. Each has
an ASGI app with a session manager, which must be opened and closed in one task. So each runs in a task of this room,
started when the group is first asked for and ended with all the others; a group that is not used costs nothing, and one
that comes with a new groups file needs no restart. One that is gone from the file is not found.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from starlette.responses import PlainTextResponse
from starlette.routing import Match, Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fastmcp_aggregator.auth.resource_metadata import GroupMetadata
from fastmcp_aggregator.front.http.security import NOT_FOUND, Membership, OnDenied
from fastmcp_aggregator.groups import is_group_id
from fastmcp_aggregator.library_internals import route_path
from fastmcp_aggregator.policies.refused_callers import RefusedCallers

MakeApp = Callable[[str], ASGIApp]
GuardApp = Callable[[ASGIApp], ASGIApp]


class GroupApps:
    """An ASGI layer around the app of the default group: routes requests to the apps of the others."""

    def __init__(
        self,
        app: ASGIApp,
        groups: RunningGroups,
        guard: GuardApp,
        on_denied: OnDenied,
        refused: RefusedCallers,
        metadata: GroupMetadata | None,
    ) -> None:
        """`guard` rejects unauthenticated callers; `on_denied` is called for callers that may not use the group,
        who take turns at `refused`; `metadata` is what clients are pointed to that have no valid token, if there is
        any.
        """
        self._app = app
        self._groups = groups
        self._on_denied = on_denied
        self._refused = refused
        self._metadata = metadata
        self._mount = Mount("/groups/{group_id}", app=guard(self._let_in))
        self._nothing = guard(_nothing)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        is_of_group = scope["type"] == "http" and route_path(scope).startswith("/groups/")
        return (self._of_group if is_of_group else self._app)(scope, receive, send)

    async def _of_group(self, scope: Scope, receive: Receive, send: Send) -> None:
        if route_path(scope).count("/") == 2:  # the group's own app says where its endpoint is
            scope = {**scope, "path": f"{scope['path']}/"}
        match, addressed = self._mount.matches(scope)
        if match is Match.NONE or not is_group_id(group_id := addressed["path_params"]["group_id"]):
            await self._nothing(scope, receive, send)
        else:
            await self._mount.app({**scope, **addressed}, receive, self._pointing(group_id, send))

    def _pointing(self, group_id: str, send: Send) -> Send:
        """Point to the group's own metadata: to FastMCP, all groups have the same path."""
        metadata = self._metadata
        if metadata is None:
            return send
        general, own = metadata.general_url.encode(), metadata.url(group_id).encode()

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] in (401, 403):
                message["headers"] = [
                    (name, value.replace(general, own) if name == b"www-authenticate" else value)
                    for name, value in message["headers"]
                ]
            await send(message)

        return sent

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        group_id = scope["path_params"]["group_id"]
        serve = partial(self._serve, group_id)
        await Membership(serve, group_id, path="", on_denied=self._on_denied, refused=self._refused)(
            scope, receive, send
        )

    async def _serve(self, group_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        running = self._groups.find(group_id)
        if running is None:
            await _nothing(scope, receive, send)
        else:
            await running.serve(scope, receive, send)


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse(NOT_FOUND, status_code=404)(scope, receive, send)


class RunningGroups:
    """The apps of the groups that have been asked for."""

    def __init__(self, exists: Callable[[str], bool], make_app: MakeApp) -> None:
        """`exists` says whether there is a group now, `make_app` makes its app."""
        self._exists = exists
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
        if not self._exists(group_id):
            return None
        if group_id not in self._running and self._is_open:
            self._running[group_id] = _Running(self._make_app(group_id))
        return self._running.get(group_id)


class _Running:
    """An ASGI app with its lifespan, in a task of its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._events: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self._events.put_nowait({"type": "lifespan.startup"})
        self._started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(), name="group app")

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, once the app has started."""
        await asyncio.shield(self._started)
        await self._app(scope, receive, send)

    async def stop(self) -> None:
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
