"""Arguments against input schemas: what is refused and how that is told, and what a check may cost."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from dataclasses import replace
from typing import Any

import pytest
from support.doubles import call

from fastmcp_aggregator.access.principal import Principal
from fastmcp_aggregator.callers.call import Call
from fastmcp_aggregator.policies import validation
from fastmcp_aggregator.policies.json_size import Size, TooCostly
from fastmcp_aggregator.policies.policy import Rejected
from fastmcp_aggregator.policies.schema_cost import MOST_STEPS, SchemaCost
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


def checked(policy: ArgumentValidation, call: Call) -> None:
    """Ask the policy; it decides at once where it knows the schema."""

    async def ask() -> None:
        if pending := policy.before(call):
            await pending
            assert policy.before(call) is None

    asyncio.run(ask())


def refusal_of(arguments: Any, schema: Any = TOOL) -> Rejected | None:
    try:
        checked(ArgumentValidation(), call_of(arguments, schema))
    except Rejected as refusal:
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
    ],
)
def test_a_problem_is_told_with_its_place(arguments: Any, problems: list[str]) -> None:
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


def test_one_problem_of_several_is_told() -> None:
    refusal = refusal_of({"lines": "3", "mode": 1})
    assert refusal is not None
    assert len(refusal.data["problems"]) == 1


def test_no_value_is_echoed_and_what_is_told_is_bounded() -> None:
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    arguments = {f"{'k' * 500}{number}": f"s3cret{'v' * 500}" for number in range(500)}
    refusal = refusal_of(arguments, schema)
    assert refusal is not None
    assert "s3cret" not in refusal.message
    assert len(refusal.message) < 450


def local_call() -> Call:
    """A call of a tool of the app's own, which FastMCP checks."""
    call = call_of({"lines": 0}, schema=None)
    call.target = replace(call.target, child=None)
    return call


@pytest.mark.parametrize(
    "call",
    [
        call_of({"lines": 0}, method="prompts/get"),
        local_call(),
    ],
)
def test_only_calls_of_the_tools_of_servers_are_checked(call: Call) -> None:
    checked(ArgumentValidation(), call)


@pytest.mark.parametrize("schema", [None, True, [], "object"])
def test_a_tool_without_a_schema_is_not_called(schema: Any) -> None:
    with pytest.raises(Rejected, match="the tool has no input schema"):
        checked(ArgumentValidation(), call_of({"lines": 0}, schema=schema))


def test_a_schema_that_changes_counts_from_then_on() -> None:
    policy = ArgumentValidation()
    checked(policy, call_of({"n": 1}, {"type": "object", "properties": {"n": {"type": "integer"}}}))
    with pytest.raises(Rejected):
        checked(policy, call_of({"n": 1}, {"type": "object", "properties": {"n": {"type": "string"}}}))


def test_tools_of_one_name_have_each_their_own_schema() -> None:
    policy = ArgumentValidation()
    checked(policy, call_of({"path": "/x"}))
    checked(policy, call_of({}, {"type": "object"}, name="other"))
    with pytest.raises(Rejected):
        checked(policy, call_of({}))


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
        ({"properties": {"a": {"type": "string", "format": "email"}}}, {"a": "no address"}),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": {"format": "uri"}}}, {"a": "x y"}),
        ({"properties": {"a": {"pattern": "^(?=x)(?!y).*$"}}}, {"a": "z"}),
        ({"properties": {"a": {"type": "string"}}}, {"a": "\ud800"}),
    ],
)
def test_format_and_patterns_with_look_around_are_left_to_the_server(schema: Any, arguments: Any) -> None:
    assert refusal_of(arguments, schema) is None


