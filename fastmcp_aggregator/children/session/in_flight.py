"""The requests in flight on one session of a child, and the caller to whom each of its messages belongs.

A child's message goes to the caller it belongs to, or to nobody. Progress carries the token of its request. A message
that came on the response stream of a request (streamable HTTP) belongs to that request, and to nobody once it is over.
Any other message carries nothing that tells, and a server may speak after it has answered. So between principals it is
for nobody: once anything was sent on this session for a second principal, that is never known again. As long as there
has been one, or where nobody authenticates, it belongs to the caller of everything that is in flight, if that is one
caller; with nothing in flight, to the sole client, if there is one: that of a stdio front, the one that an isolated
child is for, or the only one of the clients now attached to a hub for which this session has been used.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import Any, Protocol

from anyio import CancelScope
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST

OnProgress = Callable[[float, float | None, str | None], Awaitable[None]]


class AnyCaller(Protocol):
    """The caller of a request, as seen by the child's messages."""

    @property
    def identity(self) -> Hashable:
        """Equal for two requests exactly if one client is to see the messages of both."""
        ...

    @property
    def account(self) -> Hashable:
        """Its principal; None: unauthenticated."""
        ...

    @property
    def holder(self) -> Hashable:
        """The holder that it counts for at the child; None: it is the only client."""
        ...

    @property
    def wants_progress(self) -> bool:
        """True if progress is to be asked for."""
        ...

    @property
    def capabilities(self) -> Mapping[str, Any] | None:
        """The declared capabilities of the client, for children that get them with each request; None: unknown."""
        ...

    @property
    def log_level(self) -> str | None:
        """The least level of log messages to ask for, of children that are told with each request."""
        ...

    @property
    def headers(self) -> Mapping[str, str] | None:
        """The headers of its HTTP request, by names in lower case; None if it did not come over HTTP."""
        ...

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Pass a notification on, after those before it. Never blocks; what cannot be delivered is dropped."""

    def hang_up(self) -> None:
        """Have the client ask for the rest later, where it can, as the child has us do. Never blocks."""

    async def ask(self, method: str, params: Mapping[str, Any], on_progress: OnProgress) -> dict[str, Any]:
        """The client's answer to a child's request.

        Raises:
            MCPError: the client's error, or why it cannot be asked.
        """
        ...


class Attached:
    """One of many clients that have a pipe each, so that it is known when one leaves; the `holder` of its requests."""

    between_requests: AnyCaller | None = None
    """The client while it has no request in flight; None: it can be told and asked nothing then."""
    has_left = False


class AskedTooLate(MCPError):
    """The answer to what a child has asked over a request that is over."""

    def __init__(self) -> None:
        super().__init__(INVALID_REQUEST, "the request over which it was asked is over")


class ActivityDeadline(Protocol):
    """A deadline that the activity of a request renews."""

    def touch(self) -> None:
        """The child has shown that it works on the request."""

    def waits_for_client(self, *, more: bool) -> None:
        """One more, or one less, of the child's questions is open; while one is, the child cannot go on."""


class InFlight:
    """One request on its way."""

    __slots__ = ("_open", "caller", "deadline", "is_given_up", "is_over", "questions", "seen", "token")

    def __init__(self, token: int, caller: AnyCaller | None, deadline: ActivityDeadline | None) -> None:
        self.token = token
        self.seen = token
        """When it was sent, or the child last reported progress on it: the later, the greater."""
        self.caller = caller
        self.deadline = deadline
        self.is_over = False
        self.is_given_up = False
        """True if its client answers no more questions over it."""
        self.questions = 0
        """The child's questions that its client has yet to answer."""
        self._open: set[CancelScope] = set()

    @property
    def likelihood(self) -> tuple[bool, int, int]:
        """The greater, the rather a child asks over this one of its caller's requests; see `request_of`."""
        return not self.is_given_up, -self.questions, self.seen

    @contextmanager
    def until_over(self) -> Iterator[None]:
        """Cancel the block, and leave it early, when the request ends."""
        with CancelScope() as scope:
            self._open.add(scope)
            try:
                yield
            finally:
                self._open.discard(scope)

    def end(self) -> None:
        """The request is over, with or without an answer."""
        self.is_over = True
        self.deadline = None
        for scope in self._open:
            scope.cancel()


_CURRENT: ContextVar[InFlight | None] = ContextVar("request to a child", default=None)
"""The SDK's HTTP transport handles a request and its response stream in the context in which it was sent."""


def request_of(context: Context | None) -> InFlight | None:
    """The request in whose context a message came; None where the transport keeps no contexts."""
    return context.get(_CURRENT) if context is not None else None


def send_in_context(request: InFlight) -> None:
    """Send in a task of its own: the child's messages from here on in this context belong to the request."""
    _CURRENT.set(request)


