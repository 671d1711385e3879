"""The size of a JSON value, counted within bounds. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

_MOST_NODES = 50_000
"""Parts of a value: counting them takes longer than a plain check of them."""
PLAIN_INTEGER = 2**53
"""Beyond it integers are compared digit by digit, and in sets each with each other."""
CHARACTERS = 64
"""Characters that are compared in one step."""
MOST_DEPTH = 100
TOO_MUCH = "too much"


class TooCostly(Exception):
    """A check would take too long, or a schema has what is not followed here."""


@dataclass(slots=True)
class Size:
    """The size of a JSON value."""

    nodes: int = 0
    objects: int = 0
    characters: int = 0
    depth: int = 0
    widest: int = 1
    great: int = 0
    """Digits of integers that are too great for a register."""

    @classmethod
    def of(cls, value: Any, most: int = _MOST_NODES) -> Size:
        """The size of a value; no more than `most` parts are looked at.

        Raises:
            TooCostly: it has more, or is too deep.
        """
        size, level = cls(), [value]
        while level:
            size.nodes += len(level)
            if size.nodes > most:
                raise TooCostly(TOO_MUCH)
            if size.depth > MOST_DEPTH:
                raise TooCostly(f"nested deeper than {MOST_DEPTH} levels")
            level = size._take(level, most)
            size.depth += bool(level)
        return size

    def _take(self, level: list[Any], most: int) -> list[Any]:
        """Count one level; the next one."""
        kinds = set(map(type, level))
        if str in kinds:
            texts = level if len(kinds) == 1 else [item for item in level if type(item) is str]
            self.characters += sum(map(len, texts))
        if int in kinds:
            self._take_great([item for item in level if type(item) is int and abs(item) > PLAIN_INTEGER])
        objects = [item for item in level if type(item) is dict] if dict in kinds else []
        lists = [item for item in level if type(item) is list] if list in kinds else []
        self.objects += len(objects)
        widths = [*map(len, objects), *map(len, lists)]
        self.widest = max([self.widest, *widths])
        if self.nodes + sum(widths) > most:
            raise TooCostly(TOO_MUCH)
        self.characters += sum(map(len, chain.from_iterable(objects)))
        return [*chain.from_iterable(item.values() for item in objects), *chain.from_iterable(lists)]

    def _take_great(self, integers: Iterable[int]) -> None:
        for integer in integers:
            digits = 1 + integer.bit_length() // 64
            self.great += digits
            self.nodes += digits**2
