"""Reading groups: every problem at once, with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fastmcp_aggregator.errors import ConfigError
from fastmcp_aggregator.groups import Group, load_groups
from fastmcp_aggregator.groups.policy import ToolFilter

SERVERS = ("fetch", "files")


def problems(document: Any) -> dict[str, str]:
    with pytest.raises(ConfigError) as raised:
        load_groups(document, SERVERS)
    return {problem.path: problem.message for problem in raised.value.details}


def test_without_a_file_there_is_one_group_with_all_servers() -> None:
    (group,) = load_groups(None, SERVERS)
    assert (group.id, group.servers, group.tools) == ("default", SERVERS, ())


def test_a_file_of_the_documented_shape_is_read(tmp_path: Path) -> None:
    path = tmp_path / "group.json"
    entry = {"id": "web", "name": "Web", "description": "Pages.", "servers": ["fetch"], "tools": ["fetch:get"]}
    path.write_text(json.dumps({"web": entry}))
    groups = load_groups(path, SERVERS)
    assert [group.id for group in groups] == ["default", "web"]
    assert groups["web"] == Group("web", "Web", "Pages.", ("fetch",), ("fetch:get",))
    assert groups.path == path


@pytest.mark.parametrize("tools", [["gone:send"], ["gone:*"], ["gone:send", "fetch:get"], ["send"], []])
def test_what_a_group_has_of_a_server_that_is_gone_leaves_it_no_more_of_others(tools: list[str]) -> None:
    document = {"web": {"servers": ["fetch", "gone"], "tools": tools}}
    group = load_groups(document, SERVERS, ["gone"])["web"]
    assert group.servers == ("fetch",)
    assert ToolFilter(group, {"fetch": ["get", "put"]}).has("fetch", "put") == (not tools)


def test_the_file_may_define_the_default_group() -> None:
    groups = load_groups({"default": {"servers": ["files"]}}, SERVERS)
    assert [(group.id, group.servers) for group in groups] == [("default", ("files",))]


def test_a_default_group_that_nobody_defined_follows_the_servers() -> None:
    groups = load_groups({"web": {"servers": ["fetch"]}}, SERVERS)
    assert load_groups(groups, (*SERVERS, "git"))["default"].servers == (*SERVERS, "git")


def test_all_problems_are_reported_at_once_with_their_places() -> None:
    found = problems(
        {
            "web": {"id": "wep", "servers": ["fetsh", ""], "tools": "get", "color": 1},
            "no servers": {},
            "bare": {},
            "list": [],
            "tools": {"servers": ["fetch"], "tools": [":x", "x:", "files:read"]},
        }
    )
    assert found.keys() == {
        "$.web.id",
        "$.web.servers[0]",
        "$.web.servers[1]",
        "$.web.tools",
        "$.web.color",
        '$["no servers"]',
        "$.bare",
        "$.list",
        "$.tools.tools[0]",
        "$.tools.tools[1]",
        "$.tools.tools[2]",
    }
    assert "did you mean 'fetch'" in found["$.web.servers[0]"]
    assert "not among the `servers`" in found["$.tools.tools[2]"]


@pytest.mark.parametrize("document", [[], "x.json", 1])
def test_what_is_no_object_is_refused(document: Any, tmp_path: Path) -> None:
    path = tmp_path / "group.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ConfigError) as raised:
        load_groups(path, SERVERS)
    assert raised.value.source == str(path)


def test_an_id_that_is_written_twice_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "group.json"
    path.write_text('{"web": {"servers": []}, "web": {"servers": []}}')
    with pytest.raises(ConfigError, match="more than once"):
        load_groups(path, SERVERS)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        load_groups(tmp_path / "none.json", SERVERS)
    assert raised.value.code == "file_not_found"
