"""Unknown names and URIs: the messages about them, with suggestions by edit similarity."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from difflib import SequenceMatcher
from itertools import islice
from typing import Literal

from fastmcp_aggregator.escaping import printable
from fastmcp_aggregator.naming.rules import NameRule

_LONGEST = 256
_LONGEST_ECHO = 128
_MOST_SUGGESTED = 3
_LIKE_ENOUGH = 0.6
_TOOL_WEIGHT, _KEY_WEIGHT = 0.75, 0.25

# Names come from outside on both sides, and difflib needs up to 0.2 s for one crafted pair of 256 characters.
# So every pair is measured roughly first (linear), only the most promising ones exactly, and long ones among
# those by the characters that they share at both ends.
_MOST_MEASURED_ROUGHLY, _MOST_CHARACTERS = 2_000, 64 * 1024
_MOST_MEASURED_EXACTLY = 12
_LARGEST_EXACT_PAIR = 80 * 80


def split_once(name: str, separators: Iterable[str]) -> tuple[str, str] | None:
    """The text before and after the first of any separator; None: there is none."""
    found = [(name.find(s), s) for s in separators if s in name]
    if not found:
        return None
    key, _, rest = name.partition(min(found)[1])
    return key, rest


def closest(name: str, candidates: Iterable[str], limit: int = 3, *, separators: tuple[str, ...] = (":",)) -> list[str]:
    """The candidates most like the name, best first: at most `limit`, and never more than three.

    The server key and the tool may both be mistyped, or the key may be missing; the tool counts for more.
    Case is ignored. The order of the candidates makes no difference. Candidates of more than 256 characters
    are left out, as are those after the first 2000, or after 64 Ki characters of them.
    """
    wanted = _Wanted(name[:_LONGEST].casefold(), separators)
    known = set(_measured_roughly(candidates))
    promising = _best(known, wanted, _Text.rough_ratio, _MOST_MEASURED_EXACTLY)
    return _best(promising, wanted, _Text.exact_ratio, min(limit, _MOST_SUGGESTED))


def _measured_roughly(candidates: Iterable[str]) -> Iterator[str]:
    left = _MOST_CHARACTERS
    for candidate in islice(candidates, _MOST_MEASURED_ROUGHLY):
        if len(candidate) <= _LONGEST:
            left -= len(candidate)
            if left < 0:
                return
            yield candidate


class _Text:
    """One text, prepared for comparison with many others: 0 is nothing in common, 1 is equal."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._matcher = SequenceMatcher(None, "", text, autojunk=False)

    def rough_ratio(self, other: str) -> float:
        """Never less than the exact ratio."""
        self._matcher.set_seq1(other)
        ratio = self._matcher.real_quick_ratio()
        return ratio if ratio < _LIKE_ENOUGH else self._matcher.quick_ratio()

    def exact_ratio(self, other: str) -> float:
        if len(self._text) * len(other) > _LARGEST_EXACT_PAIR:
            return 2 * _shared_at_ends(self._text, other) / (len(self._text) + len(other))
        rough = self.rough_ratio(other)
        return rough if rough < _LIKE_ENOUGH else self._matcher.ratio()


def _shared_at_ends(one: str, other: str) -> int:
    beginning = _shared_beginning(one, other)
    return beginning + _shared_beginning(one[beginning:][::-1], other[beginning:][::-1])


def _shared_beginning(one: str, other: str) -> int:
    differing = (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differing, min(len(one), len(other)))


_Measure = Callable[[_Text, str], float]


class _Wanted:
    """The name that was asked for."""

    def __init__(self, name: str, separators: tuple[str, ...]) -> None:
        self._separators = separators
        self._whole = _Text(name)
        parts = split_once(name, separators)
        self._parts = None if parts is None else (_Text(parts[0]), _Text(parts[1]))

    def likeness(self, candidate: str, measure: _Measure) -> float:
        """The likeness of two texts, from 0 to 1."""
        candidate = candidate.casefold()
        key, tool = split_once(candidate, self._separators) or ("", candidate)
        # A name that looks prefixed can be a bare one all the same: `read_file`, when `_` is the separator.
        as_bare_tool = measure(self._whole, tool)
        if self._parts is None:
            return max(as_bare_tool, measure(self._whole, candidate))
        wanted_key, wanted_tool = self._parts
        tool_likeness = measure(wanted_tool, tool)
        if tool_likeness < _LIKE_ENOUGH:
            return as_bare_tool
        as_prefixed = _TOOL_WEIGHT * tool_likeness + _KEY_WEIGHT * measure(wanted_key, key)
        return max(as_bare_tool, as_prefixed)


def _best(candidates: Iterable[str], wanted: _Wanted, measure: _Measure, limit: int) -> list[str]:
    scored = ((wanted.likeness(candidate, measure), candidate) for candidate in candidates)
    alike = ((-likeness, candidate) for likeness, candidate in scored if likeness >= _LIKE_ENOUGH)
    return [candidate for _, candidate in heapq.nsmallest(limit, alike)]


def unknown_name_message(kind: Literal["tool", "prompt"], name: str, rule: NameRule, candidates: Iterable[str]) -> str:
    """Why the name cannot be found, and which names of `candidates` may have been meant.

    `rule` is the caller's, and `candidates` are the public names that the caller may see.
    """
    title = kind.capitalize()
    separators = tuple(dict.fromkeys((":", rule.separator))) if rule.prefix else ()
    parts = split_once(name, separators)
    if parts is not None and "" in parts:
        return f"Invalid {kind} name format: {_echo(name)}"
    suggestion = _did_you_mean(closest(name, candidates, separators=separators))
    if rule.prefix and parts is None:
        return f"{title} name must be prefixed with server key: {_echo(name)}{suggestion}"
    return f"{title} not found: {_echo(name)}{suggestion}"


def unknown_uri_message(uri: str, candidates: Iterable[str], with_key: Iterable[str] = ()) -> str:
    """Why the resource cannot be found, and which addresses of `candidates` may have been meant.

    `with_key` are the public addresses of what servers call `uri` themselves.
    """
    same = [] if len(uri) > _LONGEST_ECHO else list(islice(with_key, _MOST_SUGGESTED))
    meant = same or closest(uri, candidates, separators=())
    return f"Resource not found: {_echo(uri)}{_did_you_mean(meant)}"


def _did_you_mean(names: list[str]) -> str:
    return f"\nDid you mean: {', '.join(map(printable, names))}?" if names else ""


def _echo(name: str) -> str:
    return printable(name if len(name) <= _LONGEST_ECHO else f"{name[: _LONGEST_ECHO - 1]}…")
