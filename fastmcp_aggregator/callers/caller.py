"""The caller: the client that sent a request, what it has declared, and the ways back to it."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from functools import cached_property
from typing import Any, Self

from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.shared.dispatcher import Outbound
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    INVALID_PARAMS,
    LOG_LEVEL_META_KEY,
    METHOD_NOT_FOUND,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from opentelemetry.trace import INVALID_SPAN, format_trace_id, get_current_span

from fastmcp_aggregator.access.loopback import is_local
from fastmcp_aggregator.access.principal import ANYBODY, KEY_MARK
from fastmcp_aggregator.auth.claims import access_token_of, principal_of
from fastmcp_aggregator.callers.outbox import Outbox, outbox_of
from fastmcp_aggregator.callers.pipe_client import PIPE_CLIENT
from fastmcp_aggregator.children.client_profile import ClientProfile
from fastmcp_aggregator.children.session.in_flight import OnProgress
from fastmcp_aggregator.concurrency.limiter import released_while_waiting
from fastmcp_aggregator.extensions import table as extensions
from fastmcp_aggregator.extensions.apps import APPS
from fastmcp_aggregator.extensions.tasks import TASKS
from fastmcp_aggregator.library_internals import connection_of, request_channel_of
from fastmcp_aggregator.protocol import client_capabilities
from fastmcp_aggregator.protocol.log_levels import LEVELS, passes
from fastmcp_aggregator.protocol.methods import CALLER_NOTIFICATIONS, LOG_MESSAGE, PROGRESS

logger = logging.getLogger(__name__)

Context = ServerRequestContext[Any, Any]
"""One request as the SDK's server hands it to its middleware."""

WHILE_LET_IN = "fastmcp_aggregator.while_let_in"
"""The key of an HTTP request's scope for how its credentials are followed, if they can be revoked."""
HOLDER = "fastmcp_aggregator.holder"
"""The key of an HTTP request's scope for the holder that it counts for."""
SESSION_SLOT = "fastmcp_aggregator.session_slot"
"""The key of the scope of an HTTP request that opens a session for the session's slot."""
_CAPABILITIES = "fastmcp_aggregator.capabilities"
_LOG_LEVEL = "fastmcp_aggregator.log_level"
_EVERYTHING = LEVELS[0]
# W3C Trace Context, section 3.2: version, trace id, parent id, flags; an id of zeros is invalid.
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
_INITIALIZE_TIMEOUT = 30.0
"""Seconds that a question waits for a client that has not finished its handshake."""


