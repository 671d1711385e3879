"""What checking something against a JSON schema can cost, so that no server can have us compute for ever. Pure.

Theory. A validator visits the parts of a schema for each part of what it checks, and follows references. A schema in
which each definition refers to the next one twice is small and takes exponential time. So it is measured with its
references replaced by what they lead to. Where it refers to what it is part of there is no end to that; what it costs
then depends on how deep the value is, with as many ways to go on at each depth as there are such references.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

_MOST_PARTS = 20_000
"""Parts of a schema with its references replaced, at most."""
_MOST_WAYS = 100_000
"""Ways through a schema that refers to itself, at most."""
_MOST_DEPTH = 100
_DEFINITIONS = ("$defs", "definitions")


class TooCostly(Exception):
    """A schema is too large to check anything against, or has references that are not followed here."""


@dataclass(slots=True)
class _Measuring:
    root: Any
    parts: int = 0
    open: set[str] = field(default_factory=set)
    known: dict[str, tuple[int, int]] = field(default_factory=dict)


def deepest_value(schema: Mapping[str, Any]) -> int:
    """How deep a value may be that is checked against the schema.

    Raises:
        TooCostly: none should be.
    """
    _, ways = _measure(schema, _Measuring(schema), 0)
    return _MOST_DEPTH if ways < 2 else min(_MOST_DEPTH, int(math.log(_MOST_WAYS, ways)))


def depth_of(value: Any) -> int:
    """How many objects and lists a JSON value has inside of each other, at most."""
    depth, level = 0, [value]
    while level := [
        item
        for parent in level
        if isinstance(parent, dict | list)
        for item in (parent.values() if isinstance(parent, dict) else parent)
    ]:
        depth += 1
    return depth


def _measure(part: Any, state: _Measuring, depth: int) -> tuple[int, int]:
    """The parts below, with references replaced, and the references to what is being measured."""
    if depth > _MOST_DEPTH:
        raise TooCostly("it is nested too deeply")
    parts, ways = 1, 0
    if isinstance(part, Mapping):
        _refuse_other_references(part, is_root=part is state.root)
        if isinstance(target := part.get("$ref"), str):
            parts, ways = _measure_target(target, state, depth)
    for item in _inside(part, is_root=part is state.root):
        if isinstance(item, Mapping | list):
            more = _measure(item, state, depth + 1)
            parts, ways = parts + more[0], ways + more[1]
            if parts > _MOST_PARTS:
                raise TooCostly("it is too large, or refers to its own parts too often")
    return parts, ways


def _inside(part: Any, *, is_root: bool) -> Iterable[Any]:
    """What a part consists of. The definitions of the whole schema count where they are referred to."""
    if isinstance(part, Mapping):
        return (item for name, item in part.items() if not (is_root and name in _DEFINITIONS))
    return part if isinstance(part, list) else ()


def _measure_target(target: str, state: _Measuring, depth: int) -> tuple[int, int]:
    if target in state.open or target == "#":
        return 1, 1
    if target not in state.known:
        state.open.add(target)
        state.known[target] = _measure(_resolved(target, state.root), state, depth + 1)
        state.open.discard(target)
    return state.known[target]


def _resolved(target: str, root: Any) -> Any:
    """What a JSON pointer (RFC 6901) in a reference leads to."""
    found = root
    if not target.startswith("#/"):
        raise TooCostly("it refers to what is not in it")
    for step in target[2:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, Mapping) and name in found:
            found = found[name]
        else:
            raise TooCostly("it refers to what is not in it")
    return found


def _refuse_other_references(part: Mapping[str, Any], *, is_root: bool) -> None:
    for keyword in ("$dynamicRef", "$recursiveRef", "$id"):
        if isinstance(part.get(keyword), str) and not (is_root and keyword == "$id"):
            raise TooCostly(f"it has a {keyword}, which is not followed here")
