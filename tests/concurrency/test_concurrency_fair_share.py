"""A capacity that several holders share: who finds room, and whose turn it is."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from fastmcp_aggregator.concurrency.limiter import FairLimiter, FairShare, Usage


def taken_by(share: FairShare, holder: str | None) -> int:
    count = 0
    while share.try_acquire(holder):
        count += 1
    return count


def test_fair_share_lets_one_holder_have_all_that_is_free() -> None:
    share = FairShare(100)
    assert taken_by(share, "a") == 100


@pytest.mark.parametrize("capacity", range(1, 200))
def test_fair_share_of_any_size_is_for_one_alone_and_leaves_room_for_another(capacity: int) -> None:
    share = FairShare(capacity)
    assert taken_by(share, "a") == capacity
    assert taken_by(share, "b") >= 1


def test_fair_share_leaves_room_whoever_comes() -> None:
    share = FairShare(1000)
    assert [taken_by(share, holder) for holder in "abcde"] == [1000, 200, 40, 8, 1]
    assert share.taken == 1249
    assert taken_by(share, "f") == 1
    assert share.is_full
    assert not share.try_acquire("g")


def test_fair_share_is_equal_for_all_who_want_all() -> None:
    share, held = FairShare(1000), Counter[str]()
    for turn in range(8_000):  # each gives back one of what it has, and wants two
        holder = "abcd"[turn % 4]
        if held[holder] and turn % 8 < 4:
            share.release(holder)
            held[holder] -= 1
        while held[holder] < 2000 and share.try_acquire(holder):
            held[holder] += 1
    assert all(270 <= count <= 310 for count in held.values())


def test_fair_share_gives_no_more_to_who_has_too_much_while_others_come() -> None:
    share = FairShare(100)
    taken_by(share, "a")
    taken_by(share, "b")
    share.release("a", 5)
    assert not share.try_acquire("a")
    assert share.try_acquire("c", 7)


def test_fair_share_is_whole_for_the_only_client() -> None:
    share = FairShare(50, has_reserve=False)
    assert taken_by(share, None) == 50


def test_fair_share_without_a_reserve_leaves_others_a_fifth() -> None:
    share = FairShare(50, has_reserve=False)
    assert [taken_by(share, holder) for holder in "abc"] == [40, 8, 1]
    assert [taken_by(FairShare(limit, has_reserve=False), "a") for limit in range(1, 6)] == [1, 1, 2, 3, 4]


def test_fair_share_counts_who_was_refused() -> None:
    share = FairShare(1)
    assert [share.try_acquire("a"), share.try_acquire("a"), share.refused] == [True, False, 1]
    assert share.usage() == Usage(total=2, taken=1, holders=1, largest=("a", 1), refused=1)


def test_fair_share_has_one_more_even_of_one() -> None:
    share = FairShare(1)
    assert [share.try_acquire("a"), share.try_acquire("a"), share.try_acquire("b"), share.try_acquire("c")] == [
        True,
        False,
        True,
        False,
    ]


def test_fair_share_never_gives_more_than_there_is_and_forgets_who_has_nothing() -> None:
    chance, share, held = random.Random(1), FairShare(40), dict.fromkeys("abcdefgh", 0)
    for _ in range(20_000):
        holder, amount = chance.choice(list(held)), chance.randint(1, 12)
        if chance.random() < 0.5 and held[holder] >= amount:
            share.release(holder, amount)
            held[holder] -= amount
        elif share.try_acquire(holder, amount):
            held[holder] += amount
        assert share.taken == sum(held.values()) <= 50
    for holder, amount in held.items():
        if amount:
            share.release(holder, amount)
    assert (share.taken, share._held) == (0, {})


async def queued(turns: FairLimiter, holder: str, order: list[str]) -> asyncio.Task[None]:
    async def wait() -> None:
        await turns.acquire(holder)
        order.append(holder)

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    return task


async def test_fair_turns_go_to_one_holder_after_the_other() -> None:
    turns, order = FairLimiter(8), list[str]()
    assert all(turns.acquire_nowait("a") for _ in range(8))
    assert turns.acquire_nowait("b")
    tasks = [await queued(turns, holder, order) for holder in ("a", "a", "b", "c", "c")]
    while len(order) < 5:
        turns.release(turns.slots.largest()[0])
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert sorted(order[:2]) == ["b", "c"]
    assert sorted(order[2:]) == ["a", "a", "c"]
    assert turns.taken <= 9


async def test_fair_turns_without_a_reserve_are_never_more_and_go_to_one_holder_after_the_other() -> None:
    turns, order = FairLimiter(2, has_reserve=False), list[str]()
    assert [turns.acquire_nowait(holder) for holder in "aabc"] == [True, False, True, False]
    tasks = [await queued(turns, holder, order) for holder in ("a", "a", "c", "b")]
    assert turns.waiting == 4
    for holder in ("b", "c", "a", "a"):
        turns.release(holder)
        await asyncio.sleep(0)
        assert turns.taken <= 2
    assert order[0] == "c"
    assert sorted(order) == ["a", "a", "b", "c"]
    await asyncio.gather(*tasks)
    assert (turns.waiting, turns._waiting) == (0, {})


async def test_fair_turns_are_not_lost_with_who_waited_for_one() -> None:
    turns, order = FairLimiter(1), list[str]()
    assert turns.acquire_nowait("a")
    gone, at_the_same_moment = [await queued(turns, "a", order) for _ in range(2)]
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    turns.release("a")
    at_the_same_moment.cancel()
    await asyncio.gather(at_the_same_moment, return_exceptions=True)
    assert (turns.taken, turns._waiting, order) == (0, {}, [])


async def test_fair_turns_that_are_taken_back_are_more_for_a_moment() -> None:
    turns, order = FairLimiter(1), list[str]()
    assert turns.acquire_nowait("a")
    turns.release("a")
    assert turns.acquire_nowait("b")
    turns.reacquire("a")
    assert turns.taken == 2
    task = await queued(turns, "b", order)
    turns.release("a")
    await asyncio.sleep(0)
    assert order == []
    turns.release("b")
    await task
    assert turns.taken == 1
