"""No test patches a constant: what takes a time or a bound takes it as an argument, so tests hand in theirs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
CONSTANT = re.compile(r"(?:.*\.)?_*[A-Z][A-Z0-9_]*")
IN_A_PROGRAM = re.compile(r"^\s*\w+\.(_*[A-Z][A-Z0-9_]*)\s*=(?!=)", re.MULTILINE)
POSSIBLE = re.compile(r"attr\(|patch|\w\._*[A-Z][A-Z0-9_]*\s*[-+*/|&]?=(?!=)")
"""In all files that are worth parsing."""
PATCHING = {"setattr", "delattr", "patch", "object"}
OF_OTHERS = {
    "cli/test_cli_main.py: SIGHUP": "of the standard library: a system has no such signal",
}


def patched(tree: ast.AST) -> Iterator[str]:
    """The names of the constants that a test, or a program in one of its texts, replaces."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Attribute(attr=name) | ast.Name(id=name), args) if name in PATCHING:
                texts = [arg.value for arg in args[:2] if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
                yield from (text.rpartition(".")[2] for text in texts if CONSTANT.fullmatch(text))
            case ast.Attribute(attr=name, ctx=ast.Store() | ast.Del()) if CONSTANT.fullmatch(name):
                yield name
            case ast.Constant(str(text)):
                yield from IN_A_PROGRAM.findall(text)


def test_no_constant_is_patched() -> None:
    found = {
        f"{path.relative_to(TESTS).as_posix()}: {name}"
        for path in TESTS.rglob("*.py")
        if path != Path(__file__) and POSSIBLE.search(text := path.read_text())
        for name in patched(ast.parse(text))
    }
    assert found == OF_OTHERS.keys()


def test_patches_are_found() -> None:
    program = """
        import limits
        limits.A = 1
        patch.setattr(limits, "_B", 1)
        monkeypatch.setattr("package.limits.C_1", 1)
        setattr(limits, "D", 1)
        "limits.E = 1"
        f"{x}\\nlimits.F = {y}\\n"
        monkeypatch.setattr(limits, "of", 1)
        limits.G == 1
        limits.of = 1
    """
    assert sorted(patched(ast.parse("if 1:" + program))) == ["A", "C_1", "D", "E", "F", "_B"]
