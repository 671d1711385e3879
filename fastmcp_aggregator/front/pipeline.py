"""The request pipeline: every request of a client, from its parameters to its result in the client's era.

Theory. This is a middleware of the SDK's server, outermost in its chain but for what ends a request whose client has
left (`cancel_on_disconnect`). The requests about components it answers itself: a look-up in the route table and a call,
with JSON objects going through as they came. FastMCP's own path would parse and rebuild every one of them several
times, and its models and the SDK's per-version filter drop what they don't know. All other requests go on down the
chain.

What the chain would have done for these requests is done here: nothing is answered before `initialize`, the shape of
the parameters is checked, and the result gets the envelope of the client's era.

When the app was given FastMCP middleware or transforms, the chain is not skipped: the same components are then served
through `front/fastmcp/provider.py`, which comes back to `Pipeline.serve`. Components of the app's own are served by
FastMCP beside those of the children.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext, suppress
from functools import cached_property, partial
from typing import Any, Literal

from mcp.server.context import CallNext, HandlerResult
from mcp.server.streamable_http import REQUEST_CANCELLED
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from opentelemetry import trace
from pydantic import ValidationError
from pydantic_core import from_json, to_json

from fastmcp_aggregator.backend import Backend
from fastmcp_aggregator.callers.call import Call
from fastmcp_aggregator.callers.caller import PRESENT_CALLER, Caller, Context
from fastmcp_aggregator.catalogue.snapshot import SPECS, Kind
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.errors import ChildServerError, StartupError
from fastmcp_aggregator.front.client_messages import ClientMessages
from fastmcp_aggregator.front.extension_requests import AnswerRequest, ExtensionRequests
from fastmcp_aggregator.front.fast_path.call import FastCall
from fastmcp_aggregator.front.fast_path.handover import cancel_call, leave_unanswered, taken_over_call
from fastmcp_aggregator.front.fast_path.path import FastPath
from fastmcp_aggregator.front.fastmcp.local import LocalComponents
from fastmcp_aggregator.front.fastmcp.tool_views import CALL_TOOL
from fastmcp_aggregator.front.guard import Guard
from fastmcp_aggregator.front.handshake import Handshakes
from fastmcp_aggregator.front.wire import errors
from fastmcp_aggregator.front.wire.shaping import for_legacy_client, for_modern_client
from fastmcp_aggregator.library_internals import connection_of, make_span
from fastmcp_aggregator.naming.rules import NameRule
from fastmcp_aggregator.policies.stack import failure_of, outcome_of
from fastmcp_aggregator.protocol import methods
from fastmcp_aggregator.protocol.json_rpc import Params, Result
from fastmcp_aggregator.relay.instances.caller_catalogues import site_of
from fastmcp_aggregator.routing.addresses import published_error, publishing_errors
from fastmcp_aggregator.routing.directory import Directory
from fastmcp_aggregator.routing.route import Route
from fastmcp_aggregator.routing.table import target_of_completion, target_of_prompt, target_of_tool
from fastmcp_aggregator.routing.target import Target

METHOD_OF = {
    Kind.TOOL: methods.TOOLS_CALL.name,
    Kind.PROMPT: methods.PROMPTS_GET.name,
    Kind.RESOURCE: methods.RESOURCES_READ.name,
}
_NAMED = {method: kind for kind, method in METHOD_OF.items()}


class Pipeline:
    """SDK middleware that serves the requests of one virtual server, and dispatches handshakes and client messages."""

    def __init__(
        self,
        backend: Backend,
        directory: Directory,
        handshakes: Handshakes,
        messages: ClientMessages,
        *,
        group_id: str,
        server_info: Callable[[], dict[str, Any]],
        own: LocalComponents,
        fast_path: FastPath,
        rewrites_app_pages: bool,
        guard: Guard,
        extensions: ExtensionRequests,
    ) -> None:
        self._backend = backend
        self._policies = backend.policies
        self._guard = guard
        self._directory = directory
        self._group_id = group_id
        self._server_info = server_info
        self._own = own
        self._rewrites_app_pages = rewrites_app_pages
        self._messages = messages
        self.handshakes = handshakes
        self.fast_path = fast_path
        self.in_flight = fast_path.in_flight
        self._answers: dict[str, AnswerRequest] = {
            **{spec.list_method: self._lister(kind) for kind, spec in SPECS.items()},
            methods.TOOLS_CALL.name: self._call_tool,
            methods.RESOURCES_READ.name: self._read_resource,
            methods.PROMPTS_GET.name: self._get_prompt,
            methods.COMPLETE.name: self._complete,
            methods.SUBSCRIBE.name: self._subscribe,
            methods.UNSUBSCRIBE.name: self._unsubscribe,
            methods.SET_LEVEL.name: self._set_level,
            **extensions.answers(self._traced),
        }

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Handle one request. It is the error boundary too: the text of an unhandled exception is not for clients."""
        fast: FastCall | None = None
        try:
            if ctx.request_id is None:
                return await self._notified(ctx, call_next)
            fast = taken_over_call(ctx) if self.fast_path.is_on else None
            return await self._serve(ctx, call_next, fast)
        except (MCPError, ValidationError):
            raise
        except Exception as error:
            raise errors.unexpected(error, ctx.method) from None
        finally:
            if fast is not None:
                fast.abandon()  # unless it was resumed

    async def _serve(self, ctx: Context, call_next: CallNext, fast: FastCall | None) -> HandlerResult:
        is_modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        if is_modern:
            require_readable(ctx)
        if is_modern and self._backend.profile.is_awaited:
            self.handshakes.record_capabilities(ctx)
        answer = self._answers.get(ctx.method)
        if answer is None or ("modern" if is_modern else "legacy") not in methods.METHODS[ctx.method].eras:
            return await self.handshakes(ctx, call_next)
        require_initialized(ctx)
        if self.in_flight.is_closing and fast is None:
            raise errors.ending()
        params = checked_params(ctx)
        caller = Caller.of(ctx)
        PRESENT_CALLER.set(caller)
        try:
            with self.in_flight.track():
                asked = await answer(caller, params) if fast is None else resumed(fast, caller, params)
                result = await self._traced(asked, fast) if isinstance(asked, Call) else asked
        except ChildServerError as error:
            raise errors.unavailable(error, is_local=caller.is_local) from error
        except StartupError as error:
            raise errors.failed_start(error, is_local=caller.is_local) from error
        if result is None:
            return await self._serve_locally(ctx, call_next, caller, params)
        if is_modern:
            return for_modern_client(ctx.method, result, self._stamp, caller.account)
        return for_legacy_client(ctx.method, result)

    @cached_property
    def _stamp(self) -> dict[str, Any]:
        """The description of this server in each result."""
        return self._server_info()

    async def _serve_locally(self, ctx: Context, call_next: CallNext, caller: Caller, params: Params) -> HandlerResult:
        """Have FastMCP's chain serve a request. What it makes of it for a child comes back here, as a call."""
        target = components_named(ctx.method, params)
        if target is None or self._directory.table.has(*target):
            return await call_next(ctx)
        kind, name = target
        inner = self._own.forwarded(name, params.get("arguments")) if kind is Kind.TOOL else None
        if inner is not None:
            if await self._leads_to_child(*inner):
                return await call_next(ctx)
            if not await self._own.has(*inner):
                self._guard.denied_by_name(caller, METHOD_OF[inner[0]], inner[1])
        answer: HandlerResult = None

        async def serve() -> object:
            nonlocal answer
            answer = await call_next(ctx)
            return answer if answer is None or isinstance(answer, dict) else plain(answer)

        await self._guard.around(caller, params, serve, address={SPECS[kind].id_field: name})
        return answer

    async def _leads_to_child(self, kind: Kind, name: str) -> bool:
        """True if a child is asked in the end, or would be if it were up."""
        try:
            found = await (self._directory.locate(name) if kind is Kind.RESOURCE else self._directory.route(kind, name))
        except ChildServerError:
            return True
        return found is not None

    # A call.

    async def call(self, ctx: Context, target: Target, params: Params) -> Result:
        """Make a call of the request that FastMCP serves in `ctx`, and serve it.

        Raises:
            Exception: as `serve`.
        """
        return await self.serve(Call(Caller.of(ctx), target, ctx.method, params, self._group_id, is_inner=True))

    def _traced(self, call: Call, fast: FastCall | None = None) -> Awaitable[Result]:
        """`serve` a call, inside of its request's span if spans are collected."""
        is_collecting = not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
        if is_collecting and call.caller.ctx is not None:
            return in_span(call.caller.ctx, lambda: described(call, self.serve(call, fast)))
        return self.serve(call, fast)

    async def serve(self, call: Call, fast: FastCall | None = None) -> Result:
        """Serve one call, from its policies to its result with public addresses. Of one that the fast path began,
        policies and the request to the child are not repeated.

        Raises:
            ChildServerError: the child cannot be asked, or was lost while it was asked.
            MCPError: the child's own error, or a policy's, or why the caller cannot be asked.
        """
        runtime, stack, caller, target = self._backend.runtime, self._policies.stack, call.caller, call.target
        child, admission = target.child, None if fast is None else fast.admission
        assert runtime is not None  # a route leads to a child of the present run
        assert child is not None
        try:
            if admission is None and (stack.policies or stack.recorders):
                admission = await stack.admit(call)
            with admission or nullcontext():
                site = None if child.evidence.is_shared or call.continues else site_of(child)
                if site is not None:  # callers have accounts there: they log in first
                    call.answer = await runtime.account_calls.ask(call, site)
                else:
                    async with runtime.tasks.serving(call) as instance:
                        call.answer = await runtime.tasks.ask(instance, call)
                if caller.outbox is not None:
                    await caller.flush()
            return target.publish_result(call.answer, target.publish)
        except MCPError as error:
            raise published_error(error, target.publish) from None
        except ChildServerError:
            raise
        except Exception as error:  # FastMCP would tell its text
            raise errors.unexpected(error, f"{call.method} to the server {child.key!r}") from None
        finally:
            if caller.outbox is not None:
                caller.close()
            if call.started is not None:  # cancelled before anybody waited for it
                child.calls.abandon(call.started)

    # The requests.

    def _made(self, caller: Caller, params: Params, target: Target) -> Call:
        return Call(caller, target, caller.method, params, self._group_id)

    async def _call_tool(self, caller: Caller, params: Params) -> Call | None:
        name = text_param(params, "name")
        require_object(params, "arguments")
        if name == CALL_TOOL and self._own.is_searching and (found := await self._found_tool(params)):
            return self._made(caller, found[1], target_of_tool(found[0]))
        route = await self._route(caller, params, Kind.TOOL, name)
        return None if route is None else self._made(caller, params, target_of_tool(route))

    async def _found_tool(self, params: Params) -> tuple[Route, Params] | None:
        """The tool that a call by way of the search is of, and the call's parameters; None: FastMCP says what is wrong.

        So whatever a tool may answer, a task or questions, is answered as it is to a call by its name.
        """
        match params.get("arguments"):
            case {"name": str(name), **others} if not others.keys() - {"arguments"}:
                arguments = others.get("arguments") or {}
                route = await self._directory.route(Kind.TOOL, name) if isinstance(arguments, Mapping) else None
                return None if route is None else (route, {**params, "name": name, "arguments": arguments})
        return None

    async def _get_prompt(self, caller: Caller, params: Params) -> Call | None:
        name = text_param(params, "name")
        require_object(params, "arguments")
        route = await self._route(caller, params, Kind.PROMPT, name)
        return None if route is None else self._made(caller, params, target_of_prompt(route))

    async def _read_resource(self, caller: Caller, params: Params) -> Call | None:
        found = await self._locate(caller, params, text_param(params, "uri"))
        if found is None or not self._own.bypass_allowed:
            return None
        target = self._directory.table.of_resource(*found)
        if self._rewrites_app_pages and target.is_app_page:
            target = self._directory.table.of_page(*found, self._rule(caller))
        return self._made(caller, params, target)

    async def _complete(self, caller: Caller, params: Params) -> Call | None:
        ref = params.get("ref")
        if not isinstance(ref, Mapping):
            raise errors.invalid_params("ref: must be an object")
        if ref.get("type") == "ref/resource":
            found = await self._locate(caller, params, text_param(ref, "uri"))
            target = None if found is None else self._directory.table.of_template_completion(*found, ref)
        else:
            route = await self._route(caller, params, Kind.PROMPT, text_param(ref, "name"))
            target = None if route is None else target_of_completion(route, ref)
        return None if target is None else self._made(caller, params, target)

    async def _subscribe(self, caller: Caller, params: Params) -> Result | None:
        uri = text_param(params, "uri")
        found = await self._locate(caller, params, uri)
        if found is None:
            return None
        child, original = found
        with publishing_errors(self._directory.table.publisher(child)):
            subscribe = partial(self._messages.subscribe, caller, child, original, uri)
            return await self._guard.around(caller, params, subscribe, child=child, address={"uri": original})

    async def _unsubscribe(self, caller: Caller, params: Params) -> Result | None:
        uri = text_param(params, "uri")
        child, original = self._directory.table.find_uri(uri) or (None, uri)
        unsubscribe = partial(self._messages.unsubscribe, caller, uri)
        return await self._guard.around(caller, params, unsubscribe, child=child, address={"uri": original})

    async def _set_level(self, caller: Caller, params: Params) -> Result | None:
        set_level = partial(self._messages.set_level, caller, text_param(params, "level"))
        return await self._guard.around(caller, params, set_level)

    def _lister(self, kind: Kind) -> Callable[[Caller, Params], Awaitable[Result | None]]:
        async def answer(caller: Caller, params: Params) -> Result | None:
            await self._directory.ready()
            if not self._own.has_none_of(kind):
                return None
            if params.get("cursor") is not None:
                raise errors.invalid_params("cursor: the lists have one page")
            rule = self._rule(caller)
            table = await self._directory.made(lambda table: table.steps(kind, rule))
            return {SPECS[kind].list_key: table.listing(kind, rule), **table.cache_hint(kind).as_fields()}

        return answer

    async def _notified(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Dispatch a notification. A request without an id is none, and cannot be answered: it is dropped."""
        if not ctx.method.startswith("notifications/"):
            return None
        if ctx.method == methods.CANCELLED:
            cancel_call(ctx, self.fast_path)
            self._messages.cancelled(Caller.of(ctx), ctx.params or {})
        if ctx.method == methods.ROOTS_CHANGED.name:
            caller = Caller.of(ctx)
            with suppress(MCPError):  # a notification has no answer
                await self._guard.around(caller, ctx.params or {}, partial(self._messages.roots_changed, caller))
        return await call_next(ctx)

    # Routes.

    async def _locate(self, caller: Caller, params: Params, uri: str) -> tuple[Child, str] | None:
        """Resolve a URI to its child and original URI; None when it is one of FastMCP's.

        Raises:
            MCPError: no server has this URI.
        """
        found = await self._directory.locate(uri)
        if found is None and not await self._own.has(Kind.RESOURCE, uri):
            table = self._directory.table
            known = table.names(Kind.RESOURCE, self._rule(caller))
            unknown = partial(errors.unknown_uri, uri, known, table.with_key(uri))
            await self._guard.refuse(caller, params, {"uri": uri}, unknown)
        return found

    async def _route(self, caller: Caller, params: Params, kind: Kind, name: str) -> Route | None:
        """Resolve a name to its route; None when FastMCP's chain is to serve the request.

        Raises:
            MCPError: no server has this name.
        """
        bypass_allowed = self._own.bypass_allowed
        route = await self._directory.route(kind, name)
        if route is not None:
            return route if bypass_allowed else None
        if await self._own.has(kind, name):
            return None
        if kind is Kind.TOOL and caller.shows_apps:
            public = await self._directory.public_name(kind, name)
            if public != name:
                return await self._route(caller, params, kind, public)
        await self._directory.ready()
        rule = self._rule(caller)
        known = self._directory.table.names(kind, rule)
        what: Literal["tool", "prompt"] = "tool" if kind is Kind.TOOL else "prompt"
        return await self._guard.refuse(
            caller, params, {"name": name}, lambda: errors.unknown_name(what, name, rule, known)
        )

    def _rule(self, caller: Caller) -> NameRule:
        return self._directory.naming.rule(caller.client_name)


def components_named(method: str, params: Params) -> tuple[Kind, str] | None:
    if method == methods.COMPLETE.name:
        ref = params.get("ref")
        params = ref if isinstance(ref, Mapping) else {}
        kind: Kind | None = Kind.RESOURCE if params.get("type") == "ref/resource" else Kind.PROMPT
    else:
        kind = _NAMED.get(method)
    name = None if kind is None else params.get(SPECS[kind].id_field)
    return (kind, name) if kind is not None and isinstance(name, str) else None


def plain(result: Any) -> Result:
    """A result of FastMCP's chain as the policies look at results."""
    told: Result = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return told


def require_initialized(ctx: Context) -> None:
    """Reject requests before `initialize` (2025-11-25, lifecycle); modern connections are born ready."""
    if not connection_of(ctx.session).initialize_accepted:
        raise MCPError(INVALID_PARAMS, "Received request before initialization was complete")


def checked_params(ctx: Context) -> Params:
    """Return the request's parameters, which may be absent.

    Raises:
        MCPError: they, or their `_meta`, are not objects.
    """
    params = ctx.params if ctx.params is not None else {}
    if not isinstance(params, Mapping):
        raise errors.invalid_params("params: must be an object")
    require_object(params, "_meta")
    return params


def text_param(params: Params, name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str):
        raise errors.invalid_params(f"{name}: must be a string")
    return value


def require_object(params: Params, name: str) -> None:
    """Reject a parameter that is given and no object."""
    value = params.get(name)
    if value is not None and not isinstance(value, Mapping):
        raise errors.invalid_params(f"{name}: must be an object")


def require_readable(ctx: Context) -> None:
    """Reject parameters of a modern client that are not JSON for every parser.

    The SDK reads what they send over HTTP with Python's parser, which takes half a surrogate pair for a text and nests
    five times as deep as the one that reads all else.
    """
    try:
        from_json(to_json(ctx.params))
    except ValueError:
        raise errors.invalid_params("params: nested too deeply, or a text is not valid Unicode") from None


def resumed(fast: FastCall, caller: Caller, params: Params) -> Call:
    """The call that the fast path began, for the full path's caller.

    Raises:
        MCPError: it was cancelled or refused on the way.
    """
    call = fast.resume()
    if call is None:
        leave_unanswered(caller.ctx)
        raise MCPError(REQUEST_CANCELLED, "Request cancelled")
    if fast.refusal is not None:
        raise fast.take_refusal()
    call.caller, call.params = caller, params
    return call


async def described(call: Call, served: Awaitable[Result]) -> Result:
    """The result of a call, which the present span is told all about."""
    span = trace.get_current_span()
    about = {"server": call.server, "tool": call.name, "group": call.group, "principal": call.principal.name}
    span.set_attributes({f"fastmcp_aggregator.{name}": value for name, value in about.items() if value})
    try:
        result = await served
    except BaseException as error:
        span.set_attribute("fastmcp_aggregator.outcome", failure_of(call, error).outcome)
        raise
    span.set_attribute("fastmcp_aggregator.outcome", outcome_of(call, result))
    return result


async def in_span(ctx: Context, forward: Callable[[], Awaitable[Result]]) -> Result:
    """Run `forward` inside of the request's OpenTelemetry span; return its result.

    Raises:
        Exception: whatever `forward` raises.
    """
    result: Result = await make_span(ctx, lambda _: forward())  # type: ignore[assignment]
    return result
