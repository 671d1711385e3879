"""The log of a hub: the time of each line."""

from __future__ import annotations

import re
from io import BytesIO

from fastmcp_aggregator.local_hub.log_file import DatedLines


def test_each_line_has_one_time_however_it_is_written() -> None:
    written = BytesIO()
    lines = DatedLines(written)
    for piece in ("one ", "line\ntwo\n", '{"event": "json"}\n', "2026-01-01T00:00:00Z structlog\n", "ü\n"):
        lines.write(piece)
    lines.flush()
    shown = re.sub(r"(?m)^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ ", "T ", written.getvalue().decode())
    assert shown == 'T one line\nT two\n{"event": "json"}\nT structlog\nT ü\n'