class Caller:
    """The client that sent one request, and the way back to it. To be closed when the request is over."""

    def __init__(
        self,
        connection: Connection,
        method: str,
        meta: Mapping[str, Any],
        request_id: Any,
        *,
        is_modern: bool,
        scope: Mapping[str, Any] | None = None,
        ctx: Context | None = None,
    ) -> None:
        """`scope` is that of the HTTP request with which it came; without `ctx` there is no way back to the client."""
        self._meta = meta
        self.ctx = ctx
        self.method = method
        self._release = released_while_waiting.get()
        self.outbox: Outbox | None = None
        """The messages that were sent on the request's own channel, if there were any."""
        self._progress_token = meta.get("progressToken")
        self.connection = connection
        self.request_id = "" if request_id is None else str(request_id)
        """The id that the client gave to the request; empty for a notification."""
        self.is_modern = is_modern
        self.is_remote = scope is not None
        self.scope: Mapping[str, Any] = scope or {}
        """The ASGI scope of its HTTP request; empty without one."""
        self.trace_id = trace_of(meta, self.scope)
        """The id of the trace to which the request belongs; empty without one."""
        token = access_token_of(self.scope) if "user" in self.scope else None
        self.while_let_in: Callable[[Callable[[], None]], AbstractContextManager[Any]]
        self.while_let_in = self.scope.get(WHILE_LET_IN, nullcontext)
        """Registers a function that is called once the credentials no longer let the caller in, for what outlives the
        request.
        """
        self.principal = ANYBODY if token is None else principal_of(token)
        """The principal of the request, over HTTP; else `ANYBODY`."""
        self.bearer = None if token is None or self.principal.name.startswith(KEY_MARK) else token.token
        """The token of an identity provider with which it has authenticated, which was verified."""
        self.account: Hashable = None if token is None else self.principal.name
        """The name of the principal; None: unauthenticated."""
        self.wants_progress = self._progress_token is not None
        """True if the request came with a token for progress notifications."""
        self._pipe: Any = self.connection.outbound if self.connection.has_standalone_channel else None
        self.identity: Hashable = self._pipe or object() if self.is_modern else self.connection
        """Equal for all requests of one client: of one connection, or pipe. Over modern HTTP each request is alone."""
        self._pipe_client = None if self.is_remote else PIPE_CLIENT.get()
        self.holder: Hashable = self.scope.get(HOLDER) if self._pipe_client is None else self._pipe_client.holder
        """The holder that its calls count for at a child; None: it is the only client."""

    @classmethod
    def of(cls, ctx: Context) -> Self:
        """Return the caller of a request that the SDK's server has taken."""
        meta = (ctx.params or {}).get("_meta")
        return cls(
            connection_of(ctx.session),
            ctx.method,
            meta if isinstance(meta, Mapping) else {},
            ctx.request_id,
            is_modern=ctx.protocol_version in MODERN_PROTOCOL_VERSIONS,
            scope=None if ctx.request is None else getattr(ctx.request, "scope", {}),
            ctx=ctx,
        )

    @property
    def is_local(self) -> bool:
        """True if it is on this machine, and may see the hub's commands and files."""
        return not self.is_remote or is_local(self.scope)

    @cached_property
    def capabilities(self) -> client_capabilities.Capabilities:
        """The declared capabilities of the client, as children see them."""
        of_request = self._meta.get(CLIENT_CAPABILITIES_META_KEY)
        return extensions.for_child(of_request, "modern") if self.is_modern else declared_by(self.connection)

    def take_tasks(self, are_taken: bool) -> None:
        """Tell children that tasks are taken, or not, whatever the client has declared."""
        others = {
            name: each for name, each in extensions.relayed(self.capabilities).items() if name != TASKS.identifier
        }
        taken: dict[str, Any] = {TASKS.identifier: {}} if are_taken else {}
        self.capabilities = extensions.with_extensions(self.capabilities, {**others, **taken})

    @property
    def can_be_asked(self) -> bool:
        """True if the client has declared anything that a child can ask it for."""
        return not self.capabilities.keys().isdisjoint(client_capabilities.ASKABLE)

    @property
    def shows_apps(self) -> bool:
        """True if the client has declared that it shows the pages of apps, whose calls it passes on as they are."""
        return APPS.identifier in extensions.relayed(self.capabilities)

    @property
    def session(self) -> Hashable:
        """The key that ties the client's requests together: its connection, or its principal."""
        if not self.is_modern:
            return self.connection
        return self._pipe or self.account

    @property
    def working_folder(self) -> str | None:
        """The folder in which the client's program runs; None: unknown, as over HTTP."""
        return None if self._pipe_client is None else self._pipe_client.working_folder

    @property
    def client_name(self) -> str | None:
        """The name of the program, by its own account."""
        params = self.connection.client_params
        return params.client_info.name if params else None

    def profile(self) -> ClientProfile:
        """The profile of a child that is for this client alone."""
        profile = ClientProfile()
        profile.expect_one()
        sole_client = None if self.is_modern else SoleClient(self.connection)
        profile.record(self.capabilities, sole_client, is_legacy=not self.is_modern)
        return profile

    def at_end_of_session(self, close: Callable[[], None]) -> bool:
        """Have something done when the client's connection or pipe ends; of modern ones over HTTP nothing tells."""
        if not self.is_modern:
            self.connection.exit_stack.callback(close)
        elif self._pipe_client is not None and self._pipe is not None:
            self._pipe_client.at_end(close)
        else:
            return False
        return True

    @property
    def log_level(self) -> str | None:
        """The least level of log messages that the client wants; None: it wants none."""
        if self.is_modern:
            level = self._meta.get(LOG_LEVEL_META_KEY)
            return level if level in LEVELS else None
        return wanted_log_level(self.connection) or _EVERYTHING

    @property
    def headers(self) -> Mapping[str, str] | None:
        if not self.is_remote:
            return None
        found: dict[str, str] = {}
        for name, value in self.scope.get("headers", ()):
            key, text = name.decode("latin-1").lower(), value.decode("latin-1")
            found[key] = f"{found[key]}, {text}" if key in found else text
        return found

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification on the request's own channel, after those before it. Never blocks."""
        if self.is_told(method, params):
            if method == PROGRESS.name:
                params = {**params, "progressToken": self._progress_token}
            self._queue.put(method, params)

    def is_told(self, method: str, params: Mapping[str, Any]) -> bool:
        """True if it gets this notification of its request."""
        if method not in CALLER_NOTIFICATIONS["modern" if self.is_modern else "legacy"]:
            return False
        if method == PROGRESS.name:
            return self.wants_progress
        return method != LOG_MESSAGE.name or self._wants(params.get("level"))

    async def ask(self, method: str, params: Mapping[str, Any], on_progress: OnProgress) -> dict[str, Any]:
        """The answer of a legacy client to a child's question. A modern client is asked by `PendingCall`.

        Raises:
            MCPError: the client's error, or why it cannot be asked.
        """
        require_declared(method, params, self.capabilities)
        if self.outbox is not None:
            await self.outbox.turn()
        with self._release():
            return await self._channel.send_raw_request(method, _asked(params), _options(params, on_progress))

    def _wants(self, level: Any) -> bool:
        wanted = self.log_level
        return wanted is not None and passes(level, wanted)

    def hang_up(self) -> None:
        """End the response to a legacy client over HTTP, after the messages before: it is to come back for the rest."""
        if self.ctx is not None and self.ctx.close_sse_stream is not None:
            self._queue.then(self.ctx.close_sse_stream)

    async def flush(self) -> None:
        """Wait until all messages are sent, so that the result comes after them."""
        if self.outbox is not None:
            await self.outbox.flush()

    @property
    def _channel(self) -> Outbound:
        assert self.ctx is not None
        return request_channel_of(self.ctx.session)

    def close(self) -> None:
        """The request is over: no message of it is sent any more."""
        if self.outbox is not None:
            self.outbox.close()

    @property
    def _queue(self) -> Outbox:
        if self.outbox is None:
            self.outbox = Outbox(self._channel.notify)
        return self.outbox


