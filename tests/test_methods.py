"""The table of relayed methods, against the protocol's own tables and against who reads it."""

from __future__ import annotations

import ast

import pytest
from mcp_types import methods as sdk
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from test_architecture import MODULES, room_of, tree_of

from fastmcp_aggregator import build_aggregator
from fastmcp_aggregator.extensions.table import EXTENSIONS, OF_METHOD
from fastmcp_aggregator.front.pipeline import Pipeline
from fastmcp_aggregator.protocol.methods import BOTH, CLIENT_REQUESTS, METHODS, Method
from fastmcp_aggregator.settings.options import Deadlines

EACH_SIDES_OWN = {
    "initialize",
    "ping",
    "server/discover",
    "subscriptions/listen",
    "notifications/cancelled",
    "notifications/initialized",
    "notifications/subscriptions/acknowledged",
}
TASKS = {"notifications/tasks/status", "tasks/get", "tasks/list", "tasks/cancel", "tasks/result"}
"""Those of 2025-11-25, which are declared to nobody; the extension has methods of the same names."""
SPOKEN = {
    ("client", True): sdk.CLIENT_REQUESTS,
    ("client", False): sdk.CLIENT_NOTIFICATIONS,
    ("server", True): sdk.SERVER_REQUESTS,
    ("server", False): sdk.SERVER_NOTIFICATIONS,
}
"""The SDK's table of (method, version) for each sender and kind."""


OF_CORE = {name: row for name, row in METHODS.items() if name not in OF_METHOD}


def test_every_method_of_the_protocol_is_relayed_or_belongs_to_each_side() -> None:
    known = {method for table in SPOKEN.values() for method, _ in table}
    assert OF_CORE.keys() - known == set()
    assert known - OF_CORE.keys() - EACH_SIDES_OWN - TASKS == set()


def test_every_method_of_an_extension_is_a_row() -> None:
    assert {row.name for each in EXTENSIONS.values() for row in each.methods} == OF_METHOD.keys() <= METHODS.keys()
    assert all(METHODS[name].eras <= each.eras for name, each in OF_METHOD.items())


@pytest.mark.parametrize("row", OF_CORE.values(), ids=OF_CORE)
def test_a_row_has_the_sender_the_kind_and_the_eras_of_the_protocol(row: Method) -> None:
    versions = {version for method, version in SPOKEN[row.sender, row.is_request] if method == row.name}
    assert versions
    eras = {"modern" if version in MODERN_PROTOCOL_VERSIONS else "legacy" for version in versions}
    assert row.eras == eras <= BOTH


def test_the_pipeline_answers_every_request_of_clients() -> None:
    app = build_aggregator({"mcpServers": {}})
    pipeline = next(each for each in app._mcp_server.middleware if isinstance(each, Pipeline))
    assert pipeline._answers.keys() == CLIENT_REQUESTS.keys()


def test_deadlines_are_those_of_the_table() -> None:
    deadlines = Deadlines(call=1, read=2, prompt=3).by_method
    assert deadlines == {"resources/read": 2, "prompts/get": 3, "skills/get": 2, "resources/directory/read": 2}


def test_methods_are_spelled_in_the_table_alone() -> None:
    """So that a row is all that it takes to relay one more. The other rooms here relay nothing, and load little."""
    spelling = {
        room_of(module)
        for module, path in MODULES.items()
        if any(name in path.read_text(encoding="utf-8") for name in METHODS)
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.Constant) and node.value in METHODS
    }
    assert spelling == {"attach", "early", "protocol", "service"}
