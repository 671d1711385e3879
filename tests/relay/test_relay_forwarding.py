"""One request on its way to a child: what goes along, and what stays here. The children are real."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Hashable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from support.harness import MODERN, config, lean
from support.memory import build_aggregator

from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.children.session.in_flight import AnyCaller, OnProgress
from fastmcp_aggregator.relay.rounds import forwarded

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
    async with build_aggregator(config(lean=lean(era=request.param, capabilities={"tools": {}, "logging": {}}))) as hub:
        route = hub.routes.find(Kind.TOOL, "lean:params")
        assert route is not None
        assert route.child.session is not None
        assert route.child.session.era == request.param
        yield route.child


def is_modern(child: Child) -> bool:
    assert child.session is not None
    return child.session.era == "modern"


async def send(
    child: Child, method: str, params: Mapping[str, Any], address: Mapping[str, Any], caller: AnyCaller | None
) -> dict[str, Any]:
    """What comes back of a request."""
    return await child.calls.request(method, forwarded(child, params, address), caller=caller)


async def params_seen(child: Child, params: Mapping[str, Any]) -> dict[str, Any]:
    """What the child sees of a call."""
    result = await send(child, "tools/call", params, {"name": "params"}, None)
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
    assert seen[f"{META}clientCapabilities"] != OF_THE_CONNECTION[f"{META}clientCapabilities"]


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
    result = await send(child, "tools/call", {"arguments": sent}, {"name": "raw"}, None)
    assert {key: result[key] for key in sent} == sent
    assert result.keys() - sent.keys() == ({"resultType"} if is_modern(child) else set())


async def test_the_childs_error_comes_back_as_the_child_sent_it(child: Child) -> None:
    error = {"code": -31999, "message": "mine", "data": {"why": ["because"]}}
    with pytest.raises(MCPError) as raised:
        await send(child, "tools/call", {"arguments": error}, {"name": "error"}, None)
    assert (raised.value.code, raised.value.message, raised.value.data) == tuple(error.values())


@dataclass
class Hearer:
    """Whom a request is sent for; keeps what it is told."""

    wants_progress: bool = False
    capabilities: Mapping[str, Any] | None = None
    log_level: str | None = None
    identity: Hashable = "hearer"
    account: Hashable = None
    holder: Hashable = None
    told: list[tuple[str, Any]] = field(default_factory=list)

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        self.told.append((method, params))

    def hang_up(self) -> None:
        raise NotImplementedError

    async def ask(self, method: str, params: Mapping[str, Any], on_progress: OnProgress) -> dict[str, Any]:
        raise NotImplementedError


async def test_progress_is_asked_for_under_a_token_that_is_not_the_callers(child: Child) -> None:
    hearer = Hearer(wants_progress=True)
    params = {"arguments": {"steps": 2}, "_meta": {"progressToken": "the caller's"}}
    result = await send(child, "tools/call", params, {"name": "progress"}, hearer)
    token = json.loads(result["content"][0]["text"])["token"]
    assert token not in (None, "the caller's")
    assert hearer.told == [
        ("notifications/progress", {"progressToken": token, "progress": n, "total": 3, "message": f"step {n}"})
        for n in (1, 2)
    ], "before the result"


async def test_no_progress_is_asked_for_when_nobody_wants_it(child: Child) -> None:
    result = await send(child, "tools/call", {"arguments": {"steps": 0}}, {"name": "progress"}, Hearer())
    assert json.loads(result["content"][0]["text"])["token"] is None


async def test_a_modern_child_is_told_what_the_caller_can_be_asked_and_shown_and_a_legacy_one_nothing(
    child: Child,
) -> None:
    hearer = Hearer(capabilities={"roots": {}}, log_level="notice")
    result = await send(child, "tools/call", {}, {"name": "params"}, hearer)
    meta = json.loads(result["content"][0]["text"]).get("_meta", {})
    told = {key: meta.get(f"{META}{key}") for key in ("clientCapabilities", "logLevel")}
    expected = {"clientCapabilities": {"roots": {}}, "logLevel": "notice"}
    assert told == (expected if is_modern(child) else dict.fromkeys(expected))
