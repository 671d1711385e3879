"""What an operator of a hub has to do something about: files that are refused, and keys that expire soon."""

from __future__ import annotations

from typing import Any, Protocol

from fastmcp_aggregator.access.keys import ApiKey
from fastmcp_aggregator.access.keys_file import expiring
from fastmcp_aggregator.auth.verifiers import keys_of
from fastmcp_aggregator.files.followed import RefusedFile

_MOST_KEYS = 10


class Noticed(Protocol):
    """What of a hub is looked at."""

    auth: Any

    def refused_files(self) -> dict[str, RefusedFile | None]: ...


def notices_of(hub: Noticed, *, is_local: bool) -> dict[str, Any]:
    """The same as plain values. Only those on this machine are told what is wrong with a file."""
    keys = keys_of(hub.auth)
    return {
        "refused_files": {what: _refusal(file, is_local) for what, file in hub.refused_files().items() if file},
        "expiring_keys": [_expiry(key) for key in expiring(keys.all())[:_MOST_KEYS]] if keys is not None else [],
    }


def _refusal(file: RefusedFile, is_local: bool) -> dict[str, Any]:
    about = {"since": round(file.age, 1)}
    return {**about, "problem": str(file.problem)} if is_local else about


def _expiry(key: ApiKey) -> dict[str, Any]:
    known = key.described()
    return {name: known[name] for name in ("id", "name", "expires")}
