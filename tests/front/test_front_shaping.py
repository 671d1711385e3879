"""A result in the form that the client's era prescribes: from children of both eras to clients of both."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types.methods import is_input_required

from fastmcp_aggregator.front.wire.shaping import for_legacy_client, for_modern_client

STAMP = "io.modelcontextprotocol/serverInfo"
US = {"name": "aggregator", "version": "1"}
CHILD = {"name": "child", "version": "9"}
CACHEABLE = ["tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"]
OTHER = ["tools/call", "prompts/get"]

CONTENT = {"content": [{"type": "text", "text": "t"}], "structuredContent": {"resultType": "x", "ttlMs": 1}, "x": None}

VALUES = (
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.dictionaries(st.text(max_size=3), st.none())
)
RESULTS = st.dictionaries(
    st.sampled_from(["resultType", "ttlMs", "cacheScope", "content", "x"]) | st.text(max_size=3), VALUES
)
METAS = st.none() | st.text() | st.dictionaries(st.sampled_from([STAMP, "a", "progressToken"]), VALUES)


# A legacy child and a legacy client.


@pytest.mark.parametrize(
    "result",
    [{}, CONTENT, {**CONTENT, "_meta": {"a": 1}}, {"_meta": None}, {"_meta": "odd"}, {"tools": []}],
    ids=str,
)
def test_a_legacy_result_is_for_a_legacy_client_the_same_object(result: dict[str, Any]) -> None:
    assert for_legacy_client("prompts/get", result) is result


# A legacy child and a modern client.


@pytest.mark.parametrize("method", OTHER)
def test_a_legacy_result_becomes_complete_and_stamped_for_a_modern_client(method: str) -> None:
    assert for_modern_client(method, CONTENT, US) == {**CONTENT, "resultType": "complete", "_meta": {STAMP: US}}


@pytest.mark.parametrize("method", CACHEABLE)
def test_a_legacy_list_or_read_is_for_a_modern_client_good_for_no_time_and_for_nobody_else(method: str) -> None:
    assert for_modern_client(method, {"tools": []}, US) == {
        "tools": [],
        "resultType": "complete",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {STAMP: US},
    }


# A modern child and a modern client.


def test_a_modern_result_keeps_its_type_and_its_cache_hints_for_a_modern_client() -> None:
    result = {"contents": [], "resultType": "complete", "ttlMs": 5, "cacheScope": "public"}
    assert for_modern_client("resources/read", result, US) == {**result, "_meta": {STAMP: US}}


@pytest.mark.parametrize("scope", ["public", "PUBLIC", None])
@pytest.mark.parametrize("method", [*CACHEABLE, "resources/directory/read"])
def test_what_somebody_has_authenticated_for_is_kept_for_nobody_else(method: str, scope: Any) -> None:
    result = {"contents": [], "resultType": "complete", "ttlMs": 5, "cacheScope": scope}
    assert for_modern_client(method, result, US, "key:ann") == {**result, "cacheScope": "private", "_meta": {STAMP: US}}
    assert result["cacheScope"] == scope


def test_the_stamp_names_us_and_not_the_child_and_the_rest_of_meta_stays() -> None:
    shaped = for_modern_client("tools/call", {"_meta": {STAMP: CHILD, "a": 1}}, US)
    assert shaped["_meta"] == {"a": 1, STAMP: US}


@pytest.mark.parametrize("method", ["tools/call", "resources/read"])
def test_a_question_stays_a_question_and_gets_no_cache_hints(method: str) -> None:
    question = {"resultType": "input_required", "inputRequests": {"a": {}}, "requestState": "s"}
    assert is_input_required(question)
    assert for_modern_client(method, question, US) == {**question, "_meta": {STAMP: US}}


@pytest.mark.parametrize("result", [{}, CONTENT, {"resultType": "complete"}, {"resultType": None}], ids=str)
def test_anything_else_is_no_question(result: dict[str, Any]) -> None:
    assert not is_input_required(result)


@pytest.mark.parametrize("meta", [None, "odd", []])
def test_a_meta_of_the_wrong_shape_gives_way_to_the_stamp(meta: Any) -> None:
    assert for_modern_client("tools/call", {"_meta": meta}, US)["_meta"] == {STAMP: US}


# A modern child and a legacy client.


def test_a_modern_result_loses_its_envelope_and_nothing_else_for_a_legacy_client() -> None:
    result = {**CONTENT, "resultType": "complete", "ttlMs": 5, "cacheScope": "public", "_meta": {STAMP: CHILD}}
    assert for_legacy_client("prompts/get", result) == CONTENT


def test_what_the_child_put_into_meta_stays_for_a_legacy_client() -> None:
    result = {**CONTENT, "_meta": {STAMP: CHILD, "a": 1}}
    assert for_legacy_client("prompts/get", result) == {**CONTENT, "_meta": {"a": 1}}
    unstamped = {"resultType": "complete", "_meta": {"a": 1}}
    assert for_legacy_client("prompts/get", unstamped) == {"_meta": {"a": 1}}
    assert for_legacy_client("prompts/get", {"resultType": "complete", "_meta": {}}) == {"_meta": {}}


# Whatever a child sends.


@given(RESULTS, METAS)
def test_for_a_legacy_client_nothing_but_the_envelope_is_missing_and_nothing_is_added(
    result: dict[str, Any], meta: Any
) -> None:
    result["_meta"] = meta
    before = copy.deepcopy(result)
    shaped = for_legacy_client("prompts/get", result)
    assert result == before
    assert not shaped.keys() & {"resultType", "ttlMs", "cacheScope"}
    assert {key: shaped[key] for key in shaped if key != "_meta"} == {
        key: value for key, value in result.items() if key not in ("resultType", "ttlMs", "cacheScope", "_meta")
    }
    assert STAMP not in (shaped.get("_meta") or {})
    assert for_legacy_client("prompts/get", shaped) is shaped


@given(RESULTS, METAS, st.sampled_from(CACHEABLE + OTHER))
def test_for_a_modern_client_nothing_is_missing_and_the_envelope_is_whole(
    result: dict[str, Any], meta: Any, method: str
) -> None:
    result["_meta"] = meta
    before = copy.deepcopy(result)
    shaped = for_modern_client(method, result, US)
    assert result == before
    assert {key: shaped[key] for key in result if key != "_meta"} == {k: v for k, v in result.items() if k != "_meta"}
    assert shaped["_meta"] == {**(meta if isinstance(meta, dict) else {}), STAMP: US}
    assert "resultType" in shaped
    assert is_input_required(result) or (method in CACHEABLE) <= {"ttlMs", "cacheScope"}.issubset(shaped)
