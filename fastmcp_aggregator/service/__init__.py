"""Limits, deadlines, authentication and graceful shutdown for a FastMCP server.

`Service` is a `FastMCP` with `settings`; `run` serves it on the transport that they name. Needs the extra `service`.
The names below are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastmcp_aggregator.service.app import Service
    from fastmcp_aggregator.service.behaviour import runs
    from fastmcp_aggregator.service.errors import ServiceError
    from fastmcp_aggregator.service.serving import run
    from fastmcp_aggregator.service.settings import ServiceSettings, load_settings

_MODULES = {
    "Service": "app",
    "ServiceError": "errors",
    "ServiceSettings": "settings",
    "load_settings": "settings",
    "run": "serving",
    "runs": "behaviour",
}

__all__ = ["Service", "ServiceError", "ServiceSettings", "load_settings", "run", "runs"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
