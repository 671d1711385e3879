"""Rendering: whole projects, in which every value comes from the rules; and writing them whole or not at all."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import get_args

import httpx2
import pytest

from fastmcp_aggregator.scaffold.project import TEMPLATES, example_plan, rendered, write_project
from fastmcp_aggregator.scaffold.rules import Language, Plan, Resource
from fastmcp_aggregator.service import limits
from fastmcp_aggregator.version import VERSION


def full_plan(language: Language) -> Plan:
    return Plan(
        name="my-server",
        language=language,
        version="1.2.3",
        description='Says "hello" \\ and {more}.',
        tools=("fetch_url", "class"),
        resources=(Resource(name="static", uri="a://b"), Resource(name="one", uri="a://of/{key}")),
        prompts=("prompts",),
    )


@pytest.mark.parametrize("hub_grade", [False, True])
def test_a_python_project_is_valid_python_of_valid_metadata(hub_grade: bool) -> None:
    files = rendered(replace(full_plan("python"), hub_grade=hub_grade))
    for name, text in files.items():
        if name.endswith(".py"):
            ast.parse(text, name)
    project = tomllib.loads(files["pyproject.toml"])["project"]
    assert (project["name"], project["version"]) == ("my-server", "1.2.3")
    assert project["description"] == 'Says "hello" \\ and {more}.'
    assert project["scripts"] == {"my-server": "my_server.__main__:main"}
    assert {project["readme"], project["license"]} == {"README.md", "MIT"}
    assert "Copyright (c) 20" in files["LICENSE"]
    assert '@mcp.tool(name="class")' in files["src/my_server/server.py"]
    assert "def class_(" in files["src/my_server/server.py"]


def test_a_plain_server_has_none_of_what_makes_a_service() -> None:
    assert [name for name in rendered(full_plan("python")) if name.startswith("src/")] == [
        f"src/my_server/{name}.py" for name in ("__init__", "__main__", "server", "settings")
    ]
    assert sorted(name for name in rendered(full_plan("typescript")) if name.startswith("src/")) == [
        f"src/{name}.ts" for name in ("main", "server", "settings")
    ]
    assert "fastmcp-aggregator" not in rendered(full_plan("python"))["pyproject.toml"]


def test_the_example_in_python_has_at_most_120_lines_of_code() -> None:
    files = rendered(example_plan(Plan(name="my-server")))
    code = "\n".join(text for name, text in files.items() if name.startswith("src/"))
    lines = [line for line in code.splitlines() if line.strip() and not line.strip().startswith(("#", '"""'))]
    assert len(lines) <= 120


@pytest.mark.parametrize("hub_grade", [False, True])
@pytest.mark.parametrize("language", get_args(Language))
def test_an_image_is_made_of_the_sources_alone(language: Language, hub_grade: bool) -> None:
    lines = rendered(replace(full_plan(language), hub_grade=hub_grade))["Containerfile"].splitlines()
    copied = {
        word for line in lines if line.startswith("COPY ") and "--from" not in line for word in line.split()[1:-1]
    }
    assert copied <= {"pyproject.toml", "README.md", "LICENSE", "package*.json", "tsconfig.json", "./src", "src"}


def test_the_fastmcp_of_a_new_server_is_the_one_that_the_aggregator_asks_for() -> None:
    own = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["dependencies"]
    new = tomllib.loads(rendered(full_plan("python"))["pyproject.toml"])["project"]["dependencies"]
    assert [set(line.partition("fastmcp")[2].split(",")) for line in new if line.startswith("fastmcp")] == [
        set(line.partition("fastmcp")[2].split(",")) for line in own if line.startswith("fastmcp")
    ]


def test_a_service_in_python_is_made_of_a_library() -> None:
    files = rendered(replace(full_plan("python"), hub_grade=True))
    dependencies = tomllib.loads(files["pyproject.toml"])["project"]["dependencies"]
    assert dependencies == [f"fastmcp-aggregator[service]>={VERSION}"]
    assert "mcp = Service(" in files["src/my_server/server.py"]
    assert tomllib.loads(files["my-server.toml"])["tool_timeout"] == limits.TOOL_TIMEOUT


