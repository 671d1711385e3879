"""The HTTP routes of a hub, beside its MCP endpoint and the JSON API:

/health /ready               for load balancers, open to everybody
/status /metrics /groups     for operators and users, behind authentication where there is any
/wake/{key}                  starts a server that sleeps: the same
/restart/{key} /stop/{key} … for operators (see `operations.py`)
/groups/{id}/…               each group's own MCP endpoint and JSON API
/openapi.json                the JSON API described
/accounts/…                  how people log in to servers, and who has (see `accounts.py`)
/ /dashboard/…               a page for people (see `dashboard/`), unless the MCP endpoint itself is at /
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from fastmcp_aggregator.access.loopback import is_local
from fastmcp_aggregator.access.principal import Principal
from fastmcp_aggregator.access.roles import METRICS
from fastmcp_aggregator.auth.claims import principal_in
from fastmcp_aggregator.auth.resource_metadata import group_metadata
from fastmcp_aggregator.auth.verifiers import KeyVerifier, keys_of
from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.concurrency.limiter import Usage
from fastmcp_aggregator.front.http.app import wrap_lifespan
from fastmcp_aggregator.front.http.gate import IS_LEAVING
from fastmcp_aggregator.front.http.security import guard_of, guarded_route
from fastmcp_aggregator.groups import DEFAULT_GROUP
from fastmcp_aggregator.policies.refused_callers import RefusedCallers
from fastmcp_aggregator.status.server_status import SEEN_BY_EVERYBODY, ServerStatus
from fastmcp_aggregator.web.accounts import AccountPages
from fastmcp_aggregator.web.dashboard.notices import notices_of
from fastmcp_aggregator.web.dashboard.routes import Hub, dashboard_routes
from fastmcp_aggregator.web.group_apps import GroupApps, MakeApp, RunningGroups
from fastmcp_aggregator.web.openapi import description
from fastmcp_aggregator.web.operations import forbidden, operator_routes


def add_hub(app: Starlette, hub: Hub, path: str, make_app: MakeApp, refused: RefusedCallers) -> Middleware:
    """Serve what a hub has, with an app whose MCP endpoint is at `path`; the layer that serves other groups' apps.

    `make_app` makes the app of a group; at `refused` callers take turns that may not use theirs.
    """
    groups = RunningGroups(hub.has_group, make_app)
    metadata = group_metadata(hub.auth, path)
    on_denied = hub.policies.request_denied
    options: Any = {"guard": guard_of(app), "on_denied": on_denied, "refused": refused, "metadata": metadata}
    layer = Middleware(GroupApps, groups=groups, **options)
    if metadata is not None:
        app.router.routes.append(metadata.route())
    app.router.routes.extend([*_routes(hub, path), *operator_routes(hub)])
    if any(own.oauth is not None for own in hub.settings.servers.values()):
        app.router.routes.extend(AccountPages(hub).routes())
    if hub.settings.dashboard and path != "/":
        app.router.routes.extend(dashboard_routes(hub, path))
    wrap_lifespan(app, within=groups.open)
    return layer


def _routes(hub: Hub, path: str) -> list[BaseRoute]:
    # Starlette runs what is not asynchronous in a thread; these handlers look at the state of the event loop.

    async def metrics(request: Request) -> Response:
        principal = principal_in(request.scope)
        if not principal.may_read_metrics:
            return forbidden(hub, request, METRICS)
        rendered = await hub.rendered_metrics()
        if rendered is None:
            return PlainTextResponse("Not Found: metrics are off; set `metrics = true`", 404)
        return Response(rendered[0], headers={"Content-Type": rendered[1]})

    async def servers(request: Request) -> Response:
        principal = principal_in(request.scope)
        if principal.may_observe:
            return _table(hub, is_local=is_local(request.scope))
        return _restricted(hub, principal)

    async def wake(request: Request) -> Response:
        key, principal = request.path_params["key"], principal_in(request.scope)
        child, mine = hub.children.get(key), _group_with(hub, principal, key)
        if child is not None and mine is None and not principal.may_operate:
            hub.policies.request_denied(
                principal, DEFAULT_GROUP, request.scope["path"], "the caller has no such server"
            )
            child = None
        if child is None:
            return JSONResponse({"error": f"there is no server {key!r}"}, status_code=404)
        limited = None if principal.may_operate else mine
        if limited is not None and (rejection := await hub.policies.limit(principal, limited)) is not None:
            headers = {"Retry-After": str(math.ceil(rejection.retry_in or 0))}
            return JSONResponse({"error": rejection.message}, status_code=429, headers=headers)
        hub.policies.operated(principal, "wake", key)
        child.start_now()
        return JSONResponse({"state": child.state}, status_code=202)

    async def groups(request: Request) -> Response:
        mine = [group for group in hub.groups() if principal_in(request.scope).may_see(group.id)]
        return JSONResponse([{"id": g.id, "name": g.name, "description": g.description} for g in mine])

    async def openapi(_: Request) -> Response:
        return JSONResponse(description(path))

    async def alive(_: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def ready(request: Request) -> Response:
        """200 while requests are welcome; 503 while servers start, the program ends, or when a strict one failed."""
        reason = "ending" if request.scope.get(IS_LEAVING, False) else _why_not_ready(hub)
        if reason is None:
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "not ready", "reason": reason}, status_code=503, headers={"Retry-After": "5"})

    return [
        Route("/health", alive),
        Route("/ready", ready),
        guarded_route("/status", servers, hub.auth),
        guarded_route("/wake/{key:path}", wake, hub.auth, methods=["POST"]),
        guarded_route("/metrics", metrics, hub.auth),
        guarded_route("/groups", groups, hub.auth),
        guarded_route("/openapi.json", openapi, hub.auth),
    ]


def _group_with(hub: Hub, principal: Principal, key: str) -> str | None:
    return next((group.id for group in hub.groups() if key in group.servers and principal.may_use(group.id)), None)


def _table(hub: Hub, *, is_local: bool = False) -> Response:
    """The state of every server, by server key, in full for those on this machine; and what callers share."""
    servers = {key: _fields(status, is_local=is_local) for key, status in hub.health().items()}
    shares = {of: _share(usage) for of, usage in hub.shares().items()}
    notices = notices_of(keys_of(hub.auth), hub.refused_files(), is_local=is_local)
    about = {"servers": servers, "shares": shares, **notices}
    return JSONResponse({"ready": _why_not_ready(hub) is None, **about})


def _share(usage: Usage) -> dict[str, Any]:
    holder, most = usage.largest
    about = {"limit": usage.total, "taken": usage.taken, "callers": usage.holders, "refused": usage.refused}
    name = holder.name if isinstance(holder, Principal) else holder
    return {**about, "largest": {"caller": name, "taken": most}} if usage.holders else about


def _restricted(hub: Hub, principal: Principal) -> Response:
    """The same for users of some groups: their servers, with what they have of them, and nothing of others' use."""
    tools: dict[str, set[str]] = {}
    for group in hub.groups():
        if principal.may_use(group.id):
            for key in group.servers:
                tools.setdefault(key, set())
            for route in hub.group(group.id).routes.served(Kind.TOOL):
                tools.setdefault(route.child.key, set()).add(route.original)
    servers = {
        key: {
            **{name: getattr(status, name) for name in SEEN_BY_EVERYBODY},
            "last_error": status.public_error,
            "tools": len(tools[key]),
            "resources": status.resources,
            "templates": status.templates,
            "prompts": status.prompts,
        }
        for key, status in hub.health().items()
        if key in tools
    }
    return JSONResponse({"ready": _why_not_ready(hub) is None, "servers": servers})


def _why_not_ready(hub: Hub) -> str | None:
    if hub.is_starting:
        return "starting"
    if hub.policies.must_reject:
        return "the audit log cannot be written"
    if isinstance(hub.auth, KeyVerifier) and hub.refused_files().get("keys") is not None:
        return "no API key can be checked"
    is_one_down = any(status.last_error is not None for status in hub.health().values())
    return "a server has failed" if hub.settings.strict and is_one_down else None


def _fields(status: ServerStatus, *, is_local: bool) -> dict[str, Any]:
    fields = asdict(status)
    del fields["server_key"]
    public_error = fields.pop("public_error")
    return fields if is_local else {**fields, "last_error": public_error}
