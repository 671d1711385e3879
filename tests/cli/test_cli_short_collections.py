"""Garbage collections while the program serves: what survives one is not looked at by the next ones, for a while.

They run in a process of their own: here, all that the tests have loaded would be looked at again and again.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable

import pytest
import short_collections_cases
from short_collections_cases import CASES, Clock
from support.wire import PATIENCE

from fastmcp_aggregator.cli.running.short_collections import short_collections


@pytest.fixture(scope="module")
def failures() -> dict[str, str]:
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, short_collections_cases.__file__]
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, timeout=PATIENCE, check=True)
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.__name__))
def test_while_the_program_serves(case: Callable[[Clock], Awaitable[None]], failures: dict[str, str]) -> None:
    assert failures[case.__name__] == ""


async def test_what_is_new_is_looked_at_less_often_than_in_other_programs() -> None:
    of_all_tests = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    before = gc.get_threshold()
    try:
        async with short_collections():
            rest = (2, 5) if sys.version_info < (3, 14) else before[1:]
            assert gc.get_threshold() == (5000, *rest)
        assert gc.get_threshold() == before
    finally:
        gc.set_threshold(*of_all_tests)
