"""The table of the extensions that are passed on, and what of them each side is told. Pure.

An extension has methods, notifications, kinds of results or addresses of its own. Clients and servers declare it to
each other and then count on all of it, so it is declared to either side only if all of it passes through. Of any other
neither side hears. One more is an entry here, and a module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any

from fastmcp_aggregator.extensions.apps import APPS
from fastmcp_aggregator.extensions.extension import Extension, ExtensionSettings, Rewrite
from fastmcp_aggregator.extensions.skills import SKILLS
from fastmcp_aggregator.extensions.tasks import TASKS
from fastmcp_aggregator.protocol.client_capabilities import Capabilities
from fastmcp_aggregator.protocol.methods import Era

EXTENSIONS: Mapping[str, Extension] = {each.identifier: each for each in (APPS, TASKS, SKILLS)}
OF_METHOD: Mapping[str, Extension] = {row.name: each for each in EXTENSIONS.values() for row in each.methods}
ALL: Mapping[str, ExtensionSettings] = {name: each.settings for name, each in EXTENSIONS.items()}
"""All extensions, as declared before any server has declared its own."""


def relayed(capabilities: Capabilities) -> dict[str, ExtensionSettings]:
    """The extensions in a client's or server's capabilities that are passed on, with their settings."""
    declared = _declared(capabilities)
    return {name: declared[name] for name in EXTENSIONS if isinstance(declared.get(name), Mapping)}


def withheld(capabilities: Capabilities) -> Iterator[str]:
    """The identifiers of the extensions in a client's or server's capabilities that are not passed on."""
    return (name for name in _declared(capabilities) if name not in EXTENSIONS)


def merged(declared: Iterator[Mapping[str, ExtensionSettings]]) -> dict[str, ExtensionSettings]:
    """The extensions of several servers as those of one."""
    together: dict[str, ExtensionSettings] = {}
    for of_one in declared:
        for name, settings in of_one.items():
            known = together.get(name)
            together[name] = settings if known is None else EXTENSIONS[name].merge(known, settings)
    return together


def of_era(capabilities: Capabilities, era: Era) -> dict[str, Any]:
    """A client's or server's capabilities as they are declared in an era: extensions that are passed on, and exist."""
    kept = {name: each for name, each in relayed(capabilities).items() if era in EXTENSIONS[name].eras}
    return with_extensions(capabilities, kept)


def with_extensions(capabilities: Capabilities, extensions: Mapping[str, ExtensionSettings]) -> dict[str, Any]:
    rest = {name: value for name, value in capabilities.items() if name != "extensions"}
    return {**rest, "extensions": dict(extensions)} if extensions else rest


def for_child(declared: Any, era: Era) -> dict[str, Any]:
    """A client's capabilities, declared in its era, as a child is to see them: all but what is not passed on."""
    if not isinstance(declared, Mapping):
        return {}
    # Tasks of 2025-11-25, which were not an extension, are not passed on.
    return of_era(
        {name: value for name, value in declared.items() if name != "tasks" and isinstance(value, Mapping)}, era
    )


def rewrite_of(method: str) -> Rewrite:
    """The function that publishes the addresses of all extensions in the results of a method."""
    found = [each.rewrites[method] for each in EXTENSIONS.values() if method in each.rewrites]
    return lambda item, publish: reduce(lambda so_far, one: one(so_far, publish), found, item)


def _declared(capabilities: Capabilities) -> Mapping[str, Any]:
    declared = capabilities.get("extensions")
    return declared if isinstance(declared, Mapping) else {}
