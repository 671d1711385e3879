"""The name rule: how the tools and prompts of a child are listed for one kind of client."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

Separator = Literal[":", "__", ".", "_"]

_FILLER = "_"
_HASH_DIGITS = 8
_HASH_ALPHABET = frozenset("0123456789abcdef")
_SMALLEST_LIMIT = 16


@dataclass(frozen=True, slots=True)
class NameRule:
    """How names are listed for one kind of client.

    `alphabet` holds the characters that the client accepts and `limit` the length, in characters; `None`
    means any. A rule with either is strict: whatever the names of the child are, it produces only names that
    the client accepts. Without `prefix`, original names are listed.

    Raises:
        ValueError: the alphabet or the limit leaves no room for a hash.
    """

    separator: Separator
    alphabet: frozenset[str] | None = None
    limit: int | None = None
    prefix: bool = True

    def __post_init__(self) -> None:
        if self.alphabet is not None and not self.alphabet >= {_FILLER} | _HASH_ALPHABET:
            raise ValueError("alphabet must contain '_', 0-9 and a-f")
        if self.limit is not None and self.limit < _SMALLEST_LIMIT:
            raise ValueError(f"limit must be at least {_SMALLEST_LIMIT}")

    @property
    def is_strict(self) -> bool:
        """Whether the client refuses some names."""
        return self.alphabet is not None or self.limit is not None

    def public_name(self, server_key: str, original_name: str) -> str:
        """The name under which this kind of client sees the component.

        It depends on the two names and the rule alone, so a name never changes because another server was
        added to the config.
        """
        joined = f"{server_key}{self.separator}{original_name}" if self.prefix else original_name
        if not self.is_strict or (self._accepts(joined) and self._is_canonical(server_key, joined)):
            return joined
        return self._hashed(server_key, original_name, joined)

    def _accepts(self, name: str) -> bool:
        within_limit = self.limit is None or len(name) <= self.limit
        return name != "" and within_limit and (self.alphabet is None or self.alphabet.issuperset(name))

    def _is_canonical(self, server_key: str, joined: str) -> bool:
        # `a` + `b__c` and `a__b` + `c` join to the same name; the one with the shorter key has it.
        return not self.prefix or joined.find(self.separator) == len(server_key)

    def _hashed(self, server_key: str, original_name: str, joined: str) -> str:
        # This can equal the plain name of another tool only if that tool's name was made for it; the route
        # table settles such a case like any other conflict: the first in config order has the name.
        # "surrogatepass", because JSON can carry half of a surrogate pair, and UTF-8 cannot.
        identity = f"{server_key}\0{original_name}".encode(errors="surrogatepass")
        digest = hashlib.sha256(identity).hexdigest()[:_HASH_DIGITS]
        kept = None if self.limit is None else self.limit - len(_FILLER) - _HASH_DIGITS
        return f"{self._sanitised(joined)[:kept]}{_FILLER}{digest}"

    def _sanitised(self, name: str) -> str:
        if self.alphabet is None:
            return name
        return "".join(c if c in self.alphabet else _FILLER for c in name)
