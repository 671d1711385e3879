"""The strings of a config entry, found at every depth and expanded; and the way back to plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastmcp_aggregator.config.expansion import Expansion, expand
from fastmcp_aggregator.config.paths import Place


@dataclass(frozen=True, slots=True)
class Text:
    """A string of the config. `value` is what it stands for, and means nothing unless `is_known`.

    `shown` is what a person may see: as written, with variables by name and without their defaults.
    """

    value: str = field(repr=False)
    shown: str
    is_known: bool


def expanded(value: Any, place: Place, environ: Mapping[str, str] | None) -> Any:
    """The same value with a `Text` for every string in it; what cannot be expanded is reported at its place.

    Without an `environ` nothing is expanded or reported, and a string with a variable in it stays unknown.
    """
    match value:
        case str():
            return _text(value, place, environ)
        case Mapping():
            return {key: expanded(item, place.at(key), environ) for key, item in value.items()}
        case list() | tuple():
            return [expanded(item, place.at(index), environ) for index, item in enumerate(value)]
        case _:
            return value


def missing_in(value: Any, environ: Mapping[str, str]) -> Iterator[str]:
    """The variables in a value, at every depth, that have neither a value nor a default."""
    match value:
        case str():
            yield from expand(value, environ).missing
        case Mapping():
            for item in value.values():
                yield from missing_in(item, environ)
        case list() | tuple():
            for item in value:
                yield from missing_in(item, environ)


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


def _text(written: str, place: Place, environ: Mapping[str, str] | None) -> Text:
    expansion = expand(written, environ or {})
    if environ is not None:
        _report_faults(expansion, place)
    lacks_value = expansion.is_expanded if environ is None else bool(expansion.missing)
    return Text(expansion.value, expansion.shown, is_known=not (lacks_value or expansion.is_malformed))


def _report_faults(expansion: Expansion, place: Place) -> None:
    if expansion.is_malformed:
        place.report(
            "has a `${` that begins no variable; write ${NAME}, ${NAME:-default} or ${env:NAME}, "
            "or `$$` for a literal `$`"
        )
    for name in expansion.missing:
        place.report(
            f"the environment variable {name} is not set; set it, or write ${{{name}:-default}}, "
            "or `$$` for a literal `$`",
            code="missing_env_var",
        )
