"""The directory: which table is current, and when it is complete enough to answer from."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest
from support.doubles import SettlingChild
from support.harness import PATIENCE

from fastmcp_aggregator.catalogue.snapshot import Catalogue, Kind
from fastmcp_aggregator.errors import ChildServerError, NameConflictError, StartupError
from fastmcp_aggregator.naming.rules import SeparatorSetting, every_spelling
from fastmcp_aggregator.routing.directory import Directory
from fastmcp_aggregator.routing.table import Naming

FOREVER = 10_000.0


def opened(
    *children: SettlingChild,
    strict: bool = True,
    ready_wait: float = FOREVER,
    separator: SeparatorSetting = "auto",
    prefix: bool = True,
) -> Directory:
    directory = Directory(Naming(separator, prefix), strict=strict, ready_wait=ready_wait)
    directory.open(children)  # type: ignore[arg-type]
    return directory


class Waiting:
    """Something that is being waited for."""

    def __init__(self, awaitable: Awaitable[object]) -> None:
        self._task = asyncio.ensure_future(awaitable)

    async def is_over(self) -> bool:
        """Whether it is over once everything that can happen has happened."""
        for _ in range(20):
            await asyncio.sleep(0)
        return self._task.done()

    async def result(self) -> object:
        return await asyncio.wait_for(self._task, PATIENCE)

    async def cancel(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def names(directory: Directory) -> list[str]:
    return list(directory.table.names(Kind.TOOL, directory.naming.rule(None)))


# When it is ready.


async def test_a_strict_directory_is_ready_when_every_child_has_settled() -> None:
    one, two = SettlingChild("one"), SettlingChild("two")
    waiting = Waiting(opened(one, two, ready_wait=0).ready())
    assert not await waiting.is_over()
    one.arrive("x")
    assert not await waiting.is_over()
    two.arrive("x")
    assert await waiting.result() is None


async def test_a_directory_that_is_not_strict_waits_for_children_that_come_in_time() -> None:
    one, two = SettlingChild("one"), SettlingChild("two")
    waiting = Waiting(opened(one, two, strict=False).ready())
    one.arrive("x")
    assert not await waiting.is_over()
    two.fail()
    assert await waiting.result() is None


async def test_a_directory_that_is_not_strict_waits_for_slow_children_only_so_long() -> None:
    one, slow = SettlingChild("one"), SettlingChild("slow")
    one.arrive("x")
    directory = opened(one, slow, strict=False, ready_wait=0.01)
    await asyncio.wait_for(directory.ready(), PATIENCE)
    assert not slow.settled.is_set()
    assert names(directory) == ["one:x"]


async def test_a_child_that_was_waited_for_in_vain_is_not_waited_for_again() -> None:
    slow, new = SettlingChild("slow"), SettlingChild("new")
    await asyncio.wait_for(opened(slow, strict=False, ready_wait=0.01).ready(), PATIENCE)
    waiting = Waiting(opened(slow, new, strict=False).ready())
    assert not await waiting.is_over()
    new.arrive("x")
    assert await waiting.result() is None
    strict = Waiting(opened(slow).ready())
    assert not await strict.is_over()
    await strict.cancel()


async def test_lists_that_wait_for_nobody_have_not_waited_in_vain() -> None:
    slow = SettlingChild("slow")
    await opened(slow, strict=False, ready_wait=0).ready()
    assert not await Waiting(opened(slow, strict=False).ready()).is_over()


async def test_the_wait_counts_from_the_start_and_is_waited_once_for_all() -> None:
    directory = opened(SettlingChild("slow"), strict=False, ready_wait=0.01)
    await asyncio.wait_for(directory.ready(), PATIENCE)
    assert await Waiting(directory.ready()).is_over()


async def test_several_may_wait_at_once_and_one_that_gives_up_stops_no_other() -> None:
    one = SettlingChild("one")
    directory = opened(one)
    given_up, staying = Waiting(directory.ready()), Waiting(directory.ready())
    assert not await given_up.is_over()
    await given_up.cancel()
    assert not await staying.is_over()
    one.arrive("x")
    assert await staying.result() is None


@pytest.mark.parametrize("strict", [True, False])
async def test_without_children_it_is_ready_at_once(strict: bool) -> None:
    assert await Waiting(opened(strict=strict).ready()).is_over()


@pytest.mark.parametrize("strict", [True, False])
async def test_an_aggregator_that_is_not_running_says_so(strict: bool) -> None:
    directory = Directory(Naming(), strict=strict, ready_wait=0)
    with pytest.raises(RuntimeError, match="is not running; enter it with `async with`"):
        await directory.ready()
    directory.open([])
    directory.close()
    with pytest.raises(RuntimeError, match="is not running"):
        await directory.ready()


# How a strict start fails.


async def test_a_strict_start_fails_with_every_failure_in_config_order() -> None:
    one, two, three = SettlingChild("one"), SettlingChild("two"), SettlingChild("three")
    directory = opened(one, two, three)
    three.fail()
    two.arrive("x")
    one.fail()
    with pytest.raises(StartupError) as raised:
        await directory.ready()
    assert raised.value.failures == (one.last_failure, three.last_failure)


async def test_a_failed_start_stays_failed_for_everybody_who_asks() -> None:
    one = SettlingChild("one")
    directory = opened(one)
    one.fail()
    with pytest.raises(StartupError) as first:
        await directory.ready()
    one.arrive("x")
    with pytest.raises(StartupError) as second:
        await directory.ready()
    assert first.value is second.value


async def test_a_start_that_has_succeeded_is_not_failed_by_a_later_crash() -> None:
    one = SettlingChild("one")
    directory = opened(one)
    one.arrive("x")
    await directory.ready()
    one.fail()
    await directory.ready()


async def test_a_new_run_starts_anew() -> None:
    one, again = SettlingChild("one"), SettlingChild("one")
    directory = opened(one)
    one.fail()
    with pytest.raises(StartupError):
        await directory.ready()
    directory.open([again])  # type: ignore[list-item]
    waiting = Waiting(directory.ready())
    assert not await waiting.is_over()
    again.arrive("x")
    assert await waiting.result() is None


async def test_without_strict_a_failed_child_is_no_failed_start() -> None:
    one, two = SettlingChild("one"), SettlingChild("two")
    directory = opened(one, two, strict=False)
    one.fail()
    two.arrive("x")
    await directory.ready()
    assert names(directory) == ["two:x"]


async def test_a_strict_start_fails_when_two_children_offer_one_name() -> None:
    one, two = SettlingChild("one"), SettlingChild("two")
    directory = opened(one, two, prefix=False)
    one.arrive("same", "own", prompts=["same"])
    two.arrive("same")
    with pytest.raises(StartupError) as raised:
        await directory.ready()
    (conflict,) = raised.value.failures
    assert isinstance(conflict, NameConflictError)
    assert (conflict.public_name, conflict.server_keys) == ("same", ("one", "two"))


async def test_a_conflict_is_reported_once_however_many_clients_see_it_and_after_the_failures() -> None:
    a, a_b, down = SettlingChild("a"), SettlingChild("a_b"), SettlingChild("down")
    directory = opened(a, a_b, down, separator="_")
    a.arrive("b_c")
    a_b.arrive("c")
    down.fail()
    with pytest.raises(StartupError) as raised:
        await directory.ready()
    assert [type(failure) for failure in raised.value.failures] == [ChildServerError, NameConflictError]


async def test_without_strict_two_children_may_offer_one_name_and_the_first_has_it() -> None:
    one, two = SettlingChild("one"), SettlingChild("two")
    directory = opened(one, two, strict=False, prefix=False)
    two.arrive("same")
    one.arrive("same")
    await directory.ready()
    route = await directory.route(Kind.TOOL, "same")
    assert route is not None
    assert route.child is one  # type: ignore[comparison-overlap]


# Which table is current.


async def test_a_table_is_kept_until_something_changes() -> None:
    one = SettlingChild("one")
    directory = opened(one, strict=False)
    one.arrive("x")
    table = directory.table
    assert directory.table is table
    one.arrive("x", "y")
    directory.invalidate()
    assert directory.table is not table
    assert names(directory) == ["one:x", "one:y"]


async def test_the_table_of_all_is_at_hand_while_it_is_true() -> None:
    one = SettlingChild("one")
    directory = opened(one, strict=False)
    assert directory.shared is None
    one.arrive("x")
    table = directory.table
    assert directory.shared is table
    directory.forget_tables("somebody")
    assert directory.shared is table
    directory.invalidate()
    assert directory.shared is None


async def test_no_table_is_that_of_all_where_some_list_to_each_caller_what_is_its_own() -> None:
    class Lists:
        def caller(self) -> None:
            return None

        def of(self, principal: object) -> dict[str, Catalogue]:
            return {}

    one, own = SettlingChild("one"), SettlingChild("own")
    own.stands_for_instances = True
    directory = Directory(Naming(), strict=False, ready_wait=FOREVER)
    directory.open([one], Lists())  # type: ignore[list-item, arg-type]
    assert directory.table is directory.shared
    directory.exchange([one, own])  # type: ignore[list-item]
    assert directory.table_of("somebody") is not None
    assert directory.shared is None


async def test_a_closed_directory_knows_no_child() -> None:
    one = SettlingChild("one")
    directory = opened(one)
    one.arrive("x")
    assert names(directory) == ["one:x"]
    directory.close()
    assert names(directory) == []


# Which route a call takes while children are still starting.


async def test_a_known_name_is_routed_at_once_whoever_is_still_starting() -> None:
    one, slow = SettlingChild("one"), SettlingChild("one_slow")
    directory = opened(one, slow)
    one.arrive("slow_x")
    assert await Waiting(directory.route(Kind.TOOL, "one:slow_x")).is_over()


@pytest.mark.parametrize("key", ["files", "my files/é", "k" * 41, "k" * 60, "k" * 300, "日本語" * 30], ids=len)
async def test_a_call_waits_for_the_child_that_the_name_belongs_to_in_every_spelling(key: str) -> None:
    for name in every_spelling(key, "read"):
        files = SettlingChild(key)
        directory = opened(files, SettlingChild("other"))
        waiting = Waiting(directory.route(Kind.TOOL, name))
        assert not await waiting.is_over(), name
        files.arrive("read")
        directory.invalidate()
        route = await waiting.result()
        assert route == directory.table.find(Kind.TOOL, name) is not None


async def test_a_call_does_not_wait_for_children_that_the_name_cannot_belong_to() -> None:
    directory = opened(SettlingChild("web"), SettlingChild("filesystem"), SettlingChild("files_2"))
    waiting = Waiting(directory.route(Kind.TOOL, "files:read"))
    assert await waiting.is_over()
    assert await waiting.result() is None


async def test_without_prefixes_a_call_waits_for_every_child_that_is_starting() -> None:
    one, two = SettlingChild("one"), SettlingChild("two")
    directory = opened(one, two, prefix=False)
    one.arrive("x")
    waiting = Waiting(directory.route(Kind.TOOL, "y"))
    assert not await waiting.is_over()
    two.arrive("y")
    directory.invalidate()
    assert await waiting.result() is directory.table.find(Kind.TOOL, "y") is not None


async def test_a_name_that_the_child_does_not_offer_has_no_route_once_it_has_started() -> None:
    files = SettlingChild("files")
    directory = opened(files)
    waiting = Waiting(directory.route(Kind.TOOL, "files:write"))
    assert not await waiting.is_over()
    files.arrive("read")
    assert await waiting.result() is None
    assert await Waiting(directory.route(Kind.TOOL, "files:write")).is_over()


async def test_a_call_to_a_child_whose_start_fails_is_not_kept_waiting_and_told_why() -> None:
    files = SettlingChild("files")
    waiting = Waiting(opened(files, strict=False).route(Kind.TOOL, "files:read"))
    assert not await waiting.is_over()
    files.fail()
    with pytest.raises(ChildServerError, match=r"it exited with code 3\), next try in 4 s"):
        await waiting.result()


async def test_a_table_is_made_while_others_go_on_and_is_the_present_one() -> None:
    one, other = SettlingChild("one"), SettlingChild("other")
    directory = opened(one, other)
    directory.turn = 0
    one.arrive("x")
    other.arrive("y")
    directory.invalidate()

    async def change() -> None:
        other.arrive("z")
        directory.invalidate()

    rule = directory.naming.rule(None)
    made, _ = await asyncio.gather(directory.made(lambda table: table.named_of_each(Kind.TOOL, rule)), change())
    assert made is directory.table
    assert list(made.names(Kind.TOOL, rule)) == ["one:x", "other:z"]
