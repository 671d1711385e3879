"""Notices for the operator of a hub: refused files, and keys that expire soon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastmcp_aggregator.access.keys import ApiKey
from fastmcp_aggregator.access.keys_file import FollowedKeys, expiring
from fastmcp_aggregator.files.followed import RefusedFile

_MOST_KEYS = 10


def notices_of(keys: FollowedKeys | None, files: Mapping[str, RefusedFile | None], *, is_local: bool) -> dict[str, Any]:
    """The same as plain values. Only those on this machine are told what is wrong with a file."""
    return {
        "refused_files": {what: _refusal(file, is_local) for what, file in files.items() if file},
        "expiring_keys": [_expiry(key) for key in expiring(keys.all())[:_MOST_KEYS]] if keys is not None else [],
    }


def _refusal(file: RefusedFile, is_local: bool) -> dict[str, Any]:
    about = {"since": round(file.age, 1)}
    return {**about, "problem": str(file.problem)} if is_local else about


def _expiry(key: ApiKey) -> dict[str, Any]:
    known = key.described()
    return {name: known[name] for name in ("id", "name", "expires")}
