"""Settings of the tests as a whole."""

from __future__ import annotations

import os
import tempfile

# FastMCP reads it when it is imported: a test keeps nothing in the home of who runs it.
os.environ["FASTMCP_HOME"] = tempfile.mkdtemp(prefix="fastmcp-home-")

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is slow at making examples, too; that says nothing about the code.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Say in the last line what a plain run leaves out."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    marks = config.getoption("markexpr").removeprefix("not ").strip("()").split(" or ")
    if reporter is not None and not hasattr(config, "workerinput") and len(marks) > 1:
        *most, last = marks
        reporter.write_line(f"Left out: the tests marked {', '.join(most)} or {last}. All: nox -s tests")
