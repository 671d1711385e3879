"""The fields of one config entry, each read with its check; a problem is reported and a stand-in returned."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

from pydantic import SecretStr

from fastmcp_aggregator.config.documents import Location
from fastmcp_aggregator.config.expansion import Text, plain

_ONE_STRING = "write one string in quotes"
_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (type(None), "null"),
    (bool, "true or false"),
    ((int, float), "a number"),
    ((str, Text), "a string"),
    ((list, tuple), "a list"),
    (Mapping, "an object"),
)


def kind_of(value: object) -> str:
    """Name the type of a JSON value, for a message."""
    for types, kind in _KINDS:
        if isinstance(value, types):
            return kind
    return f"a Python {type(value).__name__}"


class Fields:
    """A config entry whose strings are `Text`. A field that is null counts as absent."""

    def __init__(self, entry: Mapping[str, Any], location: Location) -> None:
        self.entry = {name: value for name, value in entry.items() if value is not None}
        self.location = location

    def text(self, name: str, *, may_be_blank: bool = False, advice: str = _ONE_STRING) -> Text | None:
        value = self.entry.get(name)
        if value is None:
            return None
        text = _text(value, self.location.at(name), advice)
        if text and text.is_known and not (may_be_blank or text.value.strip()):
            self.location.at(name).report("must not be empty; give a value or leave it out")
        return text

    def texts(self, name: str) -> tuple[str, ...]:
        items = self.entry.get(name, [])
        location = self.location.at(name)
        if not isinstance(items, list):
            location.report(f'must be a list of strings such as ["-v", "value"], not {kind_of(items)}')
            return ()
        texts = [_text(item, location.at(index)) for index, item in enumerate(items)]
        return tuple(text.value for text in texts if text)

    def secrets(self, name: str, fault_of: Callable[[str, str], str | None]) -> dict[str, SecretStr]:
        items = self.entry.get(name, {})
        location = self.location.at(name)
        if not isinstance(items, dict):
            location.report(f'must be an object such as {{"NAME": "value"}}, not {kind_of(items)}')
            return {}
        texts = {key: _text(item, location.at(key)) for key, item in items.items()}
        for key, text in texts.items():
            if text and (fault := fault_of(key, text.value if text.is_known else "")):
                location.at(key).report(fault)
        return {key: SecretStr(text.value) for key, text in texts.items() if text}

    def seconds(self, name: str) -> float | None:
        """The seconds of a field that is in milliseconds."""
        value, location = self.entry.get(name), self.location.at(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            location.report(f"must be a number of milliseconds, without quotes, not {kind_of(value)}")
        elif not 0 < value <= sys.float_info.max:
            location.report("must be a number of milliseconds above 0; leave it out for the default")
        else:
            return value / 1000
        return None

    def flag(self, name: str) -> bool | None:
        value = self.entry.get(name)
        if value is None or isinstance(value, bool):
            return value
        self.location.at(name).report(f"must be true or false, without quotes, not {kind_of(value)}")
        return None

    def besides(self, names: Collection[str]) -> dict[str, Any]:
        """The fields of other names, with plain values."""
        return {name: plain(value) for name, value in self.entry.items() if name not in names}


def _text(value: object, location: Location, advice: str = _ONE_STRING) -> Text | None:
    if isinstance(value, Text):
        return value
    match value:
        case None:
            advice = 'write "" for an empty value, or leave it out'
        case bool() | int() | float():
            advice = "write it in quotes"
    location.report(f"must be a string, not {kind_of(value)}; {advice}")
    return None
