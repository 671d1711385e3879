"""What is given on the command line for a tool: `key=value`, or one JSON object. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastmcp_aggregator.cli.parser.schema import Mismatch, Types, strict_json
from fastmcp_aggregator.cli.terminal.exits import UsageError


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
    """The JSON object that is written in `source`.

    Raises:
        UsageError: it is something else.
    """
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
