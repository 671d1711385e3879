"""The validation policy: reject arguments that do not match a tool's input schema, before the server is asked.

What a check costs is bounded before it begins, because it holds the interpreter's lock: a thread would not help.
It fails closed: a call whose arguments cannot be checked is rejected, whatever the reason. What the check leaves out
depends on the schema alone, never on the arguments: `format`, and a pattern that may take more than linear time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jsonschema_rs
from mcp_types import INVALID_PARAMS

from fastmcp_aggregator.config.documents import path_step
from fastmcp_aggregator.policies.json_size import TooCostly
from fastmcp_aggregator.policies.policy import Policy, Rejected
from fastmcp_aggregator.policies.schema_cost import SchemaCost
from fastmcp_aggregator.protocol.methods import TOOLS_CALL

if TYPE_CHECKING:
    from fastmcp_aggregator.callers.call import Call


logger = logging.getLogger(__name__)

_MOST_TEXT = 200
"""Characters of a path, and of what is wrong there."""
_MOST_PARTS = 20_000
"""Parts of all schemas that are kept ready; one takes a kilobyte or two."""
_MASK = "the value"
"""The text in messages in place of a value."""
_PATTERNS = {1_000: 10, 3_000: 20, 10_000: 50, 100_000: 400, 1_000_000: 4000}
"""Bytes of a compiled pattern, and steps that one of this size takes for a character."""


class ArgumentValidation(Policy):
    """The policy. A schema is prepared in a thread when it is first needed, one at a time; those used last are kept."""

    def __init__(self) -> None:
        self._preparing = asyncio.Lock()
        self._checks: OrderedDict[tuple[str, str], _Check] = OrderedDict()
        self._parts = 0

    def is_ready_for(self, call: Call) -> bool:
        """Unless the schema is yet to be prepared."""
        is_decided = not _is_checked(call) or not isinstance(call.target.input_schema, Mapping)
        return is_decided or self._known(call, call.target.input_schema or {}) is not None

    def before(self, call: Call) -> Awaitable[None] | None:
        """Check the arguments of a tool call.

        Raises:
            Rejected: the arguments do not match the schema (the error names one place), or cannot be checked.
        """
        if not _is_checked(call):
            return None
        if not isinstance(call.target.input_schema, Mapping):
            raise Rejected(INVALID_PARAMS, "Arguments cannot be checked: the tool has no input schema")
        check = self._known(call, call.target.input_schema)
        if check is None:
            return self._prepare(call, call.target.input_schema)
        check.refuse_invalid(call)
        return None

    async def _prepare(self, call: Call, schema: Mapping[str, Any]) -> None:
        async with self._preparing:
            check = self._known(call, schema)
            if check is None:
                check = await asyncio.to_thread(_Check, schema, (call.server, call.name))
                self._keep((call.server, call.name), check)
        check.refuse_invalid(call)

    def _known(self, call: Call, schema: Mapping[str, Any]) -> _Check | None:
        tool = call.server, call.name
        check = self._checks.get(tool)
        if check is None or check.schema is not schema:
            return None
        self._checks.move_to_end(tool)
        return check

    def _keep(self, tool: tuple[str, str], check: _Check) -> None:
        self._forget(tool)
        self._checks[tool] = check
        self._parts += check.parts
        while self._parts > _MOST_PARTS:
            self._forget(next(iter(self._checks)))

    def _forget(self, tool: tuple[str, str]) -> None:
        check = self._checks.pop(tool, None)
        self._parts -= check.parts if check else 0


def _is_checked(call: Call) -> bool:
    """Components of the app's own are checked by FastMCP."""
    return call.method == TOOLS_CALL.name and call.target.child is not None


class _Check:
    """A schema, ready to be checked against, or why it cannot be."""

    def __init__(self, schema: Mapping[str, Any], tool: tuple[str, str]) -> None:
        self.schema = schema
        self.parts = 1
        self._unusable = ""
        try:
            self._cost = SchemaCost(schema, _text_steps)
            self.parts = self._cost.parts
            self._validator = _compiled(_without_hard_patterns(schema))
        except (TooCostly, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            self._unusable = str(error).partition("\n")[0][:_MOST_TEXT]
            logger.warning(
                "server %r, tool %r: calls are refused: arguments cannot be checked against the input schema: %s",
                *tool,
                self._unusable,
            )

    def refuse_invalid(self, call: Call) -> None:
        """Do nothing if the arguments are what the schema wants. Raises Rejected: see `ArgumentValidation.before`."""
        try:
            problem = self.problem(call.params.get("arguments") or {})
        except TooCostly as error:
            raise _uncheckable(str(error)) from None
        except UnicodeEncodeError:
            raise _uncheckable("they have half of a surrogate pair") from None
        if problem:
            told = f"{problem['path']}: {problem['message']}"
            raise Rejected(INVALID_PARAMS, f"Invalid arguments: {told}", data={"problems": [problem]})

    def problem(self, arguments: Any) -> dict[str, str] | None:
        """The JSON path of an error, and its message. Raises TooCostly: it cannot be told."""
        if self._unusable:
            raise TooCostly(self._unusable)
        try:
            size = self._cost.bound(arguments)
        except TooCostly as error:
            raise TooCostly(f"they are {error}") from None
        if self._validator.is_valid(arguments):
            return None
        if not self._cost.can_decide(size):
            return {"path": "$", "message": "the arguments do not match the input schema"}
        try:
            self._validator.validate(arguments)
        except jsonschema_rs.ValidationError as error:
            return {"path": _path(error), "message": _bounded(error.message)}
        return None


def _uncheckable(why: str) -> Rejected:
    return Rejected(INVALID_PARAMS, f"Arguments cannot be checked against the input schema: {why}")


def _compiled(schema: Any, pattern_size: int = max(_PATTERNS)) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(
        dict(schema),
        mask=_MASK,
        validate_formats=False,
        offline=True,  # a reference to another document would be fetched
        pattern_options=jsonschema_rs.RegexOptions(size_limit=pattern_size),
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
        if not (name == "pattern" and isinstance(item, str) and _text_steps(item) == 0)
    }


@lru_cache(maxsize=1000)
def _text_steps(pattern: str) -> int:
    """The steps of a pattern for a character; 0 if an engine that takes linear time cannot run it."""
    for size, steps in _PATTERNS.items():
        try:
            _compiled({"pattern": pattern}, size)
        except jsonschema_rs.ValidationError:
            continue
        return steps
    return 0


def _path(error: jsonschema_rs.ValidationError) -> str:
    return _bounded("$" + "".join(map(path_step, error.instance_path)))


def _bounded(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 1] + "…"
