"""One MCP server in front of all the MCP servers in an `mcpServers` file.

The names below are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastmcp_aggregator.aggregator import Aggregator, build_aggregator
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
    from fastmcp_aggregator.settings.model import AggregatorSettings, ServerSettings, load_settings
    from fastmcp_aggregator.status.server_status import ChildState, ServerStatus

_MODULES = {
    "Aggregator": "aggregator",
    "AggregatorError": "errors",
    "AggregatorSettings": "settings.model",
    "ChildServerError": "errors",
    "ChildState": "status.server_status",
    "ConfigError": "errors",
    "ConfigProblem": "errors",
    "DependencyError": "errors",
    "McpConfig": "config",
    "NameConflictError": "errors",
    "ServerSettings": "settings.model",
    "ServerStatus": "status.server_status",
    "SharedStateError": "errors",
    "StartupError": "errors",
    "build_aggregator": "aggregator",
    "load_config": "config",
    "load_settings": "settings.model",
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
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    libraries = import_module(f"{__name__}.libraries")
    with libraries.usable_libraries():
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
