"""What becomes of `key=value` under a tool's input schema, and of `--args`."""

from typing import Any

import pytest

from fastmcp_aggregator.cli.parser.arguments import parse_object, split_pairs, typed_arguments
from fastmcp_aggregator.cli.terminal.exits import UsageError

DEFINITIONS = {
    "Size": {"type": "integer"},
    "a/b": {"type": "boolean"},
    "Again": {"anyOf": [{"$ref": "#/$defs/Again"}]},
}


def value(text: str | list[str], schema: Any) -> Any:
    texts = [text] if isinstance(text, str) else text
    return typed_arguments({"x": texts}, {"properties": {"x": schema}, "$defs": DEFINITIONS})["x"]


def problem(text: str | list[str], schema: Any) -> str:
    with pytest.raises(UsageError) as caught:
        value(text, schema)
    return str(caught.value)


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        ({"type": "string"}, "5", "5"),
        ({"type": "string"}, "", ""),
        ({"type": "string"}, "a=b", "a=b"),
        ({"type": "integer"}, "-5", -5),
        ({"type": "number"}, "5", 5),
        ({"type": "number"}, "-2.5e3", -2500.0),
        ({"type": "boolean"}, "true", True),
        ({"type": "boolean"}, "False", False),
        ({"type": "null"}, "null", None),
        ({"type": "array"}, "[1, 2]", [1, 2]),
        ({"items": {}}, "[1]", [1]),
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
        ({"properties": {"a": {}}}, '{"a": 1}', {"a": 1}),
        ({"type": ["integer", "null"]}, "null", None),
        ({"type": ["integer", "string"]}, "five", "five"),
        ({"type": ["unknown to us", 7]}, "five", "five"),
        ({"const": "5"}, "5", "5"),
        ({"const": 5}, "5", 5),
        ({"enum": ["a", "b"]}, "b", "b"),
        ({"type": "integer", "enum": [1, 2]}, "2", 2),
        ({"enum": [True, 1]}, "1", 1),
        ({"enum": [None, {"a": 1}]}, '{"a":1}', {"a": 1}),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "null", None),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "12", 12),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "12", "12"),
        ({"anyOf": [{"anyOf": [{"type": "boolean"}]}, {"const": "off"}]}, "off", "off"),
        ({"$ref": "#/$defs/Size"}, "7", 7),
        ({"$ref": "#/$defs/a~1b"}, "true", True),
        ({"allOf": [{"$ref": "#/$defs/Size"}], "default": 3}, "7", 7),
        ({"anyOf": [{"$ref": "#/$defs/Size"}, {"type": "null"}]}, "7", 7),
        ({"$ref": "#/$defs/missing"}, "7", 7),
        ({"$ref": "https://example.com/schema"}, "seven", "seven"),
        ({"$ref": "#/$defs/Again"}, "[7]", [7]),
        ({}, "7", 7),
        ({}, "[seven", "[seven"),
        ({}, "NaN", "NaN"),
        (True, '{"a": null}', {"a": None}),
    ],
)
def test_a_text_gets_the_type_of_the_schema(schema: Any, text: str, expected: Any) -> None:
    got = value(text, schema)
    assert got == expected
    assert type(got) is type(expected)


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        ({"type": "integer"}, "abc", 'argument x: "abc" is not an integer'),
        ({"type": "integer"}, "1.5", 'argument x: "1.5" is not an integer'),
        ({"type": "integer"}, "true", 'argument x: "true" is not an integer'),
        ({"type": "integer"}, "9" * 5000, f'argument x: "{"9" * 5000}" is not an integer'),
        ({"type": "number"}, "Infinity", 'argument x: "Infinity" is not a number'),
        ({"type": "number"}, "1e999", 'argument x: "1e999" is not a number'),
        ({"type": "number"}, "true", 'argument x: "true" is not a number'),
        ({"type": "boolean"}, "yes", 'argument x: "yes" is not true or false'),
        ({"type": "null"}, "", 'argument x: "" is not null'),
        ({"type": "object"}, "[]", 'argument x: "[]" is not a JSON object'),
        ({"type": "object"}, "ü", 'argument x: "ü" is not a JSON object'),
        ({"type": "object"}, "[" * 100_000, f'argument x: "{"[" * 100_000}" is not a JSON object'),
        ({"const": "on"}, "off", 'argument x: "off" is not "on"'),
        ({"enum": ["a", 1]}, "2", 'argument x: "2" is not one of "a", 1'),
        ({"enum": [True]}, "1", 'argument x: "1" is not true'),
        ({"type": ["integer", "null"]}, "abc", 'argument x: "abc" is not an integer or null'),
        ({"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/Size"}]}, "abc", 'argument x: "abc" is not an integer'),
    ],
)
def test_a_text_of_another_type_is_a_problem(schema: Any, text: str, expected: str) -> None:
    assert problem(text, schema) == expected


