"""The keys file of a hub: whether it can be used, and whether the groups are there that its keys are for."""

from __future__ import annotations

from collections.abc import Container, Iterator
from pathlib import Path

from fastmcp_aggregator.access.keys_file import read_keys
from fastmcp_aggregator.doctor.findings import Finding
from fastmcp_aggregator.errors import ConfigError
from fastmcp_aggregator.settings.model import AggregatorSettings


def keys_for_unknown_groups(settings: AggregatorSettings, groups: Container[str]) -> Iterator[Finding]:
    """Warnings of keys that are for groups that are not there: nobody can tell from their refusals what is wrong.

    Raises:
        ConfigError: the keys file cannot be used.
    """
    if settings.keys_file is None:
        return
    for key in read_keys(Path(settings.keys_file).expanduser()):
        for unknown in sorted(group for group in key.groups or () if group not in groups):
            message = f"the key {key.id} of {key.name!r} is for the group {unknown!r}, which is not there"
            yield Finding("warning", None, message)


def keys_problems(settings: AggregatorSettings, groups: Container[str]) -> Iterator[Finding]:
    """The same, with what keeps the keys file from being used."""
    try:
        yield from keys_for_unknown_groups(settings, groups)
    except ConfigError as error:
        for problem in error.details:
            place = error.source if problem.path == "$" else f"{error.source} {problem.path}"
            yield Finding("error", None, f"{place}: {problem.message}")
