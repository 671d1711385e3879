"""Every setting, option, error code, metric and route is in the documentation, and nothing that does not exist."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic.fields import FieldInfo

from fastmcp_aggregator import AggregatorSettings, ServerSettings, ServerStatus, build_aggregator, errors
from fastmcp_aggregator import __all__ as public
from fastmcp_aggregator.cli.commands import all_commands
from fastmcp_aggregator.cli.terminal.exits import EXPLAINED
from fastmcp_aggregator.settings.model import load_settings
from fastmcp_aggregator.settings.oauth import OAuthSettings

DOCS = Path(__file__).parents[2] / "docs"
PACKAGE = Path(errors.__file__).parent
MKDOCS = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
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


Settings = type[OAuthSettings] | type[AggregatorSettings] | type[ServerSettings]


def rows_of(model: Settings) -> Iterator[str]:
    """The table of a model's settings, without links: what its fields say."""
    for name, field in model.model_fields.items():
        yield f"| `{name}` | {default_of(name, field, model)} | {field.description} |"


def default_of(name: str, field: FieldInfo, model: Settings) -> str:
    value = field.get_default(call_default_factory=True)
    if value in (None, (), {}):
        is_general_too = model is ServerSettings and name in AggregatorSettings.model_fields
        return "the general one" if is_general_too else "none"
    text = str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
    return f"`{text}`"


@pytest.mark.parametrize("model", [AggregatorSettings, ServerSettings])
def test_a_table_of_settings_says_what_the_fields_say_in_their_order(model: Settings) -> None:
    general, heading, of_one_server = page("settings").partition("## Settings of one server")
    assert heading
    text = re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", general if model is AggregatorSettings else of_one_server)
    shown = [line for line in text.splitlines() if line.startswith("| `")]
    wanted = list(rows_of(model))
    missing = [line for line in wanted if line not in shown]
    assert not missing, "paste into docs/settings.md (words may be made links):\n" + "\n".join(missing)
    assert shown == wanted


def test_the_table_of_oauth_says_what_its_fields_say() -> None:
    wanted = list(rows_of(OAuthSettings))
    shown = [line for line in section("accounts", "Ways to log in").splitlines() if line.startswith("| `")]
    assert shown == wanted


# The command line.


CLI = Path(errors.__file__).parent / "cli"
OPTIONS = {command: parser._actions for command, parser in PARSERS.items()}
NO_SETTING = {("install", "name"), ("login", "port"), ("keys", "groups")}
"""The aggregator's name for a client, the port on which a browser comes back, and the groups of a key."""
OF_SETTINGS = [
    (command, action)
    for command, actions in OPTIONS.items()
    if any(action.dest == "settings" for action in actions)
    for action in actions
    if action.dest in AggregatorSettings.model_fields and (command, action.dest) not in NO_SETTING
]
"""The options for settings, of the commands that read settings."""


@pytest.mark.parametrize("example", re.findall(r"^```toml\n(.*?)^```", page("providers"), re.MULTILINE | re.DOTALL))
def test_what_is_to_be_written_for_a_provider_is_taken(example: str, tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text(example)
    settings = load_settings(tmp_path / "settings.toml")
    assert [server.oauth for server in settings.servers.values() if server.oauth is not None]


def test_every_option_sets_a_setting_or_is_read_by_its_command() -> None:
    code = "\n".join(file.read_text(encoding="utf-8") for file in CLI.rglob("*.py"))
    read = {*re.findall(r"\boptions\.(\w+)", code), *re.findall(r"getattr\(options, \"(\w+)\"", code), "version"}
    named = {action.dest for actions in OPTIONS.values() for action in actions} - {"help"}
    ignored = named - read - AggregatorSettings.model_fields.keys()
    assert not ignored, f"no setting has the name of, and no command reads: {', '.join(sorted(ignored))}"


@pytest.mark.parametrize(("command", "action"), OF_SETTINGS, ids=lambda value: getattr(value, "dest", value))
def test_an_option_for_a_setting_offers_its_values_and_has_its_default(command: str, action: argparse.Action) -> None:
    field = AggregatorSettings.model_fields[action.dest]
    assert action.default is None, f"{command} would overrule the other sources although the option is not given"
    assert action.choices is None or tuple(action.choices) == get_args(field.annotation)
    told = re.search(r"\(default ([^\s):]+)", action.help or "")
    assert told is None or told[1] == str(field.default)


MORE = {"import": "clients", "install": "clients", "uninstall": "clients", "new": "writing-a-server"}
"""Commands that have a page of their own."""


@pytest.mark.parametrize("command", PARSERS)
def test_every_command_is_described_with_all_its_options(command: str) -> None:
    assert re.search(rf"^## .*\b{command}\b", page("command-line"), re.MULTILINE)
    assert re.search(rf"^fastmcp-aggregator \[?{command}\b", page("command-line").partition("## ")[0], re.MULTILINE)
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


def test_every_route_is_on_the_page_about_http() -> None:
    about = page("groups") + page("http") + page("dashboard")
    assert not {path for path in routes() if path.replace(":path", "") not in about}


def test_every_field_of_the_status_is_explained_and_no_other() -> None:
    told = {field.name for field in fields(ServerStatus)} - {"server_key", "public_error"}
    assert set(first_cells(section("http", "What `/status` says"))) == told


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
    assert not [room for room in rooms if not (PACKAGE / room).exists() and not (DOCS.parent / room).exists()]


def test_every_room_is_on_the_page_of_the_architecture() -> None:
    folders = {path.parent.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if "templates" not in path.parts}
    rooms = {part for folder in folders for part in folder.parts if folder.parts[0] != "cli"}
    rooms |= {path.name for path in PACKAGE.glob("*.py") if not path.name.startswith("__")}
    assert rooms - set(re.findall(r"[\w.]+", section("architecture", "The rooms"))) == set()


def test_what_was_renamed_has_its_old_name_nowhere() -> None:
    renamed = set(first_cells(section("architecture", "The words")))
    texts = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py") if "templates" not in path.parts]
    defined = {name for text in texts for name in re.findall(r"^ *(?:class |def |self\.)?(\w+)\b", text, re.MULTILINE)}
    assert len(renamed) > 20
    assert renamed & defined == set()
    assert not [name for name in renamed if " " in name and any(name in text for text in texts)]


def test_every_page_is_in_the_navigation() -> None:
    navigation = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    assert not [file.name for file in DOCS.glob("*.md") if file.name not in navigation]


def test_every_public_name_is_in_the_reference() -> None:
    assert not [name for name in public if not re.search(rf"\.{name}$", page("api"), re.MULTILINE)]


# What is not finished.


PLACEHOLDERS = re.compile(r"\b(TODO|FIXME|XXX|TBD|lorem ipsum|coming soon|placeholder text)\b", re.IGNORECASE)


@pytest.mark.parametrize("path", [*sorted(DOCS.glob("*.md")), DOCS.parent / "README.md"], ids=lambda path: path.name)
def test_no_placeholder_is_left(path: Path) -> None:
    assert PLACEHOLDERS.findall(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", sorted(DOCS.glob("*.md")), ids=lambda path: path.name)
def test_a_page_is_in_the_navigation_once(path: Path) -> None:
    assert len(re.findall(rf": {re.escape(path.name)}$", MKDOCS, re.MULTILINE)) == 1
