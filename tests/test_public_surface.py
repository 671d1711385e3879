"""The names that the package exports: lazily loaded, described, and documented."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fastmcp_aggregator

PROJECT = Path(__file__).parents[1]
PAGES = [*sorted((PROJECT / "docs").rglob("*.md")), PROJECT / "README.md"]


def test_what_is_exported_is_what_is_loaded_on_use() -> None:
    assert sorted(fastmcp_aggregator.__all__) == sorted(fastmcp_aggregator._MODULES)
    assert len(set(fastmcp_aggregator.__all__)) == len(fastmcp_aggregator.__all__)


def test_what_type_checkers_see_is_what_is_exported() -> None:
    source = Path(fastmcp_aggregator.__file__).read_text(encoding="utf-8")
    seen = source.partition("if TYPE_CHECKING:\n")[2].partition("\n\n")[0]
    names = re.findall(r"\w+", re.sub(r"from [\w.]+ import", "", seen))
    assert sorted(names) == sorted(fastmcp_aggregator.__all__)


@pytest.mark.parametrize("name", fastmcp_aggregator.__all__)
def test_an_exported_name_resolves_to_the_object_of_that_name(name: str) -> None:
    exported = getattr(fastmcp_aggregator, name)
    assert exported.__name__ == name
    assert exported.__module__.startswith("fastmcp_aggregator.")
    assert getattr(fastmcp_aggregator, name) is exported


@pytest.mark.parametrize("name", fastmcp_aggregator.__all__)
def test_the_docstring_of_an_exported_name_begins_with_one_sentence(name: str) -> None:
    exported = getattr(fastmcp_aggregator, name)
    assert exported.__doc__, f"{name} has no docstring of its own"
    first, _, rest = inspect.cleandoc(exported.__doc__).partition("\n")
    assert re.fullmatch(r"[A-Z][^\n]*[a-z`)\]]\.", first), f"{name}: {first!r}"
    assert not re.search(r"[.!?] [A-Z]", first), f"{name}: more than one sentence in {first!r}"
    assert not rest.splitlines()[:1] or rest.splitlines()[0] == "", f"{name}: the first sentence ends on its line"


def code_in(page: Path) -> str:
    """What stands in code blocks and between backticks."""
    text = page.read_text(encoding="utf-8")
    return "\n".join(re.findall(r"^```.*?^```|`[^`\n]+`", text, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("name", fastmcp_aggregator.__all__)
def test_an_exported_name_is_documented(name: str) -> None:
    pages = [page.name for page in PAGES if re.search(rf"\b{name}\b", code_in(page))]
    assert pages, f"no page says what {name} is"


def test_a_name_that_is_not_exported_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'fastmcp_aggregator' has no attribute 'Supervisor'"):
        _ = fastmcp_aggregator.Supervisor


def test_everything_can_be_imported_by_star() -> None:
    names: dict[str, object] = {}
    exec("from fastmcp_aggregator import *", names)
    assert set(fastmcp_aggregator.__all__) <= names.keys()


def modules_after(code: str) -> set[str]:
    """The top-level packages that are loaded in a new interpreter after this code."""
    script = f"{code}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    return set(done.stdout.split())


def test_importing_the_package_loads_no_library() -> None:
    bare = modules_after("")
    assert modules_after("import fastmcp_aggregator") - bare <= {"fastmcp_aggregator"} | set(sys.stdlib_module_names)


@pytest.mark.parametrize("name", ["ConfigError", "ChildState", "ServerStatus", "StartupError"])
def test_a_plain_value_or_an_error_loads_no_library_either(name: str) -> None:
    loaded = modules_after(f"from fastmcp_aggregator import {name}")
    assert "fastmcp_aggregator" in loaded
    assert not loaded & {"fastmcp", "mcp", "mcp_types", "pydantic"}


def test_the_config_and_the_settings_do_not_load_fastmcp() -> None:
    loaded = modules_after("from fastmcp_aggregator import McpConfig, load_config, load_settings")
    assert "pydantic" in loaded
    assert not loaded & {"fastmcp", "mcp", "mcp_types"}


def test_the_version_is_the_one_that_is_installed() -> None:
    from importlib.metadata import version

    from fastmcp_aggregator.version import VERSION

    assert version("fastmcp-aggregator") == VERSION
