"""Incoming messages of a child, dispatched: to the caller they belong to, or to everyone who is to know of a change.

A request without a caller is rejected, with what to do about it; a notification without one is dropped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import INVALID_REQUEST, METHOD_NOT_FOUND

from fastmcp_aggregator.catalogue.snapshot import CHANGED_KINDS, Kind
from fastmcp_aggregator.children.session.in_flight import (
    AnyCaller,
    AskedTooLate,
    InFlight,
    OnProgress,
    RequestsInFlight,
)
from fastmcp_aggregator.pipe.bucket import TokenBucket
from fastmcp_aggregator.protocol.json_rpc import json_size
from fastmcp_aggregator.protocol.methods import (
    PROGRESS,
    ROOTS_LIST,
    SERVER_NOTIFICATIONS,
    SERVER_REQUESTS,
    Recipient,
)

logger = logging.getLogger(__name__)

_NOBODY = (
    "cannot tell which client to ask: none or several have a request in flight on this server, or it serves "
    "several users, and nothing tells for which of them it asks; "
    'with isolation = "session" in the aggregator\'s settings each client has a server of its own'
)


MOST_OF_REQUEST, _MOST_QUESTIONS = 20, 100
"""Questions that may be open for one request, and of one child."""
_MOST_BYTES = 32 * 1024**2
"""Bytes of the open questions of a child together; one alone may have more."""

OnNotification = Callable[[str, Mapping[str, Any]], None]
"""Is told the method and the parameters of a notification."""


class SessionEvents(Protocol):
    """The events of a session. Never blocks."""

    @property
    def sole_client(self) -> AnyCaller | None:
        """The owner of the child's messages while no request is in flight."""
        ...

    def roots(self) -> Mapping[str, Any] | None:
        """The answer to a request for roots; None: the client is asked.

        Raises:
            MCPError: there are none to be told.
        """
        ...

    def lists_changed(self, kinds: frozenset[Kind]) -> None:
        """The child says that its lists of these kinds have changed."""

    def resource_updated(self, uri: str) -> None:
        """A resource has changed, by the child's URI."""

    def question_refused(self, method: str) -> None:
        """The child has asked something, and it cannot be told whom."""


class Incoming:
    """Dispatches the messages of one session."""

    def __init__(self, server_key: str, requests: RequestsInFlight, events: SessionEvents) -> None:
        self._key = server_key
        self._requests = requests
        self._events = events
        self._reports = TokenBucket(burst=1, rate=1)
        self._open: list[int] = []
        """Bytes of each open question."""
        self._listeners: dict[Any, OnNotification] = {}
        """The receivers of messages on a `subscriptions/listen` stream of ours, by the id of its request."""

    @contextmanager
    def listening(self, request_id: str, listener: OnNotification) -> Iterator[None]:
        """While a stream is open."""
        self._listeners[request_id] = listener
        try:
            yield
        finally:
            del self._listeners[request_id]

    def on_notification(self, method: str, params: Mapping[str, Any], related: InFlight | None) -> bool:
        """Dispatch a notification; whether the SDK need not see it: it sees what opens and feeds its own streams.

        `related` is the request on whose response stream it came, if known.
        """
        if self._listeners and (listener := self._listener_of(params)) is not None:
            listener(method, params)
            return True
        row = SERVER_NOTIFICATIONS.get(method)
        match row.recipient if row is not None else None:
            case Recipient.REQUESTER:
                self._progressed(params)
                return True
            case Recipient.CALLER:
                if caller := self._requests.caller_of(related):
                    caller.notify(method, params)
                return True
            case Recipient.EVERYONE:
                self._events.lists_changed(CHANGED_KINDS[method])
            case Recipient.SUBSCRIBERS if isinstance(uri := params.get("uri"), str):
                self._events.resource_updated(uri)
        return False

    async def on_request(
        self, method: str, params: Mapping[str, Any], related: InFlight | None, on_progress: OnProgress
    ) -> dict[str, Any]:
        """The answer to a request of the child's, on which `on_progress` reports.

        Raises:
            MCPError: the error to answer with.
        """
        if method not in SERVER_REQUESTS:
            raise MCPError(METHOD_NOT_FOUND, "Method not found", method)
        if method == ROOTS_LIST.name and (roots := self._events.roots()) is not None:
            return dict(roots)
        caller = self._requests.caller_of(related)
        if caller is None:
            self._events.question_refused(method)
            if self._reports.take(time.monotonic()):
                logger.warning(
                    "server %r asked %s, and it cannot be determined for which client; rejected", self._key, method
                )
            raise MCPError(INVALID_REQUEST, f"{method}: {_NOBODY}")
        request = self._requests.request_of(related)
        while caller is not None:
            try:
                with self._open_question(request, method, params), _until_over(related):
                    return await caller.ask(method, params, on_progress)
            except AskedTooLate:
                request = self._requests.after_giving_up(request) if related is None else None
                caller = request.caller if request is not None else None
        raise AskedTooLate

    @contextmanager
    def _open_question(self, request: InFlight | None, method: str, params: Mapping[str, Any]) -> Iterator[None]:
        """While a question over a request is open. Clients may take their time to answer, and the child must not fill
        it; nor can it go on meanwhile.
        """
        size = json_size(params)
        is_full = len(self._open) >= _MOST_QUESTIONS or (self._open and sum(self._open) + size > _MOST_BYTES)
        if is_full or (request is not None and request.questions >= MOST_OF_REQUEST):
            raise MCPError(INVALID_REQUEST, f"{method}: too many questions are open; wait for the answers first")
        deadline = None if request is None else request.deadline  # which it loses when it ends
        self._open.append(size)
        if request is not None:
            request.questions += 1
        if deadline is not None:
            deadline.waits_for_client(more=True)
        try:
            yield
        finally:
            self._open.remove(size)
            if request is not None:
                request.questions -= 1
            if deadline is not None:
                deadline.waits_for_client(more=False)

    def _listener_of(self, params: Mapping[str, Any]) -> OnNotification | None:
        meta = params.get("_meta")
        stream = meta.get(SUBSCRIPTION_ID_META_KEY) if isinstance(meta, Mapping) else None
        return self._listeners.get(stream) if isinstance(stream, str) else None

    def _progressed(self, params: Mapping[str, Any]) -> None:
        request = self._requests.progressed(params.get("progressToken"))
        if request is None:
            return
        if request.deadline is not None:
            request.deadline.touch()
        if request.caller is not None:
            request.caller.notify(PROGRESS.name, params)


def _until_over(related: InFlight | None) -> AbstractContextManager[None]:
    """A question ends with the request on whose stream it came: no more is read there, nor that it is withdrawn."""
    return nullcontext() if related is None else related.until_over()
