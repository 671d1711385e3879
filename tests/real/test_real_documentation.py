"""The documentation says what the servers really offer."""

from __future__ import annotations

from pathlib import Path

import pytest
from print_table import table
from real_servers import requires_servers

pytestmark = [pytest.mark.real, requires_servers]

PAGE = Path(__file__).parents[2] / "docs" / "real-servers.md"


async def test_the_table_in_the_documentation_is_what_the_servers_offer(tmp_path: Path) -> None:
    assert await table(tmp_path) in PAGE.read_text(encoding="utf-8")
