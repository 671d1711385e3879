"""The audit policy: an entry for each call, whatever else reaches a server or costs something, and each refusal.

The fields are described in `docs/observability.md`.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastmcp_aggregator.access.principal import ANYONE, Principal
from fastmcp_aggregator.files.rotating import RotatingFile
from fastmcp_aggregator.observability.audit_log import AuditLog, StandardOutput, cut
from fastmcp_aggregator.pipe.bucket import TokenBucket
from fastmcp_aggregator.policies.policy import CallEnd, Policy, Rejected
from fastmcp_aggregator.protocol import raw_json
from fastmcp_aggregator.protocol.json_rpc import SERVER_UNAVAILABLE
from fastmcp_aggregator.protocol.methods import TOOLS_CALL
from fastmcp_aggregator.settings.model import AggregatorSettings

if TYPE_CHECKING:
    from fastmcp_aggregator.callers.call import Call


NO_CREDENTIALS = "there are no credentials"
"""Why a request is refused that says nothing of who sends it, as those are by which clients ask where to log in."""
_MOST_ARGUMENT_BYTES = 64 * 1024
_NOBODY_ASKED = "it cannot be told which client the server asks, or the client has left"
_RETRY_IN = 1.0
"""Seconds after which a client may try again while nothing can be recorded."""
_NAME_LIMIT = 512
"""Bytes of a name or an address that leads nowhere, at most."""
_BURST, _RATE = 100, 10
"""Refusals of one caller that have entries at once, and so many more a second. The others are counted, for they must
not push everything else out of the log.
"""
_MOST_CALLERS = 1000
"""Callers whose refusals are counted."""
_PLAIN = frozenset({str, int, bool, type(None)})
"""Types of values that all encoders write alike; the usual one takes three times as long as a faster one."""
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def audit_of(settings: AggregatorSettings) -> Audit | None:
    if settings.audit is None:
        return None
    destination: RotatingFile | StandardOutput = StandardOutput()
    if settings.audit != "stdout":
        path = Path(settings.audit).expanduser()
        destination = RotatingFile(path, max_bytes=int(settings.audit_max_mb * 1024**2), keep=settings.audit_keep)
    log = AuditLog(destination, rejects=settings.audit_on_failure == "refuse")
    return Audit(log, with_arguments=settings.audit_arguments == "full")


class Audit(Policy):
    """A policy that records every call, and has the words for what never becomes one."""

    def __init__(
        self, log: AuditLog, *, with_arguments: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`with_arguments`: whether arguments are written out, where otherwise there is their digest."""
        self.log = log
        self._clock = clock
        self._with_arguments = with_arguments
        self._refused: dict[str, TokenBucket] = {}
        """Rate limits of recorded refusals, by principal."""
        self._unauthenticated_rate = TokenBucket(burst=_BURST, rate=_RATE)

    def before(self, call: Call) -> None:
        """Reject calls while they cannot be recorded, if they must be."""
        if self.log.must_reject:
            reason = "the call was not made, because it could not be recorded: the audit log cannot be written"
            raise Rejected(SERVER_UNAVAILABLE, reason, retry_in=_RETRY_IN)

    def after(self, call: Call, end: CallEnd) -> None:
        is_denied = end.outcome == "denied"
        is_call = call.server or not is_denied
        record = self._record_refusal if is_denied else self.log.record
        record(
            "call" if is_call else "denied",
            {
                "principal": call.principal.name,
                "group": call.group,
                "server": call.server or None,
                _kind(call.method, call.name): (call.name if is_call else cut(call.name, _NAME_LIMIT)) or None,
                "method": call.method,
                "duration_ms": round(end.seconds * 1000, 3),
                "outcome": end.outcome,
                "error_code": end.code,
                "reason": end.reason or None,
                "request_bytes": call.request_bytes,
                "response_bytes": end.response_bytes,
                "request_id": call.caller.request_id or None,
                "trace_id": call.caller.trace_id or None,
                "task": _task(call, end),
                **self._arguments(call.params),
            },
        )

    def denied(self, principal: Principal, group: str, method: str, name: str, request_id: str, reason: str) -> None:
        """Record what was refused inside of a request; `name` is what was asked for."""
        what = {
            _kind(method, name): cut(name, _NAME_LIMIT) or None,
            "method": method,
            "outcome": "denied",
            "request_id": request_id or None,
        }
        self._record_refusal("denied", {"principal": principal.name, "group": group, **what, "reason": reason})

    def request_denied(self, principal: Principal, group: str, path: str, reason: str) -> None:
        who = {"principal": principal.name, "group": group}
        self._record_refusal("denied", {**who, "path": cut(path, _NAME_LIMIT), "outcome": "denied", "reason": reason})

    def operated(self, principal: Principal, operation: str, server: str | None, about: Mapping[str, Any]) -> None:
        what = {"operation": operation, "server": server, "outcome": "ok", **about}
        self.log.record("operation", {"principal": principal.name, **what})

    def gave_way(self, server: str, principal: Principal, taker: Principal) -> None:
        self.log.record("gave_way", {"principal": principal.name, "server": server, "outcome": "ok", "to": taker.name})

    def question_refused(self, server: str, method: str) -> None:
        """Record that a server has asked something, and was refused an answer."""
        what = {"server": server, "method": method, "outcome": "denied", "reason": _NOBODY_ASKED}
        self._record_refusal("denied", {"principal": f"server:{server}", **what})

    def record_counts(self) -> None:
        """Record how many refusals have no entry yet, since there may be no other refusal."""
        for principal, rate in (*self._refused.items(), (ANYONE, self._unauthenticated_rate)):
            if rate.rejected:
                self._record_count(principal, rate.rejected)
                rate.rejected = 0

    def address_denied(self, client: str, path: str, reason: str) -> None:
        """Record an HTTP request that was refused for its Host or Origin; as `authentication_failed`."""
        self._unauthenticated("denied", client, path, reason)

    def authentication_failed(self, client: str, path: str, reason: str) -> None:
        """Record an HTTP request without valid credentials; `client` is its address. Of a flood, some are counted."""
        self._unauthenticated("authentication_failed", client, path, reason)

    def _record_refusal(self, event: str, fields: Mapping[str, Any]) -> None:
        """Record what was refused to somebody; of a flood, some, with how many were not."""
        principal = fields["principal"]
        rate = self._refused.get(principal)
        if rate is None:
            if len(self._refused) >= _MOST_CALLERS:
                self._forget(next(iter(self._refused)))
            rate = self._refused[principal] = TokenBucket(burst=_BURST, rate=_RATE)
        if rate.take(self._clock()):
            self.log.record(event, {**fields, "unrecorded": rate.rejected or None})
            rate.rejected = 0

    def _forget(self, principal: str) -> None:
        if more := self._refused.pop(principal).rejected:
            self._record_count(principal, more)

    def _record_count(self, principal: str, more: int) -> None:
        self.log.record("denied", {"principal": principal, "outcome": "denied", "unrecorded": more})

    def _unauthenticated(self, event: str, client: str, path: str, reason: str) -> None:
        rate = self._unauthenticated_rate
        if rate.take(self._clock()):
            who = {"principal": ANYONE, "client": client, "path": cut(path, _NAME_LIMIT)}
            what = {"outcome": "denied", "reason": reason, "unrecorded": rate.rejected or None}
            self.log.record(event, who | what)
            rate.rejected = 0

    def _arguments(self, params: Mapping[str, Any]) -> dict[str, Any]:
        arguments = params.get("arguments", params.get("argument"))
        if arguments is None:
            return {}
        text = canonical(arguments)
        if self._with_arguments and len(text) <= _MOST_ARGUMENT_BYTES:
            return {"arguments": arguments}
        return {"arguments_sha256": hashlib.sha256(text).hexdigest()}


def _task(call: Call, end: CallEnd) -> str | None:
    """A tag that the entries of one task have in common; the id itself may be all that it takes to ask for the task."""
    result = end.result if isinstance(end.result, Mapping) else {}
    task_id = call.params.get("taskId") if call.task is not None else result.get("taskId")
    is_task = call.task is not None or end.outcome == "task"
    return hashlib.sha256(task_id.encode()).hexdigest()[:16] if is_task and isinstance(task_id, str) else None


def canonical(arguments: Any) -> bytes:
    """JSON that is the same for the same arguments: keys in order, no spaces, UTF-8."""
    if isinstance(arguments, dict) and _PLAIN.issuperset(map(type, arguments.values())):
        with suppress(OverflowError, *raw_json.Malformed):
            return raw_json.encode_sorted(arguments)
    return _encode(arguments).encode("utf-8", "surrogatepass")


def _kind(method: str, name: str) -> str:
    """The kind of component that a name belongs to. Prompts and addresses can be completed."""
    if method == TOOLS_CALL.name or method.startswith("tasks/"):
        return "tool"
    return "uri" if method.startswith("resources/") or "://" in name else "prompt"
