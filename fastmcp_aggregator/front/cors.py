"""CORS: web pages of other origins that may read our answers. Without any, no header of it is ever sent.

It stands behind the check of Host and Origin, and before authentication: a browser asks for permission (the preflight)
without credentials. Cookies are never allowed; a page has to have a key or token, and to send it in a header. What
headers it may send is not limited: MCP has some whose names depend on the tool (`Mcp-Param-…`, 2026-07-28).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastmcp.server.http import HostOriginGuardMiddleware
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

_EXPOSED = ("mcp-session-id", "mcp-protocol-version", "retry-after", "www-authenticate")
"""What pages may read of the headers of an answer, besides those that they always may."""


def add_cors(app: Starlette, origins: Sequence[str]) -> None:
    """Let pages of these origins in, `*`: of all."""
    if not origins:
        return
    guard: Any = HostOriginGuardMiddleware
    guards = [number for number, part in enumerate(app.user_middleware) if part.cls is guard]
    cors = Middleware(
        CORSMiddleware,
        allow_origins=list(origins),
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["*"],
        expose_headers=list(_EXPOSED),
    )
    app.user_middleware.insert(guards[0] + 1 if guards else 0, cors)
