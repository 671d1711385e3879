"""Imports point one way, and only some rooms speak the protocol."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fastmcp_aggregator

PACKAGE = "fastmcp_aggregator"
ROOT = Path(fastmcp_aggregator.__file__).parent

TIERS = [
    # What everything may use.
    ["errors", "version", "atomic_file", "fair_share", "while_used", "libraries"],
    # Values, and logic without I/O.
    [
        "config",
        "naming",
        "groups",
        "observability",
        "children.state",
        "children.backoff",
        "children.breaker",
        "children.options",
        "children.status",
        "children.tally",
        "catalogue.capabilities",
        "catalogue.legacy",
        "catalogue.snapshot",
        "relay.client_capabilities",
        "relay.extensions",
        "relay.log_levels",
        "pipe.lines",
        "pipe.bucket",
        "access.keys",
    ],
    ["clients", "settings", "settings_access", "settings_layers", "settings_tools"],
    # Input and output with children.
    ["children", "pipe"],
    ["catalogue", "relay", "middleware", "access", "pinning", "replicas"],
    ["doctor", "reload", "scaffold"],
    ["front"],
    ["fleet"],
    ["face"],
    ["dashboard"],
    ["hub"],
    ["aggregator"],
    # The public names.
    [""],
    ["cli"],
    ["__main__"],
]
"""From the bottom up. A module may import what stands in its own tier or below; the longest entry that fits counts."""

SPEAKS_MCP = [
    "children.calls",
    "children.client_session",
    "children.conformity",
    "children.connecting",
    "children.credentials",
    "children.failures",
    "children.incoming",
    "children.listing",
    "children.lists",
    "children.oauth",
    "children.remote",
    "children.session",
    "children.stdio",
    "children.transports",
    "children.windows",
    "pipe.streams",
    "catalogue.addresses",
    "catalogue.components",
    "catalogue.provider",
    "relay",
    "front",
    "access.auth",
    "access.principals",
    "access.resource_metadata",
    "access.verifiers",
    "middleware.stack",
    "middleware.tracing",
    "fleet",
    "face",
    "aggregator",
    "cli",
]
"""Where FastMCP and the SDK may be imported."""

PROTOCOL = {"fastmcp", "mcp", "mcp_types"}

WITHOUT_MCP = [
    "errors",
    "version",
    "libraries",
    "config",
    "naming",
    "settings",
    "settings_access",
    "settings_layers",
    "settings_tools",
    "atomic_file",
    "access.keys",
    "access.keys_file",
    "pinning",
    "children.backoff",
    "children.breaker",
    "children.descriptors",
    "children.launching",
    "children.options",
    "children.posix",
    "children.process",
    "children.start_turns",
    "children.startup",
    "children.state",
    "children.status",
    "children.stderr",
    "children.stderr_file",
    "children.stderr_summary",
    "children.turns",
    "catalogue.snapshot",
    "observability",
    "pipe.bucket",
    "pipe.lines",
    "replicas.peers",
    "replicas.wire",
    "scaffold",
]
"""What must not load FastMCP or the SDK, not even by way of others: the command line starts the children with it."""


TELLS_THE_DATE = {
    "access.keys": "when a key was made",
    "access.keys_file": "a person has set the date on which a key ends",
    "access.verifiers": "a token says from when on it counts (RFC 7519, 4.1.5)",
    "children.http_failures": "a server may name the date until which it is to be left alone (RFC 9110, 10.2.3)",
    "children.oauth": "the date on which a token ends is kept in a file",
    "children.stderr": "when each line was said, for the log of a program that writes JSON",
    "cli.keys": "a person sets the date on which a key ends",
    "cli.login": "the date on which a token ends is kept in a file",
    "front.revocation": "a token says until when it counts (RFC 7519, 4.1.4)",
    "observability.audit": "when each line was written",
}
"""Where the wall clock is read, and what for. It jumps, so how long something takes is told by the monotonic one."""

WALL_CLOCK = {
    "time": {"time", "time_ns", "localtime", "gmtime", "ctime", "asctime", "strftime"},
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
}
"""What reads it, by what it is an attribute of."""


def module_name(path: Path) -> str:
    """`children.child` for `children/child.py`, `config` for `config/__init__.py`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def imports_of(module: str) -> Iterator[str]:
    """Every absolute name that the module imports, wherever in the file."""
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            assert node.module
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if submodule.removeprefix(f"{PACKAGE}.") in MODULES else node.module


