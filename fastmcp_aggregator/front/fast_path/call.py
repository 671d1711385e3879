"""A call on the fast path: sent to its child at once, and answered in one step, or left to the full path."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Protocol

from mcp.shared.exceptions import MCPError
from msgspec import Raw

from fastmcp_aggregator.callers.call import Call
from fastmcp_aggregator.children.calls import StartedRequest
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.children.session.in_flight import AnyCaller, OnProgress
from fastmcp_aggregator.children.session.parts import is_too_large
from fastmcp_aggregator.concurrency.limiter import InFlightCounter
from fastmcp_aggregator.front.wire import errors
from fastmcp_aggregator.front.wire.shaping import for_legacy_client, for_modern_client
from fastmcp_aggregator.policies.stack import Admission
from fastmcp_aggregator.protocol import raw_json
from fastmcp_aggregator.protocol.json_rpc import Result
from fastmcp_aggregator.protocol.parts import ANSWER_PARTS_LIMIT
from fastmcp_aggregator.routing.target import Target

logger = logging.getLogger(__name__)

_LOOKED_AT = frozenset({"_meta", "isError", "resultType", "ttlMs", "cacheScope"})
"""Parts of a result that are decoded, where they are."""


class Responder(Protocol):
    """The origin of one request, to which its answer goes."""

    answer_timeout: float
    """Seconds that an answer may take, at most, to be given here."""

    @property
    def has_room(self) -> bool:
        """True if `answer` can write without waiting."""
        ...

    def encoded(self, result: Result) -> bytes:
        """The response with this result, whose parts may be undecoded."""
        ...

    def answer(self, response: bytes, then: Callable[[], None] | None) -> None:
        """Send the response, then call `then`, which the client does not wait for."""

    def refuse(self, error: MCPError) -> None:
        """Send the response with this error."""

    def take_over(self, fast: FastCall) -> None:
        """Serve the request by the full path, which resumes the call."""

    def abandoned(self) -> None:
        """The client waits no longer for the answer."""


class FastCall:
    """One call, from its request to its answer, or until the full path resumes it: its `DirectCaller` so long."""

    def __init__(
        self,
        call: Call,
        child: Child,
        responder: Responder,
        in_flight: InFlightCounter,
        *,
        stamp: Raw,
        on_end: Callable[[FastCall], None],
    ) -> None:
        """It counts as in flight until it ends. `stamp` is what is said of this server in each result; `on_end` is told
        once, when the fast path has no more to do with the call.
        """
        self.call = call
        self.identity = call.caller.identity
        self.account = call.caller.account
        self.holder = call.caller.holder
        self.wants_progress = call.caller.wants_progress
        session = child.session
        is_told = session is not None and session.era == "modern"
        self.capabilities = call.caller.capabilities if is_told else None
        self.child = child
        self.target = call.target
        self.admission: Admission | None = None
        """The policies', if there are any."""
        self.refusal: MCPError | None = None
        """The refusal that the full path answers: a policy broke, or there is no room for it here."""
        self.started: StartedRequest | None = None
        self.taken_over = ""
        """Why the full path is to serve the call, once it is."""
        self.key: Hashable = None
        """The key by which another request can cancel it, if any can."""
        self.responder = responder
        self._in_flight = in_flight
        self._stamp = stamp
        self._on_end = on_end
        self.is_over = False
        """True once the fast path has no more to do with it."""

    # What the child is told of the caller, and the caller of the child.

    @property
    def log_level(self) -> str | None:
        return self.call.caller.log_level

    @property
    def headers(self) -> Mapping[str, str] | None:
        return self.call.caller.headers

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Keep the notification for the full path, if the caller gets it."""
        if self.call.caller.is_told(method, params):
            self._leave(lambda caller: caller.notify(method, params), "notification")

    def hang_up(self) -> None:
        """Leave it to the full path, whose response can end before the answer."""
        self._leave(lambda caller: caller.hang_up(), "polling")

    async def ask(self, method: str, params: Mapping[str, Any], on_progress: OnProgress) -> dict[str, Any]:
        """The client's answer, which the full path asks for."""
        assert self.started is not None
        self.take_over("question")
        caller = await self.started.request.adopter()
        return await caller.ask(method, params, on_progress)

    # How it ends here.

    def settled(self) -> None:
        """The child has answered, or is lost."""
        assert self.started is not None
        outcome = self.started.request.outcome
        if self.taken_over:
            return
        if outcome is None or isinstance(outcome, Exception):
            self.take_over("error")
            return
        try:
            is_long = self.started.request.has_many_parts is False
            result = shaped(outcome, self.target, self.call, self._stamp, is_long=is_long)
            if not self.responder.has_room:
                self.take_over("client does not read")
                return
            response = self.responder.encoded(result)
        except Exception as error:
            if not isinstance(error, Unusual):
                logger.debug("the full path is to answer %s of %r", self.call.method, self.call.server, exc_info=True)
            self.take_over("result")
            return
        admission, self.admission = self.admission, None
        if admission is not None:
            try:
                admission.ended(result, outcome)
            except Exception as error:
                admission.record()
                self.refusal = self.unexpected(error)
        self.child.calls.complete(self.started)
        self.started = None
        if self.refusal is not None:
            self.take_over("policy failed")
            return
        self.is_over = True
        self._in_flight.end()
        self._on_end(self)
        self.responder.answer(response, admission.record if admission is not None and admission.recorders else None)

    def expired(self) -> None:
        """It takes long; if the deadline is over, the full path tells."""
        self.take_over("takes long" if self.responder.answer_timeout < math.inf else "deadline")

    def refuse(self, error: MCPError) -> None:
        """The call is refused before it was sent: tell the client."""
        if self._tell(error):
            self._end()
        else:
            self.refusal = error
            self.take_over("rejected")

    def _tell(self, error: MCPError) -> bool:
        """Answer with an error; whether that was possible."""
        if not self.responder.has_room:
            return False
        try:
            self.responder.refuse(error)
        except Exception:  # what cannot be encoded, before anything was sent
            logger.debug("the full path is to refuse %s of %r", self.call.method, self.call.server, exc_info=True)
            return False
        return True

    def take_over(self, reason: str) -> None:
        """Leave the call to the full path, with all that has come of it."""
        if not self.taken_over:
            self.taken_over = reason
            self.responder.take_over(self)

    def resume(self) -> Call | None:
        """The full path takes over now; None: the client has cancelled the call on the way."""
        if self.is_over:
            return None
        self._end()
        self.call.started = self.started
        return self.call

    def take_refusal(self) -> MCPError:
        """The refusal, which is not kept: it refers to this call by its traceback."""
        refusal, self.refusal = self.refusal, None
        assert refusal is not None
        return refusal

    def abandon(self) -> None:
        """Give up a call whose answer nobody waits for any more."""
        if self.is_over:
            return
        self.taken_over = self.taken_over or "abandoned"
        self._end()
        if self.started is not None:
            self.child.calls.abandon(self.started)
        if self.admission is not None:
            try:
                self.admission.failed(asyncio.CancelledError())
            except Exception as error:
                self.unexpected(error)  # for the log: nobody waits for it
        self.responder.abandoned()

    def unexpected(self, error: Exception) -> MCPError:
        """Report what went wrong here."""
        return errors.unexpected(error, f"{self.call.method} to the server {self.call.server!r}")

    def _leave(self, tell: Callable[[AnyCaller], None], reason: str) -> None:
        """Keep what the child has said for the full path, which takes over."""
        assert self.started is not None
        self.started.request.keep(tell)
        self.take_over(reason)

    def _end(self) -> None:
        self.is_over = True
        self._in_flight.end()
        self._on_end(self)


