"""What of a child's messages was left out, counted over all its lives."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Tally:
    """The counts of one child."""

    ignored_lines: int = 0
    """Lines of its stdout that are no MCP messages."""
    dropped_notifications: int = 0
    """Notifications that were too many."""