@pytest.mark.parametrize("hub_grade", [False, True])
def test_a_typescript_project_has_valid_metadata(hub_grade: bool) -> None:
    files = rendered(replace(full_plan("typescript"), hub_grade=hub_grade))
    package = json.loads(files["package.json"])
    assert (package["name"], package["version"]) == ("my-server", "1.2.3")
    assert package["description"] == 'Says "hello" \\ and {more}.'
    assert (package["files"], "private" in package) == (["dist/src"], False)
    assert package["scripts"]["prepack"] == "tsc"  # what is packed is built before
    assert json.loads(files["tsconfig.json"])["compilerOptions"]["strict"] is True
    assert '    "class",' in files["src/server.ts"]


def test_a_service_in_typescript_has_the_limits_of_one_in_python() -> None:
    files = rendered(replace(full_plan("typescript"), hub_grade=True))
    for name in ("MAX_RUNNING", "MAX_WAITING", "DRAIN_TIMEOUT"):
        assert f"{name} = {getattr(limits, name)};" in files["src/service.ts"]
    for name in ("TOOL_TIMEOUT", "RESOURCE_TIMEOUT", "PROMPT_TIMEOUT", "RATE_LIMIT_PER_MINUTE", "RATE_LIMIT_BURST"):
        assert f"default({getattr(limits, name)})" in files["src/settings.ts"]


@pytest.mark.parametrize("hub_grade", [False, True])
@pytest.mark.parametrize("language", get_args(Language))
def test_nothing_of_the_templates_is_left_in_a_project(language: Language, hub_grade: bool) -> None:
    files = rendered(replace(full_plan(language), hub_grade=hub_grade))
    assert not [name for name in files if "PACKAGE" in name or name.endswith(".jinja") or "dot-" in name]
    assert not [name for name, text in files.items() if "{%" in text or "{{ plan" in text or "{{ limits" in text]
    assert ".gitignore" in files


@pytest.mark.parametrize("language", get_args(Language))
def test_an_example_of_an_env_file_is_there_where_it_is_read(language: Language) -> None:
    plain = rendered(full_plan(language))
    named = [line.partition("=")[0] for line in plain[".env.example"].splitlines()[1:]]
    assert named == ["MY_SERVER_PROFILE", "MY_SERVER_LOG_LEVEL"]
    assert all(f"`{name}`" in plain["README.md"] for name in named)
    assert ".env.example" not in rendered(replace(full_plan(language), hub_grade=True))  # it has my-server.toml


@pytest.mark.skipif(shutil.which("node") is None, reason="it runs the code with node")
def test_a_typescript_server_takes_nothing_else_from_the_env_file_of_the_folder_in_which_it_runs(
    tmp_path: Path,
) -> None:
    settings = rendered(full_plan("typescript"))["src/settings.ts"]
    code = "\n".join(line for line in settings.partition("const parsed")[0].splitlines() if "zod" not in line)
    code = code.replace(code[code.index("const LEVELS") : code.index("// Only")], "").replace(
        "(name: string)", "(name)"
    )
    told = "console.log(JSON.stringify([variable('profile'), variable('log_level'), process.env.OTHERS_TOKEN ?? null]))"
    (tmp_path / "settings.mjs").write_text(f"{code}\n{told}\n")
    (tmp_path / ".env").write_text("MY_SERVER_PROFILE=production\nMY_SERVER_LOG_LEVEL=debug\nOTHERS_TOKEN=secret\n")
    environ = {"PATH": os.environ["PATH"], "MY_SERVER_LOG_LEVEL": "error"}
    command = ["node", "settings.mjs"]
    ended = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert ended.stderr == ""
    assert json.loads(ended.stdout) == ["production", "error", None]


