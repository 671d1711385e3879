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
from fastmcp_aggregator.children.session.ownership import OnProgress, Owner
from fastmcp_aggregator.front.wire import errors
from fastmcp_aggregator.policies.stack import Admission
from fastmcp_aggregator.protocol import raw_json
from fastmcp_aggregator.protocol.json_rpc import Result
from fastmcp_aggregator.routing.target import Target

logger = logging.getLogger(__name__)


class Origin(Protocol):
    """Where one request came from, and its answer goes."""

    patience: float
    """Seconds that an answer may take, at most, to be given here."""

    @property
    def has_room(self) -> bool:
        """Whether `answer` would not have to wait."""
        ...

    def encoded(self, result: Result) -> bytes:
        """The response with this result, whose parts may be undecoded."""
        ...

    def answer(self, response: bytes, then: Callable[[], None] | None) -> None:
        """Send the response, and then do what it need not wait for, if there is anything."""

    def refuse(self, error: MCPError) -> None:
        """Send the response with this error."""

    def take_over(self, fast: FastCall) -> None:
        """Serve the request by the full path, which resumes the call."""

    def abandoned(self) -> None:
        """The client waits no longer for the answer."""


class FastCall:
    """One call, from its request to its answer, or until the full path resumes it: its `Requester` so long."""

    def __init__(
        self,
        call: Call,
        target: Target,
        origin: Origin,
        *,
        shape: Callable[[FastCall, dict[str, Any]], dict[str, Any] | None],
        on_end: Callable[[FastCall], None],
    ) -> None:
        """`shape` makes a child's result what the client gets, None: only the full path can; `on_end` is told once when
        the fast path has no more to do with the call.
        """
        self.call = call
        self.identity = call.caller.identity
        self.account = call.caller.account
        self.holder = call.caller.holder
        self.wants_progress = call.caller.wants_progress
        self.target = target
        self.admission: Admission | None = None
        self.refusal: MCPError | None = None
        """What the full path is to answer: a policy broke, or it is refused and there is no room for that here."""
        self.started: StartedRequest | None = None
        self.taken_over = ""
        """Why the full path is to serve the call, once it is."""
        self.key: Hashable = None
        """What another request can cancel it by, if any can."""
        self.origin = origin
        self._shape = shape
        self._on_end = on_end
        self.is_over = False
        """Whether the fast path has no more to do with it."""

    # What the child is told of the caller, and the caller of the child.

    @property
    def capabilities(self) -> Mapping[str, Any] | None:
        return self.call.caller.capabilities

    @property
    def log_level(self) -> str | None:
        return self.call.caller.log_level

    @property
    def headers(self) -> Mapping[str, str] | None:
        return self.call.caller.headers

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Keep the notification for the full path, if the caller gets it."""
        if self.call.caller.is_told(method, params):
            self._leave(lambda owner: owner.notify(method, params), "notification")

    def hang_up(self) -> None:
        """Leave it to the full path, whose response can end before the answer."""
        self._leave(lambda owner: owner.hang_up(), "polling")

    async def ask(self, method: str, params: Mapping[str, Any], on_progress: OnProgress) -> dict[str, Any]:
        """The client's answer, which the full path asks for."""
        assert self.started is not None
        self.take_over("question")
        owner = await self.started.request.adopter()
        return await owner.ask(method, params, on_progress)

    # How it ends here.

    def settled(self) -> None:
        """The child has answered, or is lost."""
        assert self.started is not None
        outcome = self.started.request.outcome
        if self.taken_over:
            return
        if outcome is None or isinstance(outcome, Exception):
            self.take_over("error")
        elif not self.origin.has_room:
            self.take_over("client does not read")
        elif not self._answer(outcome):
            self.take_over("result")

    def expired(self) -> None:
        """It takes long; if the deadline is over, the full path tells."""
        self.take_over("takes long" if self.origin.patience < math.inf else "deadline")

    def refuse(self, error: MCPError) -> None:
        """The call is refused before it was sent: tell the client."""
        if self._tell(error):
            self._end()
        else:
            self.refusal = error
            self.take_over("rejected")

    def _tell(self, error: MCPError) -> bool:
        """Answer with an error; whether that was possible."""
        if not self.origin.has_room:
            return False
        try:
            self.origin.refuse(error)
        except Exception:  # what cannot be encoded, before anything was sent
            logger.debug("the full path is to refuse %s of %r", self.call.method, self.call.server, exc_info=True)
            return False
        return True

    def take_over(self, reason: str) -> None:
        """Leave the call to the full path, with all that has come of it."""
        if not self.taken_over:
            self.taken_over = reason
            self.origin.take_over(self)

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
        """Nobody waits for the answer any more."""
        if self.is_over:
            return
        self.taken_over = self.taken_over or "abandoned"
        self._end()
        if self.started is not None:
            self.target.child.calls.abandon(self.started)
        if self.admission is not None:
            try:
                self.admission.failed(asyncio.CancelledError())
            except Exception as error:
                self.unexpected(error)  # for the log: nobody waits for it
        self.origin.abandoned()

    def unexpected(self, error: Exception) -> MCPError:
        """Report what went wrong here."""
        return errors.unexpected(error, f"{self.call.method} to the server {self.call.server!r}")

    def _leave(self, tell: Callable[[Owner], None], reason: str) -> None:
        """Keep what the child has said for the full path, which takes over."""
        assert self.started is not None
        self.started.request.keep(tell)
        self.take_over(reason)

    def _answer(self, outcome: Raw | dict[str, Any]) -> bool:
        """Answer with a result, which the session's reader may have decoded; whether that was possible."""
        assert self.admission is not None
        assert self.started is not None
        try:
            result = self._shape(self, raw_json.read_parts(outcome) if isinstance(outcome, Raw) else outcome)
            if result is None:
                return False
            response = self.origin.encoded(result)
        except Exception:
            logger.debug("the full path is to answer %s of %r", self.call.method, self.call.server, exc_info=True)
            return False
        self.target.child.calls.complete(self.started)
        admission, self.started, self.admission = self.admission, None, None
        try:
            admission.ended(result, outcome)
        except Exception as error:
            admission.record()
            self.refusal = self.unexpected(error)
            self.take_over("policy failed")
            return True
        self._end()
        self.origin.answer(response, admission.record if admission.recorders else None)
        return True

    def _end(self) -> None:
        self.is_over = True
        self._on_end(self)


def error_line(request_id: Raw, error: MCPError) -> bytes:
    """The response with an error.

    Raises:
        ValueError: it cannot be encoded.
    """
    told = error.error.model_dump(mode="json", exclude_none=True)
    return raw_json.encode({"jsonrpc": "2.0", "id": request_id, "error": told})
