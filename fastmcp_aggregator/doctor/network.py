"""Ports of this machine: the one to serve on, and those of servers that are said to run here. Nothing else is asked."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

from fastmcp_aggregator.config import McpConfig, RemoteServer
from fastmcp_aggregator.doctor.findings import Finding, Source

_HERE = {"localhost", "127.0.0.1", "::1"}
_PATIENCE = 1.0


def silent_servers(config: McpConfig, source: Source) -> Iterator[Finding]:
    """Servers of a URL on this machine where nobody listens."""
    for server in config.servers.values():
        if not isinstance(server, RemoteServer):
            continue
        parts = urlsplit(server.url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        if parts.hostname in _HERE and not _listens(parts.hostname, port):
            message = f"nothing listens at port {port} of this machine; start the server, or change the URL"
            yield source.finding("warning", server.key, message, "url")


def taken_port(host: str, port: int) -> Iterator[Finding]:
    """The port to serve HTTP on, if somebody else has it."""
    if host in _HERE and port and _listens(host, port):
        message = f"port {port} is taken: to serve HTTP, give another with --port, or end what listens there"
        yield Finding("note", None, message)


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), _PATIENCE).close()
    except OSError:
        return False
    return True
