"""Runs the table of attacks against hubs of its own, and says what was held.

Exits with 1 if something was not. `PYTHONPATH=tests python -m attack --only jwt` runs what begins so. For a whole run
in parts, `--parts FILE` keeps what came of each, as long as the program is the same.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from attack.report import Outcome, markdown, text
from attack.running import run, with_kept
from attack.table import TABLE


def main() -> int:
    """Run, print, write; the exit code."""
    parser = argparse.ArgumentParser(prog="attack", description=__doc__)
    parser.add_argument("--only", metavar="ID", nargs="*", default=[""], help="attacks whose id begins so")
    parser.add_argument("--parts", metavar="FILE", type=Path, help="keep the outcomes here, with those of other parts")
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="write the tables here, between the markers")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="attack-") as folder:
        outcomes: list[Outcome] = asyncio.run(run(tuple(options.only), Path(folder), _tell))
    if options.parts:
        outcomes = with_kept(options.parts, outcomes)
    print(text(outcomes))
    if options.markdown and len(outcomes) < len(TABLE):
        print(f"nothing is written: {len(TABLE) - len(outcomes)} attacks were not tried", file=sys.stderr)
    elif options.markdown:
        markdown(options.markdown, outcomes)
    return 0 if outcomes and all(outcome.is_held for outcome in outcomes) else 1


def _tell(outcome: Outcome) -> None:
    verdict = "held    " if outcome.is_held else "NOT HELD"
    print(verdict, outcome.attack.id, "-", outcome.got, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
