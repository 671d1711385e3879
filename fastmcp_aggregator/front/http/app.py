"""What of ours stands around FastMCP's HTTP app."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import fastmcp
from starlette.applications import Starlette
from starlette.middleware import Middleware

from fastmcp_aggregator.front.http.endpoints import Endpoints
from fastmcp_aggregator.front.http.gate import AdmissionQueue, Gate, GateLimits
from fastmcp_aggregator.front.http.resume.disconnects import Presence
from fastmcp_aggregator.front.http.resume.event_store import KeptEvents
from fastmcp_aggregator.front.http.resume.resumption import NoResumption, Resumption
from fastmcp_aggregator.front.http.revocation import Revocation
from fastmcp_aggregator.front.http.security import Membership, OnDenied
from fastmcp_aggregator.settings.model import AggregatorSettings

_RETRY_MS = 1000
"""After how long clients come back; what the SDKs' clients do where they are told nothing."""


def gate_limits(settings: AggregatorSettings) -> GateLimits:
    """What the settings let through."""
    return GateLimits(
        running=settings.max_concurrent_requests,
        waiting=settings.max_waiting_requests,
        body_bytes=int(settings.max_request_bodies_mb * 1024**2),
    )


def with_ours(
    options: dict[str, Any],
    settings: AggregatorSettings,
    *,
    has_auth: bool,
    group_id: str,
    path: str,
    places: AdmissionQueue,
    on_denied: OnDenied,
) -> dict[str, Any]:
    """Options for FastMCP's `http_app`, with what is ours added. What is given there wins.

    `places` are shared by all faces of an aggregator. `on_denied` is told of callers that may not use the
    group, or not any more.
    """
    is_sse = options.get("transport") == "sse"
    messages = fastmcp.settings.message_path if is_sse else f"{path.rstrip('/')}/messages"
    endpoints = Endpoints(path, messages)
    ours = [Middleware(Gate, limits=gate_limits(settings), endpoints=endpoints, has_auth=has_auth, places=places)]
    if has_auth:
        ours[:0] = [
            Middleware(Membership, group_id=group_id, path=path, on_denied=on_denied),
            Middleware(Revocation, group_id=group_id, path=path, on_denied=on_denied),
        ]
    added: dict[str, Any] = {"host_origin_protection": True}
    if settings.hosts:
        added["allowed_hosts"] = settings.hosts
    if settings.cors_origins:
        options = {**options, "allowed_origins": [*(options.get("allowed_origins") or ()), *settings.cors_origins]}
    if not is_sse and options.get("event_store") is None:
        if settings.reconnect_wait > 0:
            events = KeptEvents(settings.reconnect_wait)
            added |= {"event_store": events, "retry_interval": _RETRY_MS}
            ours += [
                Middleware(Resumption, events=events),
                Middleware(Presence, events=events, wait=settings.reconnect_wait),
            ]
        else:
            ours += [Middleware(NoResumption), Middleware(Presence)]
    given = {name: value for name, value in options.items() if value is not None}
    return {**added, **given, "middleware": [*ours, *(options.get("middleware") or [])]}


def surround(app: Starlette, opened: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
    """Have something open for the whole life of an app: before it starts, and after it has ended."""
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[Any]:
        async with opened(), inner(app) as state:
            yield state

    app.router.lifespan_context = lifespan


def first_of_ours(app: Starlette) -> int:
    """Where `with_ours` begins among what stands around an app; before it are the check of Host and authentication."""
    ours: tuple[Any, ...] = (Membership, Gate)
    return next(number for number, part in enumerate(app.user_middleware) if part.cls in ours)


def leave_out_checks(app: Starlette) -> None:
    """Leave out what stands around `with_ours`: the app is served inside of another one that has it."""
    del app.user_middleware[: first_of_ours(app)]
