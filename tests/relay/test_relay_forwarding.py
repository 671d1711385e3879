"""One request on its way to a child: what goes along, and what stays here. The children are real."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType
from typing import Any

import pytest
from harness import MODERN, config, lean, until
from mcp.shared.exceptions import MCPError

from fastmcp_aggregator import build_aggregator
from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.relay.forwarding import forward, wants_progress

META = "io.modelcontextprotocol/"
OF_THE_CONNECTION = {
    f"{META}protocolVersion": "1999-01-01",
    f"{META}clientInfo": {"name": "the caller", "version": "1"},
    f"{META}clientCapabilities": {"sampling": {}},
    f"{META}logLevel": "debug",
    "progressToken": "the caller's",
}
ITS_OWN = {"traceparent": "00-0af7-b7ad-01", "example.org/x": {"nested": [1, None]}}


@pytest.fixture(params=["legacy", "modern"])
async def child(request: pytest.FixtureRequest) -> AsyncIterator[Child]:
    """A running child of either era."""
    async with build_aggregator(config(lean=lean(era=request.param))) as hub:
        route = hub.routes.find(Kind.TOOL, "lean:params")
        assert route is not None
        assert route.child.session is not None
        assert route.child.session.era == request.param
        yield route.child


def is_modern(child: Child) -> bool:
    assert child.session is not None
    return child.session.era == "modern"


async def params_seen(child: Child, params: Mapping[str, Any]) -> dict[str, Any]:
    """What the child sees of a call."""
    result = await forward(child, "tools/call", params, {"name": "params"})
    return json.loads(result["content"][0]["text"])


async def test_the_childs_own_name_takes_the_place_of_the_public_one(child: Child) -> None:
    seen = await params_seen(child, {"name": "lean:params", "arguments": {"x": [1, None, "é"]}, "x-unknown": True})
    seen.pop("_meta", None)
    assert seen == {"name": "params", "arguments": {"x": [1, None, "é"]}, "x-unknown": True}


async def test_what_describes_the_callers_connection_stays_here(child: Child) -> None:
    seen = (await params_seen(child, {"_meta": {**OF_THE_CONNECTION}})).get("_meta")
    if not is_modern(child):
        assert seen is None
        return
    assert seen.keys() == {f"{META}protocolVersion", f"{META}clientInfo", f"{META}clientCapabilities"}
    assert seen[f"{META}protocolVersion"] == MODERN
    assert seen[f"{META}clientInfo"]["name"] == "fastmcp-aggregator"
    assert "sampling" not in seen[f"{META}clientCapabilities"]


async def test_everything_else_in_meta_goes_along(child: Child) -> None:
    seen = (await params_seen(child, {"_meta": {**OF_THE_CONNECTION, **ITS_OWN}}))["_meta"]
    assert {key: seen.get(key) for key in ITS_OWN} == ITS_OWN
    assert "progressToken" not in seen
    assert is_modern(child) or seen == ITS_OWN


@pytest.mark.parametrize("meta", [None, {}], ids=["null", "empty"])
async def test_an_empty_meta_is_as_good_as_none(child: Child, meta: Any) -> None:
    seen = await params_seen(child, {"_meta": meta})
    assert is_modern(child) or "_meta" not in seen


async def test_what_only_a_modern_server_understands_is_kept_from_a_legacy_child(child: Child) -> None:
    answers = {"inputResponses": {"a": {"action": "accept"}}, "requestState": "opaque"}
    seen = await params_seen(child, {**answers, "arguments": {}})
    assert {key: value for key, value in seen.items() if key in answers} == (answers if is_modern(child) else {})


async def test_the_callers_params_are_left_as_they_are(child: Child) -> None:
    params = {
        "name": "lean:params",
        "arguments": {"a": [1]},
        "requestState": "s",
        "_meta": {**OF_THE_CONNECTION, **ITS_OWN},
    }
    before = copy.deepcopy(params)
    await params_seen(child, params)
    assert params == before
    await params_seen(child, MappingProxyType({**params, "_meta": MappingProxyType(params["_meta"])}))


async def test_the_result_comes_back_as_the_child_sent_it(child: Child) -> None:
    sent = {"content": [], "structuredContent": {"x": 1}, "x-unknown": [{"y": None}], "_meta": {"z": 0}}
    result = await forward(child, "tools/call", {"arguments": sent}, {"name": "raw"})
    assert {key: result[key] for key in sent} == sent
    assert result.keys() - sent.keys() == ({"resultType"} if is_modern(child) else set())


async def test_the_childs_error_comes_back_as_the_child_sent_it(child: Child) -> None:
    error = {"code": -31999, "message": "mine", "data": {"why": ["because"]}}
    with pytest.raises(MCPError) as raised:
        await forward(child, "tools/call", {"arguments": error}, {"name": "error"})
    assert (raised.value.code, raised.value.message, raised.value.data) == tuple(error.values())


async def test_progress_comes_back_under_a_token_that_is_not_the_callers(child: Child) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    params = {"arguments": {"steps": 2}, "_meta": {"progressToken": "the caller's"}}
    result = await forward(child, "tools/call", params, {"name": "progress"}, on_progress=on_progress)
    token = json.loads(result["content"][0]["text"])["token"]
    assert token is not None
    assert token != "the caller's"
    await until(lambda: len(heard) == 2)
    assert heard == [(1, 3, "step 1"), (2, 3, "step 2")]


@pytest.mark.parametrize(
    ("params", "wanted"),
    [
        ({"_meta": {"progressToken": "t"}}, True),
        ({"_meta": {"progressToken": 0}}, True),
        ({"_meta": {"progressToken": ""}}, True),
        ({"_meta": {"progressToken": None}}, False),
        ({"_meta": {}}, False),
        ({"_meta": None}, False),
        ({"_meta": "progressToken"}, False),
        ({}, False),
        ({"progressToken": 1}, False),
    ],
)
def test_progress_is_wanted_by_whoever_gave_a_token(params: dict[str, Any], wanted: bool) -> None:
    assert wants_progress(params) is wanted
