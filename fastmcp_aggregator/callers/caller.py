"""The client behind one request: what it has declared, and the ways back to it.

`_request_outbound` and `_connection` are private to the SDK's session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    INVALID_PARAMS,
    LOG_LEVEL_META_KEY,
    METHOD_NOT_FOUND,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from fastmcp_aggregator.callers.outbox import Outbox, outbox_of
from fastmcp_aggregator.children.listeners import Clients
from fastmcp_aggregator.children.session.ownership import OnProgress
from fastmcp_aggregator.concurrency.limiter import stepping_aside
from fastmcp_aggregator.protocol import client_capabilities
from fastmcp_aggregator.protocol.log_levels import LEVELS, passes

logger = logging.getLogger(__name__)

_CAPABILITIES = "fastmcp_aggregator.capabilities"
_LOG_LEVEL = "fastmcp_aggregator.log_level"
_EVERYTHING = LEVELS[0]
_INITIALIZE_BOUND = 30.0
"""Seconds that a question waits for a client that has not finished its handshake."""


class Caller:
    """Whoever sent one request. To be closed when the request is over."""

    def __init__(self, ctx: ServerRequestContext[Any, Any]) -> None:
        session = ctx.session
        connection = session._connection
        meta = (ctx.params or {}).get("_meta")
        self._meta: Mapping[str, Any] = meta if isinstance(meta, Mapping) else {}
        self._channel = session._request_outbound
        self._outbox = Outbox(self._channel.notify)
        self._connection = connection
        self._aside = stepping_aside.get()
        self.is_modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        self._ctx = ctx
        self._progress_token = self._meta.get("progressToken")
        self.identity = self._identity()

    @property
    def wants_progress(self) -> bool:
        """Whether the request came with a token for progress notifications."""
        return self._progress_token is not None

    @property
    def principal(self) -> Hashable:
        """Who has authenticated for the request, over HTTP; None for everybody else."""
        scope = getattr(self._ctx.request, "scope", None)
        user = scope.get("user") if isinstance(scope, Mapping) else None
        token = getattr(user, "access_token", None)
        return (token.client_id, getattr(token, "subject", None)) if token is not None else None

    @property
    def capabilities(self) -> client_capabilities.Capabilities:
        """What the client has declared."""
        if self.is_modern:
            return client_capabilities.for_child(self._meta.get(CLIENT_CAPABILITIES_META_KEY))
        return declared_by(self._connection)

    @property
    def can_be_asked(self) -> bool:
        """Whether the client has declared anything that a child can ask it for."""
        return not self.capabilities.keys().isdisjoint(client_capabilities.ASKABLE)

    @property
    def session(self) -> Hashable:
        """What ties the client's requests together: its connection, or what it has authenticated as."""
        if not self.is_modern:
            return self._connection
        return self._pipe or self.principal

    def own_clients(self, like: Clients) -> Clients:
        """This client as the only one."""
        clients = Clients(like.on_updated, like.on_connected)
        clients.expect_one()
        resident = None if self.is_modern else Resident(self._connection)
        clients.met(self.capabilities, resident, is_legacy=not self.is_modern)
        return clients

    def at_end_of_session(self, close: Callable[[], None]) -> bool:
        """Have something done when the connection of a legacy client ends; of modern clients nothing tells."""
        if not self.is_modern:
            self._connection.exit_stack.callback(close)
        return not self.is_modern

    @property
    def log_level(self) -> str | None:
        """From which level on the client wants log messages; None: it wants none."""
        if self.is_modern:
            level = self._meta.get(LOG_LEVEL_META_KEY)
            return level if level in LEVELS else None
        return wanted_log_level(self._connection) or _EVERYTHING

    @property
    def headers(self) -> Mapping[str, str] | None:
        """The headers of the HTTP request that brought it; see `Owner`."""
        scope = getattr(self._ctx.request, "scope", None)
        if not isinstance(scope, Mapping):
            return None
        found: dict[str, str] = {}
        for name, value in scope.get("headers", ()):
            key, text = name.decode("latin-1").lower(), value.decode("latin-1")
            found[key] = f"{found[key]}, {text}" if key in found else text
        return found

    def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification on the request's own channel; see `Owner`."""
        if method == "notifications/progress":
            if self._progress_token is None:
                return
            params = {**params, "progressToken": self._progress_token}
        elif method == "notifications/message":
            if self.log_level is None or not passes(params.get("level"), self.log_level):
                return
        elif self.is_modern:
            return  # nothing else is sent on a request's channel in the modern era
        self._outbox.put(method, params)

    async def ask(self, method: str, params: Mapping[str, Any], on_progress: OnProgress) -> dict[str, Any]:
        """The answer of a legacy client; see `Owner`. A modern client is asked by `HeldCall`."""
        refuse_what_is_not_declared(method, params, self.capabilities)
        await self._outbox.sent()
        with self._aside():
            return await self._channel.send_raw_request(method, _asked(params), _options(params, on_progress))

    def hang_up(self) -> None:
        """End the response to a legacy client over HTTP, after the messages before; see `Owner`."""
        if self._ctx.close_sse_stream is not None:
            self._outbox.then(self._ctx.close_sse_stream)

    async def told(self) -> None:
        """Wait until all messages are sent, so that the result comes after them."""
        await self._outbox.sent()

    def close(self) -> None:
        """The request is over: no message of it is sent any more."""
        self._outbox.close()

    def _identity(self) -> Hashable:
        """One connection, or pipe, is one client. Over modern HTTP each request has a stream of its own."""
        return self._pipe or object() if self.is_modern else self._connection

    @property
    def _pipe(self) -> Any:
        """What the requests of a modern client on a pipe have in common; None over HTTP."""
        return self._connection.outbound if self._connection.has_standalone_channel else None


