"""One MCP server in front of all the MCP servers in an `mcpServers` file.

The names below are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastmcp_aggregator.aggregator import Aggregator, build_aggregator
    from fastmcp_aggregator.children.state import ChildState
    from fastmcp_aggregator.children.status import ServerStatus
    from fastmcp_aggregator.config import McpConfig, load_config
    from fastmcp_aggregator.errors import (
        AggregatorError,
        ChildServerError,
        ConfigError,
        ConfigProblem,
        DependencyError,
        NameConflictError,
        SharedStateError,
        StartupError,
    )
    from fastmcp_aggregator.settings import AggregatorSettings, ServerSettings, load_settings

_ROOMS = {
    "Aggregator": "aggregator",
    "AggregatorError": "errors",
    "AggregatorSettings": "settings",
    "ChildServerError": "errors",
    "ChildState": "children.state",
    "ConfigError": "errors",
    "ConfigProblem": "errors",
    "DependencyError": "errors",
    "McpConfig": "config",
    "NameConflictError": "errors",
    "ServerSettings": "settings",
    "ServerStatus": "children.status",
    "SharedStateError": "errors",
    "StartupError": "errors",
    "build_aggregator": "aggregator",
    "load_config": "config",
    "load_settings": "settings",
}

__all__ = [
    "Aggregator",
    "AggregatorError",
    "AggregatorSettings",
    "ChildServerError",
    "ChildState",
    "ConfigError",
    "ConfigProblem",
    "DependencyError",
    "McpConfig",
    "NameConflictError",
    "ServerSettings",
    "ServerStatus",
    "SharedStateError",
    "StartupError",
    "build_aggregator",
    "load_config",
    "load_settings",
]


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    libraries = import_module(f"{__name__}.libraries")
    with libraries.usable_libraries():
        return getattr(import_module(f"{__name__}.{_ROOMS[name]}"), name)