def test_all_problems_are_told_at_once() -> None:
    schema = {"properties": {"limit": {"type": "integer"}, "deep": {"type": "boolean"}, "path": {"type": "string"}}}
    with pytest.raises(UsageError) as caught:
        typed_arguments({"limit": ["abc"], "path": ["p"], "deep": ["no"]}, schema)
    assert str(caught.value) == 'argument limit: "abc" is not an integer\nargument deep: "no" is not true or false'


@pytest.mark.parametrize(
    ("schema", "texts", "expected"),
    [
        ({"type": "array", "items": {"type": "string"}}, ["a", "1"], ["a", "1"]),
        ({"type": "array", "items": {"type": "integer"}}, ["1", "2"], [1, 2]),
        ({"type": "array"}, ["a", "1"], ["a", 1]),
        ({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]}, ["a", "b"], ["a", "b"]),
        ({}, ["a", "1"], ["a", 1]),
        ({"type": "array", "items": {"type": "string"}}, ["a"], ["a"]),
        ({"type": "array", "items": {"type": "string"}}, ['["a", "b"]'], ["a", "b"]),
        ({"type": ["array", "string"]}, ["a"], "a"),
    ],
)
def test_an_argument_that_is_repeated_is_a_list(schema: Any, texts: list[str], expected: Any) -> None:
    assert value(texts, schema) == expected


@pytest.mark.parametrize("schema", [{"type": "string"}, {"enum": ["a"]}, {"const": "a"}, {"properties": {}}])
def test_only_a_list_may_be_repeated(schema: Any) -> None:
    assert problem(["a", "a"], schema) == "argument x: is given more than once, but it is not a list"


def test_the_items_of_a_repeated_argument_are_typed() -> None:
    schema = {"type": "array", "items": {"type": "integer"}}
    assert problem(["1", "b"], schema) == 'argument x: "b" is not an integer'
    assert problem("b", schema) == 'argument x: "b" is not an integer'


def test_an_argument_that_the_schema_does_not_name_is_json_if_it_can_be() -> None:
    assert typed_arguments({"x": ["1"], "y": ["one"]}, {}) == {"x": 1, "y": "one"}
    assert typed_arguments({"x": ["1"]}, {"properties": ["no object"]}) == {"x": 1}
    assert typed_arguments({"x": ["1"]}, {"additionalProperties": {"type": "string"}}) == {"x": "1"}


def test_pairs_are_split_at_the_first_equals_sign_and_kept_in_order() -> None:
    assert split_pairs(["b=1", "a=x=y", "b=", "b=3"]) == {"b": ["1", "", "3"], "a": ["x=y"]}


@pytest.mark.parametrize("pair", ["limit", "=5", ""])
def test_what_is_no_pair_is_refused(pair: str) -> None:
    with pytest.raises(UsageError, match="write it as key=value"):
        split_pairs([pair])


def test_an_object_of_arguments_is_taken_as_it_is() -> None:
    assert parse_object('{"a": [1, null]}', "--args") == {"a": [1, None]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "--args is not valid JSON at line 1, column 2: Expecting property name enclosed in double quotes"),
        ('{"a": NaN}', "--args is not valid JSON: NaN is not a JSON number"),
        ("[" * 100_000, "--args is not valid JSON: it is nested too deeply"),
        ("[1]", "--args must be a JSON object, with the tool's arguments by name"),
    ],
)
def test_what_is_no_object_of_arguments_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_object(text, "--args")
    assert str(caught.value) == message
