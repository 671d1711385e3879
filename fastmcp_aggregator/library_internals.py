"""Parts of FastMCP, the SDK's server and Starlette that are used though they are private to them: here alone.

Each gives what its name says. `libraries.py` looks when the program starts whether they are all there. They are C
functions, where that is possible: they are on the way of every call.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from mcp.server._otel import OpenTelemetryMiddleware
from mcp.shared._context_streams import create_context_streams
from starlette._utils import get_route_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fastmcp import FastMCP
    from fastmcp.server.auth import AuthProvider
    from fastmcp.server.dependencies import FastMCPRequestContext
    from fastmcp.server.providers import LocalProvider
    from mcp.server.connection import Connection
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel.server import Server
    from mcp.server.session import ServerSession
    from mcp.shared.dispatcher import Outbound
    from pydantic import AnyHttpUrl

__all__ = [
    "components_of",
    "connection_of",
    "create_context_streams",
    "make_span",
    "request_channel_of",
    "resource_url_of",
    "route_path",
    "sdk_request_of",
    "sdk_server_of",
    "transforms_of",
]

connection_of: Callable[[ServerSession], Connection] = attrgetter("_connection")
"""The connection that a session is on."""
request_channel_of: Callable[[ServerSession], Outbound] = attrgetter("_request_outbound")
"""The channel on which the request is answered that a session was made for."""
sdk_server_of: Callable[[Any], Server[Any]] = attrgetter("_mcp_server")
"""The SDK's server in a FastMCP app."""
sdk_request_of: Callable[[FastMCPRequestContext], ServerRequestContext[Any, Any]] = attrgetter("_srctx")
"""The SDK's context of a request that FastMCP serves."""
transforms_of: Callable[[FastMCP[Any]], Sequence[Any]] = attrgetter("_transforms")
"""The transforms of an app, without those of its providers."""
components_of: Callable[[LocalProvider], Mapping[str, Any]] = attrgetter("_components")
"""The components that were added to an app itself."""
make_span = OpenTelemetryMiddleware()
"""The SDK's middleware that makes a request's span."""
route_path = get_route_path
"""The path of a request within the app that serves it, which may be mounted."""


def resource_url_of(provider: AuthProvider, path: str | None = None) -> AnyHttpUrl | None:
    """The address of an MCP endpoint at `path` as its tokens name it (RFC 8707); None if our own is not known."""
    return provider._get_resource_url(path)
