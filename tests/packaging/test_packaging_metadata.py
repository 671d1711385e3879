"""What registries and continuous integration are told of the package."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from fastmcp_aggregator.cli.commands import all_commands
from fastmcp_aggregator.version import VERSION

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SERVER: dict[str, Any] = json.loads((ROOT / "server.json").read_text(encoding="utf-8"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


REGISTRY = {
    "required": ["name", "description", "version"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"const": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"},
        "name": {"pattern": "^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$", "minLength": 3, "maxLength": 200},
        "title": {"type": "string", "minLength": 1, "maxLength": 100},
        "description": {"type": "string", "minLength": 1, "maxLength": 100},
        "version": {"type": "string", "maxLength": 255},
        "packages": {"type": "array", "items": {"$ref": "#/$defs/package"}},
    },
    "$defs": {
        "package": {
            "required": ["registryType", "identifier", "transport"],
            "additionalProperties": False,
            "properties": {
                "registryType": {"const": "pypi"},
                "identifier": {"type": "string"},
                "version": {"type": "string", "minLength": 1, "not": {"const": "latest"}},
                "runtimeHint": {"const": "uvx"},
                "transport": {"const": {"type": "stdio"}},
                "packageArguments": {"type": "array", "items": {"$ref": "#/$defs/argument"}},
            },
        },
        "argument": {
            "required": ["type"],
            "additionalProperties": False,
            "properties": {
                "type": {"enum": ["positional", "named"]},
                "format": {"enum": ["string", "number", "boolean", "filepath"]},
                "isRequired": {"type": "boolean"},
                **{name: {"type": "string"} for name in ("name", "value", "valueHint", "description")},
            },
            "if": {"properties": {"type": {"const": "named"}}},
            "then": {"required": ["name"]},
            "else": {"anyOf": [{"required": ["value"]}, {"required": ["valueHint"]}]},
        },
    },
}
"""What the registry's schema of that version asks of the fields that we use, and no other field."""


def test_server_json_is_as_the_registry_asks() -> None:
    jsonschema_rs.validate(REGISTRY, SERVER)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "without-a-namespace"},
        {"description": "x" * 101},
        {"packages": [{"identifier": "x", "transport": {"type": "stdio"}}]},
        {"packages": [{**SERVER["packages"][0], "packageArguments": [{"type": "named"}]}]},
        {"homepage": "https://example.com"},
    ],
)
def test_what_the_registry_refuses_would_be_noticed(wrong: dict[str, Any]) -> None:
    assert not jsonschema_rs.is_valid(REGISTRY, {**SERVER, **wrong})


def test_server_json_is_named_after_the_package() -> None:
    name = PROJECT["name"]
    assert SERVER["name"] == f"io.github.{name}/{name}"
    assert SERVER["title"] == name


def test_server_json_says_what_the_package_says() -> None:
    (package,) = SERVER["packages"]
    assert SERVER["version"] == package["version"] == VERSION
    assert (SERVER["description"], package["identifier"]) == (PROJECT["description"], PROJECT["name"])


def test_server_json_has_arguments_that_serve_takes() -> None:
    parser = all_commands()["serve"].parser()
    written = [
        argument.get("value") or ([argument["name"], "x"] if argument["type"] == "named" else "mcp.json")
        for argument in SERVER["packages"][0]["packageArguments"]
    ]
    words = [word for each in written for word in ([each] if isinstance(each, str) else each)]
    options = parser.parse_intermixed_args(words)
    assert (options.config, options.env_file, options.strict) == ("mcp.json", "x", False)


def test_the_readme_proves_to_the_registry_whose_the_package_is() -> None:
    assert f"<!-- mcp-name: {SERVER['name']} -->" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_metadata_is_complete() -> None:
    wanted = {"name", "description", "readme", "license", "license-files", "requires-python", "authors", "keywords"}
    assert wanted | {"classifiers", "dependencies", "scripts", "optional-dependencies"} <= PROJECT.keys()
    minor = [match[1] for each in PROJECT["classifiers"] if (match := re.search(r":: 3\.(\d+)$", each))]
    assert [int(number) for number in minor] == list(range(11, 15))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_what_there_is(path: Path) -> None:
    sessions = set(re.findall(r"^def (\w+)\(session", (ROOT / "noxfile.py").read_text(encoding="utf-8"), re.MULTILINE))
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    named = {name for command in commands if command.startswith("nox -s ") for name in command.split()[2:]}
    assert named <= sessions
    assert named
    assert all(job["timeout-minutes"] <= 60 for job in jobs.values())


def test_the_tests_run_on_every_python_that_is_claimed() -> None:
    tests = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8"))
    matrix = tests["jobs"]["quick"]["strategy"]["matrix"]
    assert {f"Programming Language :: Python :: {each}" for each in matrix["python"]} <= set(PROJECT["classifiers"])
    assert [each.partition("-")[0] for each in matrix["os"]] == ["ubuntu", "macos", "windows"]
