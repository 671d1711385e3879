"""The user's `mcpServers` file, as validated values. Nothing here imports FastMCP."""

from fastmcp_aggregator.config.loader import load_config
from fastmcp_aggregator.config.models import (
    McpConfig,
    RemoteServer,
    ServerConfig,
    StdioServer,
    UnresolvedServer,
    changes_between,
)

__all__ = [
    "McpConfig",
    "RemoteServer",
    "ServerConfig",
    "StdioServer",
    "UnresolvedServer",
    "changes_between",
    "load_config",
]
