"""Invisible characters: which are found, and which belong to what can be seen."""

from __future__ import annotations

from collections import Counter

import pytest

from fastmcp_aggregator.pinning import invisible as module
from fastmcp_aggregator.pinning.invisible import hidden_in, invisible_characters, named


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Plain text.\n\tWith lines.\r\n",
        "Grüße, 你好, مرحبا, नमस्ते, שלום",
        "no-break\u00a0space and\u3000wide space",
        "❤️ 👍🏽 👩‍👩‍👧 ❤️‍🔥 🏳️‍🌈 #️⃣ 1️⃣ ™️ ☎️",
        "e\u0301 combining",
    ],
)
def test_what_can_be_seen_is_not_reported(text: str) -> None:
    assert invisible_characters(text) == Counter()


@pytest.mark.parametrize(
    "character",
    [
        "\u200b",  # zero width space
        "\u200c",
        "\u200d",  # a joiner between letters
        "\u200e",
        "\u2028",
        "\u202e",  # right-to-left override
        "\u2060",
        "\u2066",
        "\ufeff",
        "\u00ad",  # soft hyphen
        "\u034f",
        "\u115f",
        "\u3164",
        "\u2800",
        "\ufe00",
        "\ufe0f",  # a variation selector after a letter
        "\U000e0001",
        "\U000e0041",  # tag A
        "\U000e0100",
        "\U000f0000",
        "\ue000",
        "\ud800",
        "\x00",
        "\x1b",
        "\x7f",
        "\x85",
    ],
)
def test_each_kind_is_found_in_a_text(character: str) -> None:
    assert invisible_characters(f"a{character}b{character}") == Counter({character: 2})


def test_a_text_hidden_behind_an_emoji_is_found() -> None:
    hidden = "".join(chr(0xE0100 + byte) for byte in b"obey")
    assert invisible_characters(f"😀{hidden}").total() == 4
    assert invisible_characters("😀\ufe0f\ufe0f\ufe0f").total() == 2


def test_a_text_of_nothing_but_joiners_is_not_looked_at_character_by_character(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[str] = []
    monkeypatch.setattr(module, "_is_part_of_emoji", lambda before, _: looked_at.append(before))
    assert invisible_characters("\U0001f469\u200d" * 100_000) == Counter({"\u200d": 100_000})
    assert not looked_at


def test_they_are_found_wherever_they_are_in_a_definition() -> None:
    definition = {
        "name": "a\u200b",
        "description": "fine",
        "inputSchema": {"properties": {"p\u200b": {"enum": ["x", "y\u202e"]}}, "deep": [[{"description": "\u200b"}]]},
        "annotations": {"title": "\u2060"},
    }
    assert {part: found.total() for part, found in hidden_in(definition).items()} == {
        "name": 1,
        "inputSchema": 3,
        "annotations": 1,
    }


def test_they_are_named_the_most_frequent_first_and_not_without_end() -> None:
    assert named(Counter("\u200b\u200b\u202e")) == "2 of U+200B ZERO WIDTH SPACE, 1 of U+202E RIGHT-TO-LEFT OVERRIDE"
    many = Counter(chr(0xE0041 + number) for number in range(20))
    assert named(many).endswith(" and 15 other kinds")
    assert named(Counter("\x00")) == "1 of U+0000"
