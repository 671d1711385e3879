"""The API keys of a keys file: created, listed, changed, revoked."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fastmcp_aggregator.access.keys import ApiKey, is_name, new_key
from fastmcp_aggregator.access.keys_file import change_keys, read_keys
from fastmcp_aggregator.access.principal import ANYONE
from fastmcp_aggregator.access.roles import CALL, EVERYTHING, ROLES, USUAL
from fastmcp_aggregator.cli.terminal.console import put, put_json, say
from fastmcp_aggregator.cli.terminal.exits import FAILED, FINE, UsageError
from fastmcp_aggregator.config.documents import Location, read_json
from fastmcp_aggregator.errors import ConfigError
from fastmcp_aggregator.escaping import printable
from fastmcp_aggregator.files.atomic import require_no_link_to_nothing
from fastmcp_aggregator.groups import DEFAULT_GROUP, is_group_id

_ALL_GROUPS = "*"


def run(options: argparse.Namespace) -> int:
    path = _path(options)
    match options.action:
        case "create":
            return _create(path, options)
        case "set":
            return _set(path, options)
        case "revoke":
            return _revoke(path, options.name, all_of_them=options.all, as_json=options.json)
        case _:
            return _list(path, as_json=options.json)


def _path(options: argparse.Namespace) -> Path:
    file = options.file
    if file is None:
        from fastmcp_aggregator.settings.model import load_settings  # noqa: PLC0415 - it takes a while, and may not be needed

        file = load_settings(options.settings).keys_file
    if file is None:
        raise UsageError("no keys file is given: use --file FILE, or the setting keys_file")
    return Path(file).expanduser()


def _create(path: Path, options: argparse.Namespace) -> int:
    name = options.name
    if not is_name(name) or name == ANYONE:
        raise UsageError(f"{name!r} cannot be the name of a key: use letters, digits, `.`, `_`, `@`, `+` and `-`")
    key, made = new_key(name, None, None)
    kept = _with_rights(made, options)
    _warn_of_unknown_groups(kept, options.settings)
    others: list[str] = []
    require_no_link_to_nothing(path)

    def with_it(known: tuple[ApiKey, ...]) -> list[ApiKey]:
        others.extend(each.id for each in known if each.name == name)
        return [*known, kept]

    change_keys(path, with_it)
    if options.json:
        put_json({"key": key, **_described(kept)})
    else:
        put(key)
    say(f"This key of {name!r} is shown only now; {path} keeps its digest alone. It is {_rights(kept)}.")
    if others:
        say(f"{name!r} has other keys, too ({', '.join(others)}); to end one: fastmcp-aggregator keys revoke ID")
    say("Clients send it with each request, as `Authorization: Bearer KEY` or `X-API-Key: KEY`.")
    say(f"To let its owner in, serve with FASTMCP_AGGREGATOR_KEYS_FILE={path}")
    return FINE


def _set(path: Path, options: argparse.Namespace) -> int:
    changed: list[ApiKey] = []

    def with_changes(known: tuple[ApiKey, ...]) -> list[ApiKey]:
        meant = _meant(known, options.name, all_of_them=options.all)
        after = [_with_rights(key, options) if key in meant else key for key in known]
        changed.extend(new for old, new in zip(known, after, strict=True) if old in meant)
        return after

    read_keys(path)  # which tells if there is none
    change_keys(path, with_changes)
    if not changed:
        return _none_of(options.name, path)
    _warn_of_unknown_groups(changed[0], options.settings)
    if options.json:
        put_json({"changed": [_described(key) for key in changed]})
    for key in changed:
        say(f"the key {key.id} of {key.name!r} is {_rights(key)}; running aggregators take this up at once")
    return FINE


def _revoke(path: Path, name: str, *, all_of_them: bool, as_json: bool) -> int:
    gone: list[ApiKey] = []

    def without(known: tuple[ApiKey, ...]) -> list[ApiKey]:
        gone.extend(_meant(known, name, all_of_them=all_of_them))
        return [key for key in known if key not in gone]

    read_keys(path)  # which tells if there is none
    change_keys(path, without)
    if not gone:
        return _none_of(name, path)
    if as_json:
        put_json({"revoked": [_described(key) for key in gone]})
    for key in gone:
        say(f"revoked the key {key.id} of {key.name!r}; running aggregators reject it from now on")
    return FINE


def _meant(known: tuple[ApiKey, ...], name: str, *, all_of_them: bool) -> list[ApiKey]:
    """The keys of a name, or the one with this id."""
    named = [key for key in known if key.name == name]
    if len(named) > 1 and not all_of_them:
        told = ", ".join(f"{key.id} of {key.created:%Y-%m-%d %H:%M}" for key in named)
        raise UsageError(f"{name!r} has {len(named)} keys ({told}): give the id of one of them, or --all")
    return named or [key for key in known if key.id == name]


def _none_of(name: str, path: Path) -> int:
    say(f"there is no key of {name!r} in {path}")
    return FAILED


def _list(path: Path, *, as_json: bool) -> int:
    keys = read_keys(path)
    if as_json:
        put_json({"keys": [_described(key) for key in keys]})
        return FINE
    if not keys:
        say(f"{path} has no keys")
        return FINE
    put("\n".join(f"{key.id}  {printable(key.name)}  made {key.created:%Y-%m-%d}, {_rights(key)}" for key in keys))
    return FINE


def _with_rights(key: ApiKey, options: argparse.Namespace) -> ApiKey:
    """The key with what the options give, and the rest as it is."""
    groups = key.groups if options.groups is None else _groups(options.groups)
    roles = key.roles if options.roles is None else _roles(options.roles)
    if CALL not in roles and options.groups is not None and groups is not None:
        raise UsageError("--groups is for keys with the role call")
    expires = key.expires if options.days is None else _in_days(options.days)
    return replace(key, groups=groups, roles=roles, expires=expires)


def _in_days(days: int | str) -> datetime | None:
    return None if isinstance(days, str) else datetime.now(UTC).replace(microsecond=0) + timedelta(days=days)


def _roles(text: str) -> frozenset[str]:
    roles = frozenset(role.strip() for role in text.split(",") if role.strip())
    if not roles or not roles <= EVERYTHING:
        raise UsageError(f"--roles needs one or more of {', '.join(ROLES)}")
    return roles


def _groups(text: str) -> frozenset[str] | None:
    groups = [group.strip() for group in text.split(",") if group.strip()]
    if groups == [_ALL_GROUPS]:
        return None
    if not groups:
        raise UsageError(f"--groups needs at least one group id; '{_ALL_GROUPS}' is for all groups")
    if odd := [group for group in groups if not is_group_id(group)]:
        raise UsageError(f"{odd[0]!r} cannot be the id of a group; separate several by commas: --groups web,docs")
    return frozenset(groups)


def _warn_of_unknown_groups(key: ApiKey, settings: str | None) -> None:
    """Say which of its groups are not in the groups file that the settings name, if they name one that can be read."""
    from fastmcp_aggregator.settings.model import load_settings  # noqa: PLC0415 - as above

    with suppress(ConfigError):
        file = load_settings(settings).groups_file
        known = None if file is None else read_json(Path(file), Location(str(file)), takes_comments=True)
        if isinstance(known, Mapping) and (unknown := {*(key.groups or ())} - known.keys() - {DEFAULT_GROUP}):
            say(f"warning: {file} has no group {', '.join(sorted(unknown))}; the key has no effect there until it has")


def _described(key: ApiKey) -> dict[str, Any]:
    return {**key.described(), "isExpired": key.is_expired(datetime.now(UTC))}


def _rights(key: ApiKey) -> str:
    groups = "for all groups" if key.groups is None else f"for {', '.join(sorted(key.groups))}"
    if CALL not in key.roles:
        groups = "for no calls"
    if key.roles != USUAL:
        groups += f", with the role{'s' if len(key.roles) > 1 else ''} {', '.join(sorted(key.roles))}"
    if key.expires is None:
        return f"{groups}, and does not expire"
    verb = "expired" if key.is_expired(datetime.now(UTC)) else "expires"
    return f"{groups}, and {verb} on {key.expires:%Y-%m-%d}"
