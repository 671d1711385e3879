"""The guide, followed once for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from following import Followed, run
from guide import outputs, script
from support.harness import free_port

from fastmcp_aggregator.scaffold.project import example_plan, rendered, write_project
from fastmcp_aggregator.scaffold.rules import Plan


@pytest.fixture(scope="session")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Followed:
    """The port is a free one; everything else is as it is written."""
    folder = tmp_path_factory.mktemp("guide")
    printed = run(["bash", "-c", script().replace("8765", str(free_port()))], folder)
    return Followed(folder, outputs(printed))


@pytest.fixture(scope="session")
def typescript_service(followed: Followed) -> Path:
    """A service in TypeScript, built and tested, with the packages that the guide has installed."""
    folder = followed.folder / "team-tools"
    write_project(folder, rendered(example_plan(Plan(name="team-tools", language="typescript", hub_grade=True))))
    run(["npm", "install", "--silent"], folder)
    run(["npm", "run", "lint"], folder)
    run(["npm", "test"], folder)
    return folder / "dist"
