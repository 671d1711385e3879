"""Diagnostics: the places of a document, as JSON paths, and the problems found there."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from fastmcp_aggregator.errors import ConfigError, ConfigErrorCode, ConfigProblem

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def path_step(step: object) -> str:
    """Format one step of a JSON path: `[1]` into a list, `.files` or `["my server"]` into an object."""
    if isinstance(step, int):
        return f"[{step}]"
    key = str(step)
    return f".{key}" if _PLAIN_KEY.fullmatch(key) else f"[{json.dumps(key, ensure_ascii=False)}]"


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a document. All places of one document share the list of its problems."""

    path: str = "$"
    problems: list[ConfigProblem] = field(default_factory=list)

    def at(self, step: object) -> Place:
        return Place(self.path + path_step(step), self.problems)

    def report(self, message: str, code: ConfigErrorCode = "invalid_schema") -> None:
        self.problems.append(ConfigProblem(code, self.path, message))

    def raise_problems(self, source: str) -> None:
        """Raise a ConfigError with the problems of the document, if there are any. `source` is its file."""
        if self.problems:
            raise ConfigError(source, self.problems)
