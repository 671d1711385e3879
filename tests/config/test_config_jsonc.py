"""JSON with comments: what it means, and that an edit changes nothing but what it is for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastmcp_aggregator.config import jsonc

ZED = """\
// settings
{
    "theme": "One", /* mine */
    "list": [1, 2.5, -3e2, true, null,],
    "context_servers": {
        "a": {"command": "x // no comment"}, // of a
        // the end
    },
}
"""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_comments_and_trailing_commas_are_read_over() -> None:
    assert jsonc.parse(ZED).value() == {
        "theme": "One",
        "list": [1, 2.5, -300.0, True, None],
        "context_servers": {"a": {"command": "x // no comment"}},
    }


@given(JSON, st.sampled_from([None, 2, "\t"]))
def test_every_json_is_read_as_the_standard_library_reads_it(value: Any, indent: int | str | None) -> None:
    text = json.dumps(value, indent=indent)
    assert jsonc.parse(text).value() == json.loads(text)


@given(st.dictionaries(st.text(), JSON, max_size=4), st.text(), JSON, st.sampled_from([None, 2, "\t"]))
def test_a_member_that_is_set_and_removed_leaves_the_rest(
    document: dict[str, Any], key: str, value: Any, indent: int | str | None
) -> None:
    text = json.dumps({"servers": document}, indent=indent)
    put = jsonc.with_member(text, ["servers"], key, value)
    assert json.loads(put) == {"servers": {**document, key: value}}
    rest = {other: item for other, item in document.items() if other != key}
    assert json.loads(jsonc.without_member(put, ["servers"], key)) == {"servers": rest}


def test_a_new_member_stands_at_the_end_and_looks_like_the_others() -> None:
    changed = jsonc.with_member(ZED, ["context_servers"], "hub", {"command": "h"})
    added = '        "hub": {\n            "command": "h"\n        },\n'
    assert changed == ZED.replace("        // the end\n", "        // the end\n" + added)
    assert jsonc.without_member(changed, ["context_servers"], "hub") == ZED


def test_a_comma_is_put_before_the_comment_behind_the_last_member() -> None:
    text = '{\n  "a": 1 // one\n}\n'
    assert jsonc.with_member(text, [], "b", 2) == '{\n  "a": 1, // one\n  "b": 2\n}\n'


def test_objects_on_the_way_are_made_and_empty_texts_filled() -> None:
    assert jsonc.with_member("", ["mcpServers"], "a", 1) == '{\n  "mcpServers": {\n    "a": 1\n  }\n}\n'
    assert jsonc.with_member('{"x": 1}', ["mcpServers"], "a", 1) == ('{"x": 1,\n  "mcpServers": {\n    "a": 1\n  }\n}')


def test_line_ends_of_windows_and_a_byte_order_mark_stay() -> None:
    text = '\ufeff{\r\n\t"a": 1\r\n}\r\n'
    assert jsonc.with_member(text, [], "b", [2]) == '\ufeff{\r\n\t"a": 1,\r\n\t"b": [\r\n\t\t2\r\n\t]\r\n}\r\n'


def test_a_value_is_replaced_in_its_place() -> None:
    assert jsonc.with_member('{"a": {"b": 1}, "c": 2} // x', ["a"], "b", 5) == '{"a": {"b": 5}, "c": 2} // x'


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ('{"a": 1, "b": 2}', '{"a": 1}'),
        ('{"b": 2, "a": 1}', '{"a": 1}'),
        ('{"b": 2}', "{}"),
        ('{\n  "a": 1,\n  "b": 2\n}', '{\n  "a": 1\n}'),
        ('{"a": 1}', '{"a": 1}'),
    ],
)
def test_a_member_is_removed_with_its_comma(text: str, rest: str) -> None:
    assert jsonc.without_member(text, [], "b") == rest


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1,\n "b" 2}', "at line 2, column 6: `:` is missing"),
        ('{"a": 1 "b": 2}', "column 9: `,` or `}` is missing"),
        ("{a: 1}", "a key in double quotes is missing"),
        ('{"a": "secret', "a string does not end"),
        ('{"a": nope}', "it is not a value of JSON"),
        ('{"a": }', "a value is missing"),
        ("{} {}", "something follows after the end"),
        ('{"a": 1', "is missing"),
        ("[" * 300, "nested too deeply"),
        ('{"a": "C:\\Users"}', "column 10: a backslash in a string is written twice: `\\\\`"),
        ('{"a": "\\u12"}', "a backslash in a string is written twice"),
    ],
)
def test_what_is_no_json_is_said_with_its_place_and_without_its_content(text: str, words: str) -> None:
    with pytest.raises(jsonc.JsonError) as raised:
        jsonc.parse(text)
    assert words in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_place_that_is_no_object_is_left_alone() -> None:
    with pytest.raises(jsonc.JsonError, match="`servers` is not an object"):
        jsonc.with_member('{"servers": []}', ["servers"], "a", 1)


def test_a_place_is_found_by_its_path() -> None:
    node = jsonc.parse(ZED).at("list", 1)
    assert node is not None
    assert (ZED[node.start : node.end], jsonc.line_of(ZED, node.start)) == ("2.5", 4)
    assert jsonc.parse(ZED).at("list", 9, "x") is None
