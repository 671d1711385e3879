"""Detection of invisible characters, which a person does not see and a model reads. Pure.

Text can be hidden in a description in tag characters, variation selectors or zero-width ones, and its order on the
screen turned round by bidirectional controls.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

_ALLOWED = frozenset("\n\r\t")
_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0\u034f\u17b4\u17b5\u180b\u180c\u180d\u180f")
"""Letters and marks that have no shape, whatever their category says."""
_CATEGORIES = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"})
_JOINER, _EMOJI_STYLE = "\u200d", "\ufe0f"
_SYMBOLS = frozenset({"So", "Sk"})
_PLAIN = re.compile(r"[ -~\n\r\t]*")
_IN_EMOJI = re.compile(f"[{_JOINER}{_EMOJI_STYLE}]")
_MOST_IN_EMOJI = 1000
"""Characters of a text that may be part of one."""
_MOST_NAMED = 5


def invisible_characters(text: str) -> Counter[str]:
    """Count the invisible characters of a text. Those that are part of an emoji do not count, unless there are many.

    Servers list megabytes, so only different characters are looked at one by one.
    """
    invisible = set() if _PLAIN.fullmatch(text) else set(filter(_is_invisible, set(text)))
    if not invisible:
        return Counter()
    found = Counter({character: count for character, count in Counter(text).items() if character in invisible})
    if 0 < found[_JOINER] + found[_EMOJI_STYLE] <= _MOST_IN_EMOJI:
        for match in _IN_EMOJI.finditer(text):
            before = text[match.start() - 1] if match.start() else ""
            found[match[0]] -= _is_part_of_emoji(before, match[0])
    return +found


def named(characters: Counter[str]) -> str:
    """Describe them: `3 of U+200B ZERO WIDTH SPACE`; of many kinds the most frequent."""
    told = [
        f"{count} of U+{ord(character):04X} {unicodedata.name(character, '')}".rstrip()
        for character, count in characters.most_common(_MOST_NAMED)
    ]
    more = len(characters) - len(told)
    return ", ".join(told) + (f" and {more} other kinds" if more else "")


def hidden_in(definition: Mapping[str, Any]) -> dict[str, Counter[str]]:
    found = {part: sum(map(invisible_characters, _texts(value)), Counter()) for part, value in definition.items()}
    return {part: characters for part, characters in found.items() if characters}


def _texts(value: Any) -> Iterator[str]:
    """All strings of a JSON value, its names among them."""
    level = [value]
    while level:
        value = level.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            yield from (name for name in value if isinstance(name, str))
            level += value.values()
        elif isinstance(value, list):
            level += value


@lru_cache(maxsize=20_000)
def _is_invisible(character: str) -> bool:
    if character <= "~" or character in _ALLOWED:
        return character < " " and character not in _ALLOWED
    return unicodedata.category(character) in _CATEGORIES or character in _BLANK or _is_variation_selector(character)


def _is_variation_selector(character: str) -> bool:
    return "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"


def _is_part_of_emoji(before: str, character: str) -> bool:
    if character not in (_JOINER, _EMOJI_STYLE) or not before:
        return False
    is_after_style = character == _JOINER and before == _EMOJI_STYLE
    return is_after_style or unicodedata.category(before) in _SYMBOLS or before in "#*0123456789‼⁉™↔↕ℹ"
