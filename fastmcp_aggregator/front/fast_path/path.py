"""The fast path of one virtual server: which requests it takes, and how they are sent and answered.

Theory. A request is declined before anything is done for it, and then served by the full path as if this one did not
exist; so what is here decides only how a call travels, never what may be called. Routes, policies, what a child is
told, deadlines and shapes are the same functions on both paths. What turns out unusual later is taken over: the front
serves the same request by the full path, which finds the call there (`Pipeline`) and waits for what was sent.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any

from mcp.server.connection import Connection
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import InboundModernRoute, classify_inbound_request
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    RequestId,
)
from mcp_types.version import LATEST_MODERN_VERSION
from msgspec import Raw

from fastmcp_aggregator.backend import Backend
from fastmcp_aggregator.callers.call import Call
from fastmcp_aggregator.callers.caller import Caller
from fastmcp_aggregator.catalogue.snapshot import SPECS
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.concurrency.limiter import InFlightCounter
from fastmcp_aggregator.errors import ChildServerError, StartupError
from fastmcp_aggregator.front.fast_path.call import FastCall, Responder
from fastmcp_aggregator.front.fastmcp.local import LocalComponents
from fastmcp_aggregator.front.wire import errors
from fastmcp_aggregator.front.wire.shaping import for_modern_client
from fastmcp_aggregator.naming.rules import NameRule
from fastmcp_aggregator.observability.telemetry import is_tracing
from fastmcp_aggregator.protocol import methods, raw_json
from fastmcp_aggregator.protocol.json_rpc import Result
from fastmcp_aggregator.protocol.long_texts import LongText
from fastmcp_aggregator.relay.rounds import RETRY_PARAMS, forwarded
from fastmcp_aggregator.routing.directory import Directory
from fastmcp_aggregator.routing.table import RouteTable

logger = logging.getLogger(__name__)

CALLS = {
    methods.TOOLS_CALL.name: "name",
    methods.RESOURCES_READ.name: "uri",
    methods.PROMPTS_GET.name: "name",
    methods.COMPLETE.name: "ref",
}
"""The methods of calls to children, and the parameter that says what is called."""
KIND_OF_LIST = {spec.list_method: kind for kind, spec in SPECS.items()}
PING = "ping"
_RETRY_PARAMS = frozenset(RETRY_PARAMS)
TALKED = frozenset({"notification", "polling", "question", "result", "takes long"})
"""Why calls are taken over as others of the same component will be."""
_MOST_KEPT_BYTES = 2000
"""Bytes of an envelope that is kept, to know the same again; what clients say of themselves is shorter."""
_LONGEST_NAME = 1000
"""Characters of a component's name that is remembered."""
_LOOK_EVERY = 1.0
"""Seconds after which it is looked again whether spans are collected."""
_MOST_AT_ONCE = 1024 * 1024
"""Bytes of a list that is sent in one turn."""
Encoded = Callable[[Result], bytes]
"""Encodes a response with this result, whose parts may be undecoded."""


@dataclass(eq=False, slots=True)  # not frozen, for one is made for each request over HTTP
class SeenCaller:
    """The caller of a request, as far as its front knows: of a modern client over HTTP the `headers` of the protocol,
    by lower-case name.
    """

    connection: Connection
    is_modern: bool
    scope: Mapping[str, Any] | None = None
    headers: Mapping[str, str] | None = None


class Talkers:
    """Components whose calls are taken over: the next ones are left to the full path at once, which costs less.

    One is tried again after a while, which is twice as long each time that it is taken over again.
    """

    longest = 64
    """Calls that are left to the full path before one is tried again, at most."""
    _most = 1000
    """Components that are remembered."""

    def __init__(self) -> None:
        self.known: dict[Hashable, tuple[int, int]] = {}
        """By component, how many of its calls are still left to the full path, and how many were, last time."""

    def is_left(self, component: Hashable) -> bool:
        """True if the full path is to serve a call that is to be made now."""
        left, of = self.known.get(component, (0, 0))
        if not left:
            return False
        self.known[component] = left - 1, of
        return True

    def ended(self, component: Hashable, *, has_talked: bool) -> None:
        """A call that was tried has ended."""
        _, before = self.known.pop(component, (0, 0))
        if has_talked and self.longest:
            if len(self.known) >= self._most:
                del self.known[next(iter(self.known))]
            left = min(max(1, 2 * before), self.longest)
            self.known[component] = left, left


