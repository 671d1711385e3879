"""The display of a start on a terminal: a status line while children start, then a table of what came of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from fastmcp_aggregator.cli.output.report import Report, is_running, is_waking, summary_of, why_failed
from fastmcp_aggregator.cli.terminal.console import counted
from fastmcp_aggregator.escaping import printable
from fastmcp_aggregator.status.server_status import ChildState, ServerStatus

_MOST_NAMED = 3


class Display(Report):
    """Shown from the moment it is made until it is closed."""

    def __init__(self, keys: Iterable[str], *, with_table: bool, console: Console | None = None) -> None:
        super().__init__()
        self._outcomes: dict[str, tuple[ServerStatus, float] | None] = dict.fromkeys(keys)
        self._with_table = with_table
        self._console = console or Console(stderr=True)
        self._spinner = Spinner("dots", text=self._status())
        # Output of others on stderr appears above the line meanwhile. stdout is the client's: it is left alone.
        self._live = Live(
            self._spinner,
            console=self._console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=True,
        )
        self._live.start()

    def settled(self, status: ServerStatus, seconds: float) -> None:
        self._outcomes[status.server_key] = (status, seconds)
        self._spinner.update(text=self._status())

    def done(self) -> None:
        if self._with_table:
            self._live.stop()
            outcomes = [outcome for outcome in self._outcomes.values() if outcome]
            self._console.print(table_of(outcomes))
            self._console.print(Text(printable(summary_of(status for status, _ in outcomes))))

    def doing(self, what: str) -> None:
        self._spinner.update(text=Text(printable(what)))

    def close(self) -> None:
        self._live.stop()

    def _status(self) -> Text:
        waiting = [printable(key) for key, outcome in self._outcomes.items() if outcome is None]
        ready = sum(1 for outcome in self._outcomes.values() if outcome and is_running(outcome[0]))
        return Text(f"{ready} of {counted(len(self._outcomes), 'server')} ready{_waiting_for(waiting)}")


def _waiting_for(keys: Sequence[str]) -> str:
    if not keys:
        return ""
    more = f" and {len(keys) - _MOST_NAMED} more" if len(keys) > _MOST_NAMED else ""
    return f", waiting for {', '.join(keys[:_MOST_NAMED])}{more}"


def table_of(outcomes: Sequence[tuple[ServerStatus, float]]) -> Table:
    """The outcome of each child, with the seconds that its start took."""
    table = Table("server", "state", "protocol", box=None, pad_edge=False, header_style="bold")
    for heading in ("tools", "resources", "prompts"):
        table.add_column(heading, justify="right")
    table.add_column("seconds" if all(is_running(status) for status, _ in outcomes) else "seconds or error")
    for status, seconds in outcomes:
        table.add_row(*_cells(status, seconds))
    return table


def _cells(status: ServerStatus, seconds: float) -> list[Text]:
    key = Text(printable(status.server_key))
    if not is_running(status):
        empty = [Text("")] * 4
        return [key, Text("failed", "red"), *empty, Text(printable(why_failed(status)), "red")]
    is_asleep = status.state is ChildState.SLEEPING
    return [
        key,
        _state(status),
        Text(printable(status.protocol_version or "")),
        Text(str(status.tools)),
        Text(_resources(status)),
        Text(str(status.prompts)),
        Text("starts when it is called" if is_asleep else f"{seconds:.1f}"),
    ]


def _state(status: ServerStatus) -> Text:
    if is_waking(status):
        return Text("starting", "dim")
    return Text("sleeping", "dim") if status.state is ChildState.SLEEPING else Text("running", "green")


def _resources(status: ServerStatus) -> str:
    return f"{status.resources} + {status.templates} templates" if status.templates else str(status.resources)
