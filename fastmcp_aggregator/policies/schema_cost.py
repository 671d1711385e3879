"""The cost of validating a value against a JSON schema, bounded before it is done. Pure.

A validator visits the keywords of a schema for each part of a value: so many steps as keywords may meet each part. A
step is about what one keyword takes for one plain part, 10 to 30 ns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fastmcp_aggregator.policies.json_size import CHARACTERS, TOO_MUCH, Size, TooCostly
from fastmcp_aggregator.policies.schema_weight import Measuring, Weight

MOST_STEPS = 150_000
"""Steps of one check, which take at most 5 ms."""
MOST_PARTS = 2500
"""Parts of a schema as it is written; what it takes to prepare it goes with them."""
_MOST_TEXT = 200_000
"""Characters in a schema."""
_EACH_WITH_EACH = 40
"""Steps to compare two great integers of a set."""
_UNIQUE = 10
"""Steps to take one part into a set."""
_MOST_TOLD = 500
"""Errors that are collected, of which one is reported."""
_MOST_COPIED = 10_000
"""Parts of values that they copy."""
_MOST_TEXT_COPIED = 1_000_000
"""Characters that they copy."""


class SchemaCost:
    """Bounds of the checks against one schema. `text_steps` tells what a pattern takes for a character."""

    def __init__(self, schema: Mapping[str, Any], text_steps: Callable[[str], int]) -> None:
        """Measure the schema. Raises TooCostly: nothing should be checked against it."""
        schema = dict(schema)
        try:
            size = Size.of(schema, MOST_PARTS)
        except TooCostly as error:
            raise TooCostly(f"it is {error}: at most {MOST_PARTS} parts are taken") from None
        if size.characters > _MOST_TEXT:
            raise TooCostly(f"it has more than {_MOST_TEXT} characters")
        self.parts = size.nodes
        measuring = Measuring(schema, text_steps)
        self._root = measuring.target("#")

    def bound(self, arguments: Any) -> Size:
        """Make sure that a check takes at most `MOST_STEPS`; how much there is to check.

        Raises:
            TooCostly: it may take more.
        """
        size = Size.of(arguments)
        if self.steps(arguments, size) > MOST_STEPS:
            raise TooCostly(TOO_MUCH)
        return size

    def can_decide(self, size: Size) -> bool:
        """True if an error may be worked out: a failing part is copied once for each alternative that it fails."""
        weight = self._root.anywhere()
        told = weight.branches * _growth(weight.cycles, size.depth)
        copies = 1 + told * (1 + size.depth)
        return (
            size.nodes * told <= _MOST_TOLD
            and size.nodes * copies <= _MOST_COPIED
            and size.characters * copies <= _MOST_TEXT_COPIED
        )

    def steps(self, arguments: Any, whole: Size) -> int:
        """The steps of a check, at most."""
        root = self._root
        total = root.here.keywords + root.here.names + whole.characters * root.here.text
        total += (whole.nodes + whole.characters // CHARACTERS) * (1 + root.here.whole) + _pairs(root.here, whole)
        total += sum(_steps_of(weight, size) for weight, size in self._members(arguments, whole))
        repeated = sum(weight.unevaluated for weight in (root.here, root.other, *root.named.values()))
        if repeated:
            levels = whole.depth + 1 if root.anywhere().cycles else 1
            total *= max(2, whole.widest) ** (repeated * levels)
        return total

    def _members(self, arguments: Any, whole: Size) -> Iterator[tuple[Weight, Size]]:
        """The weight of the schemas that meet an argument, and its size. Arguments that the schema does not name count
        together.
        """
        named, other = self._root.named, self._root.other
        if not isinstance(arguments, dict):
            yield self._root.below(), whole
            return
        known = named.keys() & arguments.keys()
        for name in known:
            yield named[name].plus(other), Size.of(arguments[name])
        if len(known) < len(arguments):
            yield other, whole


def _steps_of(weight: Weight, size: Size) -> int:
    once = size.nodes * weight.keywords + size.objects * weight.names + size.characters * weight.text
    below = (size.nodes + size.characters // CHARACTERS) * (1 + size.depth) * weight.whole
    return (once + below + _pairs(weight, size)) * _growth(weight.cycles, size.depth)


def _pairs(weight: Weight, size: Size) -> int:
    return (size.nodes * (1 + size.depth) * _UNIQUE + size.great**2 * _EACH_WITH_EACH) * weight.unique


def _growth(cycles: int, depth: int) -> int:
    """The number of visits to a part of a value, for references to what they are part of."""
    return sum(cycles**level for level in range(depth + 1)) if cycles else 1
