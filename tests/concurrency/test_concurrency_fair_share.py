"""A capacity that several holders share: who finds room, and whose turn it is."""

from __future__ import annotations

import asyncio
import random

from support.harness import until

from fastmcp_aggregator.concurrency.limiter import FairLimiter, FairShare


def taken_by(share: FairShare, holder: str) -> int:
    count = 0
    while share.try_acquire(holder):
        count += 1
    return count


def test_fair_share_lets_one_holder_have_all_that_is_free() -> None:
    share = FairShare(100)
    assert taken_by(share, "a") == 100


def test_fair_share_keeps_a_quarter_more_for_who_comes_later() -> None:
    share = FairShare(100)
    taken_by(share, "a")
    assert taken_by(share, "b") == 25
    assert share.is_full


def test_fair_share_gives_no_more_to_who_has_too_much_while_others_come() -> None:
    share = FairShare(100)
    taken_by(share, "a")
    taken_by(share, "b")
    share.release("a", 20)
    assert not share.try_acquire("a")
    assert share.try_acquire("c", 20)


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
    assert all(turns.acquire_nowait("b") for _ in range(2))
    tasks = [await queued(turns, holder, order) for holder in ("a", "a", "a", "b", "c")]
    for _ in range(3):
        turns.release("a")
        await asyncio.sleep(0)
    assert order == ["c"]
    for number in range(2, 6):
        turns.release("a")
        await until(lambda number=number: len(order) == number)  # type: ignore[misc]
    assert order == ["c", "a", "b", "a", "a"]
    await asyncio.gather(*tasks)
    assert turns.taken == 8


async def test_fair_turns_without_a_reserve_are_never_more_and_go_to_one_holder_after_the_other() -> None:
    turns, order = FairLimiter(2, has_reserve=False), list[str]()
    assert [turns.acquire_nowait("a"), turns.acquire_nowait("a"), turns.acquire_nowait("b")] == [True, True, False]
    tasks = [await queued(turns, holder, order) for holder in ("a", "a", "a", "b")]
    assert turns.waiting == 4
    for holder in ("a", "a", "a", "b"):
        turns.release(holder)
        await asyncio.sleep(0)
        assert turns.taken == 2
    assert order == ["a", "b", "a", "a"]
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
