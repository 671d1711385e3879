"""The login tool: all that a server lists to callers who have no account there yet."""

from __future__ import annotations

from fastmcp_aggregator.catalogue.snapshot import Catalogue, Kind

LOG_IN = "log_in"


def login_tool(server_key: str, *, prefix: bool) -> str:
    """The name of the tool with which a person logs in to a server; names without a prefix tell the server."""
    return LOG_IN if prefix else f"{LOG_IN}_{server_key}"


def login_catalogue(server_key: str, *, prefix: bool, can_log_in: bool) -> Catalogue:
    """A tool that leads to the login; nothing where a caller cannot log in."""
    about = f"Log in to {server_key!r} with your own account. What it offers is listed afterwards."
    tool = {
        "name": login_tool(server_key, prefix=prefix),
        "description": about,
        "inputSchema": {"type": "object", "properties": {}},
    }
    return Catalogue(0, {Kind.TOOL: (tool,) if can_log_in else ()})
