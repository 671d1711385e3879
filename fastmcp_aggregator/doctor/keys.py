"""The keys file of a hub: whether it can be used, the groups are there that its keys are for, and none expires soon."""

from __future__ import annotations

from collections.abc import Container, Iterator
from pathlib import Path

from fastmcp_aggregator.access.keys_file import expiring, read_keys
from fastmcp_aggregator.doctor.findings import Finding
from fastmcp_aggregator.errors import ConfigError
from fastmcp_aggregator.settings.model import AggregatorSettings
from fastmcp_aggregator.version import PROGRAM


def warnings_of_keys(settings: AggregatorSettings, groups: Container[str]) -> Iterator[Finding]:
    """Warnings of keys that are for groups that are not there, or expire soon: no refusal says that this is wrong.

    Raises:
        ConfigError: the keys file cannot be used.
    """
    if settings.keys_file is None:
        return
    keys = read_keys(Path(settings.keys_file).expanduser())
    for key in keys:
        for unknown in sorted(group for group in key.groups or () if group not in groups):
            message = f"the key {key.id} of {key.name!r} is for the group {unknown!r}, which is not there"
            yield Finding("warning", None, message)
    for key in expiring(keys):
        message = f"the key {key.id} of {key.name!r} expires on {key.expires:%Y-%m-%d}"
        yield Finding("warning", None, f"{message}; to give it more days: {PROGRAM} keys set {key.id} --days N")


def keys_problems(settings: AggregatorSettings, groups: Container[str]) -> Iterator[Finding]:
    """The same, with what keeps the keys file from being used."""
    try:
        yield from warnings_of_keys(settings, groups)
    except ConfigError as error:
        for problem in error.details:
            place = error.source if problem.path == "$" else f"{error.source} {problem.path}"
            yield Finding("error", None, f"{place}: {problem.message}")
