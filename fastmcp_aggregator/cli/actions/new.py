"""The project of a new MCP server, written, and added to a config."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from fastmcp_aggregator.cli.terminal.console import put, put_json
from fastmcp_aggregator.cli.terminal.exits import FINE, UsageError
from fastmcp_aggregator.files.atomic import write_whole
from fastmcp_aggregator.files.locked import locked
from fastmcp_aggregator.scaffold.entries import addition, entry_for
from fastmcp_aggregator.scaffold.project import example_plan, rendered, write_project
from fastmcp_aggregator.scaffold.rules import Plan, Resource
from fastmcp_aggregator.version import PROGRAM

_INSTALL = {
    "uv": ["uv sync", "uv run pytest"],
    "pip": [
        "python3 -m venv .venv",
        ".venv/bin/pip install --upgrade pip",
        ".venv/bin/pip install -e . --group dev",
        ".venv/bin/pytest",
    ],
    "npm": ["npm install", "npm test"],
}

_INSTALL_BESIDE = {
    "uv": ["uv add {needed}", "uv run pytest"],
    "pip": [*_INSTALL["pip"][:2], ".venv/bin/pip install -e . {needed} --group dev", ".venv/bin/pytest"],
}
"""The same for a project that needs this package, where that came from a folder: no index may have it."""


def run(options: argparse.Namespace) -> int:
    plan = example_plan(_plan(options))
    if problems := plan.problems():
        raise UsageError("\n".join(problems))
    folder = Path(options.dir or plan.project).expanduser()
    config = None if options.config is None else Path(options.config).expanduser()
    entry = entry_for(plan, folder)
    # Everything that can be refused is refused before anything is written.
    planned = None if config is None else addition(config, plan.name, entry)
    files = write_project(folder, rendered(plan), overwrite=options.force)
    _make_repository(folder)
    if planned is not None:
        with locked(planned.path):
            planned = addition(planned.path, plan.name, entry)  # with what has come meanwhile
            write_whole(planned.path, planned.text, mode=planned.mode)
    steps = list(_next_steps(plan, folder, config))
    if options.json:
        put_json(
            {
                "name": plan.name,
                "language": plan.language,
                "folder": str(folder.absolute()),
                "files": [file.relative_to(folder).as_posix() for file in files],
                "config": None if config is None else str(config.absolute()),
                "entry": entry,
                "nextSteps": steps,
            }
        )
        return FINE
    put("\n".join(_told(plan, folder, len(files), config, entry, steps)))
    return FINE


def _make_repository(folder: Path) -> None:
    """Make the folder a git repository, if there is git and the folder is in none yet."""
    git = shutil.which("git")
    if git is None or any((parent / ".git").exists() for parent in (folder.absolute(), *folder.absolute().parents)):
        return
    subprocess.run([git, "init", "--quiet", "--initial-branch=main"], cwd=folder, capture_output=True, check=False)


def _plan(options: argparse.Namespace) -> Plan:
    return Plan(
        name=options.name,
        language=options.lang,
        version=options.server_version,
        description=options.description,
        tools=tuple(options.tool),
        resources=tuple(_resources(options.resource)),
        prompts=tuple(options.prompt),
        hub_grade=options.hub_grade,
    )


def _resources(written: Iterable[str]) -> Iterator[Resource]:
    for text in written:
        name, equals, uri = text.partition("=")
        if not equals:
            raise UsageError(f"--resource {text}: write NAME=URI, such as note='notes://{{name}}'")
        yield Resource(name=name, uri=uri)


def _next_steps(plan: Plan, folder: Path, config: Path | None) -> Iterator[str]:
    """The commands that make it run, for a shell, from where this one was given."""
    yield f"cd {shlex.quote(str(folder))}"
    by = "npm" if plan.language == "typescript" else "uv" if shutil.which("uv") else "pip"
    if by == "uv" and "VIRTUAL_ENV" in os.environ:
        yield "unset VIRTUAL_ENV"  # of which uv would say each time that it does not use it
    here = _installed_from() if plan.hub_grade and by != "npm" else None
    if here is None:
        yield from _INSTALL[by]
    else:
        needed = shlex.quote(f"{PROGRAM}[service] @ {here}")
        yield from (step.format(needed=needed) for step in _INSTALL_BESIDE[by])
    if config is not None:
        hub = shlex.quote(str(config.absolute()))
        if plan.tools:
            yield f"fastmcp-aggregator call {hub} {plan.name}:{plan.tools[0]} text='one two three'"
        else:
            yield f"fastmcp-aggregator list {hub}"


def _installed_from() -> str | None:
    """The folder or file that this package was installed from (PEP 610); None: it came from an index."""
    text = distribution(PROGRAM).read_text("direct_url.json")
    url = urlsplit(json.loads(text).get("url", "") if text else "")
    path = Path(url2pathname(url.path))
    return str(path) if url.scheme == "file" and path.exists() else None


def _told(
    plan: Plan, folder: Path, count: int, config: Path | None, entry: dict[str, object], steps: Iterable[str]
) -> Iterator[str]:
    yield f"{folder.absolute()}: the server {plan.name} in {plan.language}, {count} files"
    if config is None:
        entries = json.dumps({plan.name: entry}, ensure_ascii=False)
        yield f"For `mcpServers` in your config (--config FILE would have put it there): {entries}"
    else:
        yield f"{config}: added {plan.name}"
    yield "Next:"
    yield from (f"  {step}" for step in steps)
