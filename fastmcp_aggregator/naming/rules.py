"""Name rules: how names are listed for each kind of client, and which clients reject which names."""

from __future__ import annotations

import hashlib
import re
import string
from dataclasses import dataclass
from functools import cache
from typing import Literal

Separator = Literal[":", "__", ".", "_"]
SeparatorSetting = Literal["auto", ":", "__", ".", "_"]

_FILLER = "_"
HASH_DIGITS = 8
_HASH_ALPHABET = frozenset("0123456789abcdef")
_SMALLEST_LIMIT = 16
_HASHED = re.compile(rf"_[0-9a-f]{{{HASH_DIGITS}}}\Z")


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
        return self.alphabet is not None or self.limit is not None

    def public_name(self, server_key: str, original_name: str) -> str:
        """The name under which this kind of client sees the component.

        It depends on the two names and the rule alone, so a name never changes because another server was
        added to the config.
        """
        joined = f"{server_key}{self.separator}{original_name}" if self.prefix else original_name
        if not self.is_strict:
            return joined
        if self._accepts(joined) and self._is_canonical(server_key, joined) and not is_hashed(joined):
            return joined
        return self._hashed(server_key, original_name, joined)

    def head(self, server_key: str) -> str:
        """The prefix of the names of a server's components, but for those that end with a hash."""
        return self._sanitised(f"{server_key}{self.separator}")

    def _accepts(self, name: str) -> bool:
        within_limit = self.limit is None or len(name) <= self.limit
        return name != "" and within_limit and (self.alphabet is None or self.alphabet.issuperset(name))

    def _is_canonical(self, server_key: str, joined: str) -> bool:
        # `a` + `b__c` and `a__b` + `c` join to the same name; the one with the shorter key has it.
        return not self.prefix or joined.find(self.separator) == len(server_key)

    def _hashed(self, server_key: str, original_name: str, joined: str) -> str:
        # No plain name is listed that ends like a hash, so that no server can take what another's tool becomes.
        kept = None if self.limit is None else self.limit - len(_FILLER) - HASH_DIGITS
        return f"{self._sanitised(joined)[:kept]}{_FILLER}{hash_of(server_key, original_name)}"

    def _sanitised(self, name: str) -> str:
        if self.alphabet is None:
            return name
        return "".join(c if c in self.alphabet else _FILLER for c in name)


_WORD = frozenset(string.ascii_letters + string.digits + "_")


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """The names that a family of clients accepts; see `NameRule` for the fields."""

    alphabet: frozenset[str] | None = None
    limit: int | None = None


PLAIN = Profile()
"""Takes names as they are: every client that is not known to refuse some."""
# Claude Desktop withholds all tools of a server for one bad name. Claude Code allows 128 characters, but puts
# `mcp__<server>__` in front. OpenAI's clients and GitHub Copilot have the same limits.
STRICT = Profile(_WORD | {"-"}, 64)
"""Also what `__` promises to everyone: users of agent frameworks set it, and those cannot be recognised by name."""
# Cursor takes 60 characters for tool and server together, and the server is whatever the user called the
# aggregator in Cursor's own config. We never see that name, so 10 characters are left for it.
CURSOR = Profile(_WORD, 50)
SEPARATORS: tuple[Separator, ...] = (":", "__", ".", "_")
_SETTINGS: tuple[SeparatorSetting, ...] = ("auto", *SEPARATORS)


@dataclass(frozen=True, slots=True)
class ClientRule:
    """The names that a client accepts, which is recognised by the exact `clientInfo.name` that it sends.

    Several may share a `label`, which is what people call the program.
    """

    name: str
    label: str
    profile: Profile


CLIENT_RULES: tuple[ClientRule, ...] = (
    ClientRule("claude-ai", "Claude Desktop", STRICT),
    ClientRule("claude-code", "Claude Code", STRICT),
    ClientRule("codex-mcp-client", "OpenAI Codex", STRICT),
    ClientRule("Codex", "OpenAI Codex", STRICT),
    ClientRule("ChatGPT", "ChatGPT", STRICT),
    ClientRule("openai-mcp", "ChatGPT", STRICT),
    ClientRule("github-copilot-developer", "GitHub Copilot CLI", STRICT),
    ClientRule("cursor-vscode", "Cursor", CURSOR),
    ClientRule("Visual Studio Code", "VS Code", PLAIN),
    ClientRule("Visual-Studio-Code", "VS Code", PLAIN),
    ClientRule("gemini-cli-mcp-client", "Gemini CLI", PLAIN),
)


def hash_of(server_key: str, original_name: str) -> str:
    """The hash at the end of a changed name; the same under every rule."""
    # "surrogatepass", because JSON can carry half of a surrogate pair, and UTF-8 cannot.
    identity = f"{server_key}\0{original_name}".encode(errors="surrogatepass")
    return hashlib.sha256(identity).hexdigest()[:HASH_DIGITS]


def is_hashed(name: str) -> bool:
    """True if a name may have been shortened, or changed, for a strict client."""
    return _HASHED.search(name) is not None


def loose(name: str) -> str:
    """The name with everything made equal that some spelling may replace."""
    return re.sub(r"[^A-Za-z0-9]", "_", name)


def rule_for(client_name: str | None, *, separator: SeparatorSetting, prefix: bool) -> NameRule:
    """The rule for a client, by its `clientInfo.name` and the two settings.

    Equal rules are one object, made at import: this is a look-up, whatever name the client sends.
    """
    profile = _PROFILE_OF.get(client_name, PLAIN)
    return _RULES[profile, separator, prefix]


def every_rule(*, prefix: bool) -> tuple[NameRule, ...]:
    """Every rule that `rule_for` may give to some client under some separator; the plain ones first."""
    plain = (NameRule(separator, prefix=prefix) for separator in SEPARATORS)
    strict = (rule for rule in _RULES.values() if rule.is_strict and rule.prefix is prefix)
    return tuple(dict.fromkeys((*plain, *strict)))


def _rule(profile: Profile, setting: SeparatorSetting, prefix: bool) -> NameRule:
    if setting == "__" and profile is PLAIN:
        profile = STRICT
    separator: Separator = (":" if profile is PLAIN else "__") if setting == "auto" else setting
    return _shared_rule(separator, profile.alphabet, profile.limit, prefix)


_shared_rule = cache(NameRule)
_PROFILE_OF: dict[str | None, Profile] = {client.name: client.profile for client in CLIENT_RULES}
_RULES = {
    (profile, setting, prefix): _rule(profile, setting, prefix)
    for profile in (PLAIN, STRICT, CURSOR)
    for setting in _SETTINGS
    for prefix in (True, False)
}
_PREFIXED = every_rule(prefix=True)
_UNPREFIXED = every_rule(prefix=False)


def every_spelling(server_key: str, original_name: str, *, prefix: bool = True) -> tuple[str, ...]:
    """All public names of a component, without duplicates.

    `key:name` comes first; with `prefix=False` (the setting) the original name and what strict clients see of
    it come before that. Spellings of two components can be equal (`a_b` + `c` and `a` + `b_c`, joined with
    `_`), so a route table must give a name to the component that is listed under it before any other.
    """
    rules = _PREFIXED if prefix else (*_UNPREFIXED, *_PREFIXED)
    return tuple(dict.fromkeys(rule.public_name(server_key, original_name) for rule in rules))