def own_imports(module: str) -> set[str]:
    """The modules of this package that the module imports."""
    names = (name for name in imports_of(module) if name == PACKAGE or name.startswith(f"{PACKAGE}."))
    return {name.removeprefix(PACKAGE).removeprefix(".") for name in names}


def is_in(module: str, room: str) -> bool:
    return module == room or (room != "" and module.startswith(f"{room}."))


def tier(module: str) -> int:
    rooms = [(len(room), number) for number, tier in enumerate(TIERS) for room in tier if is_in(module, room)]
    assert rooms, f"{module} is in no room that TIERS knows: give it a place"
    return max(rooms)[1]


def test_every_entry_of_the_tables_is_a_module_that_exists() -> None:
    entries = {entry for tier in TIERS for entry in tier} | set(SPEAKS_MCP) | set(WITHOUT_MCP)
    assert entries - MODULES.keys() == set()


def test_no_module_is_allowed_and_forbidden_to_speak_mcp() -> None:
    assert [m for m in MODULES if any(is_in(m, a) for a in SPEAKS_MCP) and any(is_in(m, b) for b in WITHOUT_MCP)] == []


@pytest.mark.parametrize("module", [module for module in MODULES if module])
def test_imports_point_downwards(module: str) -> None:
    upwards = {name for name in own_imports(module) if tier(name) > tier(module)}
    assert upwards == set(), f"{module} must not import {upwards}"


def test_the_public_names_are_imported_for_type_checkers_only() -> None:
    tree = ast.parse(MODULES[""].read_text(encoding="utf-8"))
    at_run_time = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in at_run_time}
    assert modules <= {"__future__", "importlib", "typing"}


def test_the_aggregator_does_not_know_the_command_line() -> None:
    below = [module for module in MODULES if module and tier(module) < tier("cli")]
    assert "aggregator" in below
    assert [module for module in below if any(is_in(name, "cli") for name in own_imports(module))] == []


@pytest.mark.parametrize("module", [m for m in MODULES if not any(is_in(m, room) for room in SPEAKS_MCP)])
def test_the_protocol_is_not_imported_where_it_is_not_spoken(module: str) -> None:
    assert {name for name in imports_of(module) if name.partition(".")[0] in PROTOCOL} == set()


@pytest.mark.parametrize("room", SPEAKS_MCP)
def test_a_room_that_may_speak_the_protocol_does(room: str) -> None:
    """Otherwise it is to be taken out of the list."""
    names = {name.partition(".")[0] for module in MODULES if is_in(module, room) for name in imports_of(module)}
    assert names & PROTOCOL


def test_what_runs_before_fastmcp_is_loaded_does_not_load_it_by_way_of_others() -> None:
    modules = [m for m in MODULES if any(is_in(m, room) for room in WITHOUT_MCP)]
    code = f"""
import importlib, sys
for module in {modules!r}:
    importlib.import_module("{PACKAGE}." + module)
    loaded = sorted({PROTOCOL!r} & sys.modules.keys())
    if loaded:
        sys.exit(f"{{module}} loads {{loaded}}")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def wall_clock_readings(module: str) -> Iterator[str]:
    """What in the module reads the wall clock."""
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else getattr(node.value, "attr", "")
            if node.attr in WALL_CLOCK.get(owner, ()):
                yield f"{owner}.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            yield from (alias.name for alias in node.names if alias.name in WALL_CLOCK["time"])


def test_nothing_is_timed_by_the_wall_clock() -> None:
    """A module that tells the date, and times nothing by it, has its place in TELLS_THE_DATE."""
    assert {module for module in MODULES if list(wall_clock_readings(module))} == TELLS_THE_DATE.keys()
