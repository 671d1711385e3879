"""What one caller can do to the others, on a hub that runs: nothing. `nox -s attack` tries more, and looks at times."""

from __future__ import annotations

from pathlib import Path

import pytest
from share_attacks import ATTACKS, held

pytestmark = pytest.mark.process


LONG = {"a flood of calls", "answers that are not read", "calls that hang", "inputs of 4 MiB", "sessions", "streams"}


@pytest.mark.parametrize("name", [name for name in ATTACKS if name not in LONG])
async def test_an_attack_is_held(name: str, tmp_path: Path) -> None:
    assert await held(name, tmp_path)
