"""What the aggregator costs, measured on this machine: `python -m benchmarks.run [--rows NAME …] [--json FILE]`.

To compare checkouts, name each: `--package today=/path/of/one --package new=/path/of/other`. They take turns, round by
round, with each other and with what they are measured against.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.programs import ROOT, Package, Programs, package_of, programs, version_of
from benchmarks.rounds import Figures, Size
from benchmarks.rows import calls, clients, json_api, lists, talking
from benchmarks.rows.json_api import AT_ONCE
from benchmarks.tables import table
from benchmarks.targets import reached

Row = Callable[[Programs, list[Package], Size], list[Figures]]
ROWS: dict[str, Row] = {
    "stdio": calls.stdio,
    "http": calls.http,
    "team": calls.team,
    "remote": calls.remote,
    "json": json_api.json_api,
    "clients": clients.clients,
    "talking": talking.talking,
    "lists": lists.lists,
    "memory": lists.memories,
    "starts": lists.starts,
    "proxy": lists.proxy,
}


def machine(mcp_hub: str | None) -> dict[str, Any]:
    """Where it was measured."""
    return {
        "processor": processor(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1),
        "date": time.strftime("%Y-%m-%d"),
        "mcp_hub": version_of(mcp_hub),
    }


def processor() -> str:
    """The model of the processor, as Linux names it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.run", description=__doc__)
    parser.add_argument("--rows", nargs="+", metavar="NAME", choices=ROWS, default=[*ROWS], help=", ".join(ROWS))
    parser.add_argument(
        "--package", action="append", metavar="[LABEL=]PATH", help="a checkout whose package is measured (this one)"
    )
    default = Size()
    parser.add_argument("--rounds", type=int, default=default.rounds, help="rounds of each row (%(default)s)")
    parser.add_argument("--calls", type=int, default=default.calls, help="calls one at a time in a visit (%(default)s)")
    parser.add_argument("--burst", type=int, default=default.burst, help="calls at once in a visit (%(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=default.seconds, help="how long the row `clients` takes (%(default)s)"
    )
    parser.add_argument("--mcp-hub", metavar="FILE", help="its executable (default: on PATH; `npm install mcp-hub`)")
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results.json")
    parser.add_argument(
        "--add", action="store_true", help="keep the file's other rows, if they are of the same commits"
    )
    given = parser.parse_args()
    if given.burst < AT_ONCE:
        parser.error(f"--burst must be at least {AT_ONCE}, which is how many calls are in flight")
    return given


def added_to(before: Figures, results: Figures) -> Figures:
    """Results with the rows of a run before, so that a run can be made in parts; the load is that of the busiest.

    Raises:
        SystemExit: the run before was of something else.
    """
    if (before["packages"], before["size"]) != (results["packages"], results["size"]):
        sys.exit("the file is of other commits or sizes")
    load = max(before["machine"]["load"], results["machine"]["load"])
    return {**results, "machine": {**results["machine"], "load": load}, "rows": before["rows"]}


def main() -> None:
    """Measure the rows, print their tables, write the file after each."""
    given = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # as Ctrl-C does: what was started is ended
    hub = shutil.which(given.mcp_hub or "mcp-hub")
    size = Size(given.rounds, given.calls, given.burst, given.seconds)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        packages = [package_of(text, folder) for text in given.package or [str(ROOT)]]
        labels = [package.label for package in packages]
        if len(set(labels)) < len(labels):
            sys.exit(f"every package needs a label of its own: {', '.join(labels)}")
        for package in packages:
            with programs(folder, hub) as running:
                running.start_once(package)
        about = {package.label: package.about for package in packages}
        results: Figures = {"machine": machine(hub), "packages": about, "size": asdict(size), "rows": {}}
        if given.add and given.json.exists():
            results = added_to(json.loads(given.json.read_text()), results)
        for row in given.rows:
            print(f"\n{row}: {ROWS[row].__doc__}", flush=True)
            with programs(folder, hub) as running:
                results["rows"][row] = ROWS[row](running, packages, size)
            print(table(results["rows"][row]), flush=True)
            given.json.write_text(json.dumps(results, indent=1) + "\n")
    for label in labels:
        print(f"\n{label}:")
        for line in reached(results["rows"], label):
            print("  " + "; ".join(line))
    print(f"written to {given.json}", file=sys.stderr)


if __name__ == "__main__":
    main()
