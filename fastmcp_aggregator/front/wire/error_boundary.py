"""The error boundary of the HTTP app: an unhandled exception becomes an internal error with an id, under which the
log has the traceback."""

from __future__ import annotations

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fastmcp_aggregator.front.wire.errors import unexpected


class ErrorBoundary:
    """An ASGI app around another, which answers in its place when it breaks before it has answered."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def watched(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except ClientDisconnect:
            raise
        except Exception as error:
            if scope["type"] != "http" or has_begun:
                raise
            told = unexpected(error, f"{scope['method']} {scope['path']}").error
            body = {"jsonrpc": "2.0", "id": None, "error": told.model_dump(mode="json", exclude_none=True)}
            await JSONResponse(body, 500)(scope, receive, send)