# What cannot be checked is refused.


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "frobnicate"}, "not valid"),
        ({"$ref": "http://127.0.0.1:9/schema.json"}, "refers to a definition that is not in it"),
        ({"$ref": "file:///etc/passwd"}, "refers to a definition that is not in it"),
        ({"$ref": "#/nowhere"}, "refers to a definition that is not in it"),
        (
            {"$ref": "#anchor", "$defs": {"a": {"$anchor": "anchor", "type": "string"}}},
            "refers to a definition that is not in it",
        ),
        ({"$schema": "http://example.com/own-dialect", "type": "string"}, "own-dialect"),
        (exponential(60), "nested"),
        (exponential(20), "refers to its own parts too often"),
        ({"properties": {f"p{n}": {"type": "string"} for n in range(30_000)}}, "too much"),
        ({"description": "x" * 300_000}, "characters"),
        ({"enum": list(range(10_000))}, "too much"),
        ({"maximum": 10**4000}, "too much"),
        ({"properties": {f"p{n}": {"pattern": f"^{n}$"} for n in range(51)}}, "patterns"),
        ({"type": "string", "properties": nested(500)}, "nested"),
        ({"allOf": [{"$ref": "#"}]}, "without end"),
        ({"allOf": [{"type": "string"}, {"$ref": "#/allOf/1"}]}, "without end"),
        ({"$dynamicRef": "#x"}, "$dynamicRef"),
        ({"$recursiveRef": "#"}, "$recursiveRef"),
        ({"properties": {"a": {"$id": "x"}}}, "$id"),
        ({"$ref": "#/a/5", "a": [1]}, "refers to a definition that is not in it"),
    ],
)
def test_a_tool_whose_schema_cannot_be_used_is_not_called(schema: Any, why: str) -> None:
    refusal = refusal_of({}, schema)
    assert refusal is not None
    assert refusal.message.startswith("Arguments cannot be checked against the input schema: ")
    assert why in refusal.message


NUMBERS = {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "number"}, {"type": "null"}]}}
FILTER = {
    "$defs": {
        "filter": {
            "anyOf": [
                {"properties": {"and": {"type": "array", "items": {"$ref": "#/$defs/filter"}}}, "required": ["and"]},
                {"properties": {"not": {"$ref": "#/$defs/filter"}}, "required": ["not"]},
                {"properties": {"field": {"type": "string"}, "value": {}}, "required": ["field", "value"]},
            ]
        }
    },
    "properties": {"filter": {"$ref": "#/$defs/filter"}},
}


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        (TOOL, {"path": "/x", "mode": nested(101)}),
        ({"properties": {"a": {}}}, {"other": nested(101)}),
        ({"properties": {"a": NUMBERS}}, {"a": ["wrong"] * 30_000}),
        ({"properties": {"a": NUMBERS}}, {"a": list(range(150_000))}),
        ({"anyOf": [{"properties": {"a": {"type": "string"}}}] * 400}, {"a": list(range(12_000))}),
        (BRANCHING, nested(50)),
        ({"properties": {"a": {"pattern": "[ab]*a[ab]{20}c"}}}, {"a": "ab" * 100_000}),
        ({"patternProperties": {"[ab]*a[ab]{20}c": {}}}, {"ab" * 100_000: 1}),
        ({"properties": {"a": {"uniqueItems": True}}}, {"a": [10**30 + n for n in range(2000)]}),
        ({"properties": {"a": {"uniqueItems": True}}}, {"a": [2**63 + n for n in range(2000)]}),
        ({"properties": {"a": {"items": {"maximum": 5}}}}, {"a": [10**4000] * 300}),
        ({"properties": {"a": {"items": {"multipleOf": 1e-300}}}}, {"a": [1e300] * 3000}),
        ({"properties": {"a": {"items": {"enum": [{"n": n} for n in range(1000)]}}}}, {"a": [{"n": 1}] * 2000}),
        (
            {"allOf": [{"allOf": [{"unevaluatedProperties": False}], "unevaluatedProperties": False}]},
            {f"p{n}": 1 for n in range(500)},
        ),
        (
            {"properties": {"a": {"required": [f"p{n}" for n in range(1000)]}}},
            {"a": {f"p{n}": {} for n in range(1000)}},
        ),
        ({}, {f"p{n}": 1 for n in range(200_000)}),
    ],
)
def test_arguments_that_cost_too_much_are_refused(schema: Any, arguments: Any) -> None:
    refusal = refusal_of(arguments, schema)
    assert refusal is not None
    assert refusal.message.startswith("Arguments cannot be checked against the input schema: they are ")


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        (TOOL, {"path": "/x", "my tags": ["tag"] * 10_000}),
        ({"properties": {"a": NUMBERS}}, {"a": [1.5] * 5000}),
        (
            {"properties": {"path": {"pattern": "^/"}, "text": {"type": "string"}}},
            {"path": "/x", "text": "é" * 4_000_000},
        ),
        ({"properties": {f"p{n}": {"type": "string"} for n in range(1000)}}, {"p1": "x", "rows": [{"n": 1}] * 8000}),
        (FILTER, {"filter": {"and": [{"field": "a", "value": 1}, {"not": {"field": "b", "value": 2}}] * 20}}),
        ({"properties": {"tree": {"additionalProperties": {"$ref": "#/properties/tree"}}}}, {"tree": nested(40)}),
        (
            {"properties": {"a": {"uniqueItems": True, "items": {"type": "string"}}}},
            {"a": [str(n) for n in range(5000)]},
        ),
        ({"properties": {"price": {"multipleOf": 0.01}, "n": {"type": "integer"}}}, {"price": 12, "n": 2**60}),
    ],
)
def test_large_arguments_of_the_usual_kinds_are_checked(schema: Any, arguments: Any) -> None:
    assert refusal_of(arguments, schema) is None


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        ({"anyOf": [{"required": [f"p{n}"]} for n in range(800)]}, {"a": "x" * 25_000}),
        ({"anyOf": [{"const": n} for n in range(600)]}, {"a": list(range(80))}),
        ({"maxProperties": 1}, {f"p{n}": 1 for n in range(20_000)}),
        ({"not": {"properties": {"a": {"type": "string"}}}}, {"a": "x" * 4_000_000}),
    ],
)
def test_what_is_wrong_is_not_worked_out_where_that_would_copy_too_much(schema: Any, arguments: Any) -> None:
    refusal = refusal_of(arguments, schema)
    assert refusal is not None
    assert refusal.message == "Invalid arguments: $: the arguments do not match the input schema"


