"""The guard against recursion: a config that contains the aggregator that serves it is rejected.

Each aggregator tells the processes that it starts which configs are served above them, in an environment variable.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastmcp_aggregator.children.process.environment import CONFIGS_ABOVE
from fastmcp_aggregator.cli.terminal.exits import UsageError


def reject_recursive_config(config: str) -> None:
    """Look whether this file is served above us already.

    Raises:
        UsageError: it is.
    """
    if _identity(config) in _above():
        raise UsageError(
            f"{config} contains the aggregator itself, with this same file: it would start itself without end; "
            "remove that entry, or give the aggregator a config of its own"
        )


@contextmanager
def as_ancestor(config: str) -> Iterator[None]:
    """What is started meanwhile is told that this file is served above it."""
    before = os.environ.get(CONFIGS_ABOVE)
    os.environ[CONFIGS_ABOVE] = os.pathsep.join([*_above(), _identity(config)])
    try:
        yield
    finally:
        if before is None:
            del os.environ[CONFIGS_ABOVE]
        else:
            os.environ[CONFIGS_ABOVE] = before


def _above() -> list[str]:
    return [path for path in os.environ.get(CONFIGS_ABOVE, "").split(os.pathsep) if path]


def _identity(config: str) -> str:
    return os.path.normcase(Path(config).resolve())
