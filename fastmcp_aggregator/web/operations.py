"""The actions of operators over HTTP, for the role `operate`; each has an entry in the audit log.

POST /restart/{key}            restarts a server, and starts one that was stopped
POST /stop/{key}               stops a server until it is restarted
GET  /stderr/{key}             the last lines that its process has written to stderr
POST /withdraw/{key}           takes a tool out of service: `{"tool": NAME}`
POST /reinstate/{key}          puts it back
GET  /keys                     the API keys, and when each was used last
GET  /pins                     what is not as pinned
POST /pins/{key}               pins what a server offers: `{"offer": DIGEST}`, of what was looked at

Servers and tools are those of this replica, and what is done to them holds until the program ends; pins are in a file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute

from fastmcp_aggregator.access.keys import ApiKey
from fastmcp_aggregator.access.keys_file import FollowedKeys
from fastmcp_aggregator.access.roles import OPERATE
from fastmcp_aggregator.auth.claims import principal_in
from fastmcp_aggregator.auth.verifiers import keys_of
from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.errors import AggregatorError
from fastmcp_aggregator.front.http.security import Handler, guarded_route, json_body
from fastmcp_aggregator.groups import DEFAULT_GROUP
from fastmcp_aggregator.pinning.definitions import diff
from fastmcp_aggregator.web.dashboard.routes import Hub

_STDERR_LINES = 500
LONGEST_NAME = 1024


def forbidden(hub: Hub, request: Request, role: str) -> Response:
    """Refuse a request for want of a role."""
    why = f"you lack the role `{role}`"
    hub.policies.request_denied(principal_in(request.scope), DEFAULT_GROUP, request.scope["path"], why)
    return PlainTextResponse(f"Forbidden: {why}", 403)


def operator_route(hub: Hub, path: str, handler: Handler, method: str, operation: str | None = None) -> BaseRoute:
    """A route for operators alone. What is done is recorded there; that `operation`, by default what the path is
    called, could not be done is recorded here.
    """
    name = operation or path.partition("/{")[0].rpartition("/")[2]

    async def guarded(request: Request) -> Response:
        if not principal_in(request.scope).may_operate:
            return forbidden(hub, request, OPERATE)
        try:
            response = await handler(request)
        except AggregatorError as error:
            response = JSONResponse({"error": str(error)}, 409)
        if response.status_code >= 400:
            key = request.path_params.get("key")
            hub.policies.operated(principal_in(request.scope), name, key, outcome="error")
        return response

    return guarded_route(path, guarded, hub.auth, methods=[method])


def operator_routes(hub: Hub) -> list[BaseRoute]:
    operations = _Operations(hub)
    route = partial(operator_route, hub)

    return [
        route("/restart/{key:path}", operations.restart, "POST"),
        route("/stop/{key:path}", operations.stop, "POST"),
        route("/stderr/{key:path}", operations.stderr, "GET"),
        route("/withdraw/{key:path}", operations.withdraw, "POST"),
        route("/reinstate/{key:path}", operations.reinstate, "POST"),
        route("/keys", operations.keys, "GET"),
        route("/pins", operations.pins, "GET"),
        route("/pins/{key:path}", operations.approve, "POST", "approve"),
    ]


class _Operations:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def restart(self, request: Request) -> Response:
        return self._done(request, "restart", self._hub.restart)

    async def stop(self, request: Request) -> Response:
        return self._done(request, "stop", self._hub.stop)

    async def stderr(self, request: Request) -> Response:
        key = request.path_params["key"]
        if key not in self._hub.children:
            return _no_server(key)
        self._record(request, "stderr", key)
        return JSONResponse({"lines": self._hub.children[key].stderr(_STDERR_LINES)})

    async def withdraw(self, request: Request) -> Response:
        return await self._serve_tool(request, "withdraw", is_out=True)

    async def reinstate(self, request: Request) -> Response:
        return await self._serve_tool(request, "reinstate", is_out=False)

    async def keys(self, request: Request) -> Response:
        keys = keys_of(self._hub.auth)
        self._record(request, "keys", None)
        found = [] if keys is None else [{**key.described(), "last_used": _last_use(key, keys)} for key in keys.all()]
        return JSONResponse({"keys": found})

    async def pins(self, request: Request) -> Response:
        pins = self._hub.backend.pins
        self._record(request, "pins", None)
        # The digests first: what is listed in between is not among the differences, and not approved.
        offers = {} if pins is None else pins.offers()
        found = [] if pins is None else await asyncio.to_thread(pins.differences)
        told = [{"server": each.server, "what": each.subject, "kind": each.kind, "diff": diff(each)} for each in found]
        about = {"is_on": pins is not None, "offers": offers, "differences": told}
        return JSONResponse(about)

    async def approve(self, request: Request) -> Response:
        """Only what was looked at: a server may offer something else by the time that it is approved."""
        key = request.path_params["key"]
        if key not in self._hub.children:
            return _no_server(key)
        offer = await _text_in(request, "offer")
        if offer is None:
            return JSONResponse({"error": 'the body must be JSON: {"offer": DIGEST}, as `GET /pins` tells it'}, 400)
        return self._done(request, "approve", partial(self._hub.approve, looked_at=offer))

    def _done(self, request: Request, operation: str, act: Callable[[str], None]) -> Response:
        key = request.path_params["key"]
        if key not in self._hub.children:
            return _no_server(key)
        act(key)
        self._record(request, operation, key)
        return JSONResponse({"state": self._hub.children[key].state}, 202)

    async def _serve_tool(self, request: Request, operation: str, *, is_out: bool) -> Response:
        key = request.path_params["key"]
        if key not in self._hub.children:
            return _no_server(key)
        tool = await _text_in(request, "tool")
        if tool is None:
            return JSONResponse({"error": 'the body must be JSON: {"tool": NAME}'}, 400)
        catalogue = self._hub.children[key].catalogue
        if is_out and (catalogue is None or all(tool != each["name"] for each in catalogue.of(Kind.TOOL))):
            return JSONResponse({"error": f"the server {key!r} has no tool {tool!r}"}, 404)
        self._hub.withdraw(key, tool, is_out=is_out)
        self._record(request, operation, key, tool=tool)
        return JSONResponse({"withdrawn": sorted(self._hub.backend.withdrawn.get(key, ()))})

    def _record(self, request: Request, operation: str, key: str | None, **about: Any) -> None:
        self._hub.policies.operated(principal_in(request.scope), operation, key, **about)


def _no_server(key: str) -> Response:
    return JSONResponse({"error": f"there is no server {key!r}"}, 404)


async def _text_in(request: Request, name: str) -> str | None:
    """The text in the JSON body of a request; None: there is none."""
    document = await json_body(request)
    text = document.get(name) if isinstance(document, Mapping) else None
    return text if isinstance(text, str) and 0 < len(text) <= LONGEST_NAME else None


def _last_use(key: ApiKey, keys: FollowedKeys) -> str | None:
    used = keys.last_used.get(key.id)
    return None if used is None else used.isoformat(timespec="seconds")
