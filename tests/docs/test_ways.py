"""The three readers' ways through the documentation: which pages each has, and that it is read in ten minutes."""

from __future__ import annotations

import re
from math import ceil
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
WORDS_A_MINUTE = 240
_WAY = re.compile(r"^\*\*(.+?)\*\* \((\d+) minutes\)\n\n((?:\d\. .*\n|   .*\n)+)", re.MULTILINE)
WAYS = {
    name: (int(minutes), re.findall(r"^\d\. \[[^]]+\]\(([\w-]+\.md)\)", steps, re.MULTILINE))
    for name, minutes, steps in _WAY.findall((DOCS / "index.md").read_text(encoding="utf-8"))
}
"""Each with its minutes and its pages, as the first page has them."""


def words(page: str) -> int:
    """The words that are read: no code, no tables that a program writes, no targets of links and no markup."""
    text = re.sub(r"^ *```.*?^ *```$", "", (DOCS / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!-- .*?begin.*? -->.*?<!-- .*?end.*? -->|<[^>]+>|\{[^}]*\}", "", text, flags=re.DOTALL)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return sum(bool(re.search(r"\w", word)) for word in text.split())


def test_there_are_three_ways() -> None:
    assert len(WAYS) == 3
    assert all(len(pages) > 1 for _, pages in WAYS.values())


@pytest.mark.parametrize("way", WAYS)
def test_a_way_takes_the_minutes_that_it_says_and_at_most_ten(way: str) -> None:
    minutes, pages = WAYS[way]
    length = {page: words(page) for page in pages}
    assert sum(length.values()) <= 10 * WORDS_A_MINUTE, length
    assert minutes == ceil(sum(length.values()) / WORDS_A_MINUTE), length


def test_the_pages_of_a_way_come_first_in_the_navigation_of_its_readers() -> None:
    navigation = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    tabs = [re.findall(r": (\S+\.md)$", tab, re.MULTILINE) for tab in re.split(r"^  - ", navigation, flags=re.M)[2:]]
    for (_, pages), tab in zip(WAYS.values(), tabs, strict=False):
        assert tab[: len(pages)] == pages
