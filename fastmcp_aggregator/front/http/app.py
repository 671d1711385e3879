"""The HTTP app: FastMCP's, with its middleware in one list, outermost first."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import fastmcp
from fastmcp.server.auth import AuthProvider
from fastmcp.server.http import HostOriginGuardMiddleware, RequestContextMiddleware
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.types import Scope

from fastmcp_aggregator.auth.verifiers import KeyVerifier
from fastmcp_aggregator.callers.caller import HOLDER, SESSION_SLOT
from fastmcp_aggregator.children.timings import Timings
from fastmcp_aggregator.front.http.boundary import ErrorBoundary, Pace, RemoteParent, SendingLongResults
from fastmcp_aggregator.front.http.connection import Disconnects, unwatched
from fastmcp_aggregator.front.http.endpoints import Endpoints
from fastmcp_aggregator.front.http.gate import AdmissionQueue, Gate, GateLimits
from fastmcp_aggregator.front.http.resume.event_store import KeptEvents
from fastmcp_aggregator.front.http.resume.kept_sessions import KeptSessions
from fastmcp_aggregator.front.http.resume.takeover import SessionTakeover, TakeoverOptions
from fastmcp_aggregator.front.http.revocation import Revocation
from fastmcp_aggregator.front.http.security import (
    AuthenticationFailures,
    HostGuard,
    Membership,
    OnRefused,
    Sessions,
    cors,
)
from fastmcp_aggregator.library_internals import SessionEndpoint
from fastmcp_aggregator.oauth.vault.vault import Vault
from fastmcp_aggregator.policies.refused_callers import RefusedCallers
from fastmcp_aggregator.policies.stack import Policies
from fastmcp_aggregator.replicas.changes import Changes
from fastmcp_aggregator.settings.model import AggregatorSettings

_RETRY_MS = 1000
"""After how long clients come back; what the SDKs' clients do where they are told nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpParts:
    """The parts that the layers of one virtual server's app need."""

    settings: AggregatorSettings
    group_id: str
    auth: AuthProvider | None
    path: str
    """The path of the MCP endpoint."""
    admission: AdmissionQueue
    """One for all virtual servers of an aggregator."""
    policies: Policies
    changes: Changes
    timings: Timings
    shared: Vault | None = None
    """The sessions that replicas share."""

    def options(self, given: dict[str, Any]) -> dict[str, Any]:
        """Complete the options for FastMCP's `http_app`; what is given wins."""
        settings = self.settings
        options: dict[str, Any] = {"host_origin_protection": True}
        if settings.hosts:
            options["allowed_hosts"] = settings.hosts
        if given.get("transport") != "sse" and settings.reconnect_wait > 0:
            options |= {"event_store": KeptEvents(settings.reconnect_wait), "retry_interval": _RETRY_MS}
        options |= {name: value for name, value in given.items() if value is not None}
        if origins := [*(given.get("allowed_origins") or ()), *settings.origins]:
            options["allowed_origins"] = origins
        return options


@dataclass(frozen=True, slots=True)
class Checks:
    """Layers of the outermost app alone; a group's app inside of the hub's stands behind those of the hub."""

    host_guard: Mapping[str, Any] | None
    """The options of FastMCP's check of Host and Origin; None if that is off."""
    groups: Sequence[Middleware]
    """The layer that hands requests on to the apps of other groups; empty without any."""


def stack_of(
    parts: HttpParts,
    options: dict[str, Any],
    checks: Checks | None,
    shortcut: Middleware | None = None,
    endpoint: SessionEndpoint | None = None,
) -> list[Middleware]:
    """The layers of an app, outermost first. Around them all is `serve_http`'s `Drain`, which ends with the server.

    `options` are those of FastMCP's `http_app`; `checks` is None for an app inside of another one that has them;
    `shortcut` answers plain calls in place of the transport, whose sessions `endpoint` has.
    """
    auth, policies = parts.auth, parts.policies
    is_of_keys = isinstance(auth, KeyVerifier)
    group: Any = {"group_id": parts.group_id, "path": parts.path, "on_denied": policies.request_denied}
    refused = parts.admission.refused
    outer: list[Middleware] = []
    if checks is not None:
        outer = [
            # Before all work, some of which is long before the gate: the check of credentials.
            Middleware(Pace),
            # Whatever breaks further in, the client gets an error with an id; and all others read stripped headers.
            Middleware(ErrorBoundary),
            # Around all work, which is to belong to the trace that the request tells.
            Middleware(RemoteParent),
            # Outside of all that may refuse credentials, to see each refusal.
            *_if(
                auth is not None,
                AuthenticationFailures,
                on_failure=policies.authentication_failed,
                refused=refused,
            ),
            *_if(auth is not None and not is_of_keys, RequestContextMiddleware),  # a token verifier may look it up
            # Before CORS and authentication: a page of another site is told nothing.
            *_checked(
                checks.host_guard,
                options.get("allowed_origins") or (),
                policies.address_denied,
                None if auth is not None else refused,  # which the layer outside of it tells
            ),
            # Before authentication, because a preflight has no credentials.
            *cors(parts.settings.cors_origins),
            *(auth.get_middleware() if auth is not None else ()),
            # Behind authentication, so that nobody else learns which groups there are; before what follows, because
            # each group's app has that itself.
            *checks.groups,
        ]
    return [
        *outer,
        # Before the gate: who may not use the group takes nobody's slot.
        *_if(auth is not None, Membership, **group, refused=refused),
        # Around the gate, because a key may be revoked while its request waits there.
        *_if(auth is not None, Revocation, **group, grace=parts.settings.call_timeout, timings=parts.timings),
        *_if(
            auth is not None and endpoint is not None,
            Sessions,
            endpoint=endpoint,
            group_id=parts.group_id,
            on_denied=policies.request_denied,
        ),
        # Behind authentication, because it counts by principal; around all work, which it bounds.
        Middleware(
            Gate,
            limits=gate_limits(parts.settings),
            endpoints=_endpoints(parts.path, options),
            has_auth=auth is not None,
            admission=parts.admission,
        ),
        # Behind all that may refuse a request, and not where somebody else wants to see them all.
        *([shortcut] if shortcut is not None and _can_be_short(options) else ()),
        # FastMCP's, for whatever looks up the present request: nobody does before, unless there are tokens.
        *_if(auth is None or is_of_keys, RequestContextMiddleware),
        # Inside of the gate: a request whose client may come back keeps its slot.
        *_disconnects(parts.settings, options),
        # Inside of what tells who has left, for that is said of requests of clients; and of the gate.
        *_takeover(parts, options, endpoint),
        # The embedding program's own, next to the app.
        *(options.get("middleware") or ()),
    ]


