"""Public addresses of resources and templates."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastmcp_aggregator.naming.uris import (
    as_pydantic_writes,
    goes_round,
    public_uri,
    split_public_uri,
    written_by_pydantic_as,
)

SERVER_KEYS = st.text(alphabet=st.characters(exclude_characters=":"), min_size=1)
PIECES = st.sampled_from([":", "//", "://", "/", "{id}", "{+path}", "{var:3}", "%3A", "a", "é", "?q=1", " "])
URI_LIKE = st.lists(PIECES).map("".join) | st.text(alphabet=st.characters(exclude_characters="{}"))


@pytest.mark.parametrize(
    ("server_key", "original", "public"),
    [
        ("files", "file:///a/b", "file://files//a/b"),
        ("everything", "demo://x/1", "demo://everything/x/1"),
        ("demo", "test://{id}", "test://demo/{id}"),
        ("demo", "{scheme}://x", "{scheme}://demo/x"),
        ("demo", "test://", "test://demo/"),
        ("demo", "a://b://c", "a://demo/b://c"),
        ("books", "urn:isbn:1", "urn://books:/isbn:1"),
        ("post", "mailto:x@y.z", "mailto://post:/x@y.z"),
        ("odd", "file:/a", "file://odd://a"),
        ("odd", "{var:3}:{id}", "{var:3}://odd:/{id}"),
        ("my files/é", "file:///a", "file://my%20files%2F%C3%A9//a"),
        ("{k}", "test://{id}", "test://%7Bk%7D/{id}"),
        ("A.b-c_d~1", "x://y", "x://A.b-c_d~1/y"),
        ("half \ud800", "x://y", "x://half%20%ED%A0%80/y"),
    ],
)
def test_the_server_key_stands_where_a_host_does(server_key: str, original: str, public: str) -> None:
    assert public_uri(server_key, original) == public
    assert split_public_uri(public) == (server_key, original)


@pytest.mark.parametrize("original", ["{+path}", "{var:3}", "readme", "", "a/b"])
def test_a_text_without_a_scheme_has_nowhere_to_carry_the_key(original: str) -> None:
    assert public_uri("files", original) == original
    assert split_public_uri(original) is None


@pytest.mark.parametrize(
    "foreign",
    [
        "file:///a/b",
        "urn:isbn:1",
        "http://example.org:80/x",
        "http://user:secret@example.org/x",
        "urn://:/x",
        "demo://everything",
        "demo://my files/x",
        "demo://%6Dine/x",
        "demo://%FF/x",
        "urn://books:///x",
        "://",
    ],
)
def test_an_address_that_is_not_ours_is_not_split(foreign: str) -> None:
    assert split_public_uri(foreign) is None


@given(SERVER_KEYS, URI_LIKE)
@example("k", ":")
@example("k", "://")
@example("k", "a:/://b")
@example("k", "a:://b")
@example("%3A", "a:b")
def test_an_original_uri_comes_back_exactly(server_key: str, original: str) -> None:
    public = public_uri(server_key, original)
    if public == original:
        assert split_public_uri(public) is None
    else:
        assert split_public_uri(public) == (server_key, original)


@given(SERVER_KEYS, st.text(alphabet=st.characters(exclude_characters="{}")), st.text())
def test_whatever_has_a_scheme_carries_the_key(server_key: str, scheme: str, rest: str) -> None:
    original = f"{scheme}:{rest}"
    assert split_public_uri(public_uri(server_key, original)) == (server_key, original)


@given(st.text() | st.lists(PIECES).map("".join))
def test_every_resource_has_one_address(text: str) -> None:
    split = split_public_uri(text)
    assert split is None or public_uri(*split) == text


@given(st.sets(st.tuples(SERVER_KEYS, URI_LIKE.map("x:{}".format))))
def test_distinct_resources_never_share_an_address(resources: set[tuple[str, str]]) -> None:
    assert len({public_uri(*resource) for resource in resources}) == len(resources)


@pytest.mark.parametrize(
    ("key", "id_", "is_round"),
    [
        ("b", "a:b:a:b:a:b:x", True),
        ("b", "a:b:a:b:x", False),
        ("b", "b:b:b:x", True),
        ("b", "c:a:b:c:a:b:c:a:b:x", True),
        ("b", "a__b__a__b__a__b__x", True),
        ("b", "a.b.a.b.a.b.x", True),
        ("b", "ab:ab:ab:x://y", True),
        ("b", "a_b_a_b_a_b_x", False),
        ("b", "b", False),
        ("git", "git_git_git_log", False),
        ("b", "a:b:c:b:d:b:x", False),
        ("b", "note://a/b/a/b/a/b//x", True),
        ("b c", "note://a/b%20c/a/b%20c/a/b%20c/x", True),
        ("files", "file:///data/files/data/files/x", False),
        ("b", "x" * 300 + "b:" * 300, False),
    ],
)
def test_a_name_that_has_come_round_to_its_server_shows_it(key: str, id_: str, is_round: bool) -> None:
    assert goes_round(key, id_) is is_round


@pytest.mark.parametrize(("length", "count"), [(0, 256), (7_000, 256), (10_000, 0)])
def test_a_rewritten_address_is_looked_for_only_if_it_is_not_too_long(length: int, count: int) -> None:
    address = f"file://files{'/a' * 300}/{'b' * length}"
    found = list(written_by_pydantic_as(address))
    assert len(set(found)) == count
    assert {as_pydantic_writes(each) for each in found} <= {address}
