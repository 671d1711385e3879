"""Variable expansion, in one text and in every string of a config entry.

`$NAME`, `${NAME}`, `${NAME:-default}` and `${env:NAME}` are replaced in a single pass. As in a shell, a name is the
longest run that can be one, and a default stands in for a variable that is unset or empty; it may contain variables
itself, which matter only if it is used. `$$` is a literal `$`, and so is a `$` before anything else. A value that was
put in is not looked at again.

The cost is linear in the text, however it is nested: no token needs backtracking, no piece is copied twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastmcp_aggregator.config.documents import Location

_NAME = r"[A-Za-z_][A-Za-z0-9_]*+"
_TOKEN = re.compile(
    rf"""
      (?P<dollar> (?: \$\$ )++ )
    | \$ (?P<bare> {_NAME} )
    | \$\{{ (?:env:)? (?P<braced> {_NAME} ) (?P<ending> \}} | :- )
    | (?P<malformed> \$\{{ )
    | (?P<closing> \}} )
    """,
    re.VERBOSE,
)

_MOST_CHARACTERS = 16 * 1024**2
_ASKED = 16
"""The cost of a look-up, in characters."""


class TooLong(Exception):
    """The values of variables are longer than any config can be."""


class Measured(dict[str, str]):
    """An environment of which one may `get` so much and no more, however often something is asked for."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(environ)
        self._left = _MOST_CHARACTERS

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a variable. Raises TooLong: it was too much."""
        value = super().get(name, default)
        self._left -= _ASKED + len(value or "")
        if self._left < 0:
            raise TooLong
        return value


@dataclass(frozen=True, slots=True)
class Expansion:
    """The result of an expansion.

    `missing` has each variable that has neither a value nor a default, once.
    """

    value: str = field(repr=False)
    missing: tuple[str, ...]
    is_malformed: bool
    is_expanded: bool


def expand(text: str, environ: Mapping[str, str]) -> Expansion:
    """Replace the variables in `text` by their values in `environ`."""
    if "$" not in text:
        return Expansion(text, (), is_malformed=False, is_expanded=False)
    scan = _Scan(environ)
    end = 0
    for token in _TOKEN.finditer(text):
        scan.literal(text[end : token.start()])
        scan.token(token)
        end = token.end()
    scan.literal(text[end:])
    return scan.result()


def without_defaults(text: str) -> str:
    """The text with every reference written `${NAME}`; all else stays as it is."""
    pieces, end, depth = [], 0, 0
    for token in _TOKEN.finditer(text):
        opens, closes = token["ending"] == ":-", bool(token["closing"]) and depth > 0
        if not depth:
            name = token["bare"] or token["braced"]
            pieces += [text[end : token.start()], f"${{{name}}}" if name else token[0]]
        depth += opens - closes
        end = token.end()
    return "".join([*pieces, text[end:] if not depth else ""])


def own_text(text: str) -> Iterator[tuple[int, int]]:
    """The ranges of a text's own characters: outside of references, and in their defaults."""
    start, depth = 0, 0
    for token in _TOKEN.finditer(text):
        opens, closes = token["ending"] == ":-", bool(token["closing"]) and depth > 0
        if token["bare"] or token["braced"] or closes:
            if token.start() > start:
                yield start, token.start()
            start = token.end()
        depth += opens - closes
    if len(text) > start:
        yield start, len(text)


class _Scan:
    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._value: list[str] = []
        self._missing: dict[str, None] = {}
        self._is_malformed = False
        self._is_expanded = False
        # One item for the text and one for each default that is open: whether what stands there is used.
        self._used = [True]

    def literal(self, text: str) -> None:
        if self._used[-1]:
            self._value.append(text)

    def token(self, token: re.Match[str]) -> None:
        match token.lastgroup:
            case "dollar":
                self.literal("$" * (len(token[0]) // 2))
            case "bare":
                self._variable(token["bare"])
            case "ending" if token["ending"] == "}":
                self._variable(token["braced"])
            case "ending":
                self._open_default(token["braced"])
            case "closing" if len(self._used) > 1:
                self._used.pop()
            case "malformed":
                self._is_malformed = True
            case _:
                self.literal(token[0])

    def result(self) -> Expansion:
        return Expansion(
            value="".join(self._value),
            missing=tuple(self._missing),
            is_malformed=self._is_malformed or len(self._used) > 1,
            is_expanded=self._is_expanded,
        )

    def _variable(self, name: str) -> None:
        value = self._environ.get(name)
        if value is None and self._used[-1]:
            self._missing[name] = None
        self._is_expanded = True
        self.literal(value or "")

    def _open_default(self, name: str) -> None:
        value = self._environ.get(name)
        self._is_expanded = True
        self.literal(value or "")
        self._used.append(self._used[-1] and not value)


@dataclass(frozen=True, slots=True)
class Text:
    """A string of the config. `value` is what it stands for, and means nothing unless `is_known`.

    `written` is what stands in the file.
    """

    value: str = field(repr=False)
    written: str = field(repr=False)
    is_known: bool


def expanded(value: Any, location: Location, environ: Mapping[str, str] | None) -> Any:
    """The same value with a `Text` for every string in it; what cannot be expanded is reported at its location.

    Without an `environ` nothing is expanded or reported, and a string with a variable in it stays unknown.
    """
    match value:
        case str():
            return _text(value, location, environ)
        case Mapping():
            return {key: expanded(item, location.at(key), environ) for key, item in value.items()}
        case list() | tuple():
            return [expanded(item, location.at(index), environ) for index, item in enumerate(value)]
        case _:
            return value


def missing_in(value: Any, environ: Mapping[str, str]) -> Iterator[str]:
    """The variables in a value, at every depth, that have neither a value nor a default."""
    for text in _texts_in(value):
        yield from expand(text, environ).missing


def variables_in(value: Any) -> Iterator[str]:
    """The variables that a value names, at every depth, in defaults too."""
    for text in _texts_in(value):
        yield from (name for token in _TOKEN.finditer(text) if (name := token["bare"] or token["braced"]))


def _texts_in(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case Mapping():
            for item in value.values():
                yield from _texts_in(item)
        case list() | tuple():
            for item in value:
                yield from _texts_in(item)


def plain(value: Any) -> Any:
    """The same value with plain strings instead of `Text`."""
    match value:
        case Text():
            return value.value
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case list():
            return [plain(item) for item in value]
        case _:
            return value


def _text(written: str, location: Location, environ: Mapping[str, str] | None) -> Text:
    expansion = expand(written, environ or {})
    if environ is not None:
        _report_faults(expansion, location)
    lacks_value = expansion.is_expanded if environ is None else bool(expansion.missing)
    return Text(expansion.value, written, is_known=not (lacks_value or expansion.is_malformed))


def _report_faults(expansion: Expansion, location: Location) -> None:
    if expansion.is_malformed:
        location.report(
            "has a `${` that begins no variable; write ${NAME}, ${NAME:-default} or ${env:NAME}, "
            "or `$$` for a literal `$`"
        )
    for name in expansion.missing:
        location.report(
            f"the environment variable {name} is not set; set it, or write ${{{name}:-default}}, "
            "or `$$` for a literal `$`",
            code="missing_env_var",
        )