class Unusual(Exception):
    """A result that only the full path can answer with."""


def shaped(parts: Mapping[str, Any], target: Target, call: Call, stamp: Raw, *, is_long: bool) -> dict[str, Any]:
    """A result for a client of the caller's era. Its parts are decoded as far as somebody looks at them; of a remote
    server's result, all are.

    Raises:
        Unusual: the full path refuses it, or goes on with it.
        Malformed: a part cannot be decoded.
    """
    result: dict[str, Any] = dict(parts)
    looked_at: list[str] = []
    if not _LOOKED_AT.isdisjoint(parts):
        looked_at += [name for name in _LOOKED_AT if isinstance(parts.get(name), Raw)]
    part = target.addressed
    if part and isinstance(parts.get(part), Raw) and (target.is_resource or target.publish is not None):
        if is_long:
            result[part] = raw_json.decode_but_texts(parts[part])
        elif target.is_resource or _may_address(raw_json.bytes_of(parts[part])):
            looked_at.append(part)
    for name in looked_at:
        text = raw_json.bytes_of(parts[name])
        is_short = len(text) <= ANSWER_PARTS_LIMIT
        if not is_short and is_too_large(text):
            raise Unusual
        result[name] = raw_json.decode(text) if is_short else raw_json.decode_as_read(text)
    is_modern = call.caller.is_modern
    if result.get("resultType") == "task" or (result.get("resultType") == "input_required" and not is_modern):
        raise Unusual
    if "_meta" in result or (part is not None and not isinstance(result.get(part), Raw)):
        result = target.publish_result(result, target.publish)
    if is_modern:
        return for_modern_client(call.method, result, stamp, call.caller.account)
    return for_legacy_client(call.method, result)


def _may_address(text: bytes) -> bool:
    """True if a part of a result may have addresses of resources; letters can be escaped."""
    return b'"resource' in text or b"\\u006" in text or b"\\u007" in text


def error_line(request_id: Raw, error: MCPError) -> bytes:
    """The response with an error. Raises ValueError: it cannot be encoded."""
    told = error.error.model_dump(mode="json", exclude_none=True)
    return raw_json.encode({"jsonrpc": "2.0", "id": request_id, "error": told})