def child_has_hung_up() -> None:
    """In the context of a request: the child has ended the response before the answer, and is asked for the rest later.

    So it may do without a connection for a while (2025-11-25, transports: polling), and so may the client.
    """
    request = _CURRENT.get()
    if request is not None and request.caller is not None:
        request.caller.hang_up()


def headers_of_caller() -> Mapping[str, str] | None:
    """In the context of a request: the HTTP headers of the caller that it is sent for; None if there is no such caller.

    When the request is over there are none, so that nothing that goes on in its context carries them any longer.
    """
    request = _CURRENT.get()
    headers = request.caller.headers if request is not None and request.caller is not None else None
    return {} if headers is not None and request is not None and request.is_over else headers


def caller_now() -> AnyCaller | None:
    """The caller of the request of the present context; None: it is one of ours."""
    request = _CURRENT.get()
    return None if request is None else request.caller


class RequestsInFlight:
    """The requests in flight on one session. `sole_client` tells whom messages belong to between them."""

    def __init__(self, sole_client: Callable[[], AnyCaller | None] = lambda: None) -> None:
        self._sole_client = sole_client
        self._tokens = itertools.count(1)
        self._in_flight: dict[int, InFlight] = {}
        self._principals: set[Hashable] = set()
        """Principals that the session has been used for: two at most, for more tell nothing more."""
        self._attached: set[Attached] = set()
        """Clients for which it has been used; those that have left are dropped when another comes."""

    def serves(self, principal: Hashable, holder: Hashable = None) -> None:
        """Record a principal that this session is used for, and the holder whose share it takes."""
        if len(self._principals) < 2:
            self._principals.add(principal)
        if isinstance(holder, Attached) and holder not in self._attached:
            self._attached = {each for each in self._attached if not each.has_left} | {holder}

    @contextmanager
    def request(self, caller: AnyCaller | None, deadline: ActivityDeadline | None) -> Iterator[InFlight]:
        """Track a request while it is in flight. Without a caller it is one of our own."""
        request = self.begin(caller, deadline)
        before = _CURRENT.set(request)
        try:
            yield request
        finally:
            _CURRENT.reset(before)
            self.end(request)

    def begin(self, caller: AnyCaller | None, deadline: ActivityDeadline | None) -> InFlight:
        """Take up a request that is to be sent; `end` it."""
        request = InFlight(next(self._tokens), caller, deadline)
        if caller is not None:
            self.serves(caller.account, caller.holder)
        self._in_flight[request.token] = request
        return request

    def end(self, request: InFlight) -> None:
        del self._in_flight[request.token]
        request.end()

    def progressed(self, token: Any) -> InFlight | None:
        """The request that asked for progress under this token: the child works on it now."""
        request = self._in_flight.get(token) if type(token) is int else None
        if request is not None:
            request.seen = next(self._tokens)
        return request

    def request_of(self, related: InFlight | None) -> InFlight | None:
        """The caller's request that a message belongs to, as far as that can be told.

        `related` is the request on whose response stream it came, where there are such streams. Of several of one
        caller it is the one that the child has last worked on, of those with the fewest open questions: a client
        answers the questions of a call together, and if it gives that call up, others are not to wait with it.
        """
        if related is not None:
            return related if self._in_flight.get(related.token) is related else None
        if len(self._principals) > 1:
            return None
        callers: dict[Hashable, InFlight] = {}
        for request in self._in_flight.values():
            if request.caller is not None:
                best = callers.get(request.caller.identity)
                if best is None or request.likelihood > best.likelihood:
                    callers[request.caller.identity] = request
        return next(iter(callers.values())) if len(callers) == 1 else None

    def after_giving_up(self, request: InFlight | None) -> InFlight | None:
        """The client has given up a request, and with it a question; the one of its requests that may have asked too.

        Nothing tells which of a caller's requests asks, and no other of them is to fail with the one given up.
        """
        if request is None or request.caller is None:
            return None
        request.is_given_up = True
        mine = request.caller.identity
        others = [each for each in self._in_flight.values() if each.caller is not None and each.caller.identity == mine]
        best = max(others, key=lambda each: each.likelihood, default=None)
        return None if best is None or best.is_given_up else best

    def caller_of(self, related: InFlight | None) -> AnyCaller | None:
        """The receiver of a message; None: nobody."""
        request = self.request_of(related)
        if request is not None and request.caller is not None:
            return request.caller
        is_shared = any(other.caller for other in self._in_flight.values())
        if is_shared and request is None:
            return None
        return self._sole_client() or self._only_attached()

    def _only_attached(self) -> AnyCaller | None:
        present = [each for each in self._attached if not each.has_left]
        return present[0].between_requests if len(present) == 1 else None
