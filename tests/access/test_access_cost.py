"""What nobody has asked for is not loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.wire import PATIENCE

HEAVY = {"jsonschema_rs", "redis", "uvicorn", "fastmcp.server.auth.providers.jwt"}


@pytest.mark.process
def test_an_app_without_settings_loads_no_library_that_only_some_need() -> None:
    loaded = loaded_after("import fastmcp_aggregator\nfastmcp_aggregator.build_aggregator({'mcpServers': {}})")
    assert loaded & {"jsonschema_rs", "redis"} == set()


def loaded_after(code: str) -> set[str]:
    line = f"import sys\n{code}\nprint(*({HEAVY!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, timeout=PATIENCE, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "from fastmcp_aggregator.settings.model import load_settings; load_settings()",
        "from fastmcp_aggregator.cli.running.starting import load",
        "from fastmcp_aggregator.policies.limits import limits_from_settings\n"
        "from fastmcp_aggregator.settings.model import load_settings\n"
        "assert limits_from_settings(load_settings(), has_auth=True)",
        "from fastmcp_aggregator.pinning.pins import pins_from_settings",
    ],
)
def test_what_is_off_loads_no_library_of_its_own(code: str) -> None:
    assert loaded_after(code) == set()
