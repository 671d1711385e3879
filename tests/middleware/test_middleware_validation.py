"""Arguments against input schemas: what is refused and how that is told, and what is left to the server."""

from __future__ import annotations

import json
import logging
import socket
from typing import Any

import pytest
from support.doubles import call

from fastmcp_aggregator.access.principal import Principal
from fastmcp_aggregator.callers.call import Call
from fastmcp_aggregator.policies.policy import Refused
from fastmcp_aggregator.policies.schema_cost import TooCostly, deepest_value, depth_of
from fastmcp_aggregator.policies.validation import ArgumentValidation

TOOL = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "pattern": "^/"},
        "lines": {"type": "integer", "minimum": 1},
        "mode": {"enum": ["head", "tail"]},
        "my tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["path"],
    "additionalProperties": False,
}


def call_of(arguments: Any, schema: Any = TOOL, method: str = "tools/call", name: str = "read") -> Call:
    params = {"name": f"files:{name}"} if arguments is None else {"name": f"files:{name}", "arguments": arguments}
    return call(Principal(), "default", method, "files", name, params, input_schema=schema)


def refusal_of(arguments: Any, schema: Any = TOOL) -> Refused | None:
    try:
        ArgumentValidation().before(call_of(arguments, schema))
    except Refused as refusal:
        return refusal
    return None


@pytest.mark.parametrize(
    ("arguments", "problems"),
    [
        ({"path": "/x", "lines": 3, "mode": "head", "my tags": ["a"]}, []),
        ({}, ['$: "path" is a required property']),
        (None, ['$: "path" is a required property']),
        ({"path": "x"}, ['$.path: the value does not match "^/"']),
        ({"path": "/x", "lines": 0}, ["$.lines: the value is less than the minimum of 1"]),
        ({"path": "/x", "lines": "3"}, ['$.lines: the value is not of type "integer"']),
        ({"path": "/x", "mode": "all"}, ['$.mode: the value is not one of "head" or "tail"']),
        ({"path": "/x", "my tags": ["a", 5]}, ['$["my tags"][1]: the value is not of type "string"']),
        ({"path": "/x", "line": 3}, ["$: Additional properties are not allowed ('line' was unexpected)"]),
        (
            {"lines": "3", "mode": 1},
            [
                '$.lines: the value is not of type "integer"',
                '$.mode: the value is not one of "head" or "tail"',
                '$: "path" is a required property',
            ],
        ),
    ],
)
def test_each_problem_is_told_with_its_place(arguments: Any, problems: list[str]) -> None:
    refusal = refusal_of(arguments)
    if not problems:
        assert refusal is None
        return
    assert refusal is not None
    assert refusal.code == -32602
    told = [f"{problem['path']}: {problem['message']}" for problem in refusal.data["problems"]]
    assert sorted(told) == sorted(problems)
    assert refusal.message.startswith("Invalid arguments: ")
    assert all(problem in refusal.message for problem in problems)


def test_no_value_is_echoed_and_what_is_told_is_bounded() -> None:
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    arguments = {f"{'k' * 5000}{number}": f"s3cret{'v' * 5000}" for number in range(500)}
    refusal = refusal_of(arguments, schema)
    assert refusal is not None
    assert "s3cret" not in refusal.message
    assert len(refusal.data["problems"]) == 10
    assert len(refusal.message) < 10 * 450


@pytest.mark.parametrize(
    "call",
    [
        call_of({"lines": 0}, method="prompts/get"),
        call_of({"lines": 0}, schema=None),
    ],
)
def test_only_calls_of_tools_that_have_a_schema_are_checked(call: Call) -> None:
    ArgumentValidation().before(call)


def test_a_schema_that_changes_counts_from_then_on() -> None:
    policy = ArgumentValidation()
    policy.before(call_of({"n": 1}, {"type": "object", "properties": {"n": {"type": "integer"}}}))
    with pytest.raises(Refused):
        policy.before(call_of({"n": 1}, {"type": "object", "properties": {"n": {"type": "string"}}}))


def test_tools_of_one_name_have_each_their_own_schema() -> None:
    policy = ArgumentValidation()
    policy.before(call_of({"path": "/x"}))
    policy.before(call_of({}, {"type": "object"}, name="other"))
    with pytest.raises(Refused):
        policy.before(call_of({}))


# What is left to the server.


def exponential(levels: int) -> dict[str, Any]:
    """A small schema that takes twice as long with each level."""
    definitions: dict[str, Any] = {"d0": {"type": "string"}}
    for level in range(1, levels):
        reference = {"$ref": f"#/$defs/d{level - 1}"}
        definitions[f"d{level}"] = {"anyOf": [reference, reference]}
    return {"$defs": definitions, "$ref": f"#/$defs/d{levels - 1}"}


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


