"""HTTP header fields as they are meant: white space around a value is no part of it (RFC 9110, section 5.5).

Of the parsers that uvicorn uses, the faster one, httptools, leaves what follows a value.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send


class BareValues:
    """An ASGI app around another."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        await self._app(scope, receive, send)
