"""The requests of MCP clients, answered from the directory and the children: the path of every call.

Theory. This is a middleware of the SDK's server, outermost in its chain. For the requests about components it
answers itself: a look-up in the route table and a forward, with JSON objects going through as they came. FastMCP's
own path would parse and rebuild every one of them several times, and its models and the SDK's per-version filter
drop what they don't know. All other requests go on down the chain.

What the chain would have done for these requests is done here: nothing is answered before `initialize`, the shape of
the parameters is checked, and the result gets the envelope of the client's era.

When the app was given FastMCP middleware or transforms, the chain is not skipped: the same components are then
served through `front/fastmcp/provider.py`. Components of the app's own are served by FastMCP beside those of the
children.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcp.server._otel import OpenTelemetryMiddleware
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic_core import from_json, to_json

from fastmcp_aggregator.access.principal import Principal
from fastmcp_aggregator.auth.claims import principal_of
from fastmcp_aggregator.callers.call import Call
from fastmcp_aggregator.catalogue.snapshot import SPECS, Kind
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.errors import ChildServerError, StartupError
from fastmcp_aggregator.front.client_messages import ClientMessages
from fastmcp_aggregator.front.fastmcp.local import OwnParts
from fastmcp_aggregator.front.handshake import Handshakes
from fastmcp_aggregator.front.wire import errors
from fastmcp_aggregator.front.wire.errors import unexpected
from fastmcp_aggregator.front.wire.in_flight import InFlight
from fastmcp_aggregator.front.wire.shaping import for_legacy_client, for_modern_client
from fastmcp_aggregator.naming import NameRule
from fastmcp_aggregator.observability.telemetry import is_collecting
from fastmcp_aggregator.policies.stack import Stack
from fastmcp_aggregator.relay.rounds import Forwarder, Forwards, Params, Result
from fastmcp_aggregator.routing.addresses import (
    Publish,
    publish_prompt_result,
    publish_read_result,
    publish_tool_result,
    publishing_errors,
)
from fastmcp_aggregator.routing.directory import Directory
from fastmcp_aggregator.routing.table import Route

Context = ServerRequestContext[Any, Any]
_LEGACY_ONLY = frozenset({"resources/subscribe", "resources/unsubscribe", "logging/setLevel"})
Result = dict[str, Any]


class ComponentRequests:
    """Serves lists, calls, reads, prompts and completions; hands handshakes and messages on to who serves those."""

    def __init__(
        self,
        directory: Directory,
        forwarder: Forwards,
        handshakes: Handshakes,
        messages: ClientMessages,
        *,
        server_info: Callable[[], dict[str, Any]],
        own: OwnParts,
        on_unknown: Callable[[Context, str], None],
    ) -> None:
        """`on_unknown` is told of names and addresses that are not here."""
        self._directory = directory
        self._forwarder = forwarder
        self._server_info = server_info
        self._own = own
        self._on_unknown = on_unknown
        self._messages = messages
        self._handshakes = handshakes
        self.in_flight = InFlight()
        self._answers: dict[str, Callable[[Context, Params, NameRule], Awaitable[Result | None]]] = {
            **{spec.list_method: self._lister(kind) for kind, spec in SPECS.items()},
            "tools/call": self._call_tool,
            "resources/read": self._read_resource,
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
            "logging/setLevel": self._set_level,
        }

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """The middleware."""
        if ctx.request_id is None:
            return await self._notified(ctx, call_next)
        require_readable(ctx)
        if is_modern(ctx):
            self._handshakes.met_modern(ctx)
        answer = self._answers.get(ctx.method)
        if answer is None or (ctx.method in _LEGACY_ONLY and is_modern(ctx)):
            return await self._handshakes(ctx, call_next)
        require_initialized(ctx)
        if self.in_flight.is_closing:
            raise errors.ending()
        try:
            with self.in_flight.one():
                result = await answer(ctx, checked_params(ctx), self.rule(ctx))
        except ChildServerError as error:
            raise errors.unavailable(error, is_local=ctx.request is None) from error
        except StartupError as error:
            raise errors.failed_start(error, is_local=ctx.request is None) from error
        return await call_next(ctx) if result is None else self._shaped(ctx, result)

    async def _notified(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Take a notification. A request without an id is none, and cannot be answered: it is left out."""
        if not ctx.method.startswith("notifications/"):
            return None
        await self._messages.notified(ctx)
        return await call_next(ctx)

    def rule(self, ctx: Context) -> NameRule:
        """How names are listed for this caller."""
        params = ctx.session.client_params
        return self._directory.naming.rule(params.client_info.name if params else None)

    def _lister(self, kind: Kind) -> Callable[[Context, Params, NameRule], Awaitable[Result | None]]:
        async def answer(_: Context, params: Params, rule: NameRule) -> Result | None:
            await self._directory.ready()
            if not self._own.are_none_of(kind):
                return None
            if params.get("cursor") is not None:
                raise errors.invalid_params("cursor: the lists have one page")
            table = self._directory.table
            return {SPECS[kind].list_key: table.listing(kind, rule), **table.cache_hint(kind).as_fields()}

        return answer

    async def _call_tool(self, ctx: Context, params: Params, rule: NameRule) -> Result | None:
        name = text_param(params, "name")
        require_object(params, "arguments")
        route = await self._route(ctx, Kind.TOOL, name, rule)
        if route is None:
            return None
        result = await self._forward(ctx, route.child, params, {"name": route.original})
        return publish_tool_result(result, self._publisher(route.child))

    async def _get_prompt(self, ctx: Context, params: Params, rule: NameRule) -> Result | None:
        name = text_param(params, "name")
        require_object(params, "arguments")
        route = await self._route(ctx, Kind.PROMPT, name, rule)
        if route is None:
            return None
        result = await self._forward(ctx, route.child, params, {"name": route.original})
        return publish_prompt_result(result, self._publisher(route.child))

    async def _read_resource(self, ctx: Context, params: Params, rule: NameRule) -> Result | None:
        uri = text_param(params, "uri")
        found = await self._locate(ctx, uri, rule)
        if found is None or not self._own.are_passive:
            return None
        child, original = found
        publish = self._publisher(child)
        with publishing_errors(publish):
            return publish_read_result(await self._forward(ctx, child, params, {"uri": original}), publish)

    async def _complete(self, ctx: Context, params: Params, rule: NameRule) -> Result | None:
        ref = params.get("ref")
        if not isinstance(ref, Mapping):
            raise errors.invalid_params("ref: must be an object")
        if ref.get("type") == "ref/resource":
            return await self._complete_template(ctx, params, ref, rule)
        route = await self._route(ctx, Kind.PROMPT, text_param(ref, "name"), rule)
        if route is None:
            return None
        return await self._forward(ctx, route.child, params, {"ref": {**ref, "name": route.original}})

    async def _complete_template(self, ctx: Context, params: Params, ref: Params, rule: NameRule) -> Result | None:
        uri = text_param(ref, "uri")
        found = await self._locate(ctx, uri, rule)
        if found is None:
            return None
        child, original = found
        with publishing_errors(self._publisher(child)):
            return await self._forward(ctx, child, params, {"ref": {**ref, "uri": original}})

    async def _subscribe(self, ctx: Context, params: Params, rule: NameRule) -> Result | None:
        uri = text_param(params, "uri")
        found = await self._locate(ctx, uri, rule)
        if found is not None:
            with publishing_errors(self._publisher(found[0])):
                await self._messages.subscribe(ctx, *found, uri)
        return None if found is None else {}

    async def _unsubscribe(self, ctx: Context, params: Params, _: NameRule) -> Result | None:
        await self._messages.unsubscribe(ctx, text_param(params, "uri"))
        return {}

    async def _set_level(self, ctx: Context, params: Params, _: NameRule) -> Result | None:
        await self._messages.set_level(ctx, text_param(params, "level"))
        return {}

    async def _locate(self, ctx: Context, uri: str, rule: NameRule) -> tuple[Child, str] | None:
        """The child that an address belongs to, and what it calls it; None when it is one of FastMCP's.

        Raises:
            MCPError: nobody has this address.
        """
        found = await self._directory.locate(uri)
        if found is None and not await self._own.have(Kind.RESOURCE, uri):
            self._on_unknown(ctx, uri)
            raise errors.unknown_uri(uri, self._directory.table.names(Kind.RESOURCE, rule))
        return found

    async def _route(self, ctx: Context, kind: Kind, name: str, rule: NameRule) -> Route | None:
        """Where to forward; None when FastMCP's chain is to serve the request.

        Raises:
            MCPError: nobody has this name.
        """
        route = await self._directory.route(kind, name)
        if route is not None:
            return route if self._own.are_passive else None
        if await self._own.have(kind, name):
            return None
        await self._directory.ready()
        known = self._directory.table.names(kind, rule)
        self._on_unknown(ctx, name)
        raise errors.unknown_name("tool" if kind is Kind.TOOL else "prompt", name, rule, known)

    async def _forward(self, ctx: Context, child: Child, params: Params, address: Params) -> Result:
        return await in_span(ctx, lambda: self._forwarder.forward(ctx, child, params, address))

    def _publisher(self, child: Child) -> Publish:
        return self._directory.table.publisher(child)

    def _shaped(self, ctx: Context, result: Result) -> Result:
        if is_modern(ctx):
            return for_modern_client(ctx.method, result, self._server_info())
        return for_legacy_client(ctx.method, result)


