"""The command line, run in the process of the tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from fastmcp_aggregator.cli.main import main


class Ended(NamedTuple):
    """Its exit code, and what was written."""

    code: int
    out: str
    err: str


def run_main(capfd: pytest.CaptureFixture[str], arguments: Sequence[str]) -> Ended:
    return Ended(main(arguments), *capfd.readouterr())
