"""The weight of a JSON schema: how much of it may apply to one part of a value. Pure.

Which keywords meet one part is bounded by the schema alone: keywords beside each other and in `allOf`, `anyOf` and the
like add up, of properties only the one of that name counts, and a reference counts as what it leads to. Where a schema
refers to what it is part of there is no end to that, so there the depth of the value decides, with as many ways to go
on at each level as there are such references.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import add
from typing import Any, NamedTuple

from fastmcp_aggregator.policies.json_size import MOST_DEPTH, PLAIN_INTEGER, TooCostly

_MOST_PATTERNS = 50
_MOST_PATTERN_TEXT = 5000
"""Characters of all patterns: preparing one takes time by its text, and keeps the interpreter's lock."""
_MOST_PATTERN_STEPS = 4000
"""Steps of all patterns for a character, which also tell how large they are when they are prepared."""
_MOST_CLASSES = 50
"""Classes of Unicode's properties in all patterns, each of which is made before the size of the pattern is known."""
_PROPERTY = re.compile(r"\\[pP]")
_WIDE_RANGE = re.compile(r"-(?:\\|[^\x00-\x7f])")
_IGNORES_CASE = re.compile(r"\(\?[a-zA-Z]*i")
_WIDE_RANGE_COST = 10
"""Classes as which a range beyond ASCII counts where case is ignored: each character is looked up."""
_MOST_EXPANDED = 20_000
"""Keywords that may meet one part of a value."""
_DIVISION, _ODD_DIVISION = 60, 3000
"""Steps of a division by an integer; by another number, or one of very different size."""
_NAME = 2
"""Steps for a character of a name that is checked as a text."""


class Weight(NamedTuple):
    """The cost of checking one part of a value."""

    keywords: int = 0
    names: int = 0
    """Names that are looked for in an object."""
    text: int = 0
    """Steps for each character."""
    whole: int = 0
    """Keywords that look at a part with all that is in it."""
    unique: int = 0
    branches: int = 0
    """Keywords in alternatives: what is wrong there is told together."""
    cycles: int = 0
    """References to what they are part of."""
    unevaluated: int = 0
    """Keywords that check what is beside them again, for each member."""

    def plus(self, other: Weight) -> Weight:
        """Both meet it."""
        if other is _NOTHING or self is _NOTHING:
            return self if other is _NOTHING else other
        return Weight(*map(add, self, other))

    def either(self, other: Weight) -> Weight:
        """One of them meets it; what multiplies is added even so."""
        most = Weight(*map(max, self, other))
        return most._replace(
            cycles=self.cycles + other.cycles,
            unevaluated=self.unevaluated + other.unevaluated,
            branches=self.branches + other.branches,
        )


_NOTHING = Weight()


@dataclass(slots=True)
class PartWeight:
    """The cost at a part of a value; and of the parts below it, of those with a name and of all."""

    here: Weight = _NOTHING
    named: dict[str, Weight] = field(default_factory=dict)
    other: Weight = _NOTHING

    def add(self, more: PartWeight) -> None:
        """Add the weight of another subschema that applies to the same part."""
        self.here = self.here.plus(more.here)
        self.other = self.other.plus(more.other)
        for name, weight in more.named.items():
            self.named[name] = self.named.get(name, _NOTHING).plus(weight)

    def below(self) -> Weight:
        """The cost at any part below."""
        most = _NOTHING
        for weight in self.named.values():
            most = Weight(*map(max, most, weight))
        return self.other.plus(most)

    def anywhere(self) -> Weight:
        """The cost at the part, or any below."""
        return self.here.either(self.below())


_ALL = ("allOf", "anyOf", "oneOf")
_ONE = ("not", "if", "then", "else")
_ALTERNATIVES = ("anyOf", "oneOf", "not", "if", "contains", "propertyNames")
_BELOW = (
    "items",
    "additionalItems",
    "prefixItems",
    "additionalProperties",
    "contains",
    "unevaluatedItems",
    "unevaluatedProperties",
)


