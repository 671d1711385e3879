"""Whatever happens to servers and callers, in whatever order: every call is answered once, by the server it was for."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, ClassVar

import pytest
from fuzzing import SCALE, SEED, Footprint
from hypothesis import seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from playground import CALLERS, KEYS, PIPES, RUNNING, Playground
from support.harness import until

from fastmcp_aggregator import ChildState

pytestmark = pytest.mark.fuzz

EXAMPLES = 8
STEPS = 25

callers, keys = st.sampled_from(CALLERS), st.sampled_from(sorted(KEYS))


class RandomLife(RuleBasedStateMachine):
    """One run of an aggregator, in a loop that goes on only while a rule is carried out."""

    before: ClassVar[list[Footprint]] = []

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._runner = asyncio.Runner()
        self.playground = Playground(Path(self._folder.name))
        self._run(self.playground.start())

    def _run(self, doing: Coroutine[Any, Any, Any]) -> None:
        self._runner.run(doing)

    def _do(self, action: Any, *args: Any, **options: Any) -> None:
        async def do() -> None:
            action(*args, **options)
            await asyncio.sleep(0)

        self._run(do())

    @rule(caller=callers, key=keys)
    def call(self, caller: str, key: str) -> None:
        self._do(self.playground.call, caller, key, "echo")

    @rule(caller=callers, key=keys)
    def call_slowly(self, caller: str, key: str) -> None:
        self._do(self.playground.call, caller, key, "hold")

    @rule(caller=st.sampled_from(PIPES), key=keys)
    def call_often(self, caller: str, key: str) -> None:
        self._run(self.playground.call_often(caller, key))

    @rule()
    def crowd(self) -> None:
        self._run(self.playground.crowd())

    @precondition(lambda self: self.playground.open)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self._do(self.playground.cancel, data.draw(st.sampled_from(self.playground.open)))

    @rule(caller=st.sampled_from(PIPES))
    def leave_and_come_back(self, caller: str) -> None:
        self._run(self.playground.leave(caller))

    @rule(caller=st.sampled_from(PIPES))
    def list_tools(self, caller: str) -> None:
        self._run(self.playground.check_list(caller))

    @rule(key=keys)
    def kill(self, key: str) -> None:
        self._do(self.playground.kill, key)

    @rule(caller=callers, key=keys)
    def crash(self, caller: str, key: str) -> None:
        self._do(self.playground.call, caller, key, "leave")

    @precondition(lambda self: len(self.playground.frozen) < len(KEYS))
    @rule(data=st.data())
    def freeze(self, data: st.DataObject) -> None:
        self._do(self.playground.freeze, data.draw(st.sampled_from(sorted(KEYS - self.playground.frozen.keys()))))

    @precondition(lambda self: self.playground.frozen)
    @rule(data=st.data())
    def thaw(self, data: st.DataObject) -> None:
        self._do(self.playground.thaw, data.draw(st.sampled_from(sorted(self.playground.frozen))))

    @rule(key=keys, is_there=st.booleans())
    def exchange(self, key: str, is_there: bool) -> None:
        self._do(self.playground.exchange, key, is_there=is_there)

    @rule(seconds=st.sampled_from([0.001, 0.02, 0.1]))
    def let_time_pass(self, seconds: float) -> None:
        self._run(asyncio.sleep(seconds))

    @rule()
    def settle(self) -> None:
        self._run(self.playground.settle())

    @invariant()
    def nothing_is_wrong(self) -> None:
        self.playground.check()

    def teardown(self) -> None:
        try:
            self._run(self.playground.close())
        finally:
            self._runner.close()
            self._folder.cleanup()
        asyncio.run(self._compare())

    async def _compare(self) -> None:
        """Nothing has grown since the first runs, in which everything is used for the first time."""
        self.before.append(Footprint.of())
        first = self.before[min(len(self.before), 3) - 1]
        await until(lambda: not Footprint.of().has_grown_since(first, memory=2**26))


async def test_ledger_leaves_no_server_in_peace_whose_end_still_waits_for_its_turn(tmp_path: Path) -> None:
    playground = Playground(tmp_path)
    await playground.start()
    playground.freeze("b")
    for _ in range(RUNNING):
        playground.call("http", "b", "echo")
    await until(lambda: playground.at_front() == (RUNNING, 0))
    playground.call("http", "a", "leave")
    await until(lambda: playground.at_front() == (RUNNING, 1))
    await playground.settle()
    playground.thaw("b")
    await until(lambda: playground.app.health()["a"].state is ChildState.FAILED)
    await playground.check_list("legacy")
    await playground.close()


async def test_servers_that_are_left_in_peace_run_though_a_call_has_just_ended_one(tmp_path: Path) -> None:
    playground = Playground(tmp_path)
    await playground.start()
    for _ in range(20):
        playground.call("http", "a", "leave")
        await playground.settle()
        await playground.check_list("legacy")
        playground.exchange("a", is_there=True)  # or it ends too often
    await playground.close()


@pytest.mark.no_cover
def test_every_call_is_answered_once_by_the_server_it_was_for_whatever_happens() -> None:
    chosen = settings(max_examples=EXAMPLES * SCALE, stateful_step_count=STEPS, database=None)
    run_state_machine_as_test(seed(SEED)(RandomLife), settings=chosen)
    first, last = RandomLife.before[2], RandomLife.before[-1]
    print(f"random lives: {len(RandomLife.before)}, {first} → {last}")
