"""What the task of a request waits for over HTTP."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

from fastmcp_aggregator.front.fast_path.http import Reply

WHOSE: ContextVar[str] = ContextVar("whose", default="nobody's")


async def waiting(reply: Reply, events: list[str]) -> bytes | None:
    WHOSE.set("the request's")
    try:
        response = await reply
    except asyncio.CancelledError:
        events.append("cancelled")
        raise
    events.append(f"{response!r} in {WHOSE.get()} context")
    await asyncio.sleep(0)
    return response


async def started(reply: Reply, events: list[str]) -> asyncio.Task[bytes | None]:
    task = asyncio.create_task(waiting(reply, events))
    await asyncio.sleep(0)
    return task


async def test_the_task_goes_on_at_once_where_no_other_runs() -> None:
    reply, events = Reply(), list[str]()
    task = await started(reply, events)

    def give() -> None:
        reply.give(b"1")
        events.append("given")
        reply.give(b"2")

    asyncio.get_running_loop().call_soon(give)
    assert await task == b"1"
    assert events == ["b'1' in the request's context", "given"]


@pytest.mark.parametrize("later", [False, True])
async def test_the_task_goes_on_soon_where_another_runs(later: bool) -> None:
    reply, events = Reply(), list[str]()
    task = await started(reply, events)
    reply.give(b"1", later=later)
    events.append("given")
    assert await task == b"1"
    assert events == ["given", "b'1' in the request's context"]


async def test_what_was_given_before_is_there() -> None:
    reply = Reply()
    reply.give(None)
    assert await reply is None


async def test_a_task_that_waits_can_be_cancelled() -> None:
    reply, events = Reply(), list[str]()
    task = await started(reply, events)
    task.cancel()
    reply.give(b"too late")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert events == ["cancelled"]
    assert asyncio.isfuture(reply)


async def test_a_task_that_is_cancelled_as_its_reply_comes_is_cancelled() -> None:
    reply, events = Reply(), list[str]()
    task = await started(reply, events)
    reply.give(b"1")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
