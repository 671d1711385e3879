"""Whose message is it: the rules, without a child."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from contextvars import copy_context
from typing import Any

import pytest
from support.wire import PATIENCE

from fastmcp_aggregator.children.session.in_flight import Attached, InFlight, RequestsInFlight, request_of


class AnyCaller:
    """As far as the rules look at one."""

    def __init__(self, identity: object, principal: object = None) -> None:
        self.identity = identity
        self.account = self.holder = principal


ALICE, ALICE_TOO, BOB, RESIDENT = AnyCaller("alice"), AnyCaller("alice"), AnyCaller("bob"), AnyCaller("resident")
ANN, ANN_ELSEWHERE, BEN = AnyCaller("of ann", "ann"), AnyCaller("another of ann", "ann"), AnyCaller("of ben", "ben")

UNRELATED = {
    "nothing in flight": ((), RESIDENT),
    "only a request of ours": ((None,), RESIDENT),
    "one caller": ((ALICE,), ALICE),
    "one caller and a request of ours": ((None, ALICE, None), ALICE),
    "two requests of one caller": ((ALICE, ALICE_TOO), ALICE_TOO),
    "two callers": ((ALICE, BOB), None),
    "two callers, one twice": ((ALICE, BOB, ALICE_TOO), None),
}


@pytest.mark.parametrize(("in_flight", "caller"), UNRELATED.values(), ids=UNRELATED)
def test_a_message_on_no_requests_stream_is_for_the_caller_of_everything_in_flight(in_flight: Any, caller: Any) -> None:
    requests = RequestsInFlight(lambda: RESIDENT)  # type: ignore[arg-type,return-value]
    with ExitStack() as stack:
        for each in in_flight:
            stack.enter_context(requests.request(each, None))
        assert requests.caller_of(None) is caller


def test_of_one_callers_requests_a_question_is_for_one_that_has_none_open() -> None:
    requests = RequestsInFlight()
    with requests.request(ALICE, None) as first, requests.request(ALICE_TOO, None) as second:  # type: ignore[arg-type]
        assert requests.request_of(None) is second
        second.questions = 1
        assert requests.request_of(None) is first
        first.questions = 1
        assert requests.request_of(None) is second


def test_of_one_callers_requests_a_question_is_for_the_one_on_which_the_child_works() -> None:
    requests = RequestsInFlight()
    with requests.request(ALICE, None) as first, requests.request(ALICE_TOO, None) as second:  # type: ignore[arg-type]
        assert requests.progressed(first.token) is first
        assert requests.request_of(None) is first
        with requests.request(ALICE, None) as third:  # type: ignore[arg-type]
            assert requests.request_of(None) is third
        requests.progressed(second.token)
        assert requests.request_of(None) is second
        second.questions = 1
        assert requests.request_of(None) is first


def test_a_question_over_a_request_that_is_given_up_is_for_another_of_the_same_caller_alone() -> None:
    requests = RequestsInFlight()
    with requests.request(ALICE, None) as first, requests.request(ALICE_TOO, None) as second:  # type: ignore[arg-type]
        with requests.request(BOB, None):  # type: ignore[arg-type]
            assert requests.after_giving_up(second) is first
            assert requests.request_of(None) is None, "it counts until it is over"
        assert requests.request_of(None) is first
        assert requests.after_giving_up(first) is None
    assert requests.after_giving_up(None) is None


def test_a_message_on_the_stream_of_a_request_is_for_its_caller_whoever_else_is_in_flight() -> None:
    requests = RequestsInFlight()
    with requests.request(ALICE, None) as of_alice, requests.request(BOB, None) as of_bob:  # type: ignore[arg-type]
        assert requests.caller_of(of_alice) is ALICE
        assert requests.caller_of(of_bob) is BOB


def test_a_message_on_the_stream_of_a_request_that_is_over_is_never_for_another_caller() -> None:
    requests = RequestsInFlight()
    with requests.request(ALICE, None) as of_alice:  # type: ignore[arg-type]
        pass
    with requests.request(BOB, None):  # type: ignore[arg-type]
        assert requests.caller_of(of_alice) is None
        assert requests.request_of(of_alice) is None


def test_a_message_on_the_stream_of_a_request_of_ours_is_for_no_caller() -> None:
    requests = RequestsInFlight()
    with requests.request(BOB, None), requests.request(None, None) as of_ours:  # type: ignore[arg-type]
        assert requests.caller_of(of_ours) is None


def test_where_there_is_no_resident_nobody_gets_what_comes_between_requests() -> None:
    requests = RequestsInFlight()
    assert requests.caller_of(None) is None
    with requests.request(None, None):
        assert requests.caller_of(None) is None


def test_between_requests_it_is_for_the_only_attached_client_that_has_used_the_session() -> None:
    requests = RequestsInFlight()
    one, other, modern = Attached(), Attached(), Attached()
    one.between_requests, other.between_requests = ALICE, BOB  # type: ignore[assignment]
    with requests.request(AnyCaller("alice", one), None):  # type: ignore[arg-type]
        pass
    assert requests.caller_of(None) is ALICE
    requests.serves(None, other)
    assert requests.caller_of(None) is None
    one.has_left = True
    assert requests.caller_of(None) is BOB
    requests.serves(None, modern)
    assert requests.caller_of(None) is None
    other.has_left = True
    assert requests.caller_of(None) is None


LATE = {
    "of the only principal": ((ANN,), ANN, ANN),
    "of the only principal, on two connections": ((ANN,), ANN_ELSEWHERE, ANN_ELSEWHERE),
    "of another principal before": ((ANN,), BEN, None),
    "of another principal before the last": ((ANN, BEN), BEN, None),
    "of a caller that has not authenticated before": ((ALICE,), BEN, None),
    "of a caller that has not authenticated": ((ANN,), BOB, None),
    "of nobody that has authenticated": ((ALICE,), BOB, BOB),
    "of a principal after requests of ours": ((None, None), BEN, BEN),
}


@pytest.mark.parametrize(("before", "in_flight", "caller"), LATE.values(), ids=LATE)
def test_once_a_session_has_served_two_principals_what_nothing_ties_to_a_request_is_for_nobody(
    before: Any, in_flight: Any, caller: Any
) -> None:
    """A server may speak after it has answered, so whose request is in flight proves nothing between principals."""
    requests = RequestsInFlight()
    for each in before:
        with requests.request(each, None):
            pass
    with requests.request(in_flight, None) as request:
        assert requests.caller_of(None) is caller
        assert (requests.request_of(None) is None) == (caller is None)
        assert requests.caller_of(request) is in_flight
        assert requests.progressed(request.token) is request


def test_a_principal_for_which_something_else_was_sent_counts_like_one_whose_request_was() -> None:
    requests = RequestsInFlight()
    requests.serves("ann")
    with requests.request(BEN, None):  # type: ignore[arg-type]
        assert requests.caller_of(None) is None
    alone = RequestsInFlight()
    alone.serves("ben")
    with alone.request(BEN, None):  # type: ignore[arg-type]
        assert alone.caller_of(None) is BEN


async def test_what_goes_on_for_a_request_is_given_up_when_it_ends() -> None:
    requests, began, ended = RequestsInFlight(), asyncio.Event(), asyncio.Event()

    async def goes_on(request: InFlight) -> None:
        with request.until_over():
            began.set()
            await asyncio.Event().wait()
        ended.set()

    with requests.request(ALICE, None) as request, requests.request(BOB, None) as other:  # type: ignore[arg-type]
        going_on = asyncio.create_task(goes_on(request))
        await began.wait()
        other.end()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not ended.is_set()
    await asyncio.wait_for(going_on, PATIENCE)
    assert ended.is_set()


@pytest.mark.parametrize("token", [None, "1", 1.0, True, 2, [], {}])
def test_a_token_that_was_not_given_out_is_nobodys(token: Any) -> None:
    requests = RequestsInFlight()
    with requests.request(ALICE, None) as request:  # type: ignore[arg-type]
        assert request.token == 1
        assert requests.progressed(1) is request
        assert requests.progressed(token) is None
    assert requests.progressed(1) is None


def test_no_token_is_given_out_twice() -> None:
    requests = RequestsInFlight()
    tokens = set()
    for _ in range(3):
        with requests.request(ALICE, None) as one, requests.request(BOB, None) as other:  # type: ignore[arg-type]
            tokens |= {one.token, other.token}
    assert len(tokens) == 6


async def test_what_runs_in_the_context_of_a_request_is_related_to_that_request_and_to_none_after_it() -> None:
    requests = RequestsInFlight()

    async def related() -> Any:
        return request_of(copy_context())

    with requests.request(ALICE, None) as one:  # type: ignore[arg-type]
        in_one = asyncio.create_task(related())
        with requests.request(BOB, None) as other:  # type: ignore[arg-type]
            assert await asyncio.create_task(related()) is other
        assert await asyncio.create_task(related()) is one
        assert await in_one is one
    assert await asyncio.create_task(related()) is None
    assert request_of(None) is None
