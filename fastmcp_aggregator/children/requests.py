"""Requests to one child, from whoever calls: its turn, the child's session, and saying why there is none.

A request first takes its turn, also one to a child that is down, so that there are never more than so many. Then it
waits for the child's first start. To a child that waits for its next attempt it brings that attempt forward, and waits
for it, within a bound. What was refused because the session had expired was not executed, so reads are asked once more
on the new session; a tool call is not, but says so.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from fastmcp_aggregator.children.calls import Calls
from fastmcp_aggregator.children.ownership import Owner
from fastmcp_aggregator.children.remote import RemoteFailure
from fastmcp_aggregator.children.session import ChildSession
from fastmcp_aggregator.errors import ChildServerError

WAKE_BOUND = 5.0
"""Seconds that a call waits for the attempt that it has brought forward."""
_NOTICE_BOUND = 1.0
"""Seconds that a call waits for the end of a lost session to be noticed, at most."""


class Askable(Protocol):
    """What a request needs to know of a child, and the one thing that it asks of its owner; see `Child`."""

    key: str
    calls: Calls
    session: ChildSession | None
    attempted: asyncio.Event
    last_failure: ChildServerError | None
    why_stopped: str

    @property
    def is_serving(self) -> bool: ...

    @property
    def retry_for_call_in(self) -> float | None: ...

    async def until_settled(self) -> None: ...

    async def explain(self, error: Exception | None) -> ChildServerError: ...

    def bring_forward(self) -> bool: ...


async def request(child: Askable, method: str, params: Mapping[str, Any], owner: Owner | None) -> dict[str, Any]:
    """Forward one request to the child; its result, or its error, comes back unchanged.

    Raises:
        ChildServerError: the child cannot be asked, or was lost or silent while it was asked.
        MCPError: the child's own error.
    """
    waited = 0.0 if child.calls.take_turn() else await child.calls.wait_for_turn(method)
    try:
        return await _ask_twice(child, method, params, owner, waited)
    finally:
        child.calls.give_turn_back()


async def _ask_twice(
    child: Askable, method: str, params: Mapping[str, Any], owner: Owner | None, waited: float
) -> dict[str, Any]:
    try:
        return await _ask(child, method, params, owner, waited)
    except RemoteFailure as error:
        if error.failure.kind != "expired" or method == "tools/call":
            raise _told(child, error) from None
    try:
        return await _ask(child, method, params, owner, waited)
    except RemoteFailure as error:
        raise _told(child, error) from None


async def _ask(
    child: Askable, method: str, params: Mapping[str, Any], owner: Owner | None, waited: float
) -> dict[str, Any]:
    session = await session_of(child)
    try:
        return await child.calls.ask(session, method, params, owner, waited)
    except RemoteFailure:
        if session.lost.is_set():
            await _until_noticed(child, session)
        raise
    except ConnectionError as error:
        why = await child.explain(None)
        raise _because(
            child, lambda reason: f"{child.why_stopped or reason} while it was answering {method}", why, error
        ) from None


def _told(child: Askable, error: RemoteFailure) -> ChildServerError:
    """A request that a remote child did not answer, in words for its caller."""
    reason = error.failure.reason
    if error.failure.kind == "expired":
        reason += ", the call was not executed; try again"
    retry_in = error.failure.pause or None if child.is_serving else child.retry_for_call_in
    return ChildServerError(child.key, "runtime", reason, cause=error, retry_in=retry_in)


async def session_of(child: Askable) -> ChildSession:
    """The session of a child that is up; waits for its first start, and brings forward the next one.

    Raises:
        ChildServerError: there is none, and why.
    """
    await child.until_settled()
    if child.session is not None and child.session.lost.is_set():
        await _until_noticed(child, child.session)
    if child.session is None and child.bring_forward():
        with suppress(TimeoutError):
            await asyncio.wait_for(child.attempted.wait(), WAKE_BOUND)
    if child.session is None or child.session.lost.is_set():
        raise _unavailable(child)
    return child.session


async def _until_noticed(child: Askable, session: ChildSession) -> None:
    """Wait for the owner to let go of a session that is lost, for a moment."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_NOTICE_BOUND):
            while child.session is session:
                await child.attempted.wait()


def _unavailable(child: Askable) -> ChildServerError:
    if child.why_stopped:
        return _because(child, lambda _: f"it is unavailable: {child.why_stopped}")
    seconds = child.retry_for_call_in
    when = f", next try in {seconds:.0f} s" if seconds is not None else ", a new try is under way"
    failure = child.last_failure
    if failure is None:
        return _because(child, lambda _: f"it is unavailable{when}")
    if math.isinf(failure.pause):
        return _because(child, lambda why: f"it is unavailable: {why}", failure)
    return _because(child, lambda why: f"it is unavailable ({why}){when}", failure)


def _because(
    child: Askable,
    sentence: Callable[[str], str],
    why: ChildServerError | None = None,
    cause: Exception | None = None,
) -> ChildServerError:
    """A failed request, with its reason in a sentence: one for people on this machine, one for all others."""
    reason, public = (why.reason, why.public_reason) if why is not None else ("", "")
    return ChildServerError(
        child.key,
        "runtime",
        sentence(reason),
        cause=cause,
        retry_in=child.retry_for_call_in,
        public_reason=sentence(public),
    )
