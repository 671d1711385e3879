"""The API keys file: reading and validating the digests, writing them, and reloading when it changes."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastmcp_aggregator.access.keys import ApiKey, id_of, is_key_of, is_name
from fastmcp_aggregator.access.roles import ROLES, USUAL
from fastmcp_aggregator.config.documents import Location, read_json, stamp_of
from fastmcp_aggregator.config.fields import kind_of
from fastmcp_aggregator.errors import ConfigError
from fastmcp_aggregator.files.atomic import PRIVATE, write_whole
from fastmcp_aggregator.files.followed import RefusedFile
from fastmcp_aggregator.files.locked import locked
from fastmcp_aggregator.files.permissions import weaknesses

logger = logging.getLogger(__name__)

_FIELDS = ("id", "name", "sha256", "groups", "roles", "created", "expires")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_ID = re.compile(r"[0-9a-f]{8}")


def read_keys(path: Path) -> tuple[ApiKey, ...]:
    """Read the keys of a file, in its order.

    Raises:
        ConfigError: with every problem that was found; one is that others could change it.
    """
    root = Location(str(path))
    _check_owner(path, root)
    document = read_json(path, root, waits=False)  # all requests would
    root.raise_problems()
    keys = _keys(document, root)
    root.raise_problems()
    return tuple(keys)


def change_keys(path: Path, change: Callable[[tuple[ApiKey, ...]], Iterable[ApiKey]]) -> None:
    """Make new keys of those in a file, none if there is no file yet. No change of another process is lost meanwhile.

    Raises:
        ConfigError: as when it is read.
        AggregatorError: it cannot be written; the file is as it was.
    """
    with locked(path):
        before = read_keys(path) if path.exists() else ()
        after = tuple(change(before))
        if after != before:
            write_keys(path, after)


def write_keys(path: Path, keys: Iterable[ApiKey]) -> None:
    """Replace the keys of a file. A new one is for its owner alone; who may read one that is there still may.

    Raises:
        AggregatorError: it cannot be written; the file is as it was.
    """
    document = {"keys": [_entry(key) for key in keys]}
    write_whole(path, json.dumps(document, indent=2) + "\n", mode=PRIVATE, keeps_readers=True)


def expiring(keys: Iterable[ApiKey]) -> list[ApiKey]:
    """The keys that expire soon, the next first."""
    now = datetime.now(UTC)
    return sorted((key for key in keys if key.expires_soon(now)), key=lambda key: key.expires or now)


class FollowedKeys:
    """The keys of a file, reloaded when it has changed; each look-up checks that.

    While it cannot be read there are no keys, so that a mistake in it cannot leave a revoked key in force.
    """

    def __init__(self, path: Path, *, look_interval: float = 1.0) -> None:
        """Read the file. `look_interval` is the seconds between two looks at it while something depends on its keys.

        Raises:
            ConfigError: with every problem of the file.
        """
        self._path = path
        self._look_interval = look_interval
        self._stamp = stamp_of(path)
        self._by_id = _by_id(read_keys(path))
        self.last_used: dict[str, datetime] = {}
        """When each key was used last in this run, by its id."""
        self._refused: RefusedFile | None = None
        self._watching: dict[str, set[Callable[[], None]]] = {}
        self._looks_in: asyncio.AbstractEventLoop | None = None
        """Where the next look is due, which is there as long as something depends on a key, and once more: to set and
        end a timer with each request costs more than a look."""

    def find(self, key: str) -> ApiKey | None:
        """Look up a key; None if it is unknown or has expired."""
        self._refresh()
        kept = self._by_id.get(id_of(key))
        now = datetime.now(UTC)
        if kept is None or not is_key_of(key, kept) or kept.is_expired(now):
            return None
        self.last_used[kept.id] = now
        return kept

    def all(self) -> tuple[ApiKey, ...]:
        """All keys of the file, in its order."""
        self._refresh()
        return tuple(self._by_id.values())

    def next_expiries(self) -> dict[str, datetime]:
        """When the next of the keys for a group expires, by group; those for all groups are under `*`."""
        now = datetime.now(UTC)
        found: dict[str, datetime] = {}
        for key in self.all():
            if key.expires is not None and not key.is_expired(now):
                for group in ("*",) if key.groups is None else key.groups:
                    found[group] = min(key.expires, found.get(group, key.expires))
        return found

    def refused(self) -> RefusedFile | None:
        """Why all keys are rejected, if they are."""
        self._refresh()
        return self._refused

    def current(self, key: ApiKey) -> ApiKey | None:
        """Return a key that was found as it is now; None: it was revoked, or another has its id. Reads nothing."""
        kept = self._by_id.get(key.id)
        return kept if kept is not None and kept.sha256 == key.sha256 else None

    def watched(self, key: ApiKey, on_change: Callable[[], None]) -> AbstractContextManager[None]:
        """Poll the file while something depends on a key; call `on_change` when the key changes."""
        return _Watch(self, key.id, on_change)

    def watch(self, key_id: str, on_change: Callable[[], None]) -> None:
        self._watching.setdefault(key_id, set()).add(on_change)
        loop = asyncio.get_running_loop()
        if self._looks_in is not loop:
            self._schedule_look(loop)

    def unwatch(self, key_id: str, on_change: Callable[[], None]) -> None:
        watching = self._watching[key_id]
        watching.discard(on_change)
        if not watching:
            del self._watching[key_id]

    def _schedule_look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._looks_in = loop
        loop.call_later(self._look_interval, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._looks_in = None
        if self._watching:
            self._schedule_look(loop)
            self._refresh()

    def _refresh(self) -> None:
        stamp = stamp_of(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        before = self._by_id
        try:
            self._by_id = _by_id(read_keys(self._path))
        except ConfigError as error:
            self._by_id = {}
            self._refused = RefusedFile(error) if self._refused is None else self._refused.with_problem(error)
            logger.error("all API keys are rejected until this is fixed: %s", error)  # noqa: TRY400 - no traceback
        else:
            self._refused = None
            logger.info("read %s again: %d API keys", self._path, len(self._by_id))
        changed = [key_id for key_id in self._watching if before.get(key_id) != self._by_id.get(key_id)]
        for on_change in [on_change for key_id in changed for on_change in self._watching[key_id]]:
            on_change()


class _Watch:
    """While something depends on a key."""

    __slots__ = ("_key_id", "_keys", "_on_change")

    def __init__(self, keys: FollowedKeys, key_id: str, on_change: Callable[[], None]) -> None:
        self._keys = keys
        self._key_id = key_id
        self._on_change = on_change

    def __enter__(self) -> None:
        self._keys.watch(self._key_id, self._on_change)

    def __exit__(self, *exc_info: object) -> None:
        self._keys.unwatch(self._key_id, self._on_change)


def _by_id(keys: Iterable[ApiKey]) -> dict[str, ApiKey]:
    return {key.id: key for key in keys}


def _check_owner(path: Path, root: Location) -> None:
    if sys.platform == "win32":
        return
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except (OSError, ValueError):
        return  # reading it tells
    if mode & 0o022:
        root.report("can be written to by others than its owner, who could grant themselves access; chmod 600 it")
        return
    for weakness in weaknesses(path):
        root.report(f"{weakness}; anyone who can change it could grant themselves access")


def _keys(document: object, root: Location) -> list[ApiKey]:
    entries = document.get("keys") if isinstance(document, Mapping) else None
    if not isinstance(entries, list):
        root.report("must be an object with a list `keys`, as `fastmcp-aggregator keys create` writes it")
        return []
    found = [_key(entry, root.at("keys").at(index)) for index, entry in enumerate(entries)]
    keys = [key for key in found if key is not None]
    if len({key.id for key in keys}) < len(keys):
        root.at("keys").report("has the same id twice; remove one of the entries")
    return keys


def _key(entry: object, location: Location) -> ApiKey | None:
    if not isinstance(entry, Mapping):
        location.report(f"must be an object, not {kind_of(entry)}")
        return None
    before = len(location.problems)
    for unknown in entry.keys() - set(_FIELDS):
        location.at(unknown).report(f"is not a field of a key; there are {', '.join(_FIELDS)}")
    _check_text(entry, "id", location, _ID.fullmatch, "must be 8 hexadecimal digits")
    _check_text(entry, "name", location, is_name, "must have up to 64 letters, digits, `.`, `_`, `@`, `+` and `-`")
    _check_text(entry, "sha256", location, _DIGEST.fullmatch, "must be a SHA-256 digest: 64 hexadecimal digits")
    created, expires = _time(entry, "created", location), _time(entry, "expires", location)
    groups = _groups(entry.get("groups"), location.at("groups"))
    roles = _roles(entry.get("roles"), location.at("roles"))
    if "created" not in entry:
        location.report("has no `created`; write when it was made, such as 2026-01-31T12:00:00+00:00")
    if len(location.problems) > before or created is None:
        return None
    return ApiKey(entry["id"], entry["name"], entry["sha256"], groups, created, expires, roles)


def _check_text(entry: Mapping[str, Any], field: str, location: Location, is_right: Any, rule: str) -> None:
    value = entry.get(field)
    if not isinstance(value, str) or not is_right(value):
        location.at(field).report(rule)


def _time(entry: Mapping[str, Any], field: str, location: Location) -> datetime | None:
    value = entry.get(field)
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        location.at(field).report("must be a time such as 2026-01-31T12:00:00+00:00")
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _groups(value: object, location: Location) -> frozenset[str] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(group, str) and group for group in value):
        location.report("must be a list of group ids; leave it out for all groups")
        return None
    return frozenset(value)


def _roles(value: object, location: Location) -> frozenset[str]:
    if value is None:
        return USUAL
    if not isinstance(value, list) or not value or not all(role in ROLES for role in value):
        location.report(f"must be a list of one or more of {', '.join(ROLES)}; leave it out for {', '.join(USUAL)}")
        return frozenset()
    return frozenset(value)


def _entry(key: ApiKey) -> dict[str, Any]:
    known = {**key.described(), "sha256": key.sha256}
    return {field: known[field] for field in _FIELDS if field != "roles" or key.roles != USUAL}
