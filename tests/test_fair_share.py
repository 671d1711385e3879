"""A capacity that several holders share: who finds room, and whose turn it is."""

from __future__ import annotations

import asyncio
import random

from support.harness import until

from fastmcp_aggregator.concurrency.fair_share import FairLimiter, FairShare


def taken_by(share: FairShare, holder: str) -> int:
    count = 0
    while share.take(holder):
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
    share.give_back("a", 20)
    assert not share.take("a")
    assert share.take("c", 20)


def test_fair_share_has_one_more_even_of_one() -> None:
    share = FairShare(1)
    assert [share.take("a"), share.take("a"), share.take("b"), share.take("c")] == [True, False, True, False]


def test_fair_share_never_gives_more_than_there_is_and_forgets_who_has_nothing() -> None:
    chance, share, held = random.Random(1), FairShare(40), dict.fromkeys("abcdefgh", 0)
    for _ in range(20_000):
        holder, amount = chance.choice(list(held)), chance.randint(1, 12)
        if chance.random() < 0.5 and held[holder] >= amount:
            share.give_back(holder, amount)
            held[holder] -= amount
        elif share.take(holder, amount):
            held[holder] += amount
        assert share.taken == sum(held.values()) <= 50
    for holder, amount in held.items():
        if amount:
            share.give_back(holder, amount)
    assert (share.taken, share._held) == (0, {})


async def queued(turns: FairLimiter, holder: str, order: list[str]) -> asyncio.Task[None]:
    async def wait() -> None:
        await turns.wait(holder)
        order.append(holder)

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    return task


async def test_fair_turns_go_to_one_holder_after_the_other() -> None:
    turns, order = FairLimiter(8), list[str]()
    assert all(turns.take("a") for _ in range(8))
    assert all(turns.take("b") for _ in range(2))
    tasks = [await queued(turns, holder, order) for holder in ("a", "a", "a", "b", "c")]
    for _ in range(3):
        turns.give_back("a")
        await asyncio.sleep(0)
    assert order == ["c"]
    for number in range(2, 6):
        turns.give_back("a")
        await until(lambda number=number: len(order) == number)  # type: ignore[misc]
    assert order == ["c", "a", "b", "a", "a"]
    await asyncio.gather(*tasks)
    assert turns.taken == 8


async def test_fair_turns_are_not_lost_with_who_waited_for_one() -> None:
    turns, order = FairLimiter(1), list[str]()
    assert turns.take("a")
    gone, at_the_same_moment = [await queued(turns, "a", order) for _ in range(2)]
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    turns.give_back("a")
    at_the_same_moment.cancel()
    await asyncio.gather(at_the_same_moment, return_exceptions=True)
    assert (turns.taken, turns._waiting, order) == (0, {}, [])


async def test_fair_turns_that_are_taken_back_are_more_for_a_moment() -> None:
    turns, order = FairLimiter(1), list[str]()
    assert turns.take("a")
    turns.give_back("a")
    assert turns.take("b")
    turns.take_back("a")
    assert turns.taken == 2
    task = await queued(turns, "b", order)
    turns.give_back("a")
    await asyncio.sleep(0)
    assert order == []
    turns.give_back("b")
    await task
    assert turns.taken == 1
