"""The documentation says what the servers really offer, and which clients are run."""

from __future__ import annotations

from pathlib import Path

import pytest
from print_table import clients_table, servers_table
from real_servers import requires_servers

pytestmark = pytest.mark.real

PAGE = (Path(__file__).parents[2] / "docs" / "real-servers.md").read_text(encoding="utf-8")


@requires_servers
async def test_the_table_of_servers_is_what_they_offer(tmp_path: Path) -> None:
    assert await servers_table(tmp_path) in PAGE


def test_the_table_of_clients_is_what_the_tests_run() -> None:
    assert clients_table() in PAGE
