"""The status table of a running instance; with `--watch`, again and again."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fastmcp_aggregator.cli.output.report import WHOSE
from fastmcp_aggregator.cli.running.given_files import given_text
from fastmcp_aggregator.cli.running.instance import (
    Instance,
    InstanceError,
    NoInstanceError,
    Sample,
    ServerState,
    base_of,
)
from fastmcp_aggregator.cli.terminal.console import counted, put, put_json, put_table, say
from fastmcp_aggregator.cli.terminal.exits import FAILED, FINE
from fastmcp_aggregator.cli.terminal.signals import end_on_signals
from fastmcp_aggregator.escaping import printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

_WINDOW = 60.0
"""Seconds for which --watch tells rates and quantiles."""
_HEADINGS = ("server", "state", "for", "restarts", "calls", "calls/s", "p50", "p99", "last error")
_COLOURS = {"running": "green", "failed": "red", "initializing": "yellow", "sleeping": "dim"}
_MOST_KEYS = 3
_WITHOUT_METRICS = (
    "It keeps no metrics, or does not show them to this key. To see calls and their times, start it with "
    "FASTMCP_AGGREGATOR_METRICS=true, and use a key with the role `metrics`."
)


@dataclass(frozen=True, slots=True)
class Row:
    """One server. Times are in seconds; what is not known is None."""

    server: str
    state: str
    since: float | None
    restarts: int
    calls: int | None
    calls_per_second: float | None
    p50: float | None
    p99: float | None
    last_error: str | None
    dropped_stderr_lines: int
    isolation: str | None
    isolation_reason: str | None


def instance_of(options: argparse.Namespace) -> Instance:
    return Instance(base_of(options.url), _api_key(options.api_key_file))


def run(options: argparse.Namespace) -> int:
    instance = instance_of(options)
    if options.wake is not None:
        instance.wake(options.wake)
    if options.watch:
        return _watch(instance, options.every, as_json=options.json)
    sample = instance.sample()
    rows = rows_of([sample])
    if options.json:
        put_json(_document(instance, sample, rows))
    else:
        put_table([*_lines(rows), *_notices(sample)], f"fastmcp-aggregator status {instance.url} --json")
        if sample.calls is None:
            say(_WITHOUT_METRICS)
    return FINE if sample.is_ready else FAILED


def run_restart(options: argparse.Namespace) -> int:
    instance = instance_of(options)
    try:
        instance.restart(options.server)
    except NoInstanceError:
        raise
    except InstanceError as error:
        raise InstanceError(f"{error}{_meant(instance, options.server)}") from None
    say(f"{options.server} is being restarted; fastmcp-aggregator status {options.url} shows when it is up")
    return FINE


def _meant(instance: Instance, server: str) -> str:
    from fastmcp_aggregator.naming.suggestions import closest  # noqa: PLC0415 - only for those who have mistyped

    try:
        similar = closest(server, instance.sample().servers, 1)
    except InstanceError:
        return ""
    return f"; did you mean {similar[0]!r}?" if similar and similar[0] != server else ""


def _api_key(file: str | None) -> str | None:
    if file is None:
        return os.environ.get("FASTMCP_AGGREGATOR_API_KEY") or None
    return given_text(file, f"--api-key-file {file}").strip()


def _watch(instance: Instance, every: float, *, as_json: bool) -> int:
    """Until a signal. An instance that does not answer may come back, so it is asked again."""
    end_on_signals(FINE)
    if not as_json and sys.stdout.isatty():
        return show_in_place(table_of(instance, *found) for found in samples_of(instance, every))
    for samples, error in samples_of(instance, every):
        if error is not None:
            say(error)
        elif as_json:
            document = _document(instance, samples[-1], rows_of(samples))
            put_json(document, indent=None)
        else:
            put("\n".join([*_lines(rows_of(samples)), *_notices(samples[-1]), ""]))
    return FINE


def show_in_place(shown: Iterable[RenderableType]) -> int:
    """Show one after the other in the same place of the terminal, until a signal."""
    from rich.console import Console  # noqa: PLC0415 - rich is for terminals only
    from rich.live import Live  # noqa: PLC0415 - as above

    with Live(console=Console(), auto_refresh=False, screen=False) as live:
        end_on_signals(FINE, live.stop)
        for each in shown:
            live.update(each, refresh=True)
    return FINE


def regularly(every: float) -> Iterator[float]:
    """Now and each `every` seconds, for ever: when it is, by a clock that never jumps."""
    while True:
        began = time.monotonic()
        yield began
        time.sleep(max(0.0, every - (time.monotonic() - began)))


def samples_of(instance: Instance, every: float) -> Iterator[tuple[Sequence[Sample], str | None]]:
    """The samples of the last minute, oldest first, or why there is no new one; for ever."""
    samples: deque[Sample] = deque()
    for began in regularly(every):
        error = None
        try:
            samples.append(instance.sample())
        except InstanceError as failure:
            error = str(failure).splitlines()[0]
        while len(samples) > 2 and samples[1].at < began - _WINDOW:
            samples.popleft()
        yield samples, error


def rows_of(samples: Sequence[Sample]) -> list[Row]:
    """A row for each server, as of the last sample; what is counted is counted since the first, if there are more."""
    if not samples:
        return []
    first, last = samples[0], samples[-1]
    return [_row(key, server, first, last) for key, server in last.servers.items()]


def _row(key: str, server: ServerState, first: Sample, last: Sample) -> Row:
    total = (last.calls or {}).get(key)
    seconds = last.at - first.at
    lately = None if total is None else total.since((first.calls or {}).get(key)) if seconds else total
    has_rate = last.calls is not None and seconds > 0
    return Row(
        server=key,
        state="cut off" if server.get("is_cut_off") else server["state"],
        since=server.get("since"),
        restarts=server.get("restarts", 0),
        calls=None if last.calls is None else int(total.calls if total else 0),
        calls_per_second=(lately.calls / seconds if lately else 0.0) if has_rate else None,
        p50=lately.quantile(0.5) if lately else None,
        p99=lately.quantile(0.99) if lately else None,
        last_error=server.get("last_error"),
        dropped_stderr_lines=server.get("dropped_stderr_lines", 0),
        isolation=server.get("isolation"),
        isolation_reason=server.get("isolation_reason"),
    )


def _document(instance: Instance, sample: Sample, rows: Sequence[Row]) -> dict[str, Any]:
    servers = {row.server: {k: v for k, v in asdict(row).items() if k != "server"} for row in rows}
    about = {"url": instance.url, "ready": sample.is_ready, "metrics": sample.calls is not None}
    noticed = {"refused_files": sample.refused_files, "expiring_keys": sample.expiring_keys}
    return {**about, **noticed, "servers": servers}


def _cells(row: Row) -> list[str]:
    return [
        printable(row.server),
        printable(row.state),
        duration(row.since),
        str(row.restarts),
        "" if row.calls is None else str(row.calls),
        "" if row.calls_per_second is None else f"{row.calls_per_second:.1f}",
        _milliseconds(row.p50),
        _milliseconds(row.p99),
        printable((row.last_error or "").partition("\n")[0]),
    ]


def _lines(rows: Sequence[Row]) -> Iterator[str]:
    table = [list(_HEADINGS), *map(_cells, rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(_HEADINGS))]
    for line in table:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
    for isolation, whose in WHOSE.items():
        servers = [printable(row.server) for row in rows if row.isolation == isolation != "shared"]
        if servers:
            yield f"{whose}: {', '.join(servers)}"
    for row in rows:
        if row.dropped_stderr_lines:
            yield f"{printable(row.server)} {flood_of(row.dropped_stderr_lines)}"


def _notices(sample: Sample) -> Iterator[str]:
    """The notices of the instance: files that it cannot use as they are now, and keys that expire soon."""
    for what, about in sample.refused_files.items():
        instead = "all keys are rejected" if what == "keys" else "what it said before stays in use"
        problem = printable(" ".join((about.get("problem") or "its log says why").split()))
        yield f"the {what} file has been refused for {duration(about.get('since'))}, and {instead}: {problem}"
    for key in sample.expiring_keys[:_MOST_KEYS]:
        expires = str(key.get("expires"))[:10]
        yield printable(f"the key {key.get('id')} of {key.get('name')} expires on {expires}")
    if len(sample.expiring_keys) > _MOST_KEYS:
        yield "More keys expire soon: fastmcp-aggregator keys list"


def table_of(instance: Instance, samples: Sequence[Sample], error: str | None) -> Table:
    """The table of the last samples; its caption says why there is nothing new."""
    from rich.table import Table  # noqa: PLC0415 - rich is for terminals only
    from rich.text import Text  # noqa: PLC0415 - as above

    without = samples and samples[-1].calls is None
    notices = "\n".join(_notices(samples[-1])) if samples else ""
    words = error or notices
    table = Table(
        *_HEADINGS,
        title=Text(instance.url, "bold"),
        title_justify="left",
        caption=Text(words or (_WITHOUT_METRICS if without else "Ctrl-C ends."), "red" if words else "dim"),
        caption_justify="left",
        box=None,
        pad_edge=False,
    )
    for row in rows_of(samples):
        table.add_row(*(Text(cell, _COLOURS.get(cell, "")) for cell in _cells(row)))
    return table


def text_of(lines: Iterable[str]) -> Text:
    """Lines for a terminal, each cut to its width."""
    from rich.text import Text  # noqa: PLC0415 - rich is for terminals only

    return Text("\n".join(map(printable, lines)), no_wrap=True, overflow="ellipsis")


def flood_of(dropped: int) -> str:
    """The remark on a server whose lines on stderr were too many."""
    return f"floods stderr: {counted(dropped, 'line')} left out of the log"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"  # buckets are coarse
