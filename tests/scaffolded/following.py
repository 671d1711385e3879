"""Commands in the folder in which the guide is followed."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

_PATIENCE = 600.0
_OF_SESSION = ("VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT", "UV_PYTHON", "PYTEST_ADDOPTS")
"""Variables that are for the tests that run this, not for a new server's own."""


@dataclass(frozen=True, slots=True)
class Followed:
    """The folder in which the guide has been followed, and what each of its steps has printed."""

    folder: Path
    printed: list[str]

    @property
    def python(self) -> Path:
        """The interpreter that has what a service in Python needs."""
        return self.folder / "team-notes" / ".venv" / "bin" / "python"


def run(command: list[str], folder: Path, **variables: str) -> str:
    """What a command prints, stderr included; it must succeed."""
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **variables}
    for name in _OF_SESSION:
        environment.pop(name, None)
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
