"""What is told while the children start."""

import io
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from unittest.mock import Mock

import pytest
from rich.console import Console

from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.cli.output.display import Display, table_of
from fastmcp_aggregator.cli.output.report import Lines, Report, follow, line_of, summary_of
from fastmcp_aggregator.cli.running.starting import new_report
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.settings.model import AggregatorSettings
from fastmcp_aggregator.status.server_status import ChildState, ServerStatus


def status(key: str, *, error: str | None = None, **counts: int) -> ServerStatus:
    facts = dict.fromkeys(ServerStatus.__dataclass_fields__, 0) | {
        "server_key": key,
        "state": ChildState.FAILED if error else ChildState.RUNNING,
        "protocol_version": None if error else "2025-11-25",
        "last_error": error,
        **counts,
    }
    return ServerStatus(**facts)  # type: ignore[arg-type]


FILES = status("files", tools=12, resources=3, templates=2, prompts=1)
GIT = status("git", error="command not found: 'uvx'; install it")
CLOCK = status("clock", tools=1, resources=1)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=120, color_system=None)


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_line_says_what_came_of_a_server() -> None:
    assert line_of(FILES) == "files: running, 12 tools, 3 resources, 2 templates, 1 prompt (2025-11-25)"
    assert line_of(CLOCK) == "clock: running, 1 tool, 1 resource, 0 prompts (2025-11-25)"
    assert line_of(GIT) == "git: failed: command not found: 'uvx'; install it"


def test_a_summary_counts_what_is_served_and_names_what_failed() -> None:
    assert summary_of([FILES, CLOCK]) == "2 of 2 servers running, 13 tools, 4 resources, 2 templates, 1 prompt"
    assert summary_of([FILES, GIT]).startswith("1 of 2 servers running, 12 tools,")
    assert summary_of([FILES, GIT]).endswith("; failed: git")
    asleep = [replace(one, state=ChildState.SLEEPING) for one in (CLOCK, FILES)]
    assert summary_of([FILES, *asleep[:1]]).startswith("1 of 2 servers running, 1 starts when called, 13 tools,")
    told = "0 of 3 servers running, 2 start when called, 13 tools, 4 resources, 2 templates, 1 prompt; failed: git"
    assert summary_of([*asleep, GIT]) == told
    assert summary_of([GIT]) == "0 of 1 server running, 0 tools, 0 resources, 0 prompts; failed: git"


def test_without_a_terminal_each_server_is_a_line_when_it_settles(capfd: pytest.CaptureFixture[str]) -> None:
    report = new_report(["git", "files"], is_full=True)
    assert isinstance(report, Lines)
    report.settled(GIT, 0.1)
    assert capfd.readouterr().err == line_of(GIT) + "\n"
    report.settled(FILES, 0.2)
    report.done()
    report.close()
    assert capfd.readouterr().err == line_of(FILES) + "\n" + summary_of([GIT, FILES]) + "\n"


def test_a_server_that_is_restarted_while_others_start_counts_once(capfd: pytest.CaptureFixture[str]) -> None:
    report = Lines()
    for one in (GIT, FILES, GIT):
        report.settled(one, 0.1)
    report.done()
    assert capfd.readouterr().err.splitlines()[-1] == summary_of([GIT, FILES])


def test_a_server_that_was_called_while_it_slept_has_not_failed(terminal: Console) -> None:
    woken = replace(CLOCK, state=ChildState.INITIALIZING)
    assert line_of(woken) == "clock: starting, 1 tool, 1 resource, 0 prompts"
    assert summary_of([FILES, woken]).startswith("1 of 2 servers running, 1 starting, 13 tools,")
    assert "failed" not in summary_of([FILES, woken])
    terminal.print(table_of([(woken, 0.1)]))
    assert "starting" in shown(terminal)
    again = replace(GIT, state=ChildState.INITIALIZING)
    assert line_of(again) == line_of(GIT)
    assert summary_of([again]).endswith("; failed: git")


