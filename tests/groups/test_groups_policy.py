"""What belongs to a group."""

from __future__ import annotations

import pytest

from fastmcp_aggregator.groups import Group, load_groups
from fastmcp_aggregator.groups.policy import ToolFilter, missing_tools

OFFERED = {"fetch": ["get", "head"], "files": ["read", "read_all", "head"], "git": ["log"]}


def tools_of(*entries: str, servers: tuple[str, ...] = ("fetch", "files")) -> set[str]:
    chosen = ToolFilter(Group("g", servers=servers, tools=entries), OFFERED)
    return {f"{key}:{name}" for key, names in OFFERED.items() for name in names if chosen.has(key, name)}


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ((), {"fetch:get", "fetch:head", "files:read", "files:read_all", "files:head"}),
        (("fetch:get",), {"fetch:get"}),
        (("get",), {"fetch:get"}),
        (("head",), set()),
        (("files:head",), {"files:head"}),
        (("read*",), {"files:read", "files:read_all"}),
        (("*",), {"fetch:get", "fetch:head", "files:read", "files:read_all", "files:head"}),
        (("f*:head",), {"fetch:head", "files:head"}),
        (("*:get",), {"fetch:get"}),
        (("git:log",), set()),
        (("log",), set()),
        (("g.t",), set()),
        (("get", "files:read"), {"fetch:get", "files:read"}),
    ],
)
def test_the_tools_of_a_group(entries: tuple[str, ...], expected: set[str]) -> None:
    assert tools_of(*entries) == expected


def test_a_name_alone_stops_belonging_when_a_second_server_offers_it() -> None:
    group = Group("g", servers=("fetch", "files"), tools=("get",))
    assert ToolFilter(group, {"fetch": ["get"], "files": []}).has("fetch", "get")
    assert not ToolFilter(group, {"fetch": ["get"], "files": ["get"]}).has("fetch", "get")


def test_entries_that_fit_nothing_are_found_once_their_servers_are_listed() -> None:
    group = Group("g", servers=("fetch", "files"), tools=("fetch:put", "get", "head", "files:read"))
    assert missing_tools(group, OFFERED) == ["fetch:put", "head"]
    assert missing_tools(group, {"fetch": OFFERED["fetch"]}) == ["fetch:put"]
    assert missing_tools(group, {}) == []


def test_a_name_alone_belongs_to_nobody_while_a_server_of_the_group_has_not_been_listed() -> None:
    group = Group("g", servers=("good", "evil"), tools=("send", "evil:log"))
    evil = ToolFilter(group, {"evil": ["send", "log"]})
    assert not evil.has("evil", "send")
    assert evil.has("evil", "log")
    assert ToolFilter(group, {"good": [], "evil": ["send"]}).has("evil", "send")
    assert not ToolFilter(group, {"good": ["send"], "evil": ["send"]}).has("evil", "send")


def test_a_name_alone_belongs_to_nobody_while_a_server_of_the_group_is_disabled_or_taken_away() -> None:
    read = {"g": {"servers": ["good", "evil"], "tools": ["send", "evil:log", "good:*"]}}
    group = load_groups(read, ["evil"], ["good"])["g"]
    evil = ToolFilter(group, {"evil": ["send", "log"]})
    assert not evil.has("evil", "send")
    assert evil.has("evil", "log")
    assert not evil.has("good", "send")
    assert missing_tools(group, {"evil": ["send"]}) == ["evil:log"]
    assert ToolFilter(load_groups(read, ["evil", "good"])["g"], {"good": [], "evil": ["send"]}).has("evil", "send")
