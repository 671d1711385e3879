"""On-demand servers: which run only while they are needed, by `start`, `stateful`, and what `auto` makes of them."""

from __future__ import annotations

from collections.abc import Iterable

from fastmcp_aggregator.catalogue.snapshot import Catalogue, Kind
from fastmcp_aggregator.config import ServerConfig, StdioServer
from fastmcp_aggregator.isolation.decision import is_stateful
from fastmcp_aggregator.settings.options import ChildOptions


def may_sleep(
    server: ServerConfig, options: ChildOptions, catalogues: Iterable[Catalogue], *, is_called: bool = True
) -> bool:
    """True if a server need not run while it is unused, by its last offer. One that no call reaches, because its
    clients have other instances, has no state to keep.
    """
    start = options.settings.start
    if start != "auto":
        return start == "on_demand"
    is_shared_process = isinstance(server, StdioServer) and options.settings.isolation != "session"
    keeps_state = is_called and is_stateful(server, options)
    return is_shared_process and not keeps_state and not any(map(_announces_changes, catalogues))


def starts_asleep(server: ServerConfig, options: ChildOptions, catalogues: Iterable[Catalogue]) -> bool:
    """True if it is not started before it is called, if this was its offer; strict, that must be asked for."""
    known = list(catalogues)
    if not known or (options.settings.strict and options.settings.start != "on_demand"):
        return False
    return may_sleep(server, options, known)


def stops_when_idle(
    server: ServerConfig, options: ChildOptions, catalogue: Catalogue, *, is_called: bool = True
) -> bool:
    """True if it is stopped when it has not been used for a while."""
    return (
        options.settings.idle_timeout > 0
        and not (is_called and is_stateful(server, options))
        and may_sleep(server, options, [catalogue], is_called=is_called)
    )


def _announces_changes(catalogue: Catalogue) -> bool:
    declared = catalogue.capabilities.get("resources")
    if not isinstance(declared, dict):
        return False
    has_some = bool(catalogue.of(Kind.RESOURCE) or catalogue.of(Kind.TEMPLATE))
    return bool(declared.get("subscribe")) or (bool(declared.get("listChanged")) and has_some)
