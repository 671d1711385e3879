"""TOML of people, with keys that are not too long for its parser, which takes quadratic time for them."""

from __future__ import annotations

import re
import tomllib
from typing import Any

_LONG_KEY = re.compile(
    r"""(?<! [\w\\-] ) (?: (?: [\w-]++ | "(?: \\. | [^"\\\n] )*+" | '[^'\n]*+' ) [ \t]*+ \. [ \t]*+ ){100}""",
    re.VERBOSE,
)
"""A key of more than 100 parts. Begins nowhere inside of a word, so that the search is linear."""


def parsed_toml(text: str) -> dict[str, Any]:
    """Parse TOML.

    Raises:
        tomllib.TOMLDecodeError: it is none.
        ValueError: it has a number without end, or a key of more than 100 parts.
        RecursionError: it is nested too deeply.
    """
    if _LONG_KEY.search(text):
        raise ValueError
    return tomllib.loads(text)
