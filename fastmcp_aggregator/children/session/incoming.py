"""What a child says unasked, sorted: to the caller it belongs to, to those who follow its lists and resources, or away.

A question without an owner is refused, with what to do about it; any other message without one is dropped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST, METHOD_NOT_FOUND

from fastmcp_aggregator.children.session.ownership import InFlight, OnProgress, Ownership, Patience
from fastmcp_aggregator.children.session.transport import LIST_CHANGED, OnListChanged
from fastmcp_aggregator.pipe.bucket import TokenBucket

logger = logging.getLogger(__name__)

QUESTIONS = frozenset({"sampling/createMessage", "elicitation/create", "roots/list"})
"""What a child can ask of a client."""
_FOR_THE_CALLER = frozenset({"notifications/message", "notifications/elicitation/complete"})
_NOBODY = (
    "it cannot be told which client to ask: none or several have a request in flight on this server, or it serves "
    "several users, and nothing tells for which of them it asks; "
    'with isolation = "session" in the aggregator\'s settings each client has a server of its own'
)


class Incoming:
    """Sorts the messages of one session."""

    def __init__(
        self,
        server_key: str,
        ownership: Ownership,
        *,
        on_list_changed: OnListChanged,
        on_updated: Callable[[str], None],
    ) -> None:
        self._key = server_key
        self._ownership = ownership
        self._on_list_changed = on_list_changed
        self._on_updated = on_updated
        self._reports = TokenBucket(burst=1, rate=1)

    def notified(self, method: str, params: Mapping[str, Any], related: InFlight | None) -> bool:
        """See `Listener`. The SDK sees what opens and feeds its own streams."""
        if method == "notifications/progress":
            self._progressed(params)
        elif method in _FOR_THE_CALLER:
            if owner := self._ownership.owner_of(related):
                owner.tell(method, params)
        elif kinds := LIST_CHANGED.get(method):
            self._on_list_changed(kinds)
            return False
        elif method == "notifications/resources/updated" and isinstance(uri := params.get("uri"), str):
            self._on_updated(uri)
            return False
        else:
            return False
        return True

    async def asked(
        self, method: str, params: Mapping[str, Any], related: InFlight | None, on_progress: OnProgress
    ) -> dict[str, Any]:
        """See `Listener`."""
        if method not in QUESTIONS:
            raise MCPError(METHOD_NOT_FOUND, "Method not found", method)
        owner = self._ownership.owner_of(related)
        if owner is None:
            if self._reports.take(time.monotonic()):
                logger.warning("server %r asked %s, and it cannot be told whom; refused", self._key, method)
            raise MCPError(INVALID_REQUEST, f"{method}: {_NOBODY}")
        request = self._ownership.request_of(related)
        with _client_is_asked(request.patience if request else None), _until_over(related):
            return await owner.ask(method, params, on_progress)
        raise MCPError(INVALID_REQUEST, f"{method}: the request over which it was asked is over")

    def _progressed(self, params: Mapping[str, Any]) -> None:
        request = self._ownership.of_token(params.get("progressToken"))
        if request is None:
            return
        if request.patience is not None:
            request.patience.sign_of_life()
        if request.owner is not None:
            request.owner.tell("notifications/progress", params)


def _until_over(related: InFlight | None) -> AbstractContextManager[None]:
    """A question ends with the request on whose stream it came: no more is read there, nor that it is withdrawn."""
    return nullcontext() if related is None else related.until_over()


@contextmanager
def _client_is_asked(patience: Patience | None) -> Iterator[None]:
    if patience is None:
        yield
        return
    patience.waits_for_client(more=True)
    try:
        yield
    finally:
        patience.waits_for_client(more=False)
