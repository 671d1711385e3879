"""A new project: its templates rendered, and written into a new folder whole or not at all."""

from __future__ import annotations

import json
import keyword
import os
import re
import shutil
import tempfile
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date
from importlib.metadata import requires
from pathlib import Path
from typing import TYPE_CHECKING

from fastmcp_aggregator.errors import AggregatorError
from fastmcp_aggregator.scaffold.rules import Plan, Resource
from fastmcp_aggregator.service import limits
from fastmcp_aggregator.version import VERSION

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"
_SUFFIX = ".jinja"
_LINE = 90
"""Characters in a line of a wrapped string."""
_LINE_LENGTH = 120
"""The line length that the projects' formatters are set to."""
# Names that a generated module has for something else.
_TAKEN_NAMES = {"mcp", "settings", "str", "int", "len"}


def rendered(plan: Plan) -> dict[str, str]:
    """The project's files: text by path in the project, with `/`.

    Raises: AggregatorError, with everything that is wrong with the plan.
    """
    if problems := plan.problems():
        raise AggregatorError("\n".join(problems))
    environment = _environment(*(TEMPLATES / layer for layer in _layers(plan)))
    values = {
        "plan": plan,
        "description": plan.description or f"The MCP server {plan.name}.",
        "limits": vars(limits),
        "fastmcp": _requirement("fastmcp"),
        "aggregator": VERSION,
        "year": date.today().year,
    }
    return {
        _target(path, plan): environment.get_template(path).render(values)
        for path in environment.list_templates(filter_func=_is_file)
    }


def _layers(plan: Plan) -> tuple[str, ...]:
    """Folders of templates. A file of the first takes the place of one with its name in another."""
    return (f"{plan.language}-service" if plan.hub_grade else "plain", plan.language, "shared")


def write_project(folder: Path, files: Mapping[str, str], *, overwrite: bool = False) -> list[Path]:
    """Write the files; their paths. With `overwrite` the folder may have files, and those of these names are replaced.

    Raises: AggregatorError
    """
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise AggregatorError(f"{folder} exists and is not a folder; choose another with --dir")
    existing = sorted(file.name for file in folder.iterdir()) if folder.exists() else []
    if existing and not overwrite:
        shown = ", ".join(existing[:3]) + (", …" if len(existing) > 3 else "")
        raise AggregatorError(
            f"{folder} exists and has files ({shown}); choose another with --dir, "
            "or have the files of the new server put over them with --force"
        )
    try:
        _write_over(folder, files) if folder.exists() else _write_new(folder, files)
    except OSError as error:
        raise AggregatorError(f"cannot write {folder}: {error.strerror}") from None
    return [folder / name for name in files]


def _write_new(folder: Path, files: Mapping[str, str]) -> None:
    """Write everything beside the folder and then put it in its place, so that there is never half a project."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        _write_over(beside, files)
        beside.chmod(0o777 & ~_umask())
        beside.replace(folder)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise


def _write_over(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _is_file(path: str) -> bool:
    """True if a template is a file of the project, and not a part of several."""
    return path.endswith(_SUFFIX) and not path.startswith("_")


def _environment(*roots: Path) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - it takes a while

    # The templates are code, not HTML; their values are checked by the rules, and quoted by the filters.
    environment = Environment(
        loader=FileSystemLoader(roots),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        literal=_literal,
        jsonstr=lambda text: json.dumps(text, ensure_ascii=False),
        called=_called,
        set_of=_set_of,
        function_name=_function_name,
        wrapped=_wrapped,
        shown=lambda parameter: f"{{{parameter}}}",
        typed=lambda parameter: f"{parameter}: str",
        filled=lambda uri: re.sub(r"\{([^{}]*)\}", r"some-\1", uri),
    )
    return environment


def _target(path: str, plan: Plan) -> str:
    """`src/PACKAGE/tools.py.jinja` becomes `src/my_server/tools.py`; `dot-` stands for a leading dot."""
    parts = path.removesuffix(_SUFFIX).replace("PACKAGE", plan.package).replace("PROJECT", plan.project).split("/")
    return "/".join(f".{part.removeprefix('dot-')}" if part.startswith("dot-") else part for part in parts)


def _literal(text: str) -> str:
    """A string of Python or JavaScript, in the quotes that need less escaping, as formatters want it."""
    quote = "'" if text.count('"') > text.count("'") else '"'
    return quote + text.replace("\\", "\\\\").replace(quote, f"\\{quote}") + quote


def _wrapped(text: str) -> str:
    """A Python string over as many lines as it needs."""
    lines = textwrap.wrap(text, _LINE if text.isascii() else _LINE // 2, drop_whitespace=False)
    if len(lines) == 1:
        return _literal(text)
    return "\n".join(["(", *(f"    {_literal(line)}" for line in lines), ")"])


def _called(head: str, arguments: Iterable[str], tail: str = ")") -> str:
    """A call or a signature, on one line if it fits, else with each argument on its own, as formatters want it."""
    arguments = tuple(arguments)
    if len(line := f"{head}({', '.join(arguments)}{tail}") <= _LINE_LENGTH:
        return line
    return "".join([f"{head}(\n", *(f"    {argument},\n" for argument in arguments), tail])


def _set_of(values: Iterable[str]) -> str:
    lines = [f"        {_literal(value)},\n" for value in values]
    return "".join(["{\n", *lines, "    }"]) if lines else "set()"


def _function_name(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) or name in _TAKEN_NAMES else name


def _requirement(package: str) -> str:
    """This package's requirement of another: a new server gets the versions that the aggregator is tested with."""
    requirements = [line.partition(";")[0].strip() for line in requires("fastmcp-aggregator") or ()]
    return next(line for line in requirements if re.match(rf"{package}\b(?!-)", line))


def example_plan(plan: Plan) -> Plan:
    """The same with one example of each kind, if it has nothing yet."""
    if plan.tools or plan.resources or plan.prompts:
        return plan
    return replace(
        plan,
        tools=("count_words",),
        resources=(Resource(name="about", uri="info://about"), Resource(name="note", uri="notes://{name}")),
        prompts=("summarise",),
        examples=True,
    )
