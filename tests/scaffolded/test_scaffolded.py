"""The guide, run as it is written; and projects of extreme names in the environments that it leaves behind."""

from __future__ import annotations

import os

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


def extreme_plan(language: Language) -> Plan:
    """Long names, names that are words of the languages, and signs that need escaping."""
    return Plan(
        name="a" * 64,
        language=language,
        version="1.0.0-rc.1+build.5",
        description=('Says "hi" \\ `${x}` {y} <!-- „ö“ ' * 30)[:500].strip(),
        tools=(f"{LONG}_a", "class", "tools", "print"),
        resources=(
            Resource(name=f"{LONG}_b", uri="x+y://About/$a'b(c)?d=[e]"),
            Resource(name="import", uri="things://of/{some_key}/{other}"),
        ),
        prompts=(f"{LONG}_c", "prompts", "async"),
    )


def test_a_python_project_of_extreme_names_passes_its_checks(followed: Followed) -> None:
    folder = followed.folder
    plan = extreme_plan("python")
    write_project(folder / "extreme", rendered(plan))
    programs = folder / "my-notes" / ".venv" / "bin"
    for command in (
        ["ruff", "check"],
        ["ruff", "format", "--check"],
        ["mypy"],
        ["pytest", "-q", "-p", "no:cacheprovider"],
    ):
        run([str(programs / command[0]), *command[1:]], folder / "extreme", PYTHONPATH="src")


def test_a_typescript_project_of_extreme_names_passes_its_checks(followed: Followed) -> None:
    folder = followed.folder
    write_project(folder / "extreme-ts", rendered(extreme_plan("typescript")))
    (folder / "extreme-ts" / "node_modules").symlink_to(folder / "my-tools" / "node_modules")
    run(["npm", "run", "lint"], folder / "extreme-ts")
    run(["npm", "test"], folder / "extreme-ts")