def is_modern(ctx: Context) -> bool:
    """Whether the caller speaks 2026-07-28."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def require_initialized(ctx: Context) -> None:
    """Nothing is answered before `initialize` (2025-11-25, lifecycle); modern connections are born ready."""
    if not ctx.session._connection.initialize_accepted:
        raise MCPError(INVALID_PARAMS, "Received request before initialization was complete")


class PolicedForwarder:
    """Forwards what the policies let pass. Without policies it costs nothing."""

    def __init__(self, forwarder: Forwarder, directory: Directory, group_id: str, stack: Stack) -> None:
        self._forwarder = forwarder
        self._directory = directory
        self._group_id = group_id
        self._stack = stack

    async def forward(
        self, ctx: ServerRequestContext[Any, Any], child: Child, params: Params, address: Mapping[str, Any]
    ) -> Result:
        """See `Forwarder.forward`. What nobody has foreseen is contained here: FastMCP would tell the text of it.

        Raises:
            MCPError: also when a policy refuses.
        """
        try:
            if not self._stack:
                return await self._forwarder.forward(ctx, child, params, address)
            call = self._call(ctx, child, params, address)
            return await self._stack.run(call, lambda: self._forwarder.forward(ctx, child, params, address))
        except (MCPError, ChildServerError):
            raise
        except Exception as error:
            raise unexpected(error, f"{ctx.method} to the server {child.key!r}") from None

    def _call(
        self, ctx: ServerRequestContext[Any, Any], child: Child, params: Params, address: Mapping[str, Any]
    ) -> Call:
        ref = address.get("ref") or {}
        name = address.get("name") or address.get("uri") or ref.get("name") or ref.get("uri") or ""
        is_tool = ctx.method == "tools/call"
        return Call(
            principal=principal_behind(ctx),
            group=self._group_id,
            method=ctx.method,
            server=child.key,
            name=name,
            params=params,
            input_schema=self._directory.schema_of(child, name) if is_tool else None,
            is_remote=ctx.request is not None,
            request_id=str(ctx.request_id),
        )


def principal_behind(ctx: ServerRequestContext[Any, Any]) -> Principal:
    """Who has sent a request, as far as HTTP authentication tells."""
    scope = getattr(ctx.request, "scope", None) or {}
    return principal_of(getattr(scope.get("user"), "access_token", None))


Params = Mapping[str, Any]


def checked_params(ctx: ServerRequestContext[Any, Any]) -> Params:
    """The request's parameters, which may be absent.

    Raises:
        MCPError: they, or their `_meta`, are not objects.
    """
    params = ctx.params if ctx.params is not None else {}
    if not isinstance(params, Mapping):
        raise errors.invalid_params("params: must be an object")
    require_object(params, "_meta")
    return params


def text_param(params: Params, name: str) -> str:
    """A parameter that must be a string."""
    value = params.get(name)
    if not isinstance(value, str):
        raise errors.invalid_params(f"{name}: must be a string")
    return value


def require_object(params: Params, name: str) -> None:
    """A parameter that must be an object, where it is given."""
    value = params.get(name)
    if value is not None and not isinstance(value, Mapping):
        raise errors.invalid_params(f"{name}: must be an object")


def require_readable(ctx: ServerRequestContext[Any, Any]) -> None:
    """Parameters must be JSON that every parser takes.

    The SDK reads what modern clients send over HTTP with Python's parser, which takes half a surrogate pair for a text
    and nests five times as deep as others.
    """
    try:
        from_json(to_json(ctx.params))
    except ValueError:
        raise errors.invalid_params("params: nested too deeply, or a text is not valid Unicode") from None


_make_span = OpenTelemetryMiddleware()


async def in_span(ctx: ServerRequestContext[Any, Any], forward: Callable[[], Awaitable[Result]]) -> Result:
    """The result of `forward`, which is done inside of the request's span.

    Raises:
        Exception: whatever `forward` raises.
    """
    if not is_collecting():
        return await forward()
    result: Result = await _make_span(ctx, lambda _: forward())  # type: ignore[assignment]
    return result
