"""The fast path of one virtual server: which requests it takes, and how they are sent and answered.

Theory. A request is declined before anything is done for it, and then served by the full path as if this one did not
exist; so what is here decides only how a call travels, never what may be called. Routes, policies, what a child is
told, deadlines and shapes are the same functions on both paths. What turns out unusual later is taken over: the front
serves the same request by the full path, which finds the call there (`Pipeline`) and waits for what was sent.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from mcp.server.connection import Connection
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import InboundModernRoute, classify_inbound_request
from mcp_types import LOG_LEVEL_META_KEY, PROTOCOL_VERSION_META_KEY
from msgspec import Raw

from fastmcp_aggregator.backend import Backend
from fastmcp_aggregator.callers.call import Call
from fastmcp_aggregator.callers.caller import Caller
from fastmcp_aggregator.concurrency.limiter import InFlightCounter
from fastmcp_aggregator.front.fast_path.call import FastCall, Origin
from fastmcp_aggregator.front.fastmcp.local import LocalComponents
from fastmcp_aggregator.front.wire.shaping import for_legacy_client, for_modern_client, is_input_required
from fastmcp_aggregator.observability.telemetry import is_tracing
from fastmcp_aggregator.protocol import methods, raw_json
from fastmcp_aggregator.relay.rounds import RETRY_PARAMS, forwarded
from fastmcp_aggregator.routing.directory import Directory
from fastmcp_aggregator.routing.target import Target, known_target

logger = logging.getLogger(__name__)

CALLS = frozenset({methods.TOOLS_CALL.name, methods.RESOURCES_READ.name, methods.PROMPTS_GET.name})
"""The methods that are served here."""
_MAY_ADDRESS = re.compile(rb'"resource|\\u00[67]')
"""What stands in a result that may have addresses; letters can be escaped."""
_LOOKED_AT = ("_meta", "isError", "resultType", "ttlMs", "cacheScope")
"""Parts of a result that are decoded, where they are."""


class FastPath:
    """Serves plain calls of one virtual server."""

    most_bytes = 1024 * 1024
    """Of a request; longer ones are declined."""

    def __init__(
        self,
        backend: Backend,
        directory: Directory,
        own: LocalComponents,
        in_flight: InFlightCounter,
        *,
        group_id: str,
        server_info: Callable[[], dict[str, Any]],
    ) -> None:
        self._backend = backend
        self._directory = directory
        self._own = own
        self._in_flight = in_flight
        self._group_id = group_id
        self._server_info = server_info
        self.is_on = True
        self.taken = 0
        """Calls that were begun here."""
        self.declined: Counter[str] = Counter()
        """Requests that were not, by reason."""
        self.taken_over: Counter[str] = Counter()
        """Calls that were begun here and left to the full path, by reason."""

    def begin(
        self,
        request: raw_json.RequestLine,
        origin: Origin,
        connection: Connection,
        *,
        is_modern: bool,
        scope: Mapping[str, Any] | None = None,
    ) -> FastCall | None:
        """Send a call to its child, now; None: it is declined, and nothing has been done."""
        try:
            return self._begin(request, origin, connection, is_modern, scope)
        except Declined as declined:
            self.declined[declined.reason] += 1
        except raw_json.Malformed:
            self.declined["malformed"] += 1
        return None

    def _begin(
        self,
        request: raw_json.RequestLine,
        origin: Origin,
        connection: Connection,
        is_modern: bool,
        scope: Mapping[str, Any] | None,
    ) -> FastCall:
        self._require_plain(request)
        params = _known_params(request.params)
        meta = params.get("_meta", {})
        _require_envelope(request.method, params, meta, is_modern=is_modern)
        caller = Caller(
            connection, request.method, meta, raw_json.read_id(request.id), is_modern=is_modern, scope=scope
        )
        target = known_target(self._directory.table, request.method, params)
        if target is None:
            raise Declined("unknown name")
        self._require_free(target, caller, meta)
        stack = self._backend.policies.stack
        if stack.policies:
            _decode_arguments(params)
        call = Call(caller, target.child, request.method, params, target.address, self._group_id, target.input_schema)
        if not stack.is_ready_for(call):
            raise Declined("policy has to wait")
        return self._start(FastCall(call, target, request.id, origin, shape=self._shaped, on_end=self._ended))

    def _start(self, fast: FastCall) -> FastCall:
        """From here on it is not declined any more."""
        self.taken += 1
        self._in_flight.enter()
        try:
            fast.admission = self._backend.policies.stack.admit_now(fast.call)
        except MCPError as error:
            fast.refusal = error
            fast.take_over("rejected")
            return fast
        child = fast.target.child
        try:
            fast.started = child.calls.start(
                fast.call.method, forwarded(child, fast.call.params, fast.target.address), fast
            )
        except OSError:
            fast.take_over("lost")
        return fast

    def _require_plain(self, request: raw_json.RequestLine) -> None:
        if request.method not in CALLS:
            raise Declined("method")
        if not self.is_on or self._in_flight.is_closing:
            raise Declined("off")
        if is_tracing():
            raise Declined("tracing")
        if not self._own.bypass_allowed:
            raise Declined("middleware")
        if any(name in request.params for name in RETRY_PARAMS):
            raise Declined("round")

    def _require_free(self, target: Target, caller: Caller, meta: Mapping[str, Any]) -> None:
        """Decline what would have to wait, or needs an instance of its own."""
        child, runtime = target.child, self._backend.runtime
        if not child.calls.can_start or child.session is None or runtime is None:
            raise Declined("not free")
        if caller.is_modern and child.session.era == "legacy" and LOG_LEVEL_META_KEY in meta:
            raise Declined("log level")
        if self._backend.profile.is_awaited or not runtime.instances.is_shared(child, caller):
            raise Declined("instance")

    def _shaped(self, fast: FastCall, result: dict[str, Any]) -> dict[str, Any] | None:
        """What a client of this era gets of a result, whose parts are decoded as far as somebody looks at them."""
        for name in _LOOKED_AT:
            if name in result:
                result[name] = raw_json.decode(result[name])
        is_modern = fast.call.caller.is_modern
        if is_input_required(result) and not is_modern:
            return None
        target = fast.target
        part = target.addressed
        if target.publish is not None and part in result and _MAY_ADDRESS.search(raw_json.bytes_of(result[part])):
            result[part] = raw_json.decode(result[part])
        if target.is_resource and part in result:
            result[part] = raw_json.decode(result[part]) if isinstance(result[part], Raw) else result[part]
        published = target.published(result)
        if is_modern:
            return for_modern_client(fast.call.method, published, self._server_info())
        return for_legacy_client(fast.call.method, published)

    def _ended(self, fast: FastCall) -> None:
        self._in_flight.leave()
        if fast.taken_over:
            self.taken_over[fast.taken_over] += 1


class Declined(Exception):
    """The full path is to serve a request, for this reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def _known_params(raw: Mapping[str, Raw]) -> dict[str, Any]:
    """The parameters, with what names the component and what is said of the caller decoded."""
    params: dict[str, Any] = dict(raw)
    for name in ("name", "uri"):
        if name in params:
            params[name] = raw_json.decode(params[name])
    if "_meta" in params:
        params["_meta"] = raw_json.decode(params["_meta"])
        if not isinstance(params["_meta"], dict):
            raise Declined("params")
    arguments = params.get("arguments")
    if arguments is not None:
        if not raw_json.is_object(arguments):
            raise Declined("params")
        params["arguments"] = raw_json.on_one_line(arguments)
    return params


def _decode_arguments(params: dict[str, Any]) -> None:
    """Let policies see the arguments; and the child gets what they saw, where a name is there twice."""
    if "arguments" in params:
        params["arguments"] = raw_json.decode(params["arguments"])


def _require_envelope(method: str, params: Mapping[str, Any], meta: Mapping[str, Any], *, is_modern: bool) -> None:
    if is_modern:
        if not isinstance(classify_inbound_request({"method": method, "params": params}), InboundModernRoute):
            raise Declined("envelope")
    elif PROTOCOL_VERSION_META_KEY in meta:
        raise Declined("envelope")
