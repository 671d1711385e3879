"""The keys file of a hub: whether it can be used, and fits the groups and the limits; and which keys expire soon."""

from __future__ import annotations

import shlex
from collections.abc import Container, Iterator
from pathlib import Path

from fastmcp_aggregator.access.keys_file import expiring, read_keys
from fastmcp_aggregator.access.principal import KEY_MARK
from fastmcp_aggregator.doctor.findings import Finding
from fastmcp_aggregator.errors import ConfigError
from fastmcp_aggregator.settings.model import AggregatorSettings
from fastmcp_aggregator.settings.sections import GROUP_MARK
from fastmcp_aggregator.version import PROGRAM


def warnings_of_keys(settings: AggregatorSettings, groups: Container[str]) -> Iterator[Finding]:
    """Warnings of keys that are for groups that are not there, or expire soon, and of limits that are for nobody: no
    refusal says that this is wrong.

    Raises:
        ConfigError: the keys file cannot be used.
    """
    yield from _limits_of_no_group(settings, groups)
    if settings.keys_file is None:
        return
    path = Path(settings.keys_file).expanduser()
    keys = read_keys(path)
    for key in keys:
        for unknown in sorted(group for group in key.groups or () if group not in groups):
            message = f"the key {key.id} of {key.name!r} is for the group {unknown!r}, which is not there"
            yield Finding("warning", None, message)
    yield from _limits_of_no_key(settings, {key.name for key in keys})
    for key in expiring(keys):
        message = f"the key {key.id} of {key.name!r} expires on {key.expires:%Y-%m-%d}"
        more = f"{PROGRAM} keys set {key.id} --file {shlex.quote(str(path))} --days N"
        yield Finding("warning", None, f"{message}; to give it more days: {more}")


def _limits_of_no_group(settings: AggregatorSettings, groups: Container[str]) -> Iterator[Finding]:
    for entry in settings.callers:
        if entry.startswith(GROUP_MARK) and entry.removeprefix(GROUP_MARK) not in groups:
            yield Finding("warning", None, f"the limit of {entry!r} is for a group that is not there")


def _limits_of_no_key(settings: AggregatorSettings, names: Container[str]) -> Iterator[Finding]:
    for entry in settings.callers:
        name = entry.removeprefix(KEY_MARK)
        if ":" not in name and name not in names:
            yield Finding("warning", None, f"the limit of {entry!r} is for a key that is not there")


def keys_problems(settings: AggregatorSettings, groups: Container[str]) -> Iterator[Finding]:
    """The same, with what keeps the keys file from being used."""
    try:
        yield from warnings_of_keys(settings, groups)
    except ConfigError as error:
        for problem in error.details:
            location = error.source if problem.path == "$" else f"{error.source} {problem.path}"
            yield Finding("error", None, f"{location}: {problem.message}")
