"""Tool arguments on the command line: `key=value` or one JSON object, typed by the tool's input schema. Pure.

Only what decides the type of a value is looked at; whether the value is valid, the server says. Without a type, a
text that is JSON is what it says, and any other is itself.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastmcp_aggregator.cli.terminal.exits import UsageError

Schema = Mapping[str, Any]

_UNIONS = ("anyOf", "oneOf")
_MOST_STEPS = 200
"""Steps after which to give up on a schema that refers to itself."""


def split_pairs(pairs: Sequence[str]) -> dict[str, list[str]]:
    """The texts by key, in the order in which they were given.

    Raises:
        UsageError: something is not of the form `key=value`.
    """
    texts: dict[str, list[str]] = {}
    for pair in pairs:
        key, mark, text = pair.partition("=")
        if not key or not mark:
            raise UsageError(f"argument {pair!r}: write it as key=value")
        texts.setdefault(key, []).append(text)
    return texts


def typed_arguments(texts: Mapping[str, Sequence[str]], input_schema: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call, typed by the tool's input schema.

    Raises:
        UsageError: with every text that is not what the schema says.
    """
    arguments: dict[str, Any] = {}
    problems: list[str] = []
    types = Types(input_schema)
    for key, given in texts.items():
        try:
            arguments[key] = types.value(key, given)
        except Mismatch as mismatch:
            problems.append(f"argument {key}: {mismatch}")
    if problems:
        raise UsageError("\n".join(problems))
    return arguments


def parse_object(text: str, source: str) -> dict[str, Any]:
    """The JSON object that is written in `source`. Raises UsageError: it is something else."""
    try:
        value = strict_json(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise UsageError(f"{source} is not valid JSON at {where}: {error.msg}") from None
    except ValueError as error:
        raise UsageError(f"{source} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError(f"{source} must be a JSON object, with the tool's arguments by name")
    return value


class Mismatch(Exception):
    """A text is not what is wanted."""


class Types:
    """The types of one tool's arguments."""

    def __init__(self, input_schema: Schema) -> None:
        self._root = input_schema

    def value(self, key: str, texts: Sequence[str]) -> Any:
        """The value of an argument that was given once or, for a list, more often.

        Raises:
            Mismatch: the message says which text is not what.
        """
        alternatives = self._alternatives(self._schema_of(key))
        items = next((self._items(schema) for schema in alternatives if _may_be_list(schema)), None)
        if len(texts) > 1:
            if items is None:
                raise Mismatch("is given more than once, but it is not a list")
            return [_typed(text, items) for text in texts]
        try:
            return _typed(texts[0], alternatives)
        except Mismatch:
            if items is None:
                raise
        return [_typed(texts[0], items)]

    def _schema_of(self, key: str) -> object:
        properties = self._root.get("properties")
        if isinstance(properties, Mapping) and key in properties:
            return properties[key]
        return self._root.get("additionalProperties")

    def _items(self, array: Schema) -> list[Schema]:
        return self._alternatives(array.get("items"))

    def _alternatives(self, schema: object) -> list[Schema]:
        """The schemas of which one must fit, in order: unions taken apart and references followed."""
        found: list[Schema] = []
        pending = [schema]
        for _ in range(_MOST_STEPS):
            if not pending:
                break
            current = pending.pop(0)
            current = current if isinstance(current, Mapping) else {}
            if (inner := self._inside(current)) is not None:
                pending[:0] = inner
            else:
                found.append(current)
        return found or [{}]

    def _inside(self, schema: Schema) -> list[object] | None:
        """The schema that a reference stands for."""
        if isinstance(reference := schema.get("$ref"), str):
            return [self._definition(reference)]
        for name in _UNIONS:
            if isinstance(options := schema.get(name), list):
                return options
        parts = schema.get("allOf")
        return parts if isinstance(parts, list) and len(parts) == 1 else None

    def _definition(self, reference: str) -> object:
        """The target of a reference within the tool's own schema (RFC 6901)."""
        found: object = self._root if reference.startswith("#") else None
        for step in reference.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, Mapping) else None
        return found


def strict_json(text: str) -> Any:
    """Parse JSON, without the `NaN` and `Infinity` that Python would also take. Raises ValueError: it is not JSON."""

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not a JSON number")

    try:
        return json.loads(text, parse_constant=refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _typed(text: str, alternatives: Sequence[Schema]) -> Any:
    """The value of the text under the first schema that it fits."""
    wanted: dict[str, None] = {}
    for schema in alternatives:
        for name, read in _readings(schema):
            try:
                return read(text)
            except ValueError:
                wanted[name] = None
    raise Mismatch(f"{json.dumps(text, ensure_ascii=False)} is not {' or '.join(wanted)}")


def _readings(schema: Schema) -> list[tuple[str, Callable[[str], Any]]]:
    """The ways to read a text under one schema, each with the name of what it wants."""
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list):
        return [(_names_of(values), lambda text: _one_of(text, values))]
    return [_READINGS[name] for name in _types_in(schema) if name in _READINGS] or [("", _json_or_text)]


def _types_in(schema: Schema) -> list[str]:
    declared = schema.get("type")
    if isinstance(declared, str):
        return [declared]
    if isinstance(declared, list):
        return [name for name in declared if isinstance(name, str)]
    return [name for name, sign in (("object", "properties"), ("array", "items")) if sign in schema]


def _may_be_list(schema: Schema) -> bool:
    types = _types_in(schema)
    return "array" in types or not (types or "const" in schema or "enum" in schema)


def _json_of(text: str, *kinds: type) -> Any:
    value = strict_json(text)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise ValueError(text)  # noqa: TRY004 - one error for everything that does not fit
    return value


def _number(text: str) -> int | float:
    value: int | float = _json_of(text, int, float)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _null(text: str) -> None:
    if text != "null":
        raise ValueError(text)


def _json_or_text(text: str) -> Any:
    try:
        return strict_json(text)
    except ValueError:
        return text


def _one_of(text: str, values: Sequence[Any]) -> Any:
    if text in values:
        return text
    wanted = json.dumps(strict_json(text), sort_keys=True)  # compared as JSON, where 1 is not true
    for value in values:
        if json.dumps(value, sort_keys=True) == wanted:
            return value
    raise ValueError(text)


def _names_of(values: Sequence[Any]) -> str:
    names = [json.dumps(value, ensure_ascii=False) for value in values]
    return names[0] if len(names) == 1 else f"one of {', '.join(names)}"


_READINGS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "integer": ("an integer", lambda text: _json_of(text, int)),
    "number": ("a number", _number),
    "boolean": ("true or false", _boolean),
    "null": ("null", _null),
    "string": ("a string", str),
    "array": ("a JSON array", lambda text: _json_of(text, list)),
    "object": ("a JSON object", lambda text: _json_of(text, dict)),
}
