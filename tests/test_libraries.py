"""What is used of libraries though it is private: all of it is looked at when the program starts."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeGuard

import pytest
from mcp import ClientSession
from mcp.server.lowlevel.server import Server
from packaging.requirements import Requirement
from support.harness import config, lean

import fastmcp_aggregator
from fastmcp_aggregator import Aggregator, DependencyError, build_aggregator
from fastmcp_aggregator.cli.terminal.exits import SERVER_FAILED
from fastmcp_aggregator.libraries import OF_SERVING, OF_WINDOWS, require_parts, usable_libraries

pytestmark = pytest.mark.process

PACKAGE = Path(fastmcp_aggregator.__file__).parent
PROJECT = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text("utf-8"))["project"]
WANTED = {Requirement(line).name: Requirement(line) for line in PROJECT["dependencies"]}
NOT_OF_A_LIBRARY = {"_exit", "_actions", "_replace"}
"""Of Python's own `os`, `argparse` and named tuples."""
PARTS = {part for table in (OF_SERVING, OF_WINDOWS) for parts in table.values() for part in parts}


# What is missing is told.


def test_a_part_that_a_library_no_longer_has_ends_the_start_with_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ClientSession, "_build_capabilities")
    monkeypatch.setattr("importlib.metadata.requires", lambda _: ["fastmcp<4.2,>=4.1.0", "rich>=14", "mcp>=2.3.0,<2.4"])
    with pytest.raises(DependencyError) as refused:
        build_aggregator({"mcpServers": {}})
    assert str(refused.value) == (
        f"mcp {version('mcp')} cannot be used: it has no mcp.client.session.ClientSession._build_capabilities; "
        "fastmcp-aggregator works with fastmcp>=4.1.0,<4.2 and mcp>=2.3.0,<2.4"
    )


def test_a_parameter_that_a_constructor_no_longer_takes_is_missed_too() -> None:
    with pytest.raises(
        DependencyError, match=r"it has no fastmcp\.server\.providers\.proxy\.ProxyClient\.no_such_parameter"
    ):
        require_parts({"fastmcp.server.providers.proxy.ProxyClient": ("forward_incoming_headers", "no_such_parameter")})


@pytest.mark.parametrize("path", ["mcp.server.no_such_module.Server", "mcp.server.lowlevel.server.NoSuchClass"])
def test_a_part_whose_owner_has_moved_is_missed_too(path: str) -> None:
    with pytest.raises(DependencyError, match=path):
        require_parts({path: ("run",)})


def test_a_part_that_is_set_in_the_constructor_is_found() -> None:
    assert "middleware" not in vars(Server)
    require_parts({"mcp.server.lowlevel.server.Server": ("middleware",)})


@pytest.mark.parametrize("name", ["fastmcp.client", "mcp", "mcp_types.methods", "starlette._utils", "uvicorn"])
def test_a_name_that_cannot_be_imported_from_a_library_is_told_in_one_sentence(name: str) -> None:
    with pytest.raises(DependencyError, match=r"cannot import name 'x'.* works with fastmcp"), usable_libraries():
        raise ImportError(f"cannot import name 'x' from {name!r} (/somewhere/file.py)", name=name)


@pytest.mark.parametrize("name", ["redis", "fastmcp_aggregator.errors", None])
def test_other_failures_to_import_pass_as_they_are(name: str | None) -> None:
    failed = ImportError("no", name=name)
    with pytest.raises(ImportError) as raised, usable_libraries():
        raise failed
    assert raised.value is failed


def test_a_library_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_no_version(library: str) -> str:
        raise PackageNotFoundError(library)

    monkeypatch.setattr("importlib.metadata.version", find_no_version)
    with pytest.raises(DependencyError, match="fastmcp is not installed: No module"), usable_libraries():
        raise ModuleNotFoundError("No module named 'fastmcp'", name="fastmcp")


def test_the_error_is_an_import_error_for_whoever_expects_one() -> None:
    assert issubclass(DependencyError, ImportError)


MOVED = """
import sys, types
sys.modules["mcp.server._otel"] = types.ModuleType("mcp.server._otel")
"""


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)


def test_the_program_says_it_and_ends_as_after_any_start_that_failed(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps(config(a=lean())), encoding="utf-8")
    main = "from fastmcp_aggregator.cli.main import main; sys.exit(main(sys.argv[1:]))"
    done = run(f"{MOVED}\n{main}", "serve", str(path))
    assert done.returncode == SERVER_FAILED
    assert done.stdout == ""
    (line,) = [line for line in done.stderr.splitlines() if "mcp" in line and "works with" in line]
    assert f"mcp {version('mcp')} cannot be used" in line
    assert "OpenTelemetryMiddleware" in line
    assert "Traceback" not in done.stderr


