"""What each side may know that the other can do."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.harness import RawClient, config, connected, lean, running, talking, until
from support.memory import build_aggregator
from support.serving import served
from support.wire import EVERYTHING, META, Message
from ways import Way, ways

from fastmcp_aggregator.extensions.extension import united
from fastmcp_aggregator.extensions.table import for_child
from fastmcp_aggregator.protocol.client_capabilities import RELAYED
from fastmcp_aggregator.settings.model import ServerSettings

pytestmark = pytest.mark.asyncio(loop_scope="session")

CLIENT_ERAS = pytest.mark.parametrize("modern", [False, True], ids=["legacy client", "modern client"])
ALL_THAT_CAN_BE = {
    "tools": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
}
APPS = {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"], "x-own": {"deep": [1]}}}
UI = {"mimeTypes": ["text/html;profile=mcp-app"]}
MODERN_ONLY = {"io.modelcontextprotocol/tasks": {}, "io.modelcontextprotocol/skills": {"directoryRead": True}}
WITHHELD = {"a/b": {}, "io.modelcontextprotocol/not-yet": {"list": True}}
"""Extensions that are passed on, one and others in both eras, and some that are not."""


def all_that_can_be(*, modern: bool) -> Message:
    """What is declared while nobody knows what there will be."""
    return {**ALL_THAT_CAN_BE, "extensions": {"io.modelcontextprotocol/ui": UI, **(MODERN_ONLY if modern else {})}}


# What the aggregator declares: what its children can do together.


@asynccontextmanager
async def declared_for(*of_children: Message, modern: bool, **settings: Any) -> AsyncIterator[Message]:
    """The capabilities that a client reads in the handshake, with children that have these."""
    document = config(**{f"c{i}": lean(capabilities=each) for i, each in enumerate(of_children)})
    async with build_aggregator(document, **settings) as app, connected(app, modern=modern) as client:
        yield client.introduction["capabilities"]


UNIONS: dict[str, tuple[list[Message], Message]] = {
    "tools alone": ([{"tools": {}}], {"tools": {"listChanged": True}}),
    "one subscribes, the other does not": (
        [{"resources": {"subscribe": True}}, {"resources": {"subscribe": False}, "logging": {}}],
        {"resources": {"subscribe": True, "listChanged": True}, "logging": {}},
    ),
    "neither subscribes": ([{"resources": {}}, {"resources": {}}], {"resources": {"listChanged": True}}),
    "completions, prompts": (
        [{"completions": {}}, {"prompts": {}}],
        {"completions": {}, "prompts": {"listChanged": True}},
    ),
    "experimental, with the first one's value": (
        [{"experimental": {"x": {"v": 1}}}, {"experimental": {"x": {"v": 2}, "y": {}}}],
        {"experimental": {"x": {"v": 1}, "y": {}}},
    ),
    "an extension that is relayed, with its settings": ([{}, {"extensions": APPS}], {"extensions": APPS}),
    "no other extension": ([{"extensions": {**APPS, **WITHHELD}}], {"extensions": APPS}),
    "no extension at all": ([{"extensions": WITHHELD}], {}),
    "tasks are not relayed": ([{"tools": {}, "tasks": {"list": {}}}], {"tools": {"listChanged": True}}),
    "nothing at all": ([{}], {}),
}
"""What the children declare, and what the aggregator does."""


@CLIENT_ERAS
@pytest.mark.parametrize(("of_children", "together"), UNIONS.values(), ids=UNIONS)
async def test_a_client_is_told_what_the_children_can_do_together_and_not_more(
    modern: bool, of_children: list[Message], together: Message
) -> None:
    async with declared_for(*of_children, modern=modern) as declared:
        assert declared == together


class Item(str):
    """Counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Item.compared += 1
        return super().__eq__(other)

    __hash__ = str.__hash__


async def test_the_long_settings_of_two_servers_are_not_compared_item_by_item() -> None:
    one, other = ({"x": [Item(f"{of}{number}") for number in range(1000)]} for of in "ab")
    assert len(united(one, other)["x"]) == 2000
    assert Item.compared < 10_000


