"""The guide, followed once for all tests."""

from __future__ import annotations

import pytest
from following import Followed, run
from guide import outputs, script
from support.harness import free_port


@pytest.fixture(scope="session")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Followed:
    """The port is a free one; everything else is as it is written."""
    folder = tmp_path_factory.mktemp("guide")
    printed = run(["bash", "-c", script().replace("8765", str(free_port()))], folder)
    return Followed(folder, outputs(printed))
