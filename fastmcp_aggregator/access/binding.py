"""Safe bind addresses and origins. Light to import, so that the command line can check before anything is started."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection

from fastmcp_aggregator.errors import AggregatorError


def require_safe_bind(host: str, *, has_auth: bool) -> None:
    """Refuse to listen beyond loopback without authentication.

    Raises:
        AggregatorError: anybody on the network could call every tool.
    """
    if not has_auth and not is_loopback(host):
        raise AggregatorError(
            f"refusing to listen on {host}: anyone who can reach it could call every tool. "
            "Listen on 127.0.0.1, or make a key with `fastmcp-aggregator keys create NAME --file keys.json` and set "
            "FASTMCP_AGGREGATOR_KEYS_FILE=keys.json (in Python: give the app an `auth` provider)"
        )


def require_safe_origins(origins: Collection[str], *, has_auth: bool) -> None:
    """Refuse any origin (`*`) without authentication: each web page opened on this machine could call every tool.

    Raises:
        AggregatorError: any web page could call every tool.
    """
    if "*" in origins and not has_auth:
        raise AggregatorError(
            "refusing `*` in `cors_origins`: without authentication any web page could call every tool. "
            "Name the origins, or let callers authenticate (`keys_file`)"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
