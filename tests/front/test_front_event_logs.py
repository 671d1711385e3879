"""What is kept for clients that come back: how much of it, how long, and in which order it goes."""

import pytest
from mcp_types import JSONRPCMessage, JSONRPCNotification, JSONRPCResponse
from support.harness import until

from fastmcp_aggregator.front.http.resume.event_store import (
    RESUMABLE_REQUEST,
    AnswerStream,
    EventLog,
    EventLogs,
    KeptEvents,
    ResumableRequest,
)

LONG = 3600.0
STREAM = "1:s:7"


def answer(text: str) -> JSONRPCMessage:
    return JSONRPCResponse(jsonrpc="2.0", id=7, result={"text": text})


def note(text: str) -> JSONRPCMessage:
    return JSONRPCNotification(jsonrpc="2.0", method="notifications/message", params={"data": text})


def opened(logs: EventLogs, *texts: bytes) -> EventLog:
    log = EventLog("a", f"stream {len(logs)}")
    logs.open(log)
    for text in texts:
        logs.add(log, text)
    return log


def texts(log: EventLog) -> list[bytes]:
    return [data for _, data in log.after(-1)]


async def begun(kept: KeptEvents, stream_id: str = STREAM) -> AnswerStream:
    """The stream of a request, as the SDK begins it."""
    resumable = ResumableRequest({"headers": [(b"mcp-session-id", b"session")]})
    token = RESUMABLE_REQUEST.set(resumable)
    await kept.store_event(stream_id, None)
    RESUMABLE_REQUEST.reset(token)
    assert resumable.stream is not None
    return resumable.stream


def test_of_one_stream_the_latest_events_are_kept() -> None:
    log = EventLog("a", "stream")
    ids = [log.add(b"%d" % number) for number in range(1500)]
    assert len(set(ids)) == 1500
    assert texts(log) == [b"%d" % number for number in range(500, 1500)]
    assert log.size == sum(map(len, texts(log)))


def test_an_event_is_found_by_its_id_and_what_is_no_id_of_ours_is_not() -> None:
    logs = EventLogs(LONG)
    log = opened(logs, b"one", b"two", b"three")
    event_id = log.id_of(1)
    assert logs.find(event_id) == (log, 1)
    assert log.after(1) == [(2, b"three")]
    for wrong in ("", ".", log.name, f"{log.name}.", f"{log.name}.-1", f"{log.name}.²", f"b{event_id}", "1" * 9999):
        assert logs.find(wrong) is None


async def test_logs_that_are_no_longer_in_use_make_room_the_oldest_first() -> None:
    logs = EventLogs(LONG, limit=100)
    in_use, oldest, newest = opened(logs, b"x" * 30), opened(logs, b"x" * 30), opened(logs, b"x" * 30)
    logs.retire(oldest)
    logs.retire(newest)
    assert logs.make_room(30)
    assert [logs.of_stream(log.stream_id) for log in (in_use, oldest, newest)] == [in_use, None, newest]
    assert not logs.make_room(71)
    assert logs.of_stream(in_use.stream_id) is in_use


async def test_what_can_never_fit_drives_nothing_out() -> None:
    logs = EventLogs(LONG, limit=100)
    log = opened(logs, b"x")
    logs.retire(log)
    assert not logs.make_room(101)
    assert logs.of_stream(log.stream_id) is log


async def test_a_log_is_forgotten_some_time_after_its_last_use_and_one_in_use_is_not() -> None:
    logs = EventLogs(0.01)
    in_use = opened(logs, b"x")
    logs.retire(opened(logs, b"x"))
    await until(lambda: len(logs) == 1)
    assert logs.of_stream(in_use.stream_id) is in_use
    logs.retire(in_use)
    await until(lambda: len(logs) == 0)
    assert logs.has_plenty_of_room(1)


async def test_so_many_logs_are_kept_that_are_no_longer_in_use() -> None:
    logs = EventLogs(LONG)
    first = opened(logs, b"x")
    logs.retire(first)
    for _ in range(10_000):
        logs.retire(opened(logs, b"x"))
    assert len(logs) == 10_000
    assert logs.of_stream(first.stream_id) is None


async def test_a_request_id_that_is_used_again_has_a_stream_of_its_own() -> None:
    kept = KeptEvents(LONG)
    first = await begun(kept)
    await kept.store_event(STREAM, answer("first"))
    kept.logs.retire(first)
    second = await begun(kept)
    await kept.store_event(STREAM, answer("second"))
    assert b"first" in texts(first)[0]
    assert b"second" in texts(second)[0]
    assert (len(texts(first)), len(texts(second))) == (1, 1)


async def test_in_place_of_an_answer_that_does_not_fit_there_is_an_error() -> None:
    kept = KeptEvents(LONG)
    stream = await begun(kept)
    await kept.store_event(STREAM, answer("x" * 33 * 1024 * 1024))
    [event] = texts(stream)
    assert b'"id":7,"error":{"code":-32000,' in event
    assert stream.is_answered


async def test_a_message_that_comes_after_the_answer_changes_nothing() -> None:
    kept = KeptEvents(LONG)
    stream = await begun(kept)
    await kept.store_event(STREAM, answer("x"))
    await kept.store_event(STREAM, note("late"))
    assert stream.is_answered


async def test_messages_leave_room_for_answers() -> None:
    kept = KeptEvents(LONG)
    stream = await begun(kept)
    for _ in range(40):
        await kept.store_event(STREAM, note("x" * 1024 * 1024))
    assert len(texts(stream)) < 16
    await kept.store_event(STREAM, answer("x" * 15 * 1024 * 1024))
    assert b'"result"' in texts(stream)[-1]


@pytest.mark.parametrize("message", [answer("\ud800"), note("\ud800")], ids=["answer", "message"])
async def test_what_cannot_be_sent_cannot_be_kept_either_and_disturbs_nothing(message: JSONRPCMessage) -> None:
    """The SDK stores events in a task of the whole session, which would end with an exception."""
    kept = KeptEvents(LONG)
    stream = await begun(kept)
    assert await kept.store_event(STREAM, message)
    assert [b'"error"' in event for event in texts(stream)] == ([True] if isinstance(message, JSONRPCResponse) else [])