@CLIENT_ERAS
async def test_what_a_server_says_of_itself_at_great_length_is_told_to_no_client(modern: bool) -> None:
    long = {"tools": {}, "experimental": {"a": {"b": "c" * 20_000}}, "extensions": {**APPS, "x": {"y": "z" * 20_000}}}
    async with declared_for(long, {"prompts": {}}, modern=modern) as told:
        assert told == {"tools": {"listChanged": True}, "prompts": {"listChanged": True}}


@CLIENT_ERAS
async def test_while_a_child_has_never_been_up_everything_is_declared_that_it_may_bring(modern: bool) -> None:
    document = config(up=lean(capabilities={"tools": {}}), down=lean(exit_at_start=1))
    async with build_aggregator(document, strict=False) as app, connected(app, modern=modern) as client:
        assert client.introduction["capabilities"] == all_that_can_be(modern=modern)


@CLIENT_ERAS
@pytest.mark.parametrize("front", [pytest.param("stdio", marks=pytest.mark.process), "http"])
async def test_the_first_handshake_declares_extensions_while_children_start(
    modern: bool, front: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    document = config(a=lean(wait_for_file=str(gate), capabilities={"tools": {}, "extensions": APPS}))
    async with fronted(front, document, tmp_path, modern=modern) as client:
        try:
            assert client.introduction["capabilities"] == all_that_can_be(modern=modern)
        finally:
            gate.touch()
        assert "a:echo" in await client.names()


@asynccontextmanager
async def fronted(front: str, document: Message, folder: Path, **about: Any) -> AsyncIterator[RawClient]:
    """A client of a process on stdio that is its alone, or of a server over HTTP."""
    if front == "http":
        async with served(build_aggregator(document)) as front:
            yield await front.connect(**about)
        return
    file = folder / "config.json"
    file.write_text(json.dumps(document))
    async with running(sys.executable, "-m", "fastmcp_aggregator", str(file), **about) as server:
        yield server.client


@CLIENT_ERAS
async def test_a_child_that_was_up_once_is_declared_while_it_is_down(modern: bool, tmp_path: Any) -> None:
    gone = tmp_path / "gone"
    entry = lean(capabilities={"tools": {}, "logging": {}}, exit_if_file=str(gone))
    async with build_aggregator(config(a=entry), strict=False) as app:
        gone.touch()
        async with connected(app) as client:
            await client.error("tools/call", {"name": "a:leave"})
        await until(lambda: app.health()["a"].state == "failed")
        async with connected(app, modern=modern) as client:
            assert client.introduction["capabilities"] == {"tools": {"listChanged": True}, "logging": {}}


# What a child is told that its client can do.


def shown(report: Message) -> Message:
    """The capabilities that the child has been shown, in its era's way."""
    capabilities: Message = (report["client"] or {}).get("capabilities") or report["meta"][f"{META}clientCapabilities"]
    return capabilities


@ways(lambda way: way.front == "stdio")
async def test_on_stdio_a_child_is_told_what_the_only_client_can_do(way: Way, client: RawClient) -> None:
    assert shown(await client.report(way.server)) == EVERYTHING


@ways(lambda way: way.front == "http")
async def test_over_http_a_legacy_child_is_told_all_that_can_be_and_a_modern_one_what_the_caller_can(
    way: Way, client: RawClient, fronts: Any
) -> None:
    poor = await fronts.connect(modern=way.is_modern, capabilities={"roots": {}})
    expected = {"roots": {}} if way.child_is_modern else RELAYED
    assert shown(await poor.report(way.server)) == expected
    await poor.close()


@pytest.mark.process
@CLIENT_ERAS
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_on_stdio_a_child_is_told_the_extensions_that_are_relayed_and_no_other(
    modern: bool, era: str, tmp_path: Path
) -> None:
    capabilities = {"roots": {}, "extensions": {**APPS, **WITHHELD}}
    document = config(a=talking(era=era))
    async with fronted("stdio", document, tmp_path, modern=modern, capabilities=capabilities) as client:
        assert shown(await client.report("a")) == {"roots": {}, "extensions": APPS}


@CLIENT_ERAS
async def test_a_modern_child_is_told_extensions_of_the_caller_that_has_declared_them(modern: bool) -> None:
    async with served(build_aggregator(config(a=talking(era="modern")))) as front:
        client = await front.connect(modern=modern, capabilities={"extensions": {**APPS, **WITHHELD}})
        other = await front.connect(modern=modern, capabilities={"extensions": WITHHELD})
        assert shown(await client.report("a")) == {"extensions": APPS}
        assert shown(await other.report("a")) == {}


@pytest.mark.parametrize(("isolation", "told"), [("shared", {}), ("session", {"extensions": APPS})])
async def test_over_http_a_legacy_child_is_told_extensions_if_it_has_one_client(isolation: Any, told: Message) -> None:
    app = build_aggregator(config(a=talking()), servers={"a": ServerSettings(isolation=isolation)})
    async with served(app) as front:
        client = await front.connect(capabilities={"extensions": {**APPS, **WITHHELD}})
        capabilities = shown(await client.report("a"))
    assert {name: value for name, value in capabilities.items() if name == "extensions"} == told


@pytest.mark.parametrize("extensions", ["tasks", ["a/b"], None, {"io.modelcontextprotocol/ui": "yes"}])
async def test_extensions_that_are_malformed_are_not_passed_on(extensions: Any) -> None:
    assert for_child({"roots": {}, "extensions": extensions}, "modern") == {"roots": {}}


async def test_extensions_are_declared_in_the_eras_in_which_they_exist() -> None:
    declared = {"extensions": {**APPS, **MODERN_ONLY, **WITHHELD}}
    assert for_child(declared, "modern") == {"extensions": {**APPS, **MODERN_ONLY}}
    assert for_child(declared, "legacy") == {"extensions": APPS}


async def test_the_settings_of_several_servers_are_declared_as_those_of_one() -> None:
    skills = "io.modelcontextprotocol/skills"
    one = {"extensions": {skills: {}, "io.modelcontextprotocol/ui": {"mimeTypes": ["a"]}}}
    other = {"extensions": {skills: {"directoryRead": True}, "io.modelcontextprotocol/ui": {"mimeTypes": ["b", "a"]}}}
    async with declared_for(one, other, modern=True) as declared:
        assert declared["extensions"] == {
            skills: {"directoryRead": True},
            "io.modelcontextprotocol/ui": {"mimeTypes": ["a", "b"]},
        }


@CLIENT_ERAS
@pytest.mark.parametrize("capabilities", [{}, {"roots": {"listChanged": True}, "x-own": {"deep": [1]}, "tasks": {}}])
async def test_a_modern_child_is_told_with_each_request_what_its_caller_can_do_but_tasks(
    modern: bool, capabilities: Message
) -> None:
    async with served(build_aggregator(config(a=talking(era="modern")))) as front:
        client = await front.connect(modern=modern, capabilities=capabilities)
        expected = {name: value for name, value in capabilities.items() if name != "tasks"}
        assert shown(await client.report("a")) == expected


# `_meta` of requests.


@ways()
async def test_a_requests_own_meta_goes_along_and_the_connections_stays(way: Way, client: RawClient) -> None:
    own = {"traceparent": "00-0af7-b7ad-01", "example.org/x": {"deep": [1, None]}}
    params = {"name": f"{way.server}:report", "_meta": {**own, "progressToken": "t"}}
    seen = json.loads((await client.result("tools/call", params))["content"][0]["text"])["meta"]
    assert {key: seen[key] for key in own} == own
    assert seen["progressToken"] != "t"
    if way.child_is_modern:
        assert seen[f"{META}clientInfo"]["name"] == "fastmcp-aggregator"
        assert seen[f"{META}protocolVersion"] == "2026-07-28"
    else:
        assert seen.keys() == {*own, "progressToken"}
