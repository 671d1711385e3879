"""The walls: imports point down, nothing imports itself by way of others, and only some rooms speak the protocol.

A room is a folder, without the folders in it; a file of the root is a room of its own.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import fastmcp_aggregator

PACKAGE = "fastmcp_aggregator"
ROOT = Path(fastmcp_aggregator.__file__).parent
MOST_MODULES = 12
"""In a room. Templates and static files are no modules of ours."""

FLOORS = [
    # The ground: values, and logic that knows nothing of ours.
    ["escaping"],
    ["app_pages", "errors", "version", "concurrency", "pipe", "protocol", "naming", "status"],
    ["early"],
    [
        "catalogue",
        "config",
        "extensions",
        "libraries",
        "library_internals",
        "message_streams",
        "attach.systems",
        "children.process_groups",
        "service",
    ],
    ["files", "attach"],
    ["access", "client_configs", "groups", "observability", "settings"],
    ["isolation"],
    ["catalogue.persisted", "file_descriptors", "pinning", "scaffold"],
    # The side of the servers.
    ["children.process", "children.session"],
    ["children.http", "children.stdio", "doctor"],
    ["oauth.vault"],
    ["oauth"],
    ["auth", "children"],
    # Between both sides.
    ["routing"],
    ["callers"],
    ["replicas"],
    ["relay.instances"],
    ["policies", "relay"],
    # The side of the clients.
    ["front.wire", "front.http.resume"],
    ["front.fastmcp", "front.http", "front.stdio"],
    ["runtime"],
    ["backend"],
    ["front.fast_path"],
    ["front"],
    # The whole.
    ["virtual_server"],
    ["web.dashboard"],
    ["web"],
    ["aggregator"],
    ["local_hub"],
    [""],
    ["cli.terminal"],
    ["cli.parser", "cli.output"],
    ["cli.running"],
    ["cli.actions.accounts"],
    ["cli.actions", "cli.commands"],
    ["cli.commands.accounts", "cli.commands.clients", "cli.actions.hubs", "cli.commands.hubs"],
    ["cli"],
    ["__main__"],
]
"""From the ground up. A room imports its own modules and rooms on lower floors; `""` has the public names."""

SPEAKS_MCP = {
    "aggregator",
    "auth",
    "callers",
    "children",
    "children.http",
    "children.process_groups",
    "children.session",
    "children.stdio",
    "cli.actions",
    "cli.actions.accounts",
    "front",
    "front.fast_path",
    "front.fastmcp",
    "front.http",
    "front.http.resume",
    "front.stdio",
    "front.wire",
    "library_internals",
    "message_streams",
    "oauth",
    "policies",
    "relay",
    "routing",
    "runtime",
    "service",
    "virtual_server",
}
"""The rooms that import FastMCP or the SDK."""

PROTOCOL = {"fastmcp", "mcp", "mcp_types"}

BEFORE_FASTMCP = {
    "access",
    "attach",
    "catalogue",
    "catalogue.persisted",
    "children.process",
    "config",
    "errors",
    "escaping",
    "extensions",
    "file_descriptors",
    "files",
    "isolation",
    "concurrency",
    "early",
    "naming",
    "observability",
    "pinning",
    "pipe",
    "protocol",
    "scaffold",
    "settings",
    "status",
    "version",
}
"""The rooms that must not load FastMCP or the SDK, not even by way of others: the servers start with them."""

STANDARD_LIBRARY_ONLY = {"attach", "attach.systems", "early"}
"""The rooms that a client waits for, which load nothing else, not even by way of others."""

TELLS_THE_DATE = {
    "access.keys": "when a key was made",
    "access.keys_file": "a person has set the date on which a key ends",
    "auth.verifiers": "a token says from when on it counts (RFC 7519, 4.1.5)",
    "files.followed": "since when a file has been refused, for a metric",
    "front.http.revocation": "a token says until when it counts (RFC 7519, 4.1.4)",
    "children.timings": "the clock by which it does so, for tests to hand in another",
    "children.http.failures": "a server may name the date until which it is to be left alone (RFC 9110, 10.2.3)",
    "children.process.stderr": "when each line was said, for the log of a program that writes JSON",
    "cli.actions.keys": "a person sets the date on which a key ends",
    "local_hub.log_file": "when each line was said, in the log of a hub",
    "oauth.account": "the date on which a token ends is kept",
    "oauth.authorization": "the date on which a token ends is kept",
    "oauth.tokens": "the date on which a token ends is kept",
    "oauth.logins": "when a login was begun is kept, for other replicas",
    "oauth.vault.vault": "the date on which a document ends is kept",
    "replicas.redis_vault": "the date on which a document ends is kept",
    "replicas.seal": "a message is good for a minute, by the clocks of two machines",
    "observability.audit_log": "when each line was written",
    "scaffold.project": "the year of a new project's licence",
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


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py")) if "templates" not in path.parts}


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def room_of(module: str) -> str:
    folder = ".".join(MODULES[module].parent.relative_to(ROOT).parts)
    return folder or module


@cache
def imports_of(module: str) -> tuple[str, ...]:
    """Every absolute name that the module imports, wherever in the file."""
    return tuple(_imports_of(module))


def _imports_of(module: str) -> Iterator[str]:
    for node in ast.walk(tree_of(module)):
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


FLOOR_OF = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}


def test_every_room_has_one_floor_and_every_entry_is_a_room() -> None:
    rooms = {room_of(module) for module in MODULES}
    assert rooms == FLOOR_OF.keys()
    assert sum(map(len, FLOORS)) == len(rooms)
    assert rooms >= SPEAKS_MCP | BEFORE_FASTMCP
    assert SPEAKS_MCP.isdisjoint(BEFORE_FASTMCP)


def test_imports_point_down() -> None:
    upward = [
        f"{module} imports {name}"
        for module in MODULES
        for name in own_imports(module)
        if room_of(name) != room_of(module) and FLOOR_OF[room_of(name)] >= FLOOR_OF[room_of(module)]
    ]
    assert upward == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {module: own_imports(module) - {module} for module in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(f"a circle: {' -> '.join(error.args[1])}") from None


def test_no_room_is_crowded() -> None:
    modules = Counter(room_of(module) for module, path in MODULES.items() if path.name != "__init__.py")
    root = sum(1 for path in MODULES.values() if path.parent == ROOT and path.name != "__init__.py")
    assert {room: count for room, count in modules.items() if count > MOST_MODULES} == {}
    assert root <= MOST_MODULES


def test_the_public_names_are_imported_for_type_checkers_only() -> None:
    at_run_time = [node for node in tree_of("").body if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in at_run_time}
    assert modules <= {"__future__", "importlib", "typing"}


def test_the_protocol_is_imported_only_where_it_is_spoken() -> None:
    speaking = {room_of(m) for m in MODULES if {name.partition(".")[0] for name in imports_of(m)} & PROTOCOL}
    assert speaking == SPEAKS_MCP


def test_the_bridge_and_the_first_answers_need_the_standard_library_alone() -> None:
    needed: set[str] = set()
    new = {module for module in MODULES if room_of(module) in STANDARD_LIBRARY_ONLY}
    while new:
        needed |= new
        new = {name for module in new for name in own_imports(module)} - needed
    imported = {name.partition(".")[0] for module in needed for name in imports_of(module)}
    assert imported - {PACKAGE} - sys.stdlib_module_names == set()


def test_the_library_for_services_is_used_by_new_servers_alone() -> None:
    using = {room_of(module) for module in MODULES if any(room_of(name) == "service" for name in own_imports(module))}
    assert using == {"service", "scaffold"}


def test_what_runs_before_fastmcp_is_loaded_does_not_load_it_by_way_of_others() -> None:
    modules = [module for module in MODULES if room_of(module) in BEFORE_FASTMCP]
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
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else getattr(node.value, "attr", "")
            if node.attr == "wall_clock" or node.attr in WALL_CLOCK.get(owner, ()):
                yield f"{owner}.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            yield from (alias.name for alias in node.names if alias.name in WALL_CLOCK["time"])


def test_nothing_is_timed_by_the_wall_clock() -> None:
    """A module that tells the date, and times nothing by it, has its place in TELLS_THE_DATE."""
    assert {module for module in MODULES if list(wall_clock_readings(module))} == TELLS_THE_DATE.keys()
