"""What is told on stderr while the children start: lines, a display on a terminal, or nothing."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fastmcp_aggregator.cli.output.report import Report, is_running, line_of, summary_of
from fastmcp_aggregator.cli.terminal.logs import tell
from fastmcp_aggregator.status.server_status import ChildState, ServerStatus

if TYPE_CHECKING:
    from fastmcp_aggregator.aggregator import Aggregator


class Lines(Report):
    """A line for each child as it settles, and one for all."""

    def __init__(self) -> None:
        super().__init__()
        self._all: list[ServerStatus] = []

    def settled(self, status: ServerStatus, seconds: float) -> None:
        self._all.append(status)
        tell(line_of(status), logging.INFO if is_running(status) else logging.ERROR)

    def done(self) -> None:
        tell(summary_of(self._all))


def new_report(keys: Iterable[str], *, is_full: bool) -> Report:
    """In full, for serving, what came of each child is told; else, where a result tells it, there is a status line."""
    if sys.stderr is None or not sys.stderr.isatty():  # no person reads it
        return Lines() if is_full else Report()
    from fastmcp_aggregator.cli.output.display import Display  # noqa: PLC0415 - rich is for terminals only

    return Display(keys, with_table=is_full)


async def follow(app: Aggregator, report: Report, *, once: bool = False) -> None:
    """Tell a report how the start of the app's children goes.

    A strict start that has failed is about to end, and so is an app that is only looked at `once`: what has failed is
    not tried again meanwhile.
    """
    ends = False
    async for status in app.settling():
        if status.state is ChildState.STOPPED and status.last_error is None:
            return  # the app ends before the child was up
        report.settled(status, time.monotonic() - report.began)
        if not is_running(status) and (once or app.settings.strict):
            app.children[status.server_key].suspend_retries()
        ends |= app.settings.strict and not is_running(status)
    report.done()
    report.is_done = not ends
