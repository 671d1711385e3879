"""A table of what passed on which ways, for the documentation: a row for each file of this folder.

RELAY_TABLE=docs/transparency.md pytest tests/relay
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

from ways import Way

MARKS = ("<!-- {}: begin -->", "<!-- {}: end -->")

FEATURES = {
    "test_relay_progress": "progress",
    "test_relay_cancellation": "cancellation",
    "test_relay_logging": "log messages and their levels",
    "test_relay_questions": "sampling, elicitation, roots: asked and answered",
    "test_relay_rounds": "the same as rounds of a modern client",
    "test_relay_completions": "completions",
    "test_relay_subscriptions": "resource subscriptions",
    "test_relay_list_changed": "changed lists",
    "test_relay_capabilities": "capabilities of both sides",
}
"""By file. What the others test does not depend on both eras, or concerns several callers at once."""

EXTENSIONS = {
    "test_relay_apps": "MCP Apps",
    "test_relay_tasks": "Tasks",
    "test_relay_skills": "Skills",
}
"""The same for extensions, which have a table of their own."""

_ERAS = {False: "legacy", True: "modern"}
_COLUMNS = list(product((False, True), repeat=2))
Key = tuple[str, bool, bool]


class Tests:
    """Counts the tests by file, era of the client, and era of the child."""

    def __init__(self) -> None:
        self._passed: Counter[Key] = Counter()
        self._all: Counter[Key] = Counter()

    def count(self, file: str, params: Mapping[str, Any], *, has_passed: bool) -> None:
        """One test has run with these parameters, which count if they tell both eras."""
        eras = _eras(params)
        if eras is not None:
            self._all[file, *eras] += 1
            self._passed[file, *eras] += has_passed

    def write(self, page: Path) -> None:
        """Put the tables between their marks on a page; those of which nothing has run stay as they are."""
        text = page.read_text(encoding="utf-8")
        run = {file for file, *_ in self._all}
        of_page = (("relay", FEATURES), ("extensions", EXTENSIONS))
        for name, features in [(name, features) for name, features in of_page if run & features.keys()]:
            begin, end = (mark.format(name) for mark in MARKS)
            before, _, rest = text.partition(begin)
            after = rest.partition(end)[2]
            text = f"{before}{begin}\n\n{self._table(features)}\n\n{end}{after}"
        page.write_text(text, encoding="utf-8")

    def _table(self, features: Mapping[str, str]) -> str:
        heads = [f"{_ERAS[client]} client, {_ERAS[child]} server" for client, child in _COLUMNS]
        rows = [["", *heads], ["---", *["---:"] * len(heads)]]
        rows += [[name, *(self._cell((file, *eras)) for eras in _COLUMNS)] for file, name in features.items()]
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)

    def _cell(self, key: Key) -> str:
        passed, every = self._passed[key], self._all[key]
        return "–" if not every else str(every) if passed == every else f"{passed} of {every}"


def _eras(params: Mapping[str, Any]) -> tuple[bool, bool] | None:
    """Whether the client is modern, and whether the child is."""
    way = params.get("way")
    if isinstance(way, Way):
        return way.is_modern, way.child_is_modern
    if "modern" in params and "era" in params:
        return params["modern"], params["era"] == "modern"
    return None
