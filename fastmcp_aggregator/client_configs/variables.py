"""The variables in a client's values, written as the aggregator writes them. Pure.

What the client itself replaces becomes `${NAME}`; every other `$` that the aggregator would replace is doubled, because
to the client it is a plain character.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from fastmcp_aggregator.client_configs.known import Variables

_TOKEN = re.compile(r"\$\$|\$\{(?P<braced>[^{}]*)\}|\$(?P<bare>[A-Za-z_][A-Za-z0-9_]*)|\$\{")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WITH_DEFAULT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(:-.*)?", re.DOTALL)
_SEPARATORS = {"/", "pathSeparator"}


@dataclass(slots=True)
class Translator:
    """Translates values of one client; `unknown` has what cannot be told here and became a variable of this name."""

    understood: frozenset[Variables]
    project: str | None
    unknown: dict[str, str] = field(default_factory=dict)

    def text(self, text: str) -> str:
        """The same value in the aggregator's spelling."""
        return _TOKEN.sub(self._token, text)

    def _token(self, token: re.Match[str]) -> str:
        if token["bare"] is not None:
            return token[0] if "bare" in self.understood else f"${token[0]}"
        if token["braced"] is None:
            if token[0] == "$$":
                return "$$" if "doubled" in self.understood else "$$$$"
            return "$${"
        return next(self._meanings(token["braced"]), f"${token[0]}")

    def _meanings(self, inside: str) -> Iterator[str]:
        kind, colon, name = inside.partition(":")
        if "braced" in self.understood and _WITH_DEFAULT.fullmatch(inside):
            yield f"${{{inside}}}"
        if "env" in self.understood and colon and kind == "env" and _NAME.fullmatch(name):
            yield f"${{{name}}}"
        if "input" in self.understood and colon and kind == "input":
            yield self._variable(inside, name)
        if "predefined" in self.understood:
            yield from self._predefined(inside)

    def _predefined(self, inside: str) -> Iterator[str]:
        if inside == "userHome":
            yield "${HOME}"
        elif inside in _SEPARATORS:
            yield "/"
        elif inside == "workspaceFolder":
            yield self.project if self.project is not None else self._variable(inside, "WORKSPACE_FOLDER")

    def _variable(self, inside: str, name: str) -> str:
        variable = variable_name(name)
        self.unknown[f"${{{inside}}}"] = variable
        return f"${{{variable}}}"


def variable_name(*parts: str) -> str:
    """The name of an environment variable made of these words."""
    name = re.sub("[^A-Z0-9]+", "_", "_".join(parts).upper()).strip("_")
    return f"_{name}" if not name or name[0].isdigit() else name
