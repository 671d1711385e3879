"""The faults: each is produced for real, and every figure that is promised for it is measured.

    PYTHONPATH=tests python -m benchmarks.faults [--only NAME …] [--json FILE]

The servers are processes of `tests/support/programs/lean_child.py`, and HTTP servers of
`tests/support/remote_server.py`. Where a ratio
is promised, quiet times and the fault take turns in one run. What takes long and waits most of the time runs at the
end, side by side. Exits with 1 if a promise was not kept.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.faults import clients, crashing, ending, flooding, remote, starting
from benchmarks.faults.figures import Figure, as_json, table

Fault = Callable[[Path], Awaitable[list[Figure]]]

ONE_BY_ONE: list[Fault] = [
    starting.a_command_that_does_not_exist,
    starting.a_server_that_hangs_at_initialize,
    crashing.kill_9,
    crashing.stdout_closed,
    crashing.silence,
    crashing.grandchildren,
    flooding.junk,
    flooding.stderr_flood,
    flooding.notifications,
    flooding.oversized_lines,
    flooding.endless_line,
    flooding.stdin_not_read,
    remote.gzip_bomb,
    clients.cancellation,
    clients.dead_client_on_stdio,
    clients.dead_client_over_http,
    clients.too_many_requests,
    ending.second_signal,
    ending.aggregator_killed,
]
SIDE_BY_SIDE: list[Fault] = [
    starting.a_server_that_exits_at_start,
    crashing.sigstop,
    remote.refused_credentials,
    ending.sigterm_on_stdio,
    ending.sigterm_over_http,
]
NAMES = [fault.__name__ for fault in (*ONE_BY_ONE, *SIDE_BY_SIDE)]


async def figures_of(names: set[str]) -> list[Figure]:
    """Produce the faults of these names."""
    figures: list[Figure] = []
    for fault in ONE_BY_ONE:
        if fault.__name__ in names:
            figures += await produced(fault)
    chosen = (fault for fault in SIDE_BY_SIDE if fault.__name__ in names)
    for more in await asyncio.gather(*map(produced, chosen)):
        figures += more
    return figures


async def produced(fault: Fault) -> list[Figure]:
    """Produce one fault, in a folder of its own. One that cannot be produced is a promise that was not kept."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            figures = await fault(Path(folder))
    except Exception:
        traceback.print_exc()
        figures = [Figure(fault.__name__, "could be measured", True, False, exact=True)]
    missed = sum(not figure.is_kept for figure in figures)
    print(f"{fault.__name__}: {f'{missed} MISSED' if missed else 'ok'}", file=sys.stderr, flush=True)
    return figures


def main() -> None:
    """Produce the faults, print what was measured, and write it to a file if told so."""
    parser = argparse.ArgumentParser(prog="benchmarks.faults", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=NAMES, default=NAMES, help=", ".join(NAMES))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    figures = asyncio.run(figures_of(set(arguments.only)))
    print(table(figures))
    if arguments.json:
        arguments.json.write_text(json.dumps(as_json(figures), indent=2) + "\n")
    sys.exit(not all(figure.is_kept for figure in figures))


if __name__ == "__main__":
    main()
