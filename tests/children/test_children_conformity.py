"""Listed components that are not as the protocol prescribes: left out, so that clients take the others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.server.middleware import Middleware
from support.harness import LEGACY, MODERN, config, lean
from support.memory import build_aggregator

from fastmcp_aggregator.catalogue.snapshot import SPECS, Kind
from fastmcp_aggregator.children.session.conformity import conforming

SCHEMA = {"type": "object"}
GOOD: dict[Kind, dict[str, Any]] = {
    Kind.TOOL: {"name": "x", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}, "x-of-ours": 1},
    Kind.RESOURCE: {"uri": "test://x", "name": "x", "size": 5},
    Kind.TEMPLATE: {"uriTemplate": "test://{x}", "name": "x"},
    Kind.PROMPT: {"name": "x", "arguments": [{"name": "y", "required": True}]},
}
ODD = [
    (Kind.TOOL, {"inputSchema": SCHEMA}),
    (Kind.TOOL, {"name": "x"}),
    (Kind.TOOL, {"name": "x", "inputSchema": {}}),
    (Kind.TOOL, {"name": "x", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": "perhaps"}}),
    (Kind.RESOURCE, {"uri": "test://x"}),
    (Kind.RESOURCE, {"uri": "test://x", "name": "x", "icons": [1]}),
    (Kind.TEMPLATE, {"uriTemplate": ["test://x"], "name": "x"}),
    (Kind.PROMPT, {"name": "x", "arguments": {"y": 1}}),
]


@pytest.mark.parametrize("version", [LEGACY, MODERN, "2024-11-05"])
@pytest.mark.parametrize("kind", Kind)
async def test_a_component_of_the_right_form_is_kept_as_it_is(kind: Kind, version: str, caplog: Any) -> None:
    good = GOOD[kind]
    (kept,) = await conforming("files", kind, [good], version)
    assert kept is good
    assert caplog.messages == []


@pytest.mark.parametrize("version", [LEGACY, MODERN])
@pytest.mark.parametrize(("kind", "odd"), ODD)
async def test_one_of_another_form_is_left_out_and_the_others_stay(
    kind: Kind, odd: dict[str, Any], version: str, caplog: Any
) -> None:
    good = GOOD[kind]
    assert await conforming("files", kind, [good, odd, None, good], version) == [good, good]
    (report,) = caplog.messages
    assert report.startswith(f"server 'files' lists 2 of its {kind} not as MCP prescribes; left out: ")
    assert repr(odd.get(SPECS[kind].id_field)) in report


async def test_the_report_names_the_first_and_says_what_is_wrong_with_them(caplog: Any) -> None:
    odd = [{"name": f"odd{number}" * 100, "inputSchema": {}} for number in range(500)]
    assert await conforming("files", Kind.TOOL, odd, LEGACY) == []
    (report,) = caplog.messages
    assert report.startswith("server 'files' lists 500 of its tools not as MCP prescribes; left out: 'odd0odd0")
    assert report.count("(inputSchema.type: Field required)") == 3
    assert len(report) < 500


async def test_others_get_their_turn_while_a_long_list_is_checked() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    # However fast the machine is.
    await conforming("files", Kind.TOOL, [GOOD[Kind.TOOL]] * 1000, LEGACY, turn=0.0)
    task.cancel()
    assert turns >= 10


@pytest.mark.parametrize("middleware", [[], [Middleware()]], ids=["by itself", "with FastMCP middleware"])
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_client_that_checks_what_it_gets_sees_the_tools_of_all_servers(
    mode: str, middleware: list[Middleware]
) -> None:
    listed = {"tools": [{"name": "odd"}, {"name": "even", "inputSchema": SCHEMA}]}
    app = build_aggregator(config(odd=lean(results={"tools/list": listed}), good=lean()))
    for each in middleware:
        app.add_middleware(each)
    async with Client(app, mode=mode) as client:
        names = [tool.name for tool in await client.list_tools()]
    assert names[0] == "odd:even"
    assert "good:echo" in names
    assert "odd:odd" not in names
