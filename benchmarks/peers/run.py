"""What other aggregators cost and do, beside this one: `python -m benchmarks.peers.run [--rows NAME …] [--json FILE]`.

It installs the peers that `benchmarks.peers.table` names, each into a folder of its own, runs each in front of the
same servers, turn about, and writes what it found into the file, where rows that are not measured stay as they are.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from benchmarks.peers import conduct, costs, real
from benchmarks.peers.bench import Bench
from benchmarks.peers.bounds import memory_bound
from benchmarks.peers.installing import installed
from benchmarks.peers.table import PEERS
from benchmarks.programs import ROOT, git
from benchmarks.rounds import Figures, Size
from benchmarks.run import machine

Row = Callable[[Bench], list[Figures]]
ROWS: dict[str, Row] = {
    "calls": costs.calls,
    "lists": costs.list_of_1000,
    **{f"first_list_{count}": costs.first_list(count) for count in costs.COUNTS},
    "conduct": conduct.conduct,
    "real": real.real,
}
ALONE = {"conduct"}
"""Rows whose peers do not take turns, so that lines of peers that are not measured can stay."""
NAMES = list(dict.fromkeys(peer.name for peer in PEERS))


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.peers.run", description=__doc__)
    parser.add_argument("--rows", nargs="+", metavar="NAME", choices=ROWS, default=[*ROWS], help=", ".join(ROWS))
    parser.add_argument("--peers", nargs="+", metavar="NAME", choices=NAMES, default=NAMES, help=", ".join(NAMES))
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each row (%(default)s)")
    parser.add_argument("--calls", type=int, default=200, help="calls one at a time in a visit (%(default)s)")
    parser.add_argument("--burst", type=int, default=400, help="calls at once in a visit (%(default)s)")
    parser.add_argument("--installed", type=Path, default=ROOT / ".peers", help="where the peers are (%(default)s)")
    parser.add_argument("--json", type=Path, default=ROOT / "docs" / "peers.json", help="(%(default)s)")
    return parser.parse_args()


def main() -> None:
    """Install, measure, write the file after each row."""
    given = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # as Ctrl-C does: what was started is ended
    chosen = [peer for peer in PEERS if peer.name in given.peers]
    results: Figures = json.loads(given.json.read_text()) if given.json.exists() else {"peers": {}, "rows": {}}
    for peer in chosen:
        results["peers"][peer.name] = installed(peer, given.installed)
        print(f"{peer.name}: {results['peers'][peer.name]}", flush=True)
    running = [peer for peer in chosen if "version" in results["peers"][peer.name]]
    size = Size(given.rounds, given.calls, given.burst)
    with tempfile.TemporaryDirectory() as folder, memory_bound():
        for name in given.rows:
            print(f"\n{name}: {ROWS[name].__doc__}", flush=True)
            about = {**machine(None), "commit": commit(), "size": asdict(size)}
            lines = ROWS[name](Bench(given.installed, Path(folder), size, running))
            before = results["rows"].get(name, {}).get("lines", []) if name in ALONE else []
            results["rows"][name] = {"about": about, "lines": joined(before, lines)}
            given.json.write_text(json.dumps(results, indent=1) + "\n")
            for line in lines:
                print(line, flush=True)


def joined(before: list[Figures], lines: list[Figures]) -> list[Figures]:
    """These lines, and those of others, in the order of the table."""
    found = {line["name"]: line for line in (*before, *lines)}
    order = [peer.label for peer in PEERS]
    return sorted(found.values(), key=lambda line: order.index(line["name"]) if line["name"] in order else -1)


def commit() -> str:
    """The last commit that has changed the package, and whether there are changes since."""
    changes = "+" if git(ROOT, "status", "--porcelain", "--", "fastmcp_aggregator") else ""
    return git(ROOT, "log", "-1", "--format=%h", "--", "fastmcp_aggregator") + changes


if __name__ == "__main__":
    main()
