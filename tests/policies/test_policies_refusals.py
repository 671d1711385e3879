"""Who answers 401 or 403 anywhere in the code records it. What the lines say, and refusals that are answered 404,
`test_web_everything_is_recorded.py` looks at.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import fastmcp_aggregator

PACKAGE = Path(fastmcp_aggregator.__file__).parent
FOLDERS = ("access", "auth", "fast_path", "front", "local_hub", "policies", "relay", "routing", "web")
RECORDS = {"_on_denied", "on_denied", "request_denied", "denied", "_on_failure", "authentication_failed", "_refused"}
OTHERWISE = {
    "front/http/revocation.py: __call__": "_revoked records it, which ended the request",
    "front/http/security.py: _pass_on": "the check around it records whatever it does not let through",
}
"""Who answers so without recording it, and who does it instead."""


def name_of(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def refuses(call: ast.Call) -> bool:
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    return any(isinstance(value, ast.Constant) and value.value in (401, 403) for value in values)


def functions() -> Iterator[tuple[str, list[ast.Call]]]:
    for folder in FOLDERS:
        for file in (PACKAGE / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
                    yield f"{file.relative_to(PACKAGE)}: {node.name}", calls


def test_whoever_answers_401_or_403_records_it() -> None:
    unrecorded = {
        where
        for where, calls in functions()
        if any(map(refuses, calls)) and not any(name_of(call) in RECORDS for call in calls)
    }
    assert unrecorded == OTHERWISE.keys()
