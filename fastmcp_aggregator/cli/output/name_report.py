"""The names that known clients make: who sees the same, and what happens to a server key. Pure."""

from __future__ import annotations

import string
from collections.abc import Iterable
from dataclasses import dataclass

from fastmcp_aggregator.naming.rules import CLIENT_RULES, NameRule, SeparatorSetting, rule_for

_ANYONE = "every other client"
_LETTERS_AND_DIGITS = frozenset(string.ascii_letters + string.digits)
_TOOL = "tool"
_SCARCE = 32
"""Tool names of common servers have up to about 30 characters."""


@dataclass(frozen=True, slots=True)
class ClientGroup:
    """Clients that see the same names, as people call them."""

    labels: tuple[str, ...]
    rule: NameRule

    @property
    def title(self) -> str:
        """Their labels, and what they accept."""
        names = ", ".join(self.labels)
        return f"{names} ({accepted_by(self.rule)})" if self.rule.is_strict else names


def client_groups(*, separator: SeparatorSetting, prefix: bool) -> tuple[ClientGroup, ...]:
    """All clients under these settings, those that refuse some names first."""
    labels: dict[NameRule, list[str]] = {}
    for client in CLIENT_RULES:
        rule = rule_for(client.name, separator=separator, prefix=prefix)
        labels.setdefault(rule, []).append(client.label)
    labels.setdefault(rule_for(None, separator=separator, prefix=prefix), []).append(_ANYONE)
    return tuple(ClientGroup(tuple(dict.fromkeys(found)), rule) for rule, found in labels.items())


def accepted_by(rule: NameRule) -> str:
    """The names that a strict rule produces: `at most 64 of A-Z a-z 0-9 _ -`."""
    parts = [] if rule.limit is None else [f"at most {rule.limit} characters"]
    if rule.alphabet is not None:
        others = " ".join(sorted(rule.alphabet - _LETTERS_AND_DIGITS, reverse=True))
        parts.append(f"only A-Z a-z 0-9 {others}")
    return ", ".join(parts)


def plain_name(rule: NameRule, server_key: str, original_name: str) -> str:
    """The name that only the separator tells from the original spelling."""
    return f"{server_key}{rule.separator}{original_name}" if rule.prefix else original_name


def pattern(rule: NameRule, server_key: str) -> str:
    """The pattern of the names of a server: `files__<tool>`."""
    public = rule.public_name(server_key, _TOOL)
    if public == plain_name(rule, server_key, _TOOL):
        return f"{public.removesuffix(_TOOL)}<tool>"
    readable = public.rpartition("_")[0]
    return f"{readable.removesuffix(_TOOL)}<tool>_<hash>" if readable.endswith(_TOOL) else f"{readable}_<hash>"


def notes(rule: NameRule, server_key: str) -> list[str]:
    """Why this server's names come out changed, or may."""
    if not rule.prefix:
        return []
    found = list(_refused(rule, server_key))
    if rule.is_strict and f"{server_key}{rule.separator}".find(rule.separator) < len(server_key):
        found.append(f"the key contains the separator {rule.separator}; a hash keeps the names apart")
    if rule.limit is not None:
        room = rule.limit - len(server_key) - len(rule.separator)
        if room < _SCARCE:
            found.append(f"tool names of more than {max(0, room)} characters are shortened")
    return found


def _refused(rule: NameRule, server_key: str) -> Iterable[str]:
    if rule.alphabet is None:
        return
    characters = sorted({*server_key} - rule.alphabet)
    if characters:
        yield f"{_listed(characters)} in the key is refused and becomes _; a hash keeps the names apart"
    if not rule.alphabet.issuperset(rule.separator):
        yield f"the separator {rule.separator} is refused and becomes _; a hash keeps the names apart"


def _listed(characters: Iterable[str]) -> str:
    return " ".join(repr(character) for character in characters)