class Measuring:
    """One measurement: what is known of references, and which are being followed."""

    def __init__(self, root: Mapping[str, Any], text_steps: Callable[[str], int]) -> None:
        self._root = root
        self._text_steps = text_steps
        self._patterns = self._pattern_text = self._pattern_steps = self._classes = 0
        self._known: dict[str, PartWeight] = {}
        self._open: dict[str, int] = {}
        """By reference, the level of the value below the root at which it was met."""

    def target(self, reference: str, level: int = 0, depth: int = 0) -> PartWeight:
        if self._open.get(reference) == level:
            raise TooCostly("it refers to itself without end")
        if reference in self._open:
            return PartWeight(Weight(cycles=1))
        if reference not in self._known:
            self._open[reference] = level
            self._known[reference] = self._weighed(_resolved(reference, self._root), level, depth + 1)
            del self._open[reference]
        return self._known[reference]

    def _weighed(self, schema: Any, level: int, depth: int) -> PartWeight:
        if depth > MOST_DEPTH:
            raise TooCostly("it is nested too deeply")
        if not isinstance(schema, dict):
            return PartWeight()
        _refuse_other_references(schema, is_root=schema is self._root)
        found = PartWeight(self._own(schema))
        if isinstance(reference := schema.get("$ref"), str):
            found.add(self.target(reference, level, depth))
        for keyword, part in schema.items():
            below = self._below(keyword, part, level, depth)
            found.other = found.other.plus(below)
            if keyword in _ALTERNATIVES:
                found.other = found.other.plus(Weight(branches=below.keywords))
            for more in self._beside(keyword, part):
                beside = self._weighed(more, level, depth + 1)
                found.add(beside)
                if keyword in _ALTERNATIVES:
                    found.here = found.here.plus(Weight(branches=beside.anywhere().keywords))
        for name, part in _mapping(schema.get("properties")).items():
            weight = self._weighed(part, level + 1, depth + 1).anywhere()
            found.named[name] = found.named.get(name, _NOTHING).plus(weight)
        if found.here.keywords + found.other.keywords > _MOST_EXPANDED:
            raise TooCostly("it refers to its own parts too often")
        return found

    def _own(self, schema: Mapping[str, Any]) -> Weight:
        """The cost of the keywords by themselves."""
        patterns = [*_mapping(schema.get("patternProperties"))]
        if isinstance(pattern := schema.get("pattern"), str):
            patterns.append(pattern)
        self._patterns += len(patterns)
        if self._patterns > _MOST_PATTERNS:
            raise TooCostly(f"it has more than {_MOST_PATTERNS} patterns")
        self._pattern_text += sum(map(len, patterns))
        if self._pattern_text > _MOST_PATTERN_TEXT:
            raise TooCostly(f"its patterns have more than {_MOST_PATTERN_TEXT} characters")
        self._classes += sum(map(_classes, patterns))
        if self._classes > _MOST_CLASSES:
            raise TooCostly("its patterns have too many large classes of characters")
        text = sum(map(self._text_steps, patterns))
        self._pattern_steps += text
        if self._pattern_steps > _MOST_PATTERN_STEPS:
            raise TooCostly("its patterns are too large")
        names = _length(schema.get("properties")) + _length(schema.get("required"))
        names += sum(1 + _length(needed) for needed in _mapping(schema.get("dependentRequired")).values())
        names += sum(1 + _length(needed) for needed in _mapping(schema.get("dependencies")).values())
        return Weight(
            keywords=1 + len(schema) + _division(schema.get("multipleOf")),
            names=names,
            text=text + _NAME * ("propertyNames" in schema),
            whole=_length(schema.get("enum")) + ("const" in schema),
            unique=int(schema.get("uniqueItems") is True),
            unevaluated=("unevaluatedProperties" in schema) + ("unevaluatedItems" in schema),
        )

    def _beside(self, keyword: str, part: Any) -> Iterable[Any]:
        """The schemas under a keyword that meet the same part of a value."""
        if keyword in _ALL and isinstance(part, list):
            return part
        if keyword in _ONE:
            return (part,)
        return _mapping(part).values() if keyword in ("dependentSchemas", "dependencies") else ()

    def _below(self, keyword: str, part: Any, level: int, depth: int) -> Weight:
        """The cost of the schemas under a keyword for parts below, whatever their name, and for names themselves."""
        schemas: Iterable[Any] = ()
        if keyword in _BELOW:
            schemas = part if isinstance(part, list) else (part,)
        elif keyword == "patternProperties":
            schemas = _mapping(part).values()
        elif keyword == "propertyNames":
            schemas = (part,)
        weight = _NOTHING
        for schema in schemas:
            weight = weight.plus(self._weighed(schema, level + 1, depth + 1).anywhere())
        return weight


def _classes(pattern: str) -> int:
    """The cost of preparing its classes of characters."""
    ranges = len(_WIDE_RANGE.findall(pattern)) if _IGNORES_CASE.search(pattern) else 0
    return len(_PROPERTY.findall(pattern)) + _WIDE_RANGE_COST * ranges


def _mapping(part: Any) -> Mapping[str, Any]:
    return part if isinstance(part, dict) else {}


def _length(part: Any) -> int:
    return len(part) if isinstance(part, list | dict) else 0


def _division(divisor: Any) -> int:
    if not isinstance(divisor, int | float):
        return 0
    return _DIVISION if isinstance(divisor, int) and divisor <= PLAIN_INTEGER else _ODD_DIVISION


def _resolved(target: str, root: Any) -> Any:
    """The target of a JSON pointer (RFC 6901) in a reference."""
    found = root
    if target == "#":
        return root
    if not target.startswith("#/"):
        raise TooCostly("it refers to a definition that is not in it")
    for step in target[2:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, Mapping) and name in found:
            found = found[name]
        else:
            raise TooCostly("it refers to a definition that is not in it")
    return found


def _refuse_other_references(part: Mapping[str, Any], *, is_root: bool) -> None:
    for keyword in ("$dynamicRef", "$recursiveRef", "$id"):
        if isinstance(part.get(keyword), str) and not (is_root and keyword == "$id"):
            raise TooCostly(f"it has a {keyword}, which is not followed here")
