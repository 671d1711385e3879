"""Secrets that are written into a config: what to advise about. What is shown does not depend on this guess. Pure."""

from __future__ import annotations

import re

from fastmcp_aggregator.config.disclosure import Field, hidden_in

_SECRET_NAME = re.compile(
    r"(?i)api[-_]?key|access[-_]?key|private[-_]?key|(^|[-_])key$|token|secret|passw|passphrase|(^|[-_])(pass|pat|pwd|api)$"
    r"|credential|authorization|auth|cookie|dsn$|connection[-_]?string|webhook|session|sign(ing|ature)"
)
_NO_SECRET_NAME = re.compile(r"(?i)(file|path|dir|name|url|type|limit|count|enabled|method|timeout)$")
_NUMBER_OR_PATH = re.compile(r"[\d.]*|(~|\.{1,2})?/.*|[A-Za-z]:\\.*")
_LONG = re.compile(r"[\w+/=.-]{20,}")


def looks_secret(field: Field, name: str, text: str) -> bool:
    """Whether a person should look at it: by its name, or as a long text of letters and digits."""
    hidden = [text[part.start : part.end] for part in hidden_in(field, text, name)]
    if field == "url":
        return bool(hidden)
    is_named = bool(_SECRET_NAME.search(name)) and not _NO_SECRET_NAME.search(name)
    return any(not _NUMBER_OR_PATH.fullmatch(part) and (is_named or _is_random(part)) for part in hidden)


def _is_random(text: str) -> bool:
    return any(re.search(r"\d", word) and re.search("[A-Za-z]", word) for word in _LONG.findall(text)) or "@" in text
