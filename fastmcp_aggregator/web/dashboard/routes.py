"""The dashboard over HTTP, beside a hub's MCP endpoint:

/                    the page, without any data: open to everybody
/dashboard/{file}    what it loads: the same
/dashboard/state     how everything is that the viewer may see, behind authentication where there is any
/dashboard/names     the names of the tools among it: the same
/dashboard/history   the last hour of calls, by server and minute: for observers

The page calls tools and lists them by the JSON API, like any other client of it. All addresses in it are relative, so
it works under any prefix. Credentials are a header that the page adds: with no cookie, other sites can ask for nothing.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from msgspec import Raw
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from fastmcp_aggregator.access.loopback import is_local
from fastmcp_aggregator.auth.claims import principal_in
from fastmcp_aggregator.auth.verifiers import keys_of
from fastmcp_aggregator.backend import Backend
from fastmcp_aggregator.callers.caller import HOLDER
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.concurrency.limiter import Usage
from fastmcp_aggregator.files.followed import RefusedFile
from fastmcp_aggregator.front.http.gate import IS_ENDING
from fastmcp_aggregator.front.http.security import guarded_route
from fastmcp_aggregator.groups import Group
from fastmcp_aggregator.policies.stack import Policies
from fastmcp_aggregator.protocol.raw_json import encode
from fastmcp_aggregator.routing.table import Naming
from fastmcp_aggregator.settings.model import AggregatorSettings
from fastmcp_aggregator.status.server_status import ServerStatus
from fastmcp_aggregator.version import VERSION
from fastmcp_aggregator.virtual_server import VirtualServer
from fastmcp_aggregator.web.dashboard.assets import HEADERS, PAGE, asset_response, etag_of, matches
from fastmcp_aggregator.web.dashboard.contents import KnownContents
from fastmcp_aggregator.web.dashboard.notices import notices_of
from fastmcp_aggregator.web.dashboard.view import Sources, parts_of, view_of, what_stays
from fastmcp_aggregator.web.dashboard.watch import Watch

View = dict[str, Any]

_WAIT = re.compile(r"wait=(\d{1,4})")


class Hub(Protocol):
    """The needs of the routes beside MCP of an `Aggregator`."""

    auth: Any
    policies: Policies

    @property
    def backend(self) -> Backend: ...

    @property
    def settings(self) -> AggregatorSettings: ...

    @property
    def children(self) -> Mapping[str, Child]: ...

    @property
    def is_starting(self) -> bool: ...

    def health(self) -> dict[str, ServerStatus]: ...

    async def rendered_metrics(self) -> tuple[bytes, str] | None: ...

    def shares(self) -> dict[str, Usage]: ...

    def refused_files(self) -> dict[str, RefusedFile | None]: ...

    def restart(self, server_key: str) -> None: ...

    def stop(self, server_key: str) -> None: ...

    def withdraw(self, server_key: str, tool: str, *, is_out: bool = True) -> None: ...

    def approve(self, server_key: str, looked_at: str | None = None) -> None: ...

    def groups(self) -> list[Group]: ...

    def has_group(self, group_id: str) -> bool: ...

    def group(self, group_id: str) -> VirtualServer: ...


def dashboard_routes(hub: Hub, path: str) -> list[BaseRoute]:
    """The routes, for a hub whose MCP endpoint is at `path`."""
    has_auth = hub.auth is not None
    states = _States(hub, path)

    async def file(request: Request) -> Response:
        return asset_response(request, request.path_params.get("file", PAGE), has_auth=has_auth)

    return [
        Route("/", file),
        guarded_route("/dashboard/state", states.answer, hub.auth),
        guarded_route("/dashboard/names", states.names, hub.auth),
        guarded_route("/dashboard/history", states.history, hub.auth),
        Route("/dashboard/{file}", file),
    ]


class _States:
    """Answers with what a viewer may see."""

    def __init__(self, hub: Hub, path: str) -> None:
        self._hub = hub
        self._path = path
        self._calls = hub.policies.record_calls()
        self._rule = Naming(hub.settings.separator, hub.settings.prefix).rule(None)
        self._contents = KnownContents(self._rule)
        self._watch = Watch(self._look)

    async def answer(self, request: Request) -> Response:
        """The view, once it is another than the browser has; 304 if it is not within the time to wait."""
        wait = _WAIT.search(request.headers.get("prefer", "")) if request.method == "GET" else None
        view, etag = await self._view(request)
        if wait is not None and matches(request, etag) and not request.scope.get(IS_ENDING, False):
            view, etag = await self._next(request, view, etag, float(wait[1]))
        headers = {**HEADERS, "ETag": etag}
        if matches(request, etag):
            return Response(status_code=304, headers=headers)
        return Response(json.dumps(view), headers=headers, media_type="application/json")

    async def _next(self, request: Request, view: View, etag: str, seconds: float) -> tuple[View, str]:
        """Another view than this, or this one again when the time is over."""

        async def is_new() -> bool:
            nonlocal view, etag
            before = etag
            view, etag = await self._view(request)
            return etag != before

        await self._watch.until(is_new, seconds, request.scope.get(HOLDER))
        return view, etag

    async def names(self, request: Request) -> Response:
        """The names of the tools, which are too many to come with each view."""
        parts = parts_of(await self._sources(request))
        names: dict[str, dict[str, Raw]] = {}
        for group_id, of_servers in parts.items():
            names[group_id] = {}
            for key, part in of_servers.items():
                names[group_id][key] = part.tool_names
                await asyncio.sleep(0)  # of some, it takes milliseconds
        return Response(encode(names), headers=HEADERS, media_type="application/json")

    async def history(self, request: Request) -> Response:
        """The last hour, by server key, and `""` for all; see `History`. Empty if others' calls may not be seen."""
        may_see = principal_in(request.scope).may_observe
        found = self._hub.policies.history.of(self._hub.children) if may_see else {}
        return Response(json.dumps(found), headers=HEADERS, media_type="application/json")

    async def _view(self, request: Request) -> tuple[View, str]:
        sources = await self._sources(request)
        name = sources.viewer.name if self._hub.auth is not None else None
        view = {
            "name": self._hub.settings.name,
            "version": VERSION,
            "viewer": {"name": name, "sees_all": sources.sees_all, "roles": sorted(sources.viewer.roles)},
            **view_of(sources),
        }
        return view, etag_of(json.dumps(what_stays(view)).encode())

    async def _sources(self, request: Request) -> Sources:
        viewer = principal_in(request.scope)
        groups = self._hub.groups()
        self._contents.keep(group.id for group in groups)
        mine = {}
        for group in groups:
            if not viewer.may_see(group.id) or group not in self._hub.groups():
                continue
            routes = await self._hub.group(group.id).made_routes(self._rule)
            if group in self._hub.groups():  # which may be others meanwhile
                mine[group.id] = (group, self._contents.of(group.id, routes))
        children, withdrawn = self._hub.children, self._hub.backend.withdrawn
        is_here = is_local(request.scope)
        keys, files = keys_of(self._hub.auth), self._hub.refused_files()
        noticed = notices_of(keys, files, is_local=is_here) if viewer.may_observe else {}
        return Sources(viewer, children, mine, self._calls, self._path, withdrawn, is_here, noticed)

    def _look(self) -> Hashable:
        servers = tuple((key, _shown_of(child)) for key, child in self._hub.children.items())
        withdrawn = tuple((key, frozenset(tools)) for key, tools in self._hub.backend.withdrawn.items())
        refused = tuple((what, file and str(file.problem)) for what, file in self._hub.refused_files().items())
        return servers, withdrawn, refused, tuple(self._hub.groups()), self._calls.count


def _shown_of(child: Child) -> Hashable:
    status, edition = child.status(), child.catalogue.version if child.catalogue else 0
    return id(child), edition, replace(status, since=0, retry_in=None)