async def test_a_schema_is_prepared_once_and_on_no_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    measure = SchemaCost.__init__

    def noted(cost: SchemaCost, *arguments: Any) -> None:
        threads.append(threading.current_thread())
        measure(cost, *arguments)

    monkeypatch.setattr(SchemaCost, "__init__", noted)
    policy = ArgumentValidation()
    calls = [policy.before(call_of({"path": "/x"})) for _ in range(5)]
    await asyncio.gather(*(call for call in calls if call is not None))
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


def test_as_many_schemas_are_kept_as_have_room() -> None:
    policy = ArgumentValidation()
    for number in range(30):
        schema = {"properties": {f"p{n}": {"type": "string"} for n in range(1000)}}
        checked(policy, call_of({}, schema, name=f"tool{number}"))
    assert 0 < len(policy._checks) < 20


@pytest.mark.parametrize("schema", [{"$ref": "{url}"}, {"$schema": "{url}"}, {"allOf": [{"$ref": "{url}#/$defs/a"}]}])
def test_nothing_that_a_schema_refers_to_is_fetched(schema: dict[str, Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"
        filled = json.loads(json.dumps(schema).replace("{url}", url))
        assert refusal_of({}, filled) is not None
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_a_pattern_that_is_left_out_takes_nothing_else_with_it() -> None:
    schema = {"properties": {"a": {"pattern": "^(?=x).*$", "type": "string"}, "b": {"pattern": "^x"}}}
    refusal = refusal_of({"a": 1, "b": "y"}, schema)
    assert refusal is not None
    assert refusal.data["problems"][0]["path"] in {"$.a", "$.b"}
    assert refusal_of({"a": "z", "b": "x"}, schema) is None


def test_a_schema_that_is_of_no_use_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    policy, schema = ArgumentValidation(), {"type": "frobnicate"}
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with pytest.raises(Rejected):
                checked(policy, call_of({}, schema))
    assert len(caplog.records) == 1
    assert "server 'files', tool 'read': calls are refused" in caplog.text


def steps(schema: Any, arguments: Any) -> int:
    return SchemaCost(schema, lambda pattern: 10).steps(arguments, Size.of(arguments))


def test_of_properties_only_those_count_that_are_given() -> None:
    schema = {"properties": {"a": {"allOf": [{}] * 500}, "b": {}}}
    assert steps(schema, {"a": [1] * 100}) > 10 * steps(schema, {"b": [1] * 100})


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_schemas_beside_each_other_count_all(keyword: str) -> None:
    one, many = ({"properties": {"a": {keyword: [{"type": "string"}] * number}}} for number in (1, 100))
    assert steps(many, {"a": [1] * 100}) > 20 * steps(one, {"a": [1] * 100})


def test_the_more_ways_a_schema_has_into_itself_the_flatter_a_value_has_to_be() -> None:
    schema = {"anyOf": [{"additionalProperties": {"$ref": "#"}}] * 3}
    assert steps(schema, nested(4)) > 3 * steps(schema, nested(3))
    assert steps(schema, nested(20)) > MOST_STEPS


def test_a_schema_that_refers_to_itself_once_for_a_name_takes_no_exponential_time() -> None:
    schema = {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}
    value: dict[str, Any] = {}
    for _ in range(50):
        value = {"left": value}
    assert steps(schema, value) < 100_000


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (1, Size(nodes=1)),
        ({}, Size(nodes=1, objects=1)),
        ({"a": 1}, Size(nodes=2, objects=1, characters=1, depth=1)),
        ([[], {"a": ["xyz"]}], Size(nodes=5, objects=1, characters=4, depth=3, widest=2)),
        ([2**53, 2**53 + 1, 10**30], Size(nodes=4 + 1 + 4, depth=1, widest=3, great=3)),
    ],
)
def test_the_size_of_a_value(value: Any, size: Size) -> None:
    assert Size.of(value) == size


