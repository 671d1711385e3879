"""The seal of messages between replicas, under an attacker who has all of them and may send any bytes."""

from __future__ import annotations

import pytest
from support.doubles import Clock

from fastmcp_aggregator.replicas.seal import MESSAGE_LIFETIME, OVERHEAD, Seal, SealError

SECRET = "a secret that all replicas share, and no other"
ONE, OTHER, THIRD = "11" * 8, "22" * 8, "33" * 8


def seal(sender: str = ONE, clock: Clock | None = None, secret: str = SECRET, scope: str = "hub:0") -> Seal:
    return Seal(secret, scope, sender, clock or Clock())


def is_refused(receiver: Seal, message: bytes, recipient: str = OTHER) -> bool:
    try:
        receiver.opened(message, recipient)
    except SealError:
        return True
    return False


def test_a_message_opens_at_its_recipient_and_nothing_of_it_can_be_read_on_the_way() -> None:
    message = seal().sealed(b"the words", OTHER)
    assert b"words" not in message
    assert seal(OTHER).opened(message, OTHER) == (ONE, b"the words")
    assert len(message) == len(b"the words") + OVERHEAD


def test_a_message_with_any_bit_changed_or_any_byte_cut_is_refused() -> None:
    message, receiver = seal().sealed(b"words", OTHER), seal(OTHER)
    for index in range(len(message)):
        for bit in range(8):
            assert is_refused(receiver, message[:index] + bytes([message[index] ^ 1 << bit]) + message[index + 1 :])
        assert is_refused(receiver, message[:index])
        assert is_refused(receiver, message[index + 1 :])
    assert is_refused(receiver, message + b"x")
    assert receiver.opened(message, OTHER) == (ONE, b"words")


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_message_opens_once(number: int) -> None:
    sender, receiver = seal(), seal(OTHER)
    messages = [sender.sealed(b"x", OTHER) for _ in range(3)]
    receiver.opened(messages[number - 1], OTHER)
    for message in messages:
        assert is_refused(receiver, message) is (message is messages[number - 1])
    assert all(is_refused(receiver, message) for message in messages)


def test_messages_may_overtake_each_other_but_not_by_thousands() -> None:
    sender, receiver = seal(), seal(OTHER)
    messages = [sender.sealed(b"x", OTHER) for _ in range(5000)]
    receiver.opened(messages[-1], OTHER)
    assert is_refused(receiver, messages[0])
    assert not is_refused(receiver, messages[-4000])
    assert is_refused(receiver, messages[-4000])


def test_a_message_for_somebody_else_of_another_hub_or_under_another_key_is_refused() -> None:
    message = seal().sealed(b"x", OTHER)
    assert is_refused(seal(THIRD), message, THIRD)
    assert is_refused(seal(THIRD), message, "all")
    assert is_refused(seal(OTHER, scope="hub:1"), message)
    assert is_refused(seal(OTHER, secret=SECRET + "!"), message)
    assert is_refused(seal(OTHER), seal(THIRD, secret=SECRET + "!").sealed(b"x", OTHER))


def test_a_message_is_good_for_a_minute_by_either_clock() -> None:
    now = Clock()
    message = seal(clock=now).sealed(b"x", OTHER)
    for away in (MESSAGE_LIFETIME + 1, -MESSAGE_LIFETIME - 1):
        later = Clock()
        later.now += away
        assert is_refused(seal(OTHER, clock=later), message)


def test_replicas_derive_the_same_further_keys_and_others_do_not() -> None:
    assert seal().key_for("state") == seal(OTHER).key_for("state")
    assert len({seal().key_for("a"), seal().key_for("b"), seal(secret=SECRET + "!").key_for("a")}) == 3


def test_what_is_remembered_of_senders_is_bounded() -> None:
    receiver = seal(OTHER)
    for number in range(1100):
        receiver.opened(seal(f"{number:016x}").sealed(b"x", OTHER), OTHER)
    assert len(receiver._senders) == 1000