BRANCHING = {"anyOf": [{"additionalProperties": {"$ref": "#"}, "required": ["x"]} for _ in range(4)]}


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        ({"type": "frobnicate"}, {}),
        ({"$ref": "http://127.0.0.1:9/schema.json"}, {}),
        ({"$ref": "file:///etc/passwd"}, {}),
        ({"$ref": "#/nowhere"}, {}),
        ({"$ref": "#anchor", "$defs": {"a": {"$anchor": "anchor", "type": "string"}}}, {}),
        ({"$schema": "http://example.com/own-dialect", "type": "string"}, {}),
        ({"properties": {"a": {"type": "string", "format": "email"}}}, {"a": "no address"}),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": {"format": "uri"}}}, {"a": "x y"}),
        ({"properties": {"a": {"pattern": "^(?=x)(?!y).*$"}}}, {"a": "z"}),
        ({"properties": {"a": {"pattern": "("}}}, {"a": "z"}),
        (exponential(60), {}),
        (BRANCHING, nested(50)),
        ({"properties": {f"p{n}": {"type": "string"} for n in range(30_000)}}, {"p1": 1}),
        ({"type": "string", "properties": nested(500)}, {}),
        ({"type": "object", "additionalProperties": {"$ref": "#"}, "maxProperties": 1}, nested(900)),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, {"a": "\ud800"}),
    ],
)
def test_what_cannot_be_told_or_would_cost_too_much_is_left_to_the_server(schema: Any, arguments: Any) -> None:
    assert refusal_of(arguments, schema) is None


@pytest.mark.parametrize("schema", [{"$ref": "{url}"}, {"$schema": "{url}"}, {"allOf": [{"$ref": "{url}#/$defs/a"}]}])
def test_nothing_that_a_schema_refers_to_is_fetched(schema: dict[str, Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"
        filled = json.loads(json.dumps(schema).replace("{url}", url))
        assert refusal_of({}, filled) is None
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_a_pattern_that_is_left_out_takes_nothing_else_with_it() -> None:
    schema = {"properties": {"a": {"pattern": "^(?=x).*$", "type": "string"}, "b": {"pattern": "^x"}}}
    refusal = refusal_of({"a": 1, "b": "y"}, schema)
    assert refusal is not None
    assert {problem["path"] for problem in refusal.data["problems"]} == {"$.a", "$.b"}


def test_a_schema_that_is_of_no_use_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    policy, schema = ArgumentValidation(), {"type": "frobnicate"}
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            policy.before(call_of({}, schema))
    assert len(caplog.records) == 1
    assert "server 'files', tool 'read': arguments are not checked" in caplog.text


@pytest.mark.parametrize(
    ("schema", "deepest"),
    [
        ({}, 100),
        (TOOL, 100),
        ({"$defs": {"a": {"type": "string"}}, "$ref": "#/$defs/a"}, 100),
        ({"$ref": "#"}, 100),
        ({"additionalProperties": {"$ref": "#"}}, 100),
        ({"anyOf": [{"$ref": "#"}] * 10}, 5),
        ({"$defs": {"e": {"anyOf": [{"items": {"$ref": "#/$defs/e"}}] * 10}}, "$ref": "#/$defs/e"}, 5),
        ({"properties": {"definitions": {"anyOf": [{"$ref": "#"}] * 10}}}, 5),
        ({"properties": {"a/b": {"type": "string"}, "c": {"$ref": "#/properties/a~1b"}}}, 100),
        ({"allOf": [{"type": "string"}, {"$ref": "#/allOf/0"}]}, 100),
    ],
)
def test_the_more_ways_a_schema_has_into_itself_the_flatter_a_value_has_to_be(schema: Any, deepest: int) -> None:
    assert deepest_value(schema) == deepest


@pytest.mark.parametrize(
    "schema", [exponential(20), {"$dynamicRef": "#x"}, {"a": {"$id": "x"}}, {"$ref": "#/a/5", "a": [1]}, nested(101)]
)
def test_a_schema_may_be_too_costly_for_any_value(schema: Any) -> None:
    with pytest.raises(TooCostly):
        deepest_value(schema)


@pytest.mark.parametrize(
    ("value", "depth"), [(1, 0), ({}, 0), ({"a": 1}, 1), ([[], {"a": [1]}], 3), (nested(100_000), 100_000)]
)
def test_the_depth_of_a_value(value: Any, depth: int) -> None:
    assert depth_of(value) == depth
