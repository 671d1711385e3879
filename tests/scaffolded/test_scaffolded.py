"""The guide, run as it is written; and projects of extreme names in the environments that it leaves behind."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from guide import is_in_order, outputs, script, steps
from harness import free_port

from fastmcp_aggregator.scaffold.project import rendered, write_project
from fastmcp_aggregator.scaffold.rules import Language, Plan, Resource

pytestmark = pytest.mark.skipif("SCAFFOLD" not in os.environ, reason="run by the nox session `scaffold`")

MINUTES = 60.0
LONG = "x" * 61


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder in which the guide has been followed, and what each of its steps has printed."""
    folder = tmp_path_factory.mktemp("guide")
    port = str(free_port())
    printed = run(["bash", "-c", script().replace("8765", port)], folder)
    return folder, outputs(printed)


def run(command: list[str], folder: Path, **variables: str) -> str:
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **variables}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=6 * MINUTES,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("number", range(len(steps())))
def test_each_step_of_the_guide_prints_what_it_says(number: int, followed: tuple[Path, list[str]]) -> None:
    _folder, printed = followed
    step = steps()[number]
    assert is_in_order(step.printed, printed[number]), f"{step.printed} are not in:\n{printed[number]}"


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


def test_a_python_project_of_extreme_names_passes_its_checks(followed: tuple[Path, list[str]]) -> None:
    folder, _printed = followed
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


def test_a_typescript_project_of_extreme_names_passes_its_checks(followed: tuple[Path, list[str]]) -> None:
    folder, _printed = followed
    write_project(folder / "extreme-ts", rendered(extreme_plan("typescript")))
    (folder / "extreme-ts" / "node_modules").symlink_to(folder / "my-tools" / "node_modules")
    run(["npm", "run", "lint"], folder / "extreme-ts")
    run(["npm", "test"], folder / "extreme-ts")
