"""The report of a start: what each server has come to, told on stderr line by line, in a display, or not at all."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from fastmcp_aggregator.cli.terminal.console import counted
from fastmcp_aggregator.cli.terminal.logs import tell
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.escaping import printable
from fastmcp_aggregator.status.server_status import ChildState, ServerStatus

if TYPE_CHECKING:
    from fastmcp_aggregator.aggregator import Aggregator


class Report:
    """Told of a start as it goes; this one tells nobody. To be made just before it begins."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.is_done = False

    def tells(self, failure: ChildServerError) -> bool:
        """True if a failure needs no other words: it is one of the start, or of trying again meanwhile."""
        return not self.is_done and failure.phase != "runtime"

    def settled(self, status: ServerStatus, seconds: float) -> None:
        """The first start of a child has succeeded or failed after so many seconds."""

    def done(self) -> None:
        """All have settled."""

    def doing(self, what: str) -> None:
        """Show the program's activity."""

    def close(self) -> None:
        """End the report. May be called more than once."""


WHOSE: Mapping[str, str] = {
    "shared": "one instance for all clients",
    "directory": "an instance for each working folder or set of roots",
    "session": "an instance for each client session",
}
"""The instances of a server under each isolation, in words."""


def is_running(status: ServerStatus) -> bool:
    """True if the child has come up, or would if it were called, or is about to since it was."""
    return status.state in (ChildState.RUNNING, ChildState.SLEEPING) or is_waking(status)


def is_waking(status: ServerStatus) -> bool:
    """True if the child, which has settled, starts anew and has not failed."""
    return status.state is ChildState.INITIALIZING and status.last_error is None


def why_failed(status: ServerStatus) -> str:
    return status.last_error or status.state


def line_of(status: ServerStatus) -> str:
    if status.state is ChildState.SLEEPING:
        return f"{status.server_key}: starts when it is called, {counts_of([status])}"
    if is_waking(status):
        return f"{status.server_key}: starting, {counts_of([status])}"
    if is_running(status):
        return f"{status.server_key}: running, {counts_of([status])} ({status.protocol_version})"
    return f"{status.server_key}: failed: {printable(why_failed(status))}"


def summary_of(statuses: Iterable[ServerStatus]) -> str:
    known = list(statuses)
    served = [status for status in known if is_running(status)]
    asleep = sum(status.state is ChildState.SLEEPING for status in served)
    starting = sum(map(is_waking, served))
    failed = [status.server_key for status in known if not is_running(status)]
    parts = [f"{len(served) - asleep - starting} of {counted(len(known), 'server')} running"]
    parts += [f"{starting} starting"] if starting else []
    parts += [f"{asleep} {'starts' if asleep == 1 else 'start'} when called"] if asleep else []
    summary = ", ".join([*parts, counts_of(served)])
    return f"{summary}; failed: {', '.join(failed)}" if failed else summary


def counts_of(statuses: Iterable[ServerStatus]) -> str:
    """The numbers of their components: `12 tools, 3 resources, 0 prompts`; templates only if there are any."""
    tools = resources = templates = prompts = 0
    for status in statuses:
        tools += status.tools
        resources += status.resources
        templates += status.templates
        prompts += status.prompts
    parts = [counted(tools, "tool"), counted(resources, "resource")]
    parts += [counted(templates, "template")] if templates else []
    return ", ".join([*parts, counted(prompts, "prompt")])


class Lines(Report):
    """A line for each child as it settles, also again, and one for all."""

    def __init__(self) -> None:
        super().__init__()
        self._latest: dict[str, ServerStatus] = {}

    def settled(self, status: ServerStatus, seconds: float) -> None:
        self._latest[status.server_key] = status
        tell(line_of(status), logging.INFO if is_running(status) else logging.ERROR)

    def done(self) -> None:
        tell(summary_of(self._latest.values()))


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
