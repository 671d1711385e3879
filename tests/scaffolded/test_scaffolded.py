"""The guide, run as it is written; and projects of extreme names in the environments that it leaves behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from following import Followed, run
from guide import is_in_order, steps

from fastmcp_aggregator.scaffold.project import rendered, write_project
from fastmcp_aggregator.scaffold.rules import Language, Plan, Resource

pytestmark = pytest.mark.skipif("SCAFFOLD" not in os.environ, reason="run by the nox session `scaffold`")

LONG = "x" * 61


@pytest.mark.parametrize("number", range(len(steps())))
def test_each_step_of_the_guide_prints_what_it_says(number: int, followed: Followed) -> None:
    step = steps()[number]
    assert is_in_order(step.printed, followed.printed[number]), (
        f"{step.printed} are not in:\n{followed.printed[number]}"
    )


def extreme_plan(language: Language, *, hub_grade: bool) -> Plan:
    """Long names, names that are words of the languages, and signs that need escaping."""
    return Plan(
        name="a" * 64,
        language=language,
        version="1.0.0-rc.1+build.5",
        description=('Says "hi" \\ `${x}` {y} <!-- „ö“ ' * 30)[:500].strip(),
        tools=(f"{LONG}_a", "class", "tools", "print", "mcp", "settings"),
        resources=(
            Resource(name=f"{LONG}_b", uri="x+y://About/$a'b(c)?d=[e]"),
            Resource(name="import", uri="things://of/{some_key}/{other}"),
        ),
        prompts=(f"{LONG}_c", "prompts", "async"),
        hub_grade=hub_grade,
    )


@pytest.mark.parametrize("hub_grade", [False, True])
def test_a_python_project_of_extreme_names_passes_its_checks(hub_grade: bool, followed: Followed) -> None:
    folder = followed.folder / f"extreme-{hub_grade}"
    write_project(folder, rendered(extreme_plan("python", hub_grade=hub_grade)))
    run(["uv", "sync", "--quiet"], folder)
    for command in (["ruff", "check"], ["ruff", "format", "--check"], ["mypy"], ["pytest", "-q"]):
        run(["uv", "run", *command], folder)


@pytest.mark.parametrize("hub_grade", [False, True])
def test_a_typescript_project_of_extreme_names_passes_its_checks(
    hub_grade: bool, followed: Followed, typescript_service: Path
) -> None:
    folder = followed.folder / f"extreme-ts-{hub_grade}"
    write_project(folder, rendered(extreme_plan("typescript", hub_grade=hub_grade)))
    (folder / "node_modules").symlink_to(typescript_service.parent / "node_modules")
    run(["npm", "run", "lint"], folder)
    run(["npm", "test"], folder)