class SoleClient:
    """The only client, a legacy one, between its requests: asked and notified on its connection's own channel."""

    account = None
    holder = None
    wants_progress = False
    log_level = None
    headers = None

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._outbox = outbox_of(connection)

    @property
    def identity(self) -> Hashable:
        """The connection, as for its requests."""
        return self._connection

    @property
    def capabilities(self) -> client_capabilities.Capabilities:
        return declared_by(self._connection)

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification on the connection's own channel."""
        level = wanted_log_level(self._connection)
        if method != LOG_MESSAGE.name or passes(params.get("level"), level):
            self._outbox.put(method, params)

    def hang_up(self) -> None:
        """Do nothing: there is no response that could end."""

    async def ask(self, method: str, params: Mapping[str, Any], on_progress: OnProgress) -> dict[str, Any]:
        """The client's answer, once it has initialised."""
        require_declared(method, params, self.capabilities)
        await asyncio.wait_for(self._connection.initialized.wait(), _INITIALIZE_TIMEOUT)
        await self._outbox.turn()
        return await self._connection.send_raw_request(method, _asked(params), _options(params, on_progress))


async def ignore_progress(progress: float, total: float | None, message: str | None) -> None:
    """Ignore the progress of the question."""


def trace_of(meta: Any, scope: Mapping[str, Any]) -> str:
    """The id of the trace that a client has told, in its message (SEP-414) or in a header, or that was begun here; or
    nothing.
    """
    in_message = meta.get("traceparent") if isinstance(meta, Mapping) else None
    if isinstance(in_message, str) and (told := _TRACEPARENT.fullmatch(in_message)):
        return told[1]
    for name, value in scope.get("headers", ()):
        if name == b"traceparent":
            if told := _TRACEPARENT.fullmatch(value.decode("latin-1")):
                return told[1]
            break
    span = get_current_span()
    if span is INVALID_SPAN:  # there is none, as for nearly all
        return ""
    context = span.get_span_context()
    return format_trace_id(context.trace_id) if context.is_valid else ""


def remember_declared(connection: Connection, declared: Any) -> None:
    """Keep what a legacy client declares in its handshake, as far as it is passed on."""
    connection.state[_CAPABILITIES] = extensions.for_child(declared, "legacy")


def remember_log_level(connection: Connection, level: str) -> None:
    """Store the minimum log level of a legacy client."""
    connection.state[_LOG_LEVEL] = level


def wanted_log_level(connection: Connection) -> str | None:
    """The least level of log messages that a legacy client wants; None if it has never said."""
    level = connection.state.get(_LOG_LEVEL)
    return level if isinstance(level, str) else None


def declared_by(connection: Connection) -> client_capabilities.Capabilities:
    """The capabilities of a legacy client, declared to us or to the app that we are mounted in."""
    known = connection.state.get(_CAPABILITIES)
    if known is None and connection.client_capabilities is not None:
        known = connection.client_capabilities.model_dump(by_alias=True, mode="json", exclude_none=True)
        remember_declared(connection, known)
        return declared_by(connection)
    return known or {}


def require_declared(method: str, params: Mapping[str, Any], declared: client_capabilities.Capabilities) -> None:
    """Reject in a legacy client's stead what it would reject itself.

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


PRESENT_CALLER: ContextVar[Caller | None] = ContextVar("fastmcp_aggregator_caller", default=None)
"""The caller of the present request, for code without it: FastMCP's chain, and lists that differ by caller."""
