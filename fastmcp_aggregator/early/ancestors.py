"""The configs that are served above this process: each aggregator tells the processes that it starts."""

from __future__ import annotations

import os

CONFIGS_ABOVE = "_FASTMCP_AGGREGATOR_CONFIGS_ABOVE"
"""The environment variable that has them."""


def configs_above() -> list[str]:
    """Their real paths."""
    return [path for path in os.environ.get(CONFIGS_ABOVE, "").split(os.pathsep) if path]


def real_path_of(config: str) -> str:
    """What a config is known by here."""
    return os.path.normcase(os.path.realpath(config))


def why_recursive(config: str) -> str | None:
    """Why this config must not be served here; None: it is not served above us already."""
    if real_path_of(config) not in configs_above():
        return None
    return (
        f"{config} contains the aggregator itself, with this same file: it would start itself without end; "
        "remove that entry, or give the aggregator a config of its own"
    )