class FastPath:
    """Serves plain calls of one virtual server."""

    most_bytes = 1024 * 1024
    """Bytes of a request; longer ones are declined."""

    def __init__(
        self,
        backend: Backend,
        directory: Directory,
        own: LocalComponents,
        *,
        group_id: str,
        is_on: bool,
        server_info: Callable[[], dict[str, Any]],
    ) -> None:
        self._backend = backend
        self._directory = directory
        self._own = own
        self.in_flight = InFlightCounter()
        """Requests of this virtual server, on both paths."""
        self._group_id = group_id
        self._server_info = server_info
        self.is_on = is_on
        self._counts = backend.path_counts
        self._cancellable: dict[Hashable, FastCall] = {}
        self.talkers = Talkers()
        self._next_look, self._is_traced = -math.inf, False

    def is_left(self, request: raw_json.RequestLine) -> bool:
        """True if a request is left to the full path at once; not to be asked where no talkers are known.

        Raises:
            Malformed: the name of its component cannot be read.
        """
        if request.method not in CALLS:
            return False
        is_left = self.talkers.is_left(_component(request.method, request.params))
        self._counts.declined["talks"] += is_left
        return is_left

    def begin(self, request: raw_json.RequestLine, responder: Responder, seen: SeenCaller) -> FastCall | None:
        """Send a call to its child, now; None: it is declined, and nothing has been done."""
        try:
            return self._begin(request, responder, seen)
        except Exception as why:
            self._count_declined(why)
            return None

    def reply(self, request: raw_json.RequestLine, seen: SeenCaller) -> Result | None:
        """The result of a request that needs no child; None: it is another, or declined.

        Raises:
            TakesTurns: it is left to `long_list`.
        """
        if request.method not in KIND_OF_LIST and request.method != PING:
            return None
        try:
            self._require_usual()
            raw_json.read_id(request.id)
            result = self._listed(request, seen) if request.method in KIND_OF_LIST else _pong(request, seen)
        except TakesTurns:
            raise
        except Exception as why:
            self._count_declined(why)
            return None
        self._counts.answered += 1
        return result

    def decline(self, reason: str, *unread: bytes) -> None:
        """Count those among messages that are left to the full path, unread, which seem to be requests."""
        for message in unread:
            if b'"method"' in message and b'"id"' in message:
                self._counts.declined[reason] += 1

    def _count_declined(self, why: Exception) -> None:
        if isinstance(why, Declined):
            self._counts.declined[why.reason] += 1
        elif isinstance(why, raw_json.Malformed):
            self._counts.declined["malformed"] += 1
        else:
            logger.debug("the full path is to serve a request", exc_info=why)
            self._counts.declined["unexpected"] += 1

    async def long_list(self, request: raw_json.RequestLine, seen: SeenCaller, responder: Responder) -> LongText | None:
        """The response to such a request; None: it is declined, as where servers are still starting after a while."""
        try:
            await self._until_ready(responder.answer_timeout)
            response = await self.listed(request, seen, responder.encoded)
        except Exception as why:
            self._count_declined(why)
            return None
        self._counts.answered += 1
        return response

    async def listed(self, request: raw_json.RequestLine, seen: SeenCaller, encoded: Encoded) -> LongText:
        """The same, not counted. The list is made by and by: others go on meanwhile.

        Raises:
            Exception: it is declined.
        """
        kind = KIND_OF_LIST[request.method]
        self._require_usual()
        raw_json.read_id(request.id)
        await self._directory.ready()
        rule = self._rule_of_list(request, seen)

        def texts(table: RouteTable) -> Iterator[bytes]:
            return table.texts_of_each(kind, rule, is_modern=seen.is_modern)

        table = await self._directory.made(
            lambda table: chain(table.steps(kind, rule, is_modern=seen.is_modern), texts(table))
        )
        parts = list(filter(None, texts(table)))
        if sum(map(len, parts)) <= _MOST_AT_ONCE:
            items, parts = table.listing_as_json(kind, rule, is_modern=seen.is_modern), []
        else:
            items = Raw(b"[]")
        result = self._list_result(request.method, items, table, seen)
        return LongText.of(encoded(result), SPECS[kind].list_key, parts)

    async def _until_ready(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._directory.ready()
        except (TimeoutError, StartupError):
            raise Declined("list") from None

    def _listed(self, request: raw_json.RequestLine, seen: SeenCaller) -> Result:
        if self._directory.is_same_for_all and not self._directory.is_ready:
            raise TakesTurns
        kind, rule, table = KIND_OF_LIST[request.method], self._rule_of_list(request, seen), self._directory.table
        if not table.has_text(kind, rule, is_modern=seen.is_modern, within=_MOST_AT_ONCE):
            raise TakesTurns
        items = table.listing_as_json(kind, rule, is_modern=seen.is_modern)
        return self._list_result(request.method, items, table, seen)

    def _rule_of_list(self, request: raw_json.RequestLine, seen: SeenCaller) -> NameRule:
        """The naming rule of lists for the client."""
        kind = KIND_OF_LIST[request.method]
        meta = _meta_of(request.params)
        _require_envelope(request.method, {**request.params, "_meta": meta}, meta, seen)
        if not self._directory.can_list or not self._own.has_none_of(kind) or "cursor" in request.params:
            raise Declined("list")
        return self._directory.naming.rule(_client_name(seen, request.params))

    def _list_result(self, method: str, items: Raw, table: RouteTable, seen: SeenCaller) -> Result:
        kind = KIND_OF_LIST[method]
        result = {SPECS[kind].list_key: items}
        if not seen.is_modern:
            return result
        hinted = {**result, **table.cache_hint(kind).as_fields()}
        return for_modern_client(method, hinted, self._stamp)

    @cached_property
    def _stamp(self) -> Raw:
        """The description of this server in each result."""
        return Raw(raw_json.encode(self._server_info()))

    def cancel(self, connection: Connection, request_id: RequestId) -> None:
        """The client waits no longer for a request; nothing is done for one that the full path has resumed."""
        fast = self._cancellable.get((connection, coerce_request_id(request_id)))
        if fast is not None:
            fast.abandon()

    def _begin(self, request: raw_json.RequestLine, responder: Responder, seen: SeenCaller) -> FastCall:
        if request.method not in CALLS:
            raise Declined("method")
        if not _RETRY_PARAMS.isdisjoint(request.params):
            raise Declined("round")
        params = _known_params(request.params)
        meta = params.get("_meta", {})
        _require_envelope(request.method, params, meta, seen)
        request_id = raw_json.read_id(request.id)
        key = self._cancellation_key(request_id, seen)
        self._require_usual()
        caller = Caller(seen.connection, request.method, meta, request_id, is_modern=seen.is_modern, scope=seen.scope)
        target = (self._directory.shared or self._directory.table_of(caller.account)).target(request.method, params)
        if target is None or (child := target.child) is None:
            raise Declined("unknown name")
        if target.is_app_page:
            raise Declined("app page")
        if seen.headers is not None and target.mirrors_headers:
            raise Declined("header parameters")
        self._require_shared(child, caller, params)
        stack = self._backend.policies.stack
        if stack.policies:
            _decode_all(params)
        call = Call(caller, target, request.method, params, self._group_id)
        if stack.policies and not stack.is_ready_for(call):
            raise Declined("policy has to wait")
        fast = FastCall(call, child, responder, self.in_flight, stamp=self._stamp, on_end=self._ended)
        refusal = None if child.calls.reserve(caller.holder) else self._refusal(child, caller)
        # From here on it is not declined any more.
        self.in_flight.begin()
        if key is not None:
            self._cancellable[key] = fast
            fast.key = key
        try:
            if stack.policies or stack.recorders or refusal is not None:
                fast.admission = stack.admit_now(call, refusal)
        except Exception as error:
            self._reject(fast, error, refusal)
            return fast
        try:
            told = forwarded(child, params, target.address)
            fast.started = child.calls.start(request.method, told, fast, responder.answer_timeout)
        except Exception:  # the connection, or what cannot be written; the full path says so
            child.calls.release(caller.holder)
            fast.take_over("not sent")
        return fast

    def _cancellation_key(self, request_id: RequestId, seen: SeenCaller) -> Hashable:
        """The key by which another request of its session can cancel a call; None: none can."""
        if seen.scope is None or seen.is_modern:
            return None
        key = seen.connection, coerce_request_id(request_id)
        if key in self._cancellable:  # the gate lets that pass where a session is known at two addresses
            raise Declined("id in use")
        return key

    def _reject(self, fast: FastCall, error: Exception, refusal: ChildServerError | None) -> None:
        """A call is not let pass by a policy, or is refused by its child's side, which then has no slot for it."""
        if refusal is None:
            fast.child.calls.release(fast.holder)
        if isinstance(error, ChildServerError):
            error = errors.unavailable(error, is_local=fast.call.caller.is_local)
        if isinstance(error, MCPError):
            fast.refuse(error)
        else:
            fast.refusal = fast.unexpected(error)
            fast.take_over("policy failed")

    def _require_usual(self) -> None:
        if not self.is_on:
            raise Declined("off")
        if self.in_flight.is_closing:
            raise Declined("ending")
        if (now := time.monotonic()) >= self._next_look:
            self._next_look, self._is_traced = now + _LOOK_EVERY, is_tracing()
        if self._is_traced:
            raise Declined("tracing")
        if self._backend.profile.is_awaited:
            raise Declined("new client")
        if not self._own.bypass_allowed:
            raise Declined("middleware")

    def _require_shared(self, child: Child, caller: Caller, params: Mapping[str, Any]) -> None:
        """Decline what is not to be sent to the child itself, now."""
        runtime, session = self._backend.runtime, child.session
        if runtime is None or session is None or session.lost.is_set():
            raise Declined("not running")
        if not session.direct.sink.has_room:
            raise Declined("no room in the pipe")
        if caller.is_modern and session.era == "legacy" and LOG_LEVEL_META_KEY in params.get("_meta", ()):
            raise Declined("log level")
        if runtime.subscriptions.resources.get(child.instance_id):  # an answer must not overtake the update it causes
            raise Declined("subscribed")
        if self._backend.profile.is_single and child.evidence.is_shared:
            return  # with the only client there is
        if not caller.is_remote:
            runtime.instances.look_at_paths(child, caller, params)
        if not runtime.instances.is_shared(child, caller):
            raise Declined("instance")

    def _refusal(self, child: Child, caller: Caller) -> ChildServerError:
        """Why the child's side refuses a call for which no slot is free."""
        refusal = child.calls.refusal(caller.holder)
        if refusal is None:
            raise Declined("busy")
        return refusal

    def _ended(self, fast: FastCall) -> None:
        self._cancellable.pop(fast.key, None)
        if self.talkers.known or fast.taken_over:
            self.talkers.ended(_component(fast.call.method, fast.call.params), has_talked=fast.taken_over in TALKED)
        if fast.taken_over:
            self._counts.taken_over[fast.taken_over] += 1
        else:
            self._counts.answered += 1


class Declined(Exception):
    """The full path is to serve a request, for this reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class TakesTurns(Exception):
    """A list takes several turns, to be made or to be sent."""


def _component(method: str, params: Mapping[str, Any]) -> Hashable:
    """The called component, as the client names it; all with long names are one."""
    named = params.get(CALLS[method])
    if isinstance(named, Raw):
        named = raw_json.decode(named)
    if isinstance(named, dict):  # what a completion is for
        named = named.get("name") or named.get("uri")
    return method, named if isinstance(named, str) and len(named) <= _LONGEST_NAME else None


def _known_params(raw: Mapping[str, Raw]) -> dict[str, Any]:
    """The parameters, with what names the component and what is said of the caller decoded."""
    params: dict[str, Any] = dict(raw)
    for name in ("name", "uri", "ref", "_meta"):
        if name in params:
            params[name] = raw_json.decode(params[name])
    if not isinstance(params.get("_meta", {}), dict):
        raise Declined("params")
    if "arguments" in params and raw_json.first_of(params["arguments"]) != raw_json.FIRST_OF_OBJECT:
        raise Declined("params")
    return params


def _meta_of(raw: Mapping[str, Raw]) -> dict[str, Any]:
    """The `_meta` of a request."""
    meta = raw_json.decode(raw["_meta"]) if "_meta" in raw else {}
    if not isinstance(meta, dict):
        raise Declined("params")
    return meta


def _decode_all(params: dict[str, Any]) -> None:
    """Let policies see the parameters; and the child gets what they saw, where a name is there twice."""
    for name, part in params.items():
        if isinstance(part, Raw):
            params[name] = raw_json.decode(part)


def _client_name(seen: SeenCaller, raw: Mapping[str, Raw]) -> str | None:
    """The name of the program, by its own account, which a modern client gives with each request."""
    if seen.is_modern:
        meta = raw_json.bytes_of(raw["_meta"])
        return _known_name(meta) if len(meta) <= _MOST_KEPT_BYTES else _name_in_envelope(meta)
    params = seen.connection.client_params
    return params.client_info.name if params else None


def _name_in_envelope(meta: bytes) -> str | None:
    """The same as the SDK takes it from an envelope."""
    envelope = raw_json.decode(meta)
    info, capabilities = envelope.get(CLIENT_INFO_META_KEY), envelope.get(CLIENT_CAPABILITIES_META_KEY)
    params = Connection.from_envelope(LATEST_MODERN_VERSION, info, capabilities).client_params
    return params.client_info.name if params else None


_known_name = lru_cache(maxsize=1000)(_name_in_envelope)


def _pong(request: raw_json.RequestLine, seen: SeenCaller) -> Result:
    """The answer to a ping, which modern clients have not."""
    if seen.is_modern or request.params:
        raise Declined("method")
    return {}


def _require_envelope(method: str, params: Mapping[str, Any], meta: Mapping[str, Any], seen: SeenCaller) -> None:
    if seen.is_modern:
        body = {"method": method, "params": params}
        if not isinstance(classify_inbound_request(body, headers=seen.headers), InboundModernRoute):
            raise Declined("envelope")
    elif PROTOCOL_VERSION_META_KEY in meta:
        raise Declined("envelope")
