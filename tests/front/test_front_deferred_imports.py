"""Libraries whose import is deferred: what has a name of theirs meanwhile, and that the program does without them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from support.harness import config, lean, running

from fastmcp_aggregator.early.deferred_imports import LIBRARIES, StandIn, StandInModule, deferred

LIBRARY = ("rare", "rarer")
NOT_LOADED = {
    "beartype",
    "cryptography.hazmat.bindings._rust",
    "joserfc.jwk",
    "joserfc.jws",
    "joserfc.jwt",
    "jwt",
    "key_value",
    "uvicorn.supervisors",
}
"""What takes the memory and the time."""
STAND_INS = """
import sys
from fastmcp_aggregator.early.deferred_imports import LIBRARIES, StandIn, StandInModule, deferred

def stand_ins():
    names = [vars(module).values() for module in sys.modules.values() if type(module) is type(sys)]
    return [value for values in names for value in values if isinstance(value, StandIn | StandInModule)]

with deferred():
    import fastmcp_aggregator.aggregator
found = stand_ins()
assert not [name for name, module in sys.modules.items() if isinstance(module, StandInModule)]
originals = [stand_in.original() for stand_in in found]
held = {stand_in.library for stand_in in found}
assert held == set(LIBRARIES), set(LIBRARIES) - held
for library in LIBRARIES:
    getattr(next(stand_in for stand_in in found if stand_in.library == library), "anything", None)
print(len(found), len(stand_ins()))
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two modules that are deferred together, `rare` and `rarer`, and one that imports both, `user`."""
    sources = {
        "rare": """
            class Thing(dict): pass
            class Broken(Exception): pass
            def make(**parts): return Thing(parts)
            def fail(): raise Broken
        """,
        "rarer": "LENGTH = 3",
        "user": """
            import rarer
            from rare import Broken, Thing, fail, make
            def failing():
                try: fail()
                except Broken: return "caught"
        """,
    }
    for name, source in sources.items():
        (tmp_path / f"{name}.py").write_text(dedent(source))
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in sources:
        sys.modules.pop(name, None)


@pytest.fixture
def user(library: None) -> Any:
    with deferred((LIBRARY,)):
        import user  # type: ignore[import-not-found]

        assert not is_loaded()
    assert not set(LIBRARY) & set(sys.modules)
    return user


def is_loaded() -> bool:
    return any(name in sys.modules and not isinstance(sys.modules[name], StandInModule) for name in LIBRARY)


USES: dict[str, Callable[[Any], bool]] = {
    "attribute": lambda user: user.Thing.fromkeys("a") == {"a": None},
    "attribute of a module": lambda user: user.rarer.LENGTH == 3,
    "call": lambda user: user.make(a=1) == {"a": 1},
    "exception": lambda user: user.failing() == "caught",
    "instance": lambda user: not isinstance({}, user.Thing),
    "item": lambda user: user.Thing[str, int].__args__ == (str, int),
    "union": lambda user: isinstance(None, user.Thing | None),
    "union, on its right": lambda user: isinstance(None, None | user.Thing),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_the_first_use_of_a_name_loads_its_library_and_puts_it_in_the_place_of_all_stand_ins(
    user: Any, use: Callable[[Any], bool]
) -> None:
    assert use(user)
    assert is_loaded()
    assert not [value for value in vars(user).values() if isinstance(value, StandIn | StandInModule)]
    assert user.Thing is sys.modules["rare"].Thing
    assert user.rarer is sys.modules["rarer"]


def test_a_class_that_is_derived_from_a_name_has_it_as_its_base(user: Any) -> None:
    class Derived(user.Thing):  # type: ignore[name-defined,misc]
        pass

    assert Derived.__mro__[1] is sys.modules["rare"].Thing


def test_what_is_used_while_it_is_imported_is_not_deferred_nor_is_anything_after_it(
    library: None, tmp_path: Path
) -> None:
    (tmp_path / "hasty.py").write_text("from rare import make\nMADE = make(a=1)\nimport rarer\n")
    with deferred():
        import hasty  # type: ignore[import-not-found]

        assert is_loaded()
    assert hasty.MADE == {"a": 1}
    assert hasty.rarer is sys.modules["rarer"]
    assert hasty.make(b=2) == {"b": 2}
    assert hasty.make is sys.modules["rare"].make


def test_what_is_loaded_is_not_deferred(library: None) -> None:
    import rarer  # type: ignore[import-not-found]

    with deferred((LIBRARY,)):
        import user
    assert user.rarer is rarer
    assert not isinstance(user.make, StandIn)


# The program.


@pytest.mark.process
async def test_a_program_that_passes_calls_on_loads_none_of_them(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config(a=lean())))
    command = [sys.executable, "-X", "importtime", "-m", "fastmcp_aggregator", str(file)]
    async with running(*command) as server:
        assert (await server.client.result("tools/call", {"name": "a:echo", "arguments": {}}))["content"]
        assert await server.end() == 0
    loaded = {line.rpartition("|")[2].strip() for line in server.stderr.decode().splitlines()}
    assert {"fastmcp.client.auth.oauth", "mcp.server.request_state", "uvicorn.server"} <= loaded
    assert loaded & NOT_LOADED == set()


@pytest.mark.process
def test_each_library_is_deferred_and_what_stands_for_it_is_there_when_it_is_used() -> None:
    ended = subprocess.run([sys.executable, "-c", STAND_INS], capture_output=True, text=True, check=False)
    assert ended.stderr == ""
    before, after = map(int, ended.stdout.split())
    assert before > len(LIBRARIES)
    assert after == 0
