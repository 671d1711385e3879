"""Settings of the tests as a whole."""

from __future__ import annotations

import os
import tempfile

# FastMCP reads it when it is imported: a test keeps nothing in the home of who runs it.
os.environ["FASTMCP_HOME"] = tempfile.mkdtemp(prefix="fastmcp-home-")

# Nor in their keyring.
os.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.null.Keyring"

# FastMCP would paint each line of its log, and each traceback with its source, which nobody reads.
os.environ["FASTMCP_ENABLE_RICH_LOGGING"] = "false"

import copy
import functools
import gc
import itertools
import shutil
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import httpcore2
import pytest
from coverage import Coverage
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from support.usual import USUAL

# To compile what is tested, and the tests, takes longer than most of what is done with them: here, and in the workers.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# It would parse the whole package, in each worker, for constants to try.
providers.is_local_module_file = lambda path: False

# httpx2 looks for it again with each response in this process, on the whole path.
sys.modules.setdefault("sniffio", None)  # type: ignore[arg-type]

# Others in each run. A busy machine is slow at making them, too; that says nothing about the code.
settings.register_profile("busy", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


# What a test writes need not outlive the machine: it would wait for the disk some milliseconds each time.
os.fsync = lambda descriptor: None

# Each HTTP client would read the certificates of the machine, which takes longer than most tests.
httpcore2.default_ssl_context = functools.cache(httpcore2.default_ssl_context)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Without garbage collections, which took a fifth of the imports, and found nothing."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


_MANY_WAYS = {"relay", "fast_path", "routing", "search", "web"}
"""Folders whose tests run in many ways: of transports, eras and servers."""
_WAYS_COUNTED = 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let coverage leave out most ways of a test: they run the same lines, and to count doubles their time."""
    ways: Counter[str] = Counter()
    for item in items:
        test = item.nodeid.partition("[")[0]
        ways[test] += 1
        if ways[test] > _WAYS_COUNTED and item.path.parent.name in _MANY_WAYS:
            item.add_marker("no_cover")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """From now on garbage collections look only at what the tests themselves make, and not at each few objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 10)


@pytest.fixture(scope="session")
def cache_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A new name for each test."""
    folder = tmp_path_factory.mktemp("caches")
    return (folder / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def usual_settings(cache_folders: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Those above, and a cache folder of the test's own, here and in the processes that it starts."""
    for name, value in USUAL.items():
        monkeypatch.setenv(name, value)
    folder = next(cache_folders)
    folder.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))


@pytest.fixture
def counted_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where coverage is counted, it is counted in the processes that the test starts, too."""
    if (here := Coverage.current()) is not None:
        there = copy.copy(here.config)
        there.parallel, there.patch = True, ["_exit"]
        monkeypatch.setenv("COVERAGE_PROCESS_CONFIG", there.serialize())


def pytest_unconfigure(config: pytest.Config) -> None:
    """Say in the last line what a plain run leaves out."""
    shutil.rmtree(os.environ["FASTMCP_HOME"], ignore_errors=True)
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    marks = config.getoption("markexpr").removeprefix("not ").strip("()").split(" or ")
    if reporter is not None and not hasattr(config, "workerinput") and len(marks) > 1:
        *most, last = marks
        reporter.write_line(f"Left out: the tests marked {', '.join(most)} or {last}. All: nox -s tests")
