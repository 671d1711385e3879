"""Every setting, option, error code, metric and route is in the documentation, and nothing that does not exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest

from fastmcp_aggregator import AggregatorSettings, ServerSettings, ServerStatus, build_aggregator, errors
from fastmcp_aggregator import __all__ as public
from fastmcp_aggregator.cli.commands import all_commands
from fastmcp_aggregator.cli.terminal.exits import EXPLAINED

DOCS = Path(__file__).parents[2] / "docs"
PARSERS = {command.name: command.parser() for command in all_commands().values()}


@cache
def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def section(name: str, heading: str) -> str:
    """What stands on a page under a heading, up to the next of the same rank."""
    begin = re.search(rf"^(#+) {re.escape(heading)}$", page(name), re.MULTILINE)
    assert begin is not None, f"docs/{name}.md has no section {heading!r}"
    rest = page(name)[begin.end() :]
    end = re.search(rf"^#{{1,{len(begin[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def first_cells(text: str) -> list[str]:
    """What stands in backticks in the first column of all tables."""
    rows = (line for line in text.splitlines() if line.startswith("| "))
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])]


# Settings.


def test_every_setting_is_on_its_page_and_no_other() -> None:
    general = page("settings").partition("## Settings of one server")[0]
    assert sorted(first_cells(general)) == sorted(AggregatorSettings.model_fields)


def test_every_setting_has_its_environment_variable_beside_it() -> None:
    for name in AggregatorSettings.model_fields:
        assert re.search(rf"^\| `{name}` \| `FASTMCP_AGGREGATOR_{name.upper()}`", page("settings"), re.MULTILINE), name


def test_every_setting_of_one_server_is_on_its_page_and_no_other() -> None:
    assert sorted(first_cells(section("settings", "Settings of one server"))) == sorted(ServerSettings.model_fields)


def plain_defaults() -> Iterator[tuple[str, str]]:
    for name, field in AggregatorSettings.model_fields.items():
        if isinstance(field.default, bool):
            yield name, str(field.default).lower()
        elif isinstance(field.default, int | float | str):
            yield name, f"{field.default:g}" if isinstance(field.default, float) else str(field.default)


@pytest.mark.parametrize(("name", "default"), list(plain_defaults()))
def test_the_default_of_a_setting_is_the_one_in_the_code(name: str, default: str) -> None:
    row = re.search(rf"^\| `{name}` \| [^|]* \| ([^|]*) \|", page("settings"), re.MULTILINE)
    assert row is not None
    assert row[1].strip() == f"`{default}`"


# The command line.


MORE = {"import": "clients", "install": "clients", "uninstall": "clients", "new": "writing-a-server"}
"""Commands that have a page of their own."""


@pytest.mark.parametrize("command", PARSERS)
def test_every_command_is_described_with_all_its_options(command: str) -> None:
    assert re.search(rf"^## .*\b{command}\b", page("command-line"), re.MULTILINE)
    about = page("command-line") + (page(MORE[command]) if command in MORE else "")
    options = {option for action in PARSERS[command]._actions for option in action.option_strings}
    assert not {option for option in options if option.startswith("--") and not re.search(rf"{option}\b", about)}


def test_no_section_names_an_option_that_its_command_does_not_have() -> None:
    every = {option for parser in PARSERS.values() for action in parser._actions for option in action.option_strings}
    assert set(first_cells_of_options(page("command-line"))) <= every


def first_cells_of_options(text: str) -> Iterator[str]:
    for name in first_cells(text):
        if name.startswith("--"):
            yield re.split(r"[ =]", name)[0]


def test_every_exit_code_is_explained_in_the_same_words() -> None:
    codes = dict(re.findall(r"^  (\d)  (.+)$", EXPLAINED, re.MULTILINE))
    assert codes
    for code, meaning in codes.items():
        assert f"| {code} | {meaning} |" in page("errors")


# Errors.


def test_every_error_is_explained() -> None:
    names = [name for name in public if isinstance(getattr(errors, name, None), type) and name != "ConfigProblem"]
    assert len(names) > 4
    for name in names:
        assert name in section("errors", "In Python")


@pytest.mark.parametrize("codes", [errors.ConfigErrorCode, errors.Phase], ids=["code", "phase"])
def test_every_code_and_phase_is_explained(codes: Any) -> None:
    assert set(get_args(codes)) <= set(first_cells(section("errors", "In Python")))


def sources() -> Iterator[str]:
    for file in (Path(errors.__file__).parent).rglob("*.py"):
        yield file.read_text(encoding="utf-8")


def test_every_error_code_of_our_own_is_in_the_table() -> None:
    written = {code for text in sources() for code in re.findall(r"-320\d\d\b|-32[678]\d\d\b", text)}
    explained = set(re.findall(r"-32\d\d\d", page("errors") + page("transparency")))
    assert written
    assert written <= explained


# Metrics and routes.


async def test_every_metric_is_on_its_page_and_no_other() -> None:
    config = {"mcpServers": {}}
    async with build_aggregator(config, metrics=True) as hub:
        rendered = await hub.rendered_metrics()
    assert rendered is not None
    kept = {
        name.removeprefix("fastmcp_aggregator_") for name in re.findall(r"^# TYPE (\S+)", rendered[0].decode(), re.M)
    }
    kept = {name for name in kept if not name.startswith(("process_", "python_")) and not name.endswith("_created")}
    assert kept == set(first_cells(section("observability", "Metrics")))


def routes() -> set[str]:
    app = build_aggregator({"mcpServers": {}}, metrics=True).http_app()
    return {route.path for route in app.routes if hasattr(route, "path")}


def test_every_route_is_on_the_page_of_the_http_face() -> None:
    about = page("groups") + page("dashboard")
    assert not {path for path in routes() if path.replace(":path", "") not in about}


def test_every_field_of_the_status_is_explained_and_no_other() -> None:
    told = {field.name for field in fields(ServerStatus)} - {"server_key", "public_error"}
    assert set(first_cells(section("groups", "What `/status` says"))) == told


def test_every_field_of_a_servers_state_is_named_for_python() -> None:
    row = re.search(r"^\| `ServerStatus` \| (.*) \|$", page("embedding"), re.MULTILINE)
    assert row is not None
    assert set(re.findall(r"`(\w+)`", row[1])) == {field.name for field in fields(ServerStatus)}


# The pages themselves.


@pytest.mark.parametrize("path", [*DOCS.glob("*.md"), *DOCS.parent.glob("*.md")], ids=lambda path: path.name)
def test_no_page_has_a_place_that_is_still_to_be_filled_in(path: Path) -> None:
    assert re.findall(r"\b(?:FIGURES|TODO|FIXME|TBD|XXX)\b", path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text", [page("architecture"), (DOCS / "images" / "a-call.svg").read_text("utf-8")], ids=["page", "picture"]
)
def test_every_file_that_the_architecture_speaks_of_exists(text: str) -> None:
    rooms = set(re.findall(r"[`>]((?:[a-z_]+/)*[a-z_]+(?:\.py|/))[`<]", text))
    assert len(rooms) > 8
    package = Path(errors.__file__).parent
    assert not [room for room in rooms if not (package / room).exists() and not (DOCS.parent / room).exists()]


def test_every_page_is_in_the_navigation() -> None:
    navigation = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    assert not [file.name for file in DOCS.glob("*.md") if file.name not in navigation]


def test_every_public_name_is_in_the_reference() -> None:
    assert not [name for name in public if not re.search(rf"\.{name}$", page("api"), re.MULTILINE)]
