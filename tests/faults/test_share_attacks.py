"""What one caller can do to the others, on a hub that runs: nothing. The times are measured by `share_attacks.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
from share_attacks import ATTACKS, held

pytestmark = pytest.mark.process


@pytest.mark.parametrize("name", ATTACKS)
async def test_an_attack_is_held(name: str, tmp_path: Path) -> None:
    assert await held(name, tmp_path)
