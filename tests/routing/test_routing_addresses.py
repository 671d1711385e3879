"""Addresses inside listed components and results."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastmcp_aggregator.naming.uris import public_uri, split_public_uri
from fastmcp_aggregator.routing.addresses import (
    publish_addresses,
    publish_prompt_result,
    publish_read_result,
    publish_tool_result,
)

publish = partial(public_uri, "files")
ALL = [publish_addresses, publish_tool_result, publish_prompt_result, publish_read_result]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "_meta",
                    "ui",
                    "resourceUri",
                    "ui/resourceUri",
                    "content",
                    "contents",
                    "messages",
                    "type",
                    "resource",
                    "uri",
                ]
            ),
            inner | st.sampled_from(["resource", "resource_link", "file:///a"]),
            max_size=4,
        )
    ),
    max_leaves=12,
)


def link(uri: str) -> dict[str, Any]:
    return {"type": "resource_link", "uri": uri, "name": "a", "x-unknown": 1}


def embedded(uri: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "text": "t", "x-unknown": 1}, "annotations": {"priority": 1}}


# Listed components.


def test_the_user_interface_of_a_tool_is_addressed_through_us() -> None:
    tool = {"name": "t", "_meta": {"ui": {"resourceUri": "ui://a", "csp": {}}, "ui/resourceUri": "ui://b", "x": 1}}
    assert publish_addresses(tool, publish) == {
        "name": "t",
        "_meta": {
            "ui": {"resourceUri": "ui://files/a", "csp": {}},
            "ui/resourceUri": "ui://files/b",
            "x": 1,
        },
    }


@pytest.mark.parametrize(
    "component",
    [
        {"name": "t"},
        {"name": "t", "_meta": None},
        {"name": "t", "_meta": {}},
        {"name": "t", "_meta": {"ui": {"csp": {}}, "x": "ui://a"}},
        {"name": "t", "_meta": {"ui": "ui://a"}},
        {"name": "t", "_meta": {"ui": {"resourceUri": 5}, "ui/resourceUri": None}},
        {"name": "t", "description": "see file:///a"},
    ],
)
def test_a_component_that_names_no_resource_is_returned_as_it_came(component: dict[str, Any]) -> None:
    assert publish_addresses(component, publish) is component


# Results.


def test_links_and_embedded_resources_in_a_tool_result_are_addressed_through_us() -> None:
    result = {
        "content": [{"type": "text", "text": "file:///a"}, link("file:///a"), embedded("file:///b")],
        "structuredContent": {"uri": "file:///a"},
        "isError": False,
    }
    assert publish_tool_result(result, publish) == {
        "content": [
            {"type": "text", "text": "file:///a"},
            link("file://files//a"),
            embedded("file://files//b"),
        ],
        "structuredContent": {"uri": "file:///a"},
        "isError": False,
    }


def test_the_user_interface_that_a_tool_result_names_is_addressed_through_us() -> None:
    meta = {"ui": {"resourceUri": "ui://a", "csp": {}}, "ui/resourceUri": "ui://b", "x": 1}
    published = {"ui": {"resourceUri": "ui://files/a", "csp": {}}, "ui/resourceUri": "ui://files/b", "x": 1}
    assert publish_tool_result({"_meta": meta}, publish) == {"_meta": published}
    result = {"content": [link("file:///a")], "_meta": meta}
    assert publish_tool_result(result, publish) == {"content": [link("file://files//a")], "_meta": published}


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"content": [], "_meta": {"ui": {"csp": {}}, "x": "ui://a"}},
        {"content": [], "_meta": {"ui": "ui://a", "ui/resourceUri": None}},
        {"content": []},
        {"content": None},
        {"content": {"type": "resource_link", "uri": "file:///a"}},
        {"content": ["resource_link", None, 5, {"type": "text", "text": "t"}]},
        {"structuredContent": {"content": [link("file:///a")]}},
    ],
)
def test_a_tool_result_without_addresses_is_returned_as_it_came(result: dict[str, Any]) -> None:
    assert publish_tool_result(result, publish) is result


def test_the_content_of_every_prompt_message_is_addressed_through_us() -> None:
    text = {"role": "assistant", "content": {"type": "text", "text": "t"}}
    result = {
        "description": "d",
        "messages": [
            {"role": "user", "content": embedded("file:///a")},
            text,
            {"role": "user", "content": link("x://y")},
        ],
    }
    assert publish_prompt_result(result, publish) == {
        "description": "d",
        "messages": [
            {"role": "user", "content": embedded("file://files//a")},
            text,
            {"role": "user", "content": link("x://files/y")},
        ],
    }


def test_every_part_of_a_read_resource_is_addressed_through_us() -> None:
    result = {
        "contents": [{"uri": "file:///a", "text": "t"}, {"uri": "file:///b", "blob": "eA==", "_meta": {"x": 1}}],
        "_meta": {"uri": "file:///a"},
    }
    assert publish_read_result(result, publish) == {
        "contents": [
            {"uri": "file://files//a", "text": "t"},
            {"uri": "file://files//b", "blob": "eA==", "_meta": {"x": 1}},
        ],
        "_meta": {"uri": "file:///a"},
    }


@pytest.mark.parametrize("change", ALL)
@pytest.mark.parametrize(
    "value",
    [
        {"content": [{"type": "resource_link"}, {"type": "resource"}, {"type": "resource", "resource": "file:///a"}]},
        {"content": [{"type": "resource_link", "uri": None}, {"type": "resource", "resource": {"uri": 5}}]},
        {"messages": [None, "text", {"content": None}, {"content": {"type": "resource", "resource": None}}]},
        {"messages": {"content": {}}, "contents": "file:///a"},
        {"contents": [None, 5, {"text": "t"}, {"uri": None}]},
        {"_meta": "file:///a"},
    ],
)
def test_what_is_not_of_the_expected_shape_stays_as_it_is(change: Callable[..., Any], value: dict[str, Any]) -> None:
    assert change(value, publish) == value


@pytest.mark.parametrize("change", ALL)
@given(value=st.dictionaries(st.sampled_from(["_meta", "content", "contents", "messages"]), JSON))
def test_whatever_a_child_sends_is_neither_changed_in_place_nor_an_error(
    change: Callable[..., Any], value: dict[str, Any]
) -> None:
    before = copy.deepcopy(value)
    assert change(value, None) is value
    change(value, publish)
    assert value == before


@pytest.mark.parametrize("change", ALL)
def test_without_prefixes_nothing_is_rewritten_or_copied(change: Callable[..., Any]) -> None:
    value = {
        "_meta": {"ui": {"resourceUri": "ui://a"}},
        "content": [link("file:///a")],
        "contents": [{"uri": "file:///a"}],
        "messages": [{"content": link("file:///a")}],
    }
    assert change(value, None) is value


@given(st.sampled_from(["file", "note", "urn"]), st.text(alphabet="ab:/{}%é ", max_size=12))
def test_an_address_that_a_child_hands_out_leads_back_to_it(scheme: str, rest: str) -> None:
    result = publish_tool_result({"content": [link(f"{scheme}:{rest}")]}, publish)
    assert split_public_uri(result["content"][0]["uri"]) == ("files", f"{scheme}:{rest}")
