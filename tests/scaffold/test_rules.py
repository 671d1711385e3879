"""The rules of new servers: what may be named how, and that everything wrong is told at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fastmcp_aggregator.scaffold.rules import Plan, Resource


def plan(**given: Any) -> Plan:
    return Plan(**{"name": "my-server", **given})


@pytest.mark.parametrize("name", ["a", "my-server", "7zip", "-", "a" * 64, "json", "class", "-a-"])
def test_a_name_within_the_rule_is_taken(name: str) -> None:
    assert plan(name=name).problems() == []


@pytest.mark.parametrize("name", ["", "My", "my_server", "my server", "a" * 65, "my-server\n", "é", "a.b"])
def test_a_name_beyond_the_rule_is_refused(name: str) -> None:
    (problem,) = plan(name=name).problems()
    assert "write a-z, 0-9 and `-`, at most 64 characters" in problem


@pytest.mark.parametrize("name", ["fastmcp", "zod", "pydantic-settings", "pyproject"])
def test_a_project_is_not_called_like_what_it_depends_on(name: str) -> None:
    assert "is that of a library or file" in plan(name=name).problems()[0]


@pytest.mark.parametrize(
    ("name", "project", "package"),
    [
        ("my-server", "my-server", "my_server"),
        ("json", "json", "json_server"),
        ("class", "class", "class_server"),
        ("7zip", "7zip", "server_7zip"),
        ("test", "test", "server_test"),
        ("tests", "tests", "server_tests"),
        ("test-server", "test-server", "server_test_server"),
        ("conftest", "conftest", "server_conftest"),
        ("testimony", "testimony", "testimony"),
        ("-a-", "a", "a"),
        ("---", "server", "server"),
    ],
)
def test_the_project_and_its_package_have_names_that_python_and_pip_take(name: str, project: str, package: str) -> None:
    made = plan(name=name)
    assert (made.project, made.package) == (project, package)


@pytest.mark.parametrize("version", ["0.1.0", "1.2.3-rc.1+build.5", "10.0.0-0a"])
def test_a_semantic_version_is_taken(version: str) -> None:
    assert plan(version=version).problems() == []


@pytest.mark.parametrize("version", ["1", "1.0", "01.0.0", "1.0.0-", "v1.0.0", "1.0.0\n", "1.0.0-01"])
def test_any_other_version_is_refused(version: str) -> None:
    assert "is not a semantic version" in plan(version=version).problems()[0]


@pytest.mark.parametrize("name", ["Fetch", "1st", "_x", "with-dash", "a" * 65, "", "x\n"])
def test_names_of_components_are_held_to_one_rule(name: str) -> None:
    found = plan(tools=(name,), resources=(Resource(name=name, uri="a://b"),), prompts=(name,)).problems()
    assert [kind for kind in ("tool", "resource", "prompt") if any(f"the {kind} name" in text for text in found)] == [
        "tool",
        "resource",
        "prompt",
    ]


def test_a_name_is_given_once_whatever_it_names() -> None:
    (problem,) = plan(tools=("a", "b"), prompts=("a",)).problems()
    assert "the name 'a' is given more than once" in problem


@pytest.mark.parametrize("uri", ["notes://{name}", "info://about", "https://example.com/{a}/{b}?x=1", "urn-x://a"])
def test_a_uri_may_be_static_or_a_template(uri: str) -> None:
    assert plan(resources=(Resource(name="x", uri=uri),)).problems() == []


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("about", "is not one"),
        ("a://b c", "is not one"),
        ('a://b"', "is not one"),
        ("a://b\n", "is not one"),
        ("a://{x", "is not one"),
        ("a://{{x}}", "is not one"),
        ("a://{+x}", "write a plain variable"),
        ("a://{}", "write a plain variable"),
        ("a://{class}", "write a plain variable"),
        ("a://{x}/{x}", "the name 'x' is given more than once"),
        ("https://example.com", "has no path"),
    ],
)
def test_any_other_uri_is_refused(uri: str, words: str) -> None:
    assert any(words in problem for problem in plan(resources=(Resource(name="x", uri=uri),)).problems())


@pytest.mark.parametrize(("text", "words"), [("x" * 501, "at most 500"), ("two\nlines", "one line")])
def test_a_description_is_one_line_of_limited_length(text: str, words: str) -> None:
    assert words in plan(description=text).problems()[0]


def test_everything_that_is_wrong_is_told_at_once() -> None:
    wrong = plan(name="No", version="1", tools=("A",), resources=(Resource(name="r", uri="x"),), description="x" * 501)
    assert len(wrong.problems()) == 5


def _needed_by(name: str, extras: frozenset[str] = frozenset()) -> Iterator[str]:
    """What a project is installed with that depends on this."""
    seen: set[tuple[str, frozenset[str]]] = set()
    left = [(name, extras)]
    while left:
        library, chosen = left.pop()
        key = canonicalize_name(library), chosen
        if key in seen:
            continue
        seen.add(key)
        yield key[0]
        try:
            lines = metadata.requires(library) or []
        except metadata.PackageNotFoundError:  # it is for another system
            continue
        for needed in map(Requirement, lines):
            marker = needed.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in chosen or {""}):
                left.append((needed.name, frozenset(needed.extras)))


def test_a_project_and_its_package_hide_nothing_that_the_server_is_installed_with() -> None:
    tools = ("mypy", "pytest", "pytest-asyncio", "ruff", "pydantic-settings", "fastmcp")
    libraries = {each for tool in tools for each in _needed_by(tool)}
    libraries |= set(_needed_by("fastmcp-aggregator", frozenset({"service"})))
    modules = {
        module
        for module, names in metadata.packages_distributions().items()
        if libraries & set(map(canonicalize_name, names)) and re.fullmatch("[a-z0-9_]+", module)
    }
    assert {name for name in libraries if not plan(name=name).problems()} == set()
    names = {module.replace("_", "-") for module in modules}
    taken = {name for name in names if not plan(name=name).problems()}
    assert {name for name in taken if plan(name=name).package in modules} == set()
