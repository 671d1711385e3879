"""Reading everything that a child offers."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from support.harness import LEGACY, PATIENCE, lean
from support.sessions import session_with
from support.virtual_time import VirtualTimeLoop

from fastmcp_aggregator.catalogue.snapshot import SPECS, Catalogue, Kind
from fastmcp_aggregator.children.session import listing
from fastmcp_aggregator.children.session.listing import CheckedList, Lists, read_catalogue
from fastmcp_aggregator.children.timings import DEFAULT_TIMINGS

EVERYTHING: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}
KIND_OF = {spec.list_method: kind for kind, spec in SPECS.items()}

Answer = Callable[[Kind, str | None], Mapping[str, Any]]


CLOSED_DATABASE = MCPError(-32000, "the database is closed")
CONNECTION_LOST = MCPError(-32000, "Connection closed")


def named(kind: Kind, *names: str) -> list[dict[str, Any]]:
    schema = {"inputSchema": {"type": "object"}} if kind is Kind.TOOL else {}
    return [{"name": name, SPECS[kind].id_field: name, **schema} for name in names]


def page(kind: Kind, *names: str, next_cursor: Any = None) -> dict[str, Any]:
    cursor = {} if next_cursor is None else {"nextCursor": next_cursor}
    return {SPECS[kind].list_key: named(kind, *names), **cursor}


class Session:
    """Answers as it is told, and notes what it is asked."""

    def __init__(self, answer: Answer, capabilities: dict[str, Any] | None = None) -> None:
        self.capabilities = EVERYTHING if capabilities is None else capabilities
        self.instructions = "Ask nicely."
        self.protocol_version = LEGACY
        self.asked: list[tuple[Kind, str | None]] = []
        self.mirrored: Mapping[str, Mapping[str, Any]] = {}
        self._answer = answer

    async def request(self, method: str, params: Mapping[str, Any] | None) -> Mapping[str, Any]:
        kind, cursor = KIND_OF[method], (params or {}).get("cursor")
        self.asked.append((kind, cursor))
        return self._answer(kind, cursor)

    def is_over(self, error: MCPError) -> bool:
        return error is CONNECTION_LOST

    def mirror_headers(self, header_schemas: Mapping[str, Mapping[str, Any]]) -> None:
        self.mirrored = header_schemas

    async def catalogue(self, **options: Any) -> Catalogue:
        return await read_catalogue("files", self, version=7, **options)  # type: ignore[arg-type]


def one_of_each(kind: Kind, _: str | None) -> Mapping[str, Any]:
    return page(kind, f"one of the {kind}")


def failing(failed: Kind, error: MCPError) -> Answer:
    def answer(kind: Kind, _: str | None) -> Mapping[str, Any]:
        if kind is failed:
            raise error
        return page(kind, "x")

    return answer


WITH_HEADERS = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region", "enum": ["eu", "us"]},
        "deep": {"type": "object", "properties": {"zone": {"type": "integer", "x-mcp-header": "Zone"}, "rest": {}}},
        "rest": {"anyOf": [{"type": "string"}] * 100},
    },
    "required": ["region"],
}
ABOUT_HEADERS = {
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "deep": {"properties": {"zone": {"type": "integer", "x-mcp-header": "Zone"}}},
    }
}


async def test_of_a_tools_schema_what_is_about_headers_is_found_once_and_nothing_where_it_is_invalid() -> None:
    invalid = {"type": "object", "properties": {"x": {"type": "array", "x-mcp-header": "X"}}}
    without = {"type": "object", "properties": {"x": {}}}
    schemas = {"with": WITH_HEADERS, "without": without, "invalid": invalid, "odd": "no schema", "none": None}
    tools = [{"name": name, "inputSchema": schema} for name, schema in schemas.items()]
    session = Session(lambda kind, _: {SPECS[kind].list_key: tools}, {"tools": {}})
    catalogue = await session.catalogue()
    assert catalogue.header_schemas == {"with": ABOUT_HEADERS} == session.mirrored


async def test_schemas_are_walked_for_headers_only_where_there_may_be_some_and_not_if_large(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    walked: list[Any] = []
    monkeypatch.setattr(listing, "find_invalid_x_mcp_header", walked.append)
    monkeypatch.setattr(listing, "x_mcp_header_map", lambda _: {})
    header = {"type": "string", "x-mcp-header": "X"}
    schemas = [
        {"type": "object", "properties": {"x": header}},
        {"type": "object", "properties": {f"x{number}": {} for number in range(1000)}},
        {"type": "object", "properties": {f"x{number}": header for number in range(2000)}},
        {"type": "object", "properties": {"\ud800": header}},
        {"type": "object", "properties": {"x": {"default": 10**100, **header}}},
    ]
    tools = [{"name": str(number), "inputSchema": schema} for number, schema in enumerate(schemas)]
    await Session(lambda kind, _: {SPECS[kind].list_key: tools}, {"tools": {}}).catalogue()
    assert walked == [schemas[0], schemas[3], schemas[4]]
    (told,) = caplog.messages
    assert told.startswith("server 'files' lists input schemas over 64 KiB (1);")


async def test_every_kind_is_read_with_its_version_and_the_instructions() -> None:
    session = Session(one_of_each)
    catalogue = await session.catalogue()
    assert {kind: catalogue.of(kind) for kind in Kind} == {
        kind: tuple(named(kind, f"one of the {kind}")) for kind in Kind
    }
    assert (catalogue.version, catalogue.instructions) == (7, "Ask nicely.")


async def test_of_very_long_capabilities_only_the_flags_of_mcp_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    long = {
        "tools": {"listChanged": True, "x": "y" * 9000},
        "resources": {"subscribe": 1},
        "logging": 5,
        "z": ["z"] * 9000,
    }
    catalogue = await Session(one_of_each, long).catalogue()
    assert catalogue.capabilities == {
        "tools": {"listChanged": True},
        "resources": {"subscribe": True, "listChanged": False},
    }
    assert caplog.messages == [
        "server 'files' has more than 16 KiB of capabilities; what it declares beyond MCP's own is not used"
    ]
    assert (await Session(one_of_each).catalogue()).capabilities is EVERYTHING


async def test_a_list_in_pages_is_read_whole_and_in_order() -> None:
    pages = {None: ("a", "b", "1"), "1": ("c", "2"), "2": ("d",)}

    def answer(kind: Kind, cursor: str | None) -> Mapping[str, Any]:
        *names, last = pages[cursor]
        return page(kind, *names, last, next_cursor=last if last.isdigit() else None)

    session = Session(answer)
    catalogue = await session.catalogue()
    for kind in Kind:
        assert catalogue.of(kind) == tuple(named(kind, "a", "b", "1", "c", "2", "d"))
        assert [cursor for asked, cursor in session.asked if asked is kind] == [None, "1", "2"]


async def test_a_cursor_that_repeats_ends_the_list() -> None:
    session = Session(
        lambda kind, cursor: page(kind, f"after {cursor}", next_cursor={None: "x", "x": "y", "y": "x"}[cursor])
    )
    catalogue = await session.catalogue()
    assert catalogue.of(Kind.TOOL) == tuple(named(Kind.TOOL, "after None", "after x", "after y"))


async def test_a_list_that_never_ends_is_given_up_on() -> None:
    session = Session(
        lambda kind, cursor: page(kind, str(cursor), next_cursor=str(int(cursor or 0) + 1)), {"tools": {}}
    )
    catalogue = await session.catalogue()
    assert len(catalogue.of(Kind.TOOL)) == len(session.asked) == 1000


@pytest.mark.parametrize("cursor", [None, 5, {}, False])
async def test_only_a_text_is_a_cursor(cursor: Any) -> None:
    session = Session(lambda kind, _: {**page(kind, "a"), "nextCursor": cursor})
    await session.catalogue()
    assert len(session.asked) == len(Kind)


async def test_an_empty_text_is_a_cursor_too() -> None:
    session = Session(lambda kind, cursor: page(kind, f"{cursor!r}", next_cursor="" if cursor is None else None))
    assert (await session.catalogue()).of(Kind.TOOL) == tuple(named(Kind.TOOL, "None", "''"))


@pytest.mark.parametrize("listed", [None, "text", 5, {}])
async def test_an_answer_without_a_list_in_it_offers_nothing(listed: Any) -> None:
    session = Session(lambda kind, _: {SPECS[kind].list_key: listed})
    catalogue = await session.catalogue()
    assert [catalogue.of(kind) for kind in Kind] == [()] * 4


async def test_an_item_without_a_name_is_left_out() -> None:
    session = Session(lambda kind, _: {SPECS[kind].list_key: [{}, *named(kind, "good"), None]})
    catalogue = await session.catalogue()
    assert [catalogue.of(kind) for kind in Kind] == [tuple(named(kind, "good")) for kind in Kind]


@pytest.mark.parametrize(
    ("capabilities", "asked"),
    [
        ({"tools": {}}, {Kind.TOOL}),
        ({"tools": {"listChanged": True}, "logging": {}}, {Kind.TOOL}),
        ({"prompts": {}}, {Kind.PROMPT}),
        ({"resources": {}}, {Kind.RESOURCE, Kind.TEMPLATE}),
        (EVERYTHING, set(Kind)),
        ({}, set(Kind)),
        ({"logging": {}, "completions": {}}, set(Kind)),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else f"{len(value)} kinds",
)
async def test_what_is_declared_is_asked_for_and_everything_when_nothing_is(
    capabilities: dict[str, Any], asked: set[Kind]
) -> None:
    session = Session(one_of_each, capabilities)
    catalogue = await session.catalogue()
    assert {kind for kind, _ in session.asked} == asked
    assert {kind for kind in Kind if catalogue.of(kind)} == asked


@pytest.mark.parametrize("kind", Kind)
async def test_method_not_found_means_that_there_are_none(kind: Kind, caplog: pytest.LogCaptureFixture) -> None:
    catalogue = await Session(failing(kind, MCPError(-32601, "no such method"))).catalogue()
    assert {k for k in Kind if catalogue.of(k)} == set(Kind) - {kind}
    assert caplog.messages == []


async def test_tools_that_cannot_be_listed_are_a_failure() -> None:
    with pytest.raises(MCPError, match="the database is closed"):
        await Session(failing(Kind.TOOL, CLOSED_DATABASE)).catalogue()


@pytest.mark.parametrize("kind", [Kind.RESOURCE, Kind.TEMPLATE, Kind.PROMPT])
async def test_anything_else_that_cannot_be_listed_is_left_out_with_a_warning(
    kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    catalogue = await Session(failing(kind, CLOSED_DATABASE)).catalogue()
    assert {k for k in Kind if catalogue.of(k)} == set(Kind) - {kind}
    assert caplog.messages == [f"server 'files' cannot list its {kind}, which are left out: the database is closed"]


@pytest.mark.parametrize("kind", Kind)
async def test_a_lost_connection_is_a_failure_whatever_was_asked_for(kind: Kind) -> None:
    with pytest.raises(MCPError) as raised:
        await Session(failing(kind, CONNECTION_LOST)).catalogue()
    assert raised.value is CONNECTION_LOST


async def test_the_kinds_are_asked_for_at_once_and_not_one_after_the_other() -> None:
    session = Session(one_of_each)
    all_asked = asyncio.Barrier(len(Kind))
    plain = session.request

    async def request(method: str, params: Any) -> Mapping[str, Any]:
        await all_asked.wait()
        return await plain(method, params)

    session.request = request  # type: ignore[method-assign]
    catalogue = await asyncio.wait_for(session.catalogue(), PATIENCE)
    assert all(catalogue.of(kind) for kind in Kind)


async def test_of_too_many_tools_the_first_are_used_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    tools = [{"name": name, "inputSchema": {**WITH_HEADERS, "title": name}} for name in "abcd"]
    session = Session(lambda kind, _: {"tools": tools, "resources": tools}, {"tools": {}})
    assert (await session.catalogue(max_tools=4)).of(Kind.TOOL) == tuple(tools)
    assert caplog.messages == []
    assert (await session.catalogue(max_tools=3)).of(Kind.TOOL) == tuple(tools[:3])
    assert caplog.messages == ["server 'files' lists 4 tools; the first 3 are used"]
    assert session.mirrored.keys() == {"a", "b", "c"}


# A real child.


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_real_child_of_either_era_is_read_whole_with_unknown_fields_in_place(era: str) -> None:
    resources = [{"uri": f"file:///{number}", "name": str(number), "x-size": number} for number in range(5)]
    options = {
        "era": era,
        "page_size": 2,
        "tools": 9,
        "resources": resources,
        "templates": [{"uriTemplate": "file:///{path}", "name": "any"}],
        "prompts": [{"name": "greet", "x-tone": ["warm"]}],
        "instructions": "Be brief.",
    }
    async with session_with(lean(**options)) as session:
        assert session.era == era
        catalogue = await read_catalogue("lean", session, version=1)
    assert catalogue.of(Kind.RESOURCE) == tuple(resources)
    assert catalogue.of(Kind.TEMPLATE) == ({"uriTemplate": "file:///{path}", "name": "any"},)
    assert catalogue.of(Kind.PROMPT) == ({"name": "greet", "x-tone": ["warm"]},)
    assert [tool["name"] for tool in catalogue.of(Kind.TOOL)][-9:] == [f"tool_{number}" for number in range(9)]
    assert catalogue.instructions == "Be brief."


async def test_a_real_child_that_lists_nothing_of_what_it_declares_has_none_of_that_kind() -> None:
    async with session_with(lean(capabilities={"tools": {}, "prompts": {}}, results={"prompts/list": {}})) as session:
        catalogue = await read_catalogue("lean", session, version=1)
    assert catalogue.of(Kind.TOOL)
    assert catalogue.of(Kind.PROMPT) == ()


async def test_what_is_listed_as_before_is_neither_checked_nor_reported_again(caplog: pytest.LogCaptureFixture) -> None:
    offered = [["x", "x"], ["x", "x"], ["x", "y"]]
    session = Session(lambda kind, _: page(kind, *offered.pop(0)), {"tools": {}})
    checked: dict[Kind, CheckedList] = {}
    first, second, third = [await session.catalogue(checked=checked) for _ in range(3)]
    assert second.of(Kind.TOOL) is first.of(Kind.TOOL)
    assert caplog.messages == ["server 'files' lists 'x' twice among its tools; the first is used"]
    assert [tool["name"] for tool in third.of(Kind.TOOL)] == ["x", "y"]
    session.protocol_version = "2025-06-18"
    offered.append(["x", "y"])
    assert (await session.catalogue(checked=checked)).of(Kind.TOOL) is not third.of(Kind.TOOL)


def test_lists_that_change_all_the_time_are_read_at_once_at_first_and_seldom_then() -> None:
    async def times_read(lists: Lists, seconds: float) -> int:
        loop, read = asyncio.get_running_loop(), 0
        ends = loop.time() + seconds
        while loop.time() < ends:
            await asyncio.sleep(lists.pause())
            read += 1
        return read

    async def storm() -> tuple[int, int, int]:
        lists = lists_of_a()
        first, then = await times_read(lists, 1), await times_read(lists, 600)
        await asyncio.sleep(60)
        return first, then, await times_read(lists, 1)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        first, then, later = runner.run(storm())
    assert 8 < first < 13
    assert 115 < then < 125
    assert later == first


def lists_of_a() -> Lists:
    pace = {"settle": DEFAULT_TIMINGS.change_settle, "interval": DEFAULT_TIMINGS.change_interval}
    return Lists("a", 1000, lambda _, catalogue: catalogue, **pace)


def long_lists(count: int, **more: Any) -> tuple[Lists, Any]:
    """Those of a child with so many resources, and its session."""
    resources = [{**each, **more} for each in named(Kind.RESOURCE, *(f"x://{number}" for number in range(count)))]
    session = Session(lambda kind, _: {"resources": resources} if kind is Kind.RESOURCE else {}, {"resources": {}})
    return lists_of_a(), session


def test_lists_that_are_long_are_read_less_often_in_proportion() -> None:
    """So that one server's take no more of the time of all than another's."""

    async def times_read(count: int, **more: Any) -> int:
        lists, session = long_lists(count, **more)
        loop, read = asyncio.get_running_loop(), 0
        await lists.read(session)
        ends = loop.time() + 150
        while loop.time() < ends:
            await asyncio.sleep(lists.pause())
            await lists.read_again(session)
            read += 1
        return read

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        short = runner.run(times_read(1000))
        many = runner.run(times_read(40_000))
        deep = runner.run(times_read(1000, _meta={str(number): "x" for number in range(250)}))
    assert 38 < short < 42
    assert 7 < many < 12
    assert 7 < deep < 12


async def test_a_change_of_long_lists_is_read_soon_however_often_their_server_was_started() -> None:
    lists, session = long_lists(20_000)
    for _ in range(10):
        await lists.read(session)
    assert lists.pause() < 1


async def test_pages_beyond_what_is_used_keep_their_names_and_nothing_else() -> None:
    def answer(kind: Kind, cursor: str | None) -> Mapping[str, Any]:
        at = int(cursor or 0)
        (item,) = named(kind, f"t{at}")
        return {SPECS[kind].list_key: [{**item, "description": str(at) * 1_000_000}], "nextCursor": str(at + 1)}

    tracemalloc.start()
    catalogue = await Session(lambda kind, at: answer(kind, at) if at != "200" else {}, {"tools": {}}).catalogue()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [tool["name"] for tool in catalogue.of(Kind.TOOL)] == [f"t{number}" for number in range(8)]
    assert catalogue.left_out[Kind.TOOL] == {f"t{number}" for number in range(8, 200)}
    assert most < 32 * 1024**2


@pytest.mark.parametrize("long", ["name", "nextCursor"])
async def test_no_more_pages_are_read_once_names_or_cursors_alone_are_too_large(long: str) -> None:
    def answer(kind: Kind, cursor: str | None) -> Mapping[str, Any]:
        at = str(int((cursor or "0").lstrip("_")) + 1)
        of = {"name": at, "nextCursor": at, long: at.rjust(1_000_000, "_")}
        return page(kind, of["name"], next_cursor=of["nextCursor"])

    session = Session(answer, {"tools": {}})
    catalogue = await session.catalogue()
    assert catalogue.left_out[Kind.TOOL] is None
    assert 8 < len(session.asked) < 20


async def test_of_very_large_lists_the_first_are_used_and_the_rest_keeps_its_names() -> None:
    def answer(kind: Kind, _: str | None) -> Mapping[str, Any]:
        listed = named(kind, *(f"t{number}" for number in range(20)))
        return {SPECS[kind].list_key: [{**each, "description": "x" * 1_000_000} for each in listed]}

    session = Session(answer, {"tools": {}})
    session.instructions = "x" * 100_000
    catalogue = await session.catalogue()
    assert [tool["name"] for tool in catalogue.of(Kind.TOOL)] == [f"t{number}" for number in range(8)]
    assert catalogue.left_out[Kind.TOOL] == {f"t{number}" for number in range(8, 20)}
    assert len(catalogue.instructions or "") == 64 * 1024


@pytest.mark.parametrize("large", [{"description": "x" * 1024**2}, {"icons": [{"src": "x:"}] * 10_000}])
async def test_a_component_that_is_too_large_is_left_out_and_keeps_its_name(
    large: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    def answer(kind: Kind, _: str | None) -> Mapping[str, Any]:
        first, *others = named(kind, "a", "b", "c")
        return {SPECS[kind].list_key: [{**first, **large}, *others]}

    catalogue = await Session(answer, {"tools": {}}).catalogue()
    assert [tool["name"] for tool in catalogue.of(Kind.TOOL)] == ["b", "c"]
    assert catalogue.left_out[Kind.TOOL] == {"a"}
    assert caplog.messages == [
        "server 'files' lists 1 of its tools with over 1024 KiB or 20000 values each; they are left out"
    ]


async def test_others_have_turns_while_it_is_looked_for_headers_in_large_schemas() -> None:
    def answer(kind: Kind, _: str | None) -> Mapping[str, Any]:
        schema = {"type": "object", "description": "x" * 500_000}
        return {SPECS[kind].list_key: [{"name": str(n), "inputSchema": schema} for n in range(16)]}

    tools = (await Session(answer, {"tools": {}}).catalogue()).of(Kind.TOOL)
    looking = asyncio.create_task(listing._header_schemas("files", tools))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not looking.done()
    assert await looking == {}
