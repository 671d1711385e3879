"""The remote server of a config that a command is about."""

from __future__ import annotations

from fastmcp_aggregator.cli.terminal.exits import UsageError
from fastmcp_aggregator.config import McpConfig, RemoteServer, UnresolvedServer


def remote_server(config: McpConfig, key: str) -> RemoteServer:
    """The server of this key.

    Raises:
        UsageError: there is none that can be logged in to.
    """
    server = config.servers.get(key)
    if isinstance(server, RemoteServer):
        return server
    if isinstance(server, UnresolvedServer):
        raise UsageError(f"cannot log in to {key!r}: {server.reason}")
    remote = [
        other
        for other, entry in config.servers.items()
        if isinstance(entry, RemoteServer) or (isinstance(entry, UnresolvedServer) and entry.transport == "http")
    ]
    why = "there is no server" if server is None else "there is no login for a server without a `url`:"
    raise UsageError(f"{why} {key!r}; servers with a `url`: {', '.join(map(repr, remote)) or 'none'}")
