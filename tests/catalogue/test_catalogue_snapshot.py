"""The catalogue of one child: an immutable snapshot of what it lists."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastmcp_aggregator.catalogue.snapshot import SPECS, Catalogue, Component, Kind, usable

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
ITEMS = st.lists(JSON | st.fixed_dictionaries({"name": st.sampled_from(["a", "b", "", "c"]) | JSON}))


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_has_a_list_method_a_list_key_and_an_id(kind: Kind) -> None:
    spec = SPECS[kind]
    assert spec.list_method.endswith("/list")
    assert spec.list_key
    assert spec.id_field in ("name", "uri", "uriTemplate")


def test_good_items_are_kept_as_they_are_and_in_order() -> None:
    items = [{"name": "b", "x-unknown": [1]}, {"name": "a", "inputSchema": None}]
    kept = usable("files", Kind.TOOL, items)
    assert list(kept) == items
    assert all(one is other for one, other in zip(kept, items, strict=True))


@pytest.mark.parametrize("item", [None, "text", 5, [], {}, {"name": None}, {"name": ""}, {"name": 5}, {"title": "a"}])
def test_an_item_without_a_name_is_left_out_and_reported(item: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert usable("files", Kind.TOOL, [item, {"name": "good"}]) == ({"name": "good"},)
    assert caplog.messages == ["server 'files' lists one of its tools without 'name'; left out"]


@pytest.mark.parametrize("kind", Kind)
def test_each_kind_goes_by_its_own_id(kind: Kind) -> None:
    items = [{field: "x"} for field in ("name", "uri", "uriTemplate")]
    assert usable("files", kind, items) == ({SPECS[kind].id_field: "x"},)


def test_of_two_items_with_one_name_the_first_is_used_and_the_second_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    items = [{"name": "a", "title": "first"}, {"name": "b"}, {"name": "a", "title": "second"}]
    assert usable("files", Kind.PROMPT, items) == ({"name": "a", "title": "first"}, {"name": "b"})
    assert caplog.messages == ["server 'files' lists 'a' twice among its prompts; the first is used"]


@given(ITEMS)
def test_whatever_a_child_lists_only_items_with_names_of_their_own_are_kept(items: list[Any]) -> None:
    kept = usable("files", Kind.TOOL, items)
    names = [item["name"] for item in kept]
    assert all(isinstance(name, str) and name for name in names)
    assert len(set(names)) == len(names)
    assert [item for item in items if any(item is one for one in kept)] == list(kept)


def catalogue(**components: tuple[Component, ...]) -> Catalogue:
    return Catalogue(1, {Kind(kind): items for kind, items in components.items()})


def test_a_kind_that_was_not_listed_is_empty() -> None:
    assert catalogue(tools=({"name": "a"},)).of(Kind.TOOL) == ({"name": "a"},)
    assert Catalogue(0).of(Kind.PROMPT) == ()


def test_two_catalogues_differ_in_the_kinds_whose_components_differ() -> None:
    old = catalogue(tools=({"name": "a"},), prompts=({"name": "p"},))
    assert old.differences(catalogue(tools=({"name": "a"},), prompts=({"name": "p"},))) == frozenset()
    assert old.differences(catalogue(tools=({"name": "a", "title": "new"},), prompts=({"name": "p"},))) == {Kind.TOOL}
    assert old.differences(catalogue(tools=({"name": "a"},), templates=({"uriTemplate": "t"},))) == {
        Kind.PROMPT,
        Kind.TEMPLATE,
    }


def test_the_order_is_part_of_a_catalogue() -> None:
    one = catalogue(tools=({"name": "a"}, {"name": "b"}))
    assert one.differences(catalogue(tools=({"name": "b"}, {"name": "a"}))) == {Kind.TOOL}


def test_against_no_catalogue_every_kind_with_components_is_a_difference() -> None:
    assert catalogue(tools=({"name": "a"},), resources=()).differences(None) == {Kind.TOOL}


def test_the_version_and_the_instructions_are_no_difference() -> None:
    assert Catalogue(1, {}, "old").differences(Catalogue(2, {}, "new")) == frozenset()


def test_a_catalogue_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Catalogue(1).version = 2  # type: ignore[misc]