def _checked(
    host_guard: Mapping[str, Any] | None, origins: Sequence[str], on_failure: OnRefused, refused: RefusedCallers | None
) -> list[Middleware]:
    ours: Any = HostGuard
    return [] if host_guard is None else [Middleware(ours, host_guard, origins, on_failure, refused)]


def _can_be_short(options: dict[str, Any]) -> bool:
    """True if plain calls may be answered before they reach the transport: nobody is to see them there."""
    is_usual = isinstance(options.get("event_store"), KeptEvents | None) and not options.get("middleware")
    return is_usual and not options.get("stateless_http") and not options.get("json_response")


def _if(is_on: bool, layer: Any, **options: Any) -> list[Middleware]:
    return [Middleware(layer, **options)] if is_on else []


def host_guard_of(app: Starlette) -> Mapping[str, Any] | None:
    """The options of FastMCP's check of Host and Origin, as it was made for an app; None if it was not."""
    guard: Any = HostOriginGuardMiddleware
    return next((layer.kwargs for layer in app.user_middleware if layer.cls is guard), None)


def gate_limits(settings: AggregatorSettings) -> GateLimits:
    return GateLimits(
        running=settings.max_concurrent_requests,
        waiting=settings.max_waiting_requests,
        body_bytes=int(settings.max_request_bodies_mb * 1024**2),
        sessions=settings.max_sessions,
        unread_bytes=int(max(settings.max_request_bodies_mb, settings.max_response_size_mb) * 1024**2),
        connections=settings.most_connections,
    )


def _endpoints(path: str, options: dict[str, Any]) -> Endpoints:
    is_sse = options.get("transport") == "sse"
    return Endpoints(path, fastmcp.settings.message_path if is_sse else f"{path.rstrip('/')}/messages")


def _disconnects(settings: AggregatorSettings, options: dict[str, Any]) -> list[Middleware]:
    """None for the SSE transport, and for an event store that is not ours: what it keeps is unknown."""
    events = options.get("event_store")
    if options.get("transport") == "sse" or not isinstance(events, KeptEvents | None):
        return []
    sender = None if options.get("middleware") else SendingLongResults
    return [Middleware(Disconnects, events=events, wait=settings.reconnect_wait, sender=sender)]


def _takeover(parts: HttpParts, options: dict[str, Any], endpoint: SessionEndpoint | None) -> list[Middleware]:
    """None for one replica alone, without sessions, and for an embedding program that wants to see all requests."""
    if parts.shared is None or endpoint is None or options.get("stateless_http") or options.get("middleware"):
        return []
    takeover = TakeoverOptions(
        path=parts.path,
        endpoint=endpoint,
        kept=KeptSessions(parts.shared, parts.group_id),
        group_id=parts.group_id,
        scopes=None if parts.auth is None else parts.auth.required_scopes or (),
        on_denied=parts.policies.request_denied,
        opening=partial(_opening, parts.admission),
        changes=parts.changes,
    )
    return [Middleware(SessionTakeover, options=takeover)]


@contextmanager
def _opening(admission: AdmissionQueue, scope: Scope) -> Iterator[Scope | None]:
    """The scope in which a session of the same caller is opened, with a slot for it; None if there is none."""
    slot = admission.session_slot(scope[HOLDER])
    if slot is None:
        yield None
        return
    try:
        yield {**unwatched(scope), SESSION_SLOT: slot}
    finally:
        slot.release_unless_kept()


def wrap_lifespan(
    app: Starlette,
    around: Callable[[], AbstractAsyncContextManager[Any]] = nullcontext,
    within: Callable[[], AbstractAsyncContextManager[Any]] = nullcontext,
) -> None:
    """Have something open before an app starts, and until it has ended; and something while it runs."""
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[Any]:
        async with around(), inner(app) as state, within():
            yield state

    app.router.lifespan_context = lifespan
