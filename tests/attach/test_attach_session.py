"""What a bridge keeps of its client, from one hub to the next."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fastmcp_aggregator.attach import envelope
from fastmcp_aggregator.attach.client_session import ClientSession


def line(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode()


def request(request_id: Any, method: str, **params: Any) -> bytes:
    return line(id=request_id, method=method, params=params)


def answer(request_id: Any, **result: Any) -> bytes:
    return line(id=request_id, result=result)


INITIALIZE = request(0, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "x"})
INITIALIZED = line(method="notifications/initialized")


@pytest.fixture
def session() -> ClientSession:
    """That of a client which has initialized with the first hub."""
    session = ClientSession()
    assert session.attached() == []
    session.sent(INITIALIZE)
    assert session.received(answer(0)) == answer(0)
    session.sent(INITIALIZED)
    return session


def lost_and_found(session: ClientSession) -> list[Any]:
    """What the client is told of the loss; the next hub has answered the handshake."""
    told = [json.loads(each) for each in session.lost("gone")]
    assert session.attached() == [INITIALIZE]
    assert session.is_introducing
    assert session.received(answer(0)) is None
    assert not session.is_introducing
    return told


def test_a_call_that_was_lost_is_answered_with_an_error_and_not_repeated(session: ClientSession) -> None:
    session.sent(request(1, "tools/call", name="x"))
    session.sent(request("a", "tools/call", name="x"))
    session.received(answer(1))
    [error] = lost_and_found(session)
    assert error == {"jsonrpc": "2.0", "id": "a", "error": {"code": -32603, "message": "gone"}}
    assert session.introduced() == [INITIALIZED]
    assert session.lost("gone again") == []


def test_a_list_that_was_lost_is_asked_again(session: ClientSession) -> None:
    listing = request(1, "tools/list")
    session.sent(listing)
    assert lost_and_found(session) == []
    assert session.introduced() == [INITIALIZED, listing]
    assert session.received(answer(1, tools=[])) == answer(1, tools=[])


def test_the_next_hub_gets_the_level_and_the_subscriptions_and_the_client_no_answer_twice(
    session: ClientSession,
) -> None:
    for number, (method, params) in enumerate(
        [
            ("logging/setLevel", {"level": "error"}),
            ("resources/subscribe", {"uri": "a://1"}),
            ("resources/subscribe", {"uri": "a://2"}),
            ("resources/unsubscribe", {"uri": "a://1"}),
        ]
    ):
        session.sent(request(number, method, **params))
        session.received(answer(number))
    lost_and_found(session)
    first, *repeated = session.introduced()
    assert first == INITIALIZED
    messages = [json.loads(each) for each in repeated]
    assert [(m["method"], m["params"]) for m in messages] == [
        ("logging/setLevel", {"level": "error"}),
        ("resources/subscribe", {"uri": "a://2"}),
    ]
    assert [session.received(answer(m["id"])) for m in messages] == [None, None]


def test_a_level_that_was_refused_is_not_repeated(session: ClientSession) -> None:
    session.sent(request(1, "logging/setLevel", level="loud"))
    session.received(line(id=1, error={"code": -32602, "message": "no"}))
    lost_and_found(session)
    assert session.introduced() == [INITIALIZED]


def test_a_stream_is_opened_again_and_acknowledged_once() -> None:
    session = ClientSession()
    session.attached()
    listen = request(1, "subscriptions/listen", notifications={})
    meta = {"io.modelcontextprotocol/subscriptionId": 1}
    acknowledged = line(method="notifications/subscriptions/acknowledged", params={"_meta": meta})
    session.sent(listen)
    assert session.received(acknowledged) == acknowledged
    assert session.lost("gone") == []
    assert session.attached() == [listen]
    assert session.received(acknowledged) is None
    assert session.received(answer(1)) == answer(1)
    session.lost("gone")
    assert session.attached() == []


def test_a_question_of_a_hub_that_is_gone_is_cancelled_and_its_answer_reaches_no_other(
    session: ClientSession,
) -> None:
    question = request(1, "roots/list")
    assert session.received(question) == question
    [cancelled] = lost_and_found(session)
    assert cancelled["method"] == "notifications/cancelled"
    assert cancelled["params"]["requestId"] == 1
    asked = session.received(question)
    assert asked is not None
    other = json.loads(asked)["id"]
    assert other != 1
    assert session.for_hub(answer(1, roots=["old"])) is None
    passed = session.for_hub(answer(other, roots=["new"]))
    assert passed is not None
    assert json.loads(passed) == json.loads(answer(1, roots=["new"]))
    assert session.for_hub(answer(other, roots=["twice"])) is None


def test_the_next_hub_cancels_its_question_by_the_id_that_the_client_knows(session: ClientSession) -> None:
    lost_and_found(session)
    asked = session.received(request(5, "roots/list"))
    cancelled = session.received(line(method="notifications/cancelled", params={"requestId": 5}))
    assert asked is not None
    assert cancelled is not None
    assert json.loads(cancelled)["params"]["requestId"] == json.loads(asked)["id"]


def test_what_the_client_cancelled_is_not_answered_when_the_hub_is_lost(session: ClientSession) -> None:
    session.sent(request(1, "tools/call"))
    session.sent(line(method="notifications/cancelled", params={"requestId": 1}))
    assert lost_and_found(session) == []


def test_equal_lists_have_equal_digests_and_others_have_not(session: ClientSession) -> None:
    session.sent(request(1, "tools/list"))
    session.received(answer(1, tools=[1]))
    first = dict(session.listed)
    session.sent(request("other id", "tools/list"))
    session.received(answer("other id", tools=[1]))
    assert session.listed == first
    session.sent(request(3, "tools/list"))
    session.received(answer(3, tools=[2]))
    assert session.listed.keys() == first.keys()
    assert session.listed != first


@pytest.mark.parametrize("junk", [b"", b"null", b"[]", b"{", b'"x"', b'{"id":{}}', b'{"method":1,"id":true}', b"\xff"])
def test_junk_is_passed_on(session: ClientSession, junk: bytes) -> None:
    session.sent(junk)
    assert session.for_hub(junk) == junk
    assert session.received(junk) == junk


@pytest.mark.parametrize("size", [10, 100_000])
@pytest.mark.parametrize("request_id", [0, -7, 12345, "a b", "ü", 'quo"te'])
def test_the_id_of_a_request_is_found_wherever_it_stands(request_id: Any, size: int) -> None:
    inner = {"text": "x" * size, "id": 99, "method": "no", "last": ',"id":98}'}
    orders = [
        {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": inner},
        {"method": "tools/call", "params": inner, "jsonrpc": "2.0", "id": request_id},
        {"method": "tools/call", "id": request_id, "params": inner},
    ]
    for order in orders:
        for separators in [(",", ":"), (", ", ": ")]:
            found = envelope.read(json.dumps(order, separators=separators).encode())
            assert (found.id, found.method) == (request_id, "tools/call")


def test_without_another_hub_all_is_answered_but_the_streams_that_are_open(session: ClientSession) -> None:
    acknowledged = {"_meta": {"io.modelcontextprotocol/subscriptionId": 1}}
    listens = [request(number, "subscriptions/listen", notifications={}) for number in (1, 2)]
    for each in (*listens, request(3, "tools/list"), request(4, "tools/call")):
        session.sent(each)
    session.received(line(method="notifications/subscriptions/acknowledged", params=acknowledged))
    assert [json.loads(each)["id"] for each in session.lost("gone", is_last=True)] == [2, 3, 4]
    assert lost_and_found(session) == []
    assert session.introduced() == [INITIALIZED, listens[0]]
