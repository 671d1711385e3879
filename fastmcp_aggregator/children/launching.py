"""Starting processes of a config early: before FastMCP is imported, and so before anybody can talk to them.

Nothing here may import FastMCP or the SDK.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import islice

from fastmcp_aggregator.children.options import EndpointOptions
from fastmcp_aggregator.children.process import ChildProcess
from fastmcp_aggregator.children.start_turns import EARLY
from fastmcp_aggregator.config import McpConfig, StdioServer

Launched = Mapping[str, asyncio.Task[ChildProcess]]
"""Processes that are being started, by server key."""


def launch_early(config: McpConfig, options: EndpointOptions) -> Launched:
    """Start the first processes of the config now; the others would take the processors from the import.

    Gives them the time in which FastMCP is imported. A task's failure is reported by the child that takes it over.
    """
    servers = (server for server in config.servers.values() if isinstance(server, StdioServer))
    return {server.key: asyncio.ensure_future(ChildProcess.spawn(server, options)) for server in islice(servers, EARLY)}
