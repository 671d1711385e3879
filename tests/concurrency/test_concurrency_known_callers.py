"""Callers that are known by their credentials before they are read."""

from __future__ import annotations

import pytest
from support.doubles import Clock

from fastmcp_aggregator.concurrency import known_callers
from fastmcp_aggregator.concurrency.known_callers import KnownCallers


@pytest.fixture
def clock() -> Clock:
    return Clock(0.0)


@pytest.fixture
def known(clock: Clock) -> KnownCallers:
    return KnownCallers(clock)


def brought(known: KnownCallers, token: str) -> bytes:
    credential = known.credential_in(f"GET / HTTP/1.1\r\nX-API-Key: {token}\r\n\r\n".encode())
    assert credential
    return credential


@pytest.mark.parametrize("fields", [b"authorization: bearer a", b"a: b\r\nAuthorization:  Bearer  a ", b"X-Api-Key:a"])
def test_a_credential_is_found_in_a_head_however_it_is_written(known: KnownCallers, fields: bytes) -> None:
    assert known.credential_in(b"GET / HTTP/1.1\r\n%b\r\n\r\nbody" % fields) == brought(known, "a")


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\n\r\nbody\r\nX-API-Key: a\r\n",
        b"POST / HTTP/1.1\r\nX-API-Key: a",
        b"POST / HTTP/1.1\r\nX-API-Key: \r\n\r\n",
        b"POST / HTTP/1.1\r\n" + b"a: b\r\n" * 100 + b"X-API-Key: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nAuthorization: Basic a\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_there_is_none_but_in_a_whole_field_of_a_head(known: KnownCallers, head: bytes) -> None:
    assert known.credential_in(head) is None
    assert known.caller_of(None) is None


def test_who_was_let_in_is_known_for_a_while(known: KnownCallers, clock: Clock) -> None:
    credential = brought(known, "a")
    assert known.caller_of(credential) is None
    known.let_in(credential, "ann")
    clock.now = known_callers._LASTS - 1
    assert known.caller_of(credential) == "ann"
    clock.now += 1
    assert known.caller_of(credential) is None


def test_a_credential_that_is_refused_or_lets_another_in_is_nobody_s_else(known: KnownCallers) -> None:
    credential = brought(known, "a")
    known.let_in(credential, "ann")
    known.let_in(credential, "bob")
    assert known.caller_of(credential) == "bob"
    known.refused(credential)
    known.refused(credential)
    assert known.caller_of(credential) is None
    assert not known._until


def test_of_one_caller_a_few_are_known_and_of_callers_those_that_came_last(known: KnownCallers) -> None:
    for number in range(3000):
        known.let_in(brought(known, f"a{number}"), "ann")
    assert len(known._callers) == known_callers._MOST_OF_ONE
    assert known.caller_of(brought(known, "a2999")) == "ann"
    for number in range(known_callers._MOST + 1):
        known.let_in(brought(known, f"b{number}"), f"caller {number}")
        known.let_in(brought(known, "a2999"), "ann")
    assert len(known._until) == known_callers._MOST
    assert known.caller_of(brought(known, "a2999")) == "ann"
    assert known.caller_of(brought(known, "b0")) is None


def test_what_is_kept_says_nothing_of_a_credential(known: KnownCallers, clock: Clock) -> None:
    known.let_in(brought(known, "a-secret"), "ann")
    assert "a-secret" not in repr(vars(known))
    assert brought(known, "a-secret") != brought(KnownCallers(clock), "a-secret")