def test_whoever_imports_the_package_is_told_it(tmp_path: Path) -> None:
    code = f"""{MOVED}
import fastmcp_aggregator
try:
    from fastmcp_aggregator import build_aggregator
except fastmcp_aggregator.DependencyError as error:
    print(error)
"""
    done = run(code)
    assert done.returncode == 0, done.stderr
    assert "works with fastmcp" in done.stdout


# Nothing is forgotten.


def test_looking_loads_nothing() -> None:
    build_aggregator({"mcpServers": {}})
    before = set(sys.modules)
    require_parts(OF_SERVING)
    assert set(sys.modules) == before


LIBRARIES = {"fastmcp", "mcp", "mcp_types", "sse_starlette", "starlette", "uvicorn"}
USES_PRIVATE_PARTS = {
    "library_internals.py": "of FastMCP, the SDK's server and Starlette",
    "children/http/network.py": "of the HTTP client's connections",
    "children/session/session.py": "of the SDK's client",
    "children/process_groups/windows.py": "of the SDK's job objects",
}
"""The only files in which private parts of a library's object are used, and of what."""


def private_modules(path: Path) -> Iterator[str]:
    """Private modules of libraries from which a module imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from (name for name in names if name.partition(".")[0] in LIBRARIES and "._" in name)


def gotten(tree: ast.AST) -> Iterator[str]:
    """Private attributes that are named as text: of `attrgetter`, or of `getattr`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and "attr" in node.func.id:
            texts = (argument.value for argument in node.args if isinstance(argument, ast.Constant))
            yield from (text for text in texts if isinstance(text, str) and text[0] == "_" != text[1])


def private_parts_of_others(path: Path) -> Iterator[str]:
    """Private attributes that a module reads, and does not have from itself."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    own = {
        name
        for node in ast.walk(tree)
        for name in (getattr(node, "name", None), stored_in(node))
        if isinstance(name, str)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            is_of_self = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if node.attr not in own and not is_of_self:
                yield node.attr
    yield from gotten(tree)


def stored_in(node: ast.AST) -> str | None:
    """The name that an assignment in a class, or to an attribute of `self`, gives to something."""
    target = getattr(node, "target", None) if isinstance(node, ast.AnnAssign) else node
    if isinstance(target, ast.Attribute) and isinstance(target.ctx, ast.Store):
        return target.attr if isinstance(target.value, ast.Name) and target.value.id == "self" else None
    return target.id if isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store) else None


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_private_attribute_that_is_read_is_looked_at(path: Path) -> None:
    assert set(private_parts_of_others(path)) - NOT_OF_A_LIBRARY <= PARTS


def test_private_parts_of_libraries_are_used_where_it_says_so() -> None:
    used = {
        str(path.relative_to(PACKAGE)): {*private_parts_of_others(path), *private_modules(path)} - NOT_OF_A_LIBRARY
        for path in PACKAGE.rglob("*.py")
        if "templates" not in path.parts
    }
    assert {file: parts for file, parts in used.items() if parts and file not in USES_PRIVATE_PARTS} == {}
    assert all(used[file] for file in USES_PRIVATE_PARTS)


def overridden(cls: type) -> Iterator[str]:
    """Private methods of libraries that a class of ours replaces: a new name there, and ours are never called."""
    for base in cls.__mro__[1:]:
        if base.__module__.partition(".")[0] in ("fastmcp", "mcp", "starlette", "sse_starlette", "uvicorn"):
            yield from (n for n in vars(cls) if n[0] == "_" != n[1] and callable(getattr(base, n, None)))


def is_own(value: object) -> TypeGuard[type]:
    return isinstance(value, type) and value.__module__.startswith("fastmcp_aggregator.")


def own_classes() -> set[type]:
    """Those in all modules that are loaded."""
    modules = [module for name, module in sys.modules.items() if name.startswith("fastmcp_aggregator.")]
    return {value for module in modules for value in vars(module).values() if is_own(value)}


def test_every_private_method_that_is_overridden_is_looked_at() -> None:
    assert Aggregator in own_classes()
    assert {name for cls in own_classes() for name in overridden(cls)} <= PARTS


# Versions.


@pytest.mark.parametrize("library", ["fastmcp", "mcp"])
def test_the_versions_that_are_allowed_have_an_upper_bound_and_the_installed_one_is_among_them(library: str) -> None:
    assert {specifier.operator for specifier in WANTED[library].specifier} == {">=", "<"}
    assert version(library) in WANTED[library].specifier