@pytest.mark.parametrize("hub_grade", [False, True])
@pytest.mark.parametrize("language", get_args(Language))
def test_a_project_says_how_it_is_released(language: Language, hub_grade: bool) -> None:
    readme = rendered(replace(full_plan(language), hub_grade=hub_grade))["README.md"]
    assert {"python": "uv version 0.2.0", "typescript": "npm version"}[language] in readme.partition("## Release it")[2]
    assert readme.endswith("names.\n")


@pytest.mark.parametrize("language", get_args(Language))
def test_a_project_names_no_registry_and_brings_no_lockfile(language: Language) -> None:
    files = rendered(full_plan(language))
    assert not [name for name in files if "lock" in name]
    assert not [name for name, text in files.items() if "registry" in text]


def test_templates_are_files_of_their_own_and_all_are_marked_as_such() -> None:
    stray = [path for path in TEMPLATES.rglob("*") if path.is_file() and path.suffix != ".jinja"]
    assert stray == []


@pytest.mark.parametrize("language", get_args(Language))
def test_a_plan_without_anything_gets_one_example_of_each_kind(language: Language) -> None:
    plan = example_plan(Plan(name="a", language=language))
    assert plan.problems() == []
    assert (plan.tools, plan.prompts) == (("count_words",), ("summarise",))
    assert [bool(resource.parameters) for resource in plan.resources] == [False, True]
    rendered(plan)


def test_a_plan_with_something_stays_as_it_is() -> None:
    plan = Plan(name="a", prompts=("ask",))
    assert example_plan(plan) is plan


def test_a_wrong_plan_is_not_rendered() -> None:
    with pytest.raises(match="the server name 'No'"):
        rendered(Plan(name="No"))


def test_a_project_is_written_to_a_new_folder(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "new"
    written = write_project(folder, {"a.txt": "ä", "b/c.txt": "c"})
    assert written == [folder / "a.txt", folder / "b/c.txt"]
    assert [path.read_text(encoding="utf-8") for path in written] == ["ä", "c"]
    assert [path.name for path in folder.parent.iterdir()] == ["new"]
    other = tmp_path / "made-by-mkdir"
    other.mkdir()
    assert folder.stat().st_mode == other.stat().st_mode


def test_a_folder_that_has_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(match=r"has files \(mine\.txt\)"):
        write_project(tmp_path, {"mine.txt": "theirs", "other.txt": ""})
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_a_folder_that_has_files_is_written_over_when_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "kept.txt").write_text("kept")
    write_project(tmp_path, {"mine.txt": "theirs"}, overwrite=True)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"mine.txt": "theirs", "kept.txt": "kept"}


def test_an_empty_folder_may_be_used(tmp_path: Path) -> None:
    write_project(tmp_path, {"a.txt": "a"})
    assert (tmp_path / "a.txt").read_text() == "a"


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_no_folder_is_refused(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("file", "link"):
        with pytest.raises(match="is not a folder"):
            write_project(tmp_path / name, {"a": ""}, overwrite=overwrite)


def test_a_project_that_cannot_be_written_whole_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(match="cannot write"):
        write_project(tmp_path / "new", {"a": "file", "a/b": "in a file"})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
def test_a_plain_server_in_python_refuses_web_pages_from_elsewhere(tmp_path: Path) -> None:
    write_project(tmp_path / "it", rendered(Plan(name="my-server", tools=("count",))))
    metadata = tmp_path / "it" / "src" / "my_server-0.1.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: my-server\nVersion: 0.1.0\n")
    command = [sys.executable, "-u", "-m", "my_server", "--transport", "http", "--port", "0"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(metadata.parent.parent)},
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stderr is not None
            [port] = next(
                filter(None, (re.findall(r"running on http://127.0.0.1:(\d+)", line) for line in server.stderr))
            )
            url, headers = f"http://127.0.0.1:{port}/mcp", {"Accept": "application/json, text/event-stream"}
            ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            assert httpx2.post(url, json=ping, headers=headers).status_code == 400  # no session
            for foreign in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
                assert httpx2.post(url, json=ping, headers=headers | foreign).status_code in (403, 421)
        finally:
            server.terminate()
