"""Arguments against a tool's input schema, before the server is asked.

What is refused here, the server would refuse too; what cannot be told, it is left to tell. So `format` is not checked,
nor a pattern that takes more than linear time, nor anything against a schema that is no valid one or costs too much.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping
from itertools import islice
from typing import Any

import jsonschema_rs

from fastmcp_aggregator.callers.call import Call
from fastmcp_aggregator.config.paths import path_step
from fastmcp_aggregator.policies.policy import End, Refused
from fastmcp_aggregator.policies.schema_cost import TooCostly, deepest_value, depth_of

logger = logging.getLogger(__name__)

INVALID_PARAMS = -32602
_MOST_PROBLEMS = 10
_MOST_TEXT = 200
"""Characters of a path, and of what is wrong there."""
_MOST_SCHEMAS = 5000
_MASK = "the value"
"""What stands in messages where a value would be echoed."""
_REGEX_SIZE = 1_000_000
"""Bytes of a compiled pattern."""


class ArgumentValidation:
    """The policy. Each schema is compiled when it is first needed, and once."""

    def __init__(self) -> None:
        self._checks: OrderedDict[tuple[str, str], _Check] = OrderedDict()

    def before(self, call: Call) -> None:
        """See Policy.

        Raises:
            Refused: the arguments are not what the schema wants; all problems at once, up to a number.
        """
        if call.method != "tools/call" or call.input_schema is None:
            return
        arguments = call.params.get("arguments") or {}
        problems = self._check_for(call, call.input_schema).problems(arguments)
        if problems:
            told = "; ".join(f"{problem['path']}: {problem['message']}" for problem in problems)
            raise Refused(INVALID_PARAMS, f"Invalid arguments: {told}", data={"problems": problems})

    def after(self, call: Call, end: End) -> None:
        """See Policy."""

    def _check_for(self, call: Call, schema: Mapping[str, Any]) -> _Check:
        tool = call.server, call.name
        check = self._checks.get(tool)
        if check is None or check.schema is not schema:
            check = self._checks[tool] = _Check(schema, tool)
            if len(self._checks) > _MOST_SCHEMAS:
                self._checks.popitem(last=False)
        return check


class _Check:
    """A schema, ready to be checked against, if it is one that can be."""

    def __init__(self, schema: Mapping[str, Any], tool: tuple[str, str]) -> None:
        self.schema = schema
        self._validator: jsonschema_rs.Validator | None = None
        self._deepest = 0
        try:
            self._deepest = deepest_value(schema)
            self._validator = _compiled(schema)
        except (TooCostly, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            why = str(error).partition("\n")[0][:_MOST_TEXT]
            logger.warning("server %r, tool %r: arguments are not checked against its input schema: %s", *tool, why)

    def problems(self, arguments: Any) -> list[dict[str, str]]:
        """Where something is wrong, as a JSON path, and what."""
        validator = self._validator
        if validator is None or depth_of(arguments) > self._deepest or validator.is_valid(arguments):
            return []
        errors = islice(validator.iter_errors(arguments), _MOST_PROBLEMS)
        return [{"path": _path(error), "message": _bounded(error.message)} for error in errors]


def _compiled(schema: Mapping[str, Any]) -> jsonschema_rs.Validator:
    try:
        return _validator(schema)
    except jsonschema_rs.ValidationError:
        return _validator(_without_hard_patterns(schema))


def _validator(schema: Any) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(
        dict(schema),
        mask=_MASK,
        validate_formats=False,
        offline=True,  # a reference to another document would be fetched
        pattern_options=jsonschema_rs.RegexOptions(size_limit=_REGEX_SIZE),
    )


def _without_hard_patterns(part: Any) -> Any:
    """The same schema without each `pattern` that is not for an engine that takes linear time."""
    if isinstance(part, list):
        return [_without_hard_patterns(item) for item in part]
    if not isinstance(part, Mapping):
        return part
    return {
        name: _without_hard_patterns(item)
        for name, item in part.items()
        if not (name == "pattern" and isinstance(item, str) and _is_hard(item))
    }


def _is_hard(pattern: str) -> bool:
    try:
        _validator({"pattern": pattern})
    except jsonschema_rs.ValidationError:
        return True
    return False


def _path(error: jsonschema_rs.ValidationError) -> str:
    return _bounded("$" + "".join(map(path_step, error.instance_path)))


def _bounded(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 1] + "…"
