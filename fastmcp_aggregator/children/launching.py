"""Starting the processes of a config early: before FastMCP is imported, and so before anybody can talk to them.

Nothing here may import FastMCP or the SDK.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from fastmcp_aggregator.children.options import EndpointOptions
from fastmcp_aggregator.children.process import ChildProcess
from fastmcp_aggregator.config import McpConfig, StdioServer

Launched = Mapping[str, asyncio.Task[ChildProcess]]
"""Processes that are being started, by server key."""


def launch_early(config: McpConfig, options: EndpointOptions) -> Launched:
    """Start every process of the config now.

    Gives a child the time in which FastMCP is imported. A task's failure is reported by the child that takes it over.
    """
    return {
        key: asyncio.ensure_future(ChildProcess.spawn(server, options))
        for key, server in config.servers.items()
        if isinstance(server, StdioServer)
    }