@pytest.mark.parametrize("value", [nested(100_000), [1] * 100_000])
def test_no_more_of_a_value_is_looked_at_than_may_be_checked(value: Any) -> None:
    with pytest.raises(TooCostly):
        Size.of(value)


HARD_TO_PREPARE = {
    "a long pattern": {"a": {"pattern": "a|" * 90_000 + "b"}},
    "long patterns": {f"p{i}": {"pattern": "|".join(f"{i}w{j}x" for j in range(60))} for i in range(30)},
    "large patterns": {f"p{i}": {"pattern": rf"(\w{{1,50}}){{1,{20 + i}}}"} for i in range(50)},
}


@pytest.mark.parametrize("properties", HARD_TO_PREPARE.values(), ids=HARD_TO_PREPARE)
def test_a_schema_whose_patterns_are_hard_to_prepare_is_refused_before(
    properties: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = []
    monkeypatch.setattr(validation, "_without_hard_patterns", lambda schema: compiled.append(schema) or schema)
    refusal = refusal_of({}, {"type": "object", "properties": properties})
    assert refusal is not None
    assert "its patterns" in refusal.message
    assert not compiled


LARGE_CLASSES = {
    "wide ranges": {"a": {"pattern": "(?i)" + r"[a-\x{10ffff}]" * 6}},
    "wide ranges, flag in the middle": {"a": {"pattern": r"x(?s-u:y)(?mi:[a-\u{ffff}][^b-ɏ][\0-\xff])" * 2}},
    "properties": {"a": {"pattern": r"\p{L}" * 51}},
    "properties of several patterns": {"a": {"patternProperties": {rf"[^\p{{L}}\P{{Lu}}]{n}": {} for n in range(26)}}},
}


@pytest.mark.parametrize("properties", LARGE_CLASSES.values(), ids=LARGE_CLASSES)
def test_many_large_classes_are_refused_before_one_is_made(properties: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "_compiled", lambda *_: pytest.fail("a pattern was prepared"))
    refusal = refusal_of({}, {"type": "object", "properties": properties})
    assert refusal is not None
    assert "its patterns have too many large classes of characters" in refusal.message


@pytest.mark.parametrize(
    "pattern",
    ["(?i)^[a-z0-9][a-z0-9._-]{0,62}$", r"^[\p{L}\p{N} '-]+$", r"(?i)^[\w.+-]+@[\w-]+(\.[\w-]+)+$", r"^[^\x00-\x1f]*$"],
)
def test_usual_classes_are_checked(pattern: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    assert refusal_of({"a": "a@b.cd" if "@" in pattern else "Ab"}, schema) is None
    assert refusal_of({"a": "\x00"}, schema) is not None


@pytest.mark.parametrize("schema", [TOOL, {"enum": [{}]}])
def test_half_of_a_surrogate_pair_is_refused(schema: Any) -> None:
    refusal = refusal_of({"path": "\ud800"}, schema)
    assert refusal is not None
    assert "they have half of a surrogate pair" in refusal.message
