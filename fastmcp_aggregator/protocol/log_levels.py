"""The levels of log messages (RFC 5424), least severe first. Pure."""

from __future__ import annotations

from typing import Any

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


def passes(level: Any, threshold: str | None) -> bool:
    """True if a message of this level is at or above the wanted one; None: all are wanted. A level that the protocol
    does not know passes: it is not ours to judge.
    """
    if threshold is None or level not in LEVELS:
        return True
    return LEVELS.index(level) >= LEVELS.index(threshold)


def most_verbose(levels: list[str]) -> str | None:
    """The level that includes all of these; None without any."""
    return min(levels, key=LEVELS.index, default=None)
