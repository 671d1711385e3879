"""Error messages for unknown names and URIs, with suggestions."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Literal

from fastmcp_aggregator.escaping import printable
from fastmcp_aggregator.naming.rules import NameRule
from fastmcp_aggregator.naming.suggestions import closest, split_once
from fastmcp_aggregator.naming.uris import split_public_uri

_LONGEST_ECHO = 128
_MOST_SUGGESTED = 3


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


def unknown_uri_message(uri: str, candidates: Iterable[str]) -> str:
    """Why the resource cannot be found, and which addresses of `candidates` may have been meant."""
    known = tuple(candidates)
    meant = _with_some_key(uri, known) or closest(uri, known, separators=())
    return f"Resource not found: {_echo(uri)}{_did_you_mean(meant)}"


def _with_some_key(original_uri: str, candidates: Iterable[str]) -> list[str]:
    if len(original_uri) > _LONGEST_ECHO:
        return []
    same = (c for c in candidates if (split_public_uri(c) or ("", ""))[1] == original_uri)
    return list(islice(same, _MOST_SUGGESTED))


def _did_you_mean(names: list[str]) -> str:
    return f"\nDid you mean: {', '.join(map(printable, names))}?" if names else ""


def _echo(name: str) -> str:
    return printable(name if len(name) <= _LONGEST_ECHO else f"{name[: _LONGEST_ECHO - 1]}…")
