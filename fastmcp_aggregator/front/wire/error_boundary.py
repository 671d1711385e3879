"""What nobody has foreseen: a caller is told an id, under which the log has the details.

Each boundary between a program of somebody else and ours has its guard here: the SDK's server, whose dispatchers would
hand on the text of any exception, and the HTTP server, which would tell nothing.
"""

from __future__ import annotations

from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fastmcp_aggregator.front.wire.errors import unexpected


async def contained(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """A middleware of the SDK's server, outside of all others.

    Raises:
        MCPError: an error that may be told.
    """
    try:
        return await call_next(ctx)
    except (MCPError, ValidationError):
        raise
    except Exception as error:
        raise unexpected(error, ctx.method) from None


class Incidents:
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
