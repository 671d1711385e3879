"""One request to a child as policies see it: plain values, nothing of FastMCP. A policy is asked before, told after.

Policies are quick: what takes long is not done on the way of a call. What costs something, such as a
size, is worked out when a policy first wants it, and once for all of them.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol

from opentelemetry.trace import format_trace_id, get_current_span
from pydantic_core import to_json

ANYONE = "anonymous"
"""The principal of whoever has not authenticated: the client on stdio, everybody on a loopback port without auth."""

SERVER_UNAVAILABLE = -32000
"""JSON-RPC: the request cannot be served now."""

Outcome = Literal["ok", "tool_error", "input_required", "error", "denied", "cancelled"]
"""`tool_error`: the child's result says isError; `input_required`: the client is to come back with answers
(2026-07-28); `error`: the child's or our JSON-RPC error; `denied`: a policy refused it.
"""

# W3C Trace Context, section 3.2: version, trace id, parent id, flags; an id of zeros is invalid.
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls, as far as authentication tells. `groups` are those that it may use; None: all."""

    name: str = ANYONE
    groups: frozenset[str] | None = None

    def may_use(self, group: str) -> bool:
        """Whether it may use a group."""
        return self.groups is None or group in self.groups


@dataclass
class Call:
    """One request that is about to be forwarded."""

    principal: Principal
    group: str
    method: str
    """`tools/call`, `resources/read`, `prompts/get` or `completion/complete`."""
    server: str
    name: str
    """What the child calls it: a tool's or prompt's name, or a URI."""
    params: Mapping[str, Any]
    """The request's parameters, with the public name."""
    input_schema: Mapping[str, Any] | None = None
    """Of a tool, as the child lists it."""
    is_remote: bool = False
    """Whether it came over HTTP."""
    request_id: str = ""
    began: float = field(default_factory=time.monotonic)

    @cached_property
    def request_bytes(self) -> int:
        """The parameters' size as JSON."""
        return json_size(self.params)

    @cached_property
    def trace_id(self) -> str:
        """Of the trace that the client has told (SEP-414), or that this program has begun; empty without one."""
        meta = self.params.get("_meta")
        parent = meta.get("traceparent") if isinstance(meta, Mapping) else None
        if isinstance(parent, str) and (told := _TRACEPARENT.fullmatch(parent)):
            return told[1]
        context = get_current_span().get_span_context()
        return format_trace_id(context.trace_id) if context.is_valid else ""


@dataclass(frozen=True)
class End:
    """What came of a call. `seconds` since it began; `code` is that of a JSON-RPC error, `reason` a policy's."""

    outcome: Outcome
    seconds: float
    code: int | None = None
    reason: str = ""
    result: Mapping[str, Any] | None = None

    @cached_property
    def response_bytes(self) -> int:
        """The result's size as JSON; 0 without one."""
        return 0 if self.result is None else json_size(self.result)


class Refused(Exception):
    """A policy refuses a call. Becomes a JSON-RPC error; `retry_in` is in seconds, where trying again may help."""

    def __init__(self, code: int, message: str, *, retry_in: float | None = None, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_in = retry_in
        self.data = data


class Policy(Protocol):
    """One concern around each call."""

    def before(self, call: Call) -> Awaitable[None] | None:
        """Let the call pass; an awaitable, where the decision is made elsewhere, is awaited.

        Raises:
            Refused: it may not be made, or not now.
        """

    def after(self, call: Call, end: End) -> None:
        """The call is over; told of every call that passed this policy, and to those before it of refusals too."""


def json_size(value: Any) -> int:
    """Bytes that a JSON value takes when it is written without spaces."""
    try:
        return len(to_json(value))
    except ValueError:  # half of a surrogate pair, which has no UTF-8
        return len(json.dumps(value, separators=(",", ":"), default=str))