def test_without_a_terminal_a_brief_report_tells_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    report = new_report(["git"], is_full=False)
    report.settled(GIT, 0.1)
    report.done()
    report.doing("calling")
    report.close()
    assert type(report) is Report
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("is_full", [True, False])
def test_a_terminal_gets_a_display(is_full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    report = new_report(["git"], is_full=is_full)
    report.close()
    assert isinstance(report, Display)


def test_a_program_without_stderr_has_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert isinstance(new_report([], is_full=True), Lines)


def test_the_status_line_says_how_many_are_ready_and_which_are_awaited(terminal: Console) -> None:
    display = Display(["files", "git", "a", "b"], with_table=False, console=terminal)
    lines = [str(display._spinner.text)]
    display.settled(FILES, 0.1)
    lines.append(str(display._spinner.text))
    display.settled(GIT, 0.2)
    lines.append(str(display._spinner.text))
    for key in ("a", "b"):
        display.settled(status(key), 0.3)
    lines.append(str(display._spinner.text))
    display.doing("calling a:[b]\x1b")
    lines.append(str(display._spinner.text))
    display.close()
    assert lines == [
        "0 of 4 servers ready, waiting for files, git, a and 1 more",
        "1 of 4 servers ready, waiting for git, a, b",
        "1 of 4 servers ready, waiting for a, b",
        "3 of 4 servers ready",
        "calling a:[b]\\x1b",
    ]


def test_the_table_shows_every_server_in_config_order_whatever_its_key(terminal: Console) -> None:
    display = Display(["files", "git", "[red]"], with_table=True, console=terminal)
    display.settled(status("[red]", tools=5), 1.26)
    display.settled(GIT, 0.2)
    display.settled(FILES, 0.1)
    display.done()
    display.close()
    table = shown(terminal).rpartition("\x1b[2K")[2]
    rows = [line.split() for line in table.splitlines()]
    assert rows[0] == ["server", "state", "protocol", "tools", "resources", "prompts", "seconds", "or", "error"]
    assert rows[1] == ["files", "running", "2025-11-25", "12", "3", "+", "2", "templates", "1", "0.1"]
    assert rows[2] == ["git", "failed", *["command", "not", "found:", "'uvx';", "install", "it"]]
    assert rows[3] == ["[red]", "running", "2025-11-25", "5", "0", "0", "1.3"]
    assert " ".join(rows[4]).startswith("2 of 3 servers running, 17 tools, ")
    assert rows[4][-2:] == ["failed:", "git"]


def test_a_server_that_sleeps_is_not_said_to_run(terminal: Console) -> None:
    display = Display(["clock"], with_table=True, console=terminal)
    display.settled(replace(CLOCK, state=ChildState.SLEEPING, protocol_version=None), 2.9)
    display.done()
    row = shown(terminal).rpartition("\x1b[2K")[2].splitlines()[1].split()
    assert row == ["clock", "sleeping", "1", "1", "0", *["starts", "when", "it", "is", "called"]]


def test_a_table_without_failures_speaks_of_none(terminal: Console) -> None:
    display = Display(["clock"], with_table=True, console=terminal)
    display.settled(CLOCK, 0.1)
    display.done()
    assert "error" not in shown(terminal)


def test_a_brief_display_has_no_table_and_stays_for_what_comes_next(terminal: Console) -> None:
    display = Display(["clock"], with_table=False, console=terminal)
    display.settled(CLOCK, 0.1)
    display.done()
    assert display._live.is_started
    display.close()
    display.close()
    assert "protocol" not in shown(terminal)


def test_what_others_write_to_stderr_meanwhile_stands_above_the_status_line(terminal: Console) -> None:
    display = Display(["clock"], with_table=False, console=terminal)
    print("[clock] hello", file=sys.stderr)
    print("protocol", file=sys.stdout)
    display.close()
    assert "[clock] hello\n" in shown(terminal)
    assert "protocol" not in shown(terminal)


class Started:
    """An app whose children have settled in this order."""

    def __init__(self, *statuses: ServerStatus, strict: bool = False) -> None:
        self._statuses = statuses
        self.children = {status.server_key: Mock(spec=Child) for status in statuses}
        self.settings = AggregatorSettings(strict=strict)

    async def settling(self) -> AsyncIterator[ServerStatus]:
        for status in self._statuses:
            yield status


async def test_failures_are_told_by_the_report_until_it_is_done_and_by_the_log_from_then_on() -> None:
    report = Report()
    at_start = ChildServerError("git", "startup", "x")
    assert report.tells(at_start)
    assert not report.tells(ChildServerError("git", "runtime", "x"))
    await follow(Started(GIT), report)  # type: ignore[arg-type]
    assert not report.tells(at_start)


async def test_when_a_strict_start_has_failed_the_log_does_not_tell_again_what_fails_until_the_end() -> None:
    report = Report()
    await follow(Started(GIT, FILES, strict=True), report)  # type: ignore[arg-type]
    assert report.tells(ChildServerError("git", "startup", "x"))


async def test_a_start_that_is_given_up_is_not_told_as_a_failure(capfd: pytest.CaptureFixture[str]) -> None:
    given_up = status("git", state=ChildState.STOPPED)  # type: ignore[arg-type]
    await follow(Started(FILES, given_up), Lines())  # type: ignore[arg-type]
    assert capfd.readouterr().err == line_of(FILES) + "\n"


@pytest.mark.parametrize(
    ("strict", "once", "is_over"), [(True, False, True), (False, True, True), (False, False, False)]
)
async def test_who_only_looks_at_a_start_or_ends_with_it_has_no_server_started_twice(
    strict: bool, once: bool, is_over: bool
) -> None:
    app = Started(GIT, FILES, strict=strict)
    await follow(app, Report(), once=once)  # type: ignore[arg-type]
    assert app.children["git"].suspend_retries.called is is_over
    assert not app.children["files"].suspend_retries.called