class Resident:
    """The only client of a front, between its requests. It has a connection that can be asked: it is a legacy one."""

    principal = None
    wants_progress = False
    log_level = None
    headers = None

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._outbox = outbox_of(connection)

    @property
    def identity(self) -> Hashable:
        """See `Owner`."""
        return self._connection

    @property
    def capabilities(self) -> client_capabilities.Capabilities:
        """What the client has declared."""
        return declared_by(self._connection)

    def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification on the connection's own channel; see `Owner`."""
        level = wanted_log_level(self._connection)
        if method != "notifications/message" or passes(params.get("level"), level):
            self._outbox.put(method, params)

    def hang_up(self) -> None:
        """See `Owner`. There is no response that could end."""

    async def ask(self, method: str, params: Mapping[str, Any], on_progress: OnProgress) -> dict[str, Any]:
        """The client's answer; see `Owner`."""
        refuse_what_is_not_declared(method, params, self.capabilities)
        await asyncio.wait_for(self._connection.initialized.wait(), _INITIALIZE_BOUND)
        await self._outbox.sent()
        return await self._connection.send_raw_request(method, _asked(params), _options(params, on_progress))


def remember_declared(connection: Connection, declared: Any) -> None:
    """Keep what a legacy client declares in its handshake, as it came."""
    connection.state[_CAPABILITIES] = client_capabilities.for_child(declared)


def remember_log_level(connection: Connection, level: str) -> None:
    """Keep from which level on a legacy client wants log messages."""
    connection.state[_LOG_LEVEL] = level


def wanted_log_level(connection: Connection) -> str | None:
    """From which level on a legacy client wants log messages; None if it has never said."""
    level = connection.state.get(_LOG_LEVEL)
    return level if isinstance(level, str) else None


def declared_by(connection: Connection) -> client_capabilities.Capabilities:
    """What a legacy client has declared, to us or to the app that we are mounted in."""
    known = connection.state.get(_CAPABILITIES)
    if known is None and connection.client_capabilities is not None:
        known = connection.client_capabilities.model_dump(by_alias=True, mode="json", exclude_none=True)
        remember_declared(connection, known)
    return known or {}


def refuse_what_is_not_declared(
    method: str, params: Mapping[str, Any], declared: client_capabilities.Capabilities
) -> None:
    """Answer for a legacy client what it would answer itself.

    Raises:
        MCPError: it has not declared that it can be asked this.
    """
    required = client_capabilities.required_for(method, params)
    if client_capabilities.has(declared, required):
        return
    name = next(iter(required))
    if name in declared:
        raise MCPError(INVALID_PARAMS, f"{method}: the client does not support this kind of {name}")
    raise MCPError(METHOD_NOT_FOUND, f"{method}: the client does not support {name}")


def _asked(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """The parameters without the child's progress token: the session to the client puts one of its own there."""
    meta = params.get("_meta")
    if not isinstance(meta, Mapping) or "progressToken" not in meta:
        return params
    kept = {key: value for key, value in meta.items() if key != "progressToken"}
    rest = {key: value for key, value in params.items() if key != "_meta"}
    return {**rest, "_meta": kept} if kept else rest


def _options(params: Mapping[str, Any], on_progress: OnProgress) -> Any:
    meta = params.get("_meta")
    wants_progress = isinstance(meta, Mapping) and meta.get("progressToken") is not None
    return {"on_progress": on_progress} if wants_progress else None
