"""The drain: lets requests in flight finish when the HTTP server is to end, and turns new ones away.

Streams that only listen never finish by themselves, so they are not counted; they are ended afterwards.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from fastmcp_aggregator.front.gate import only_listens, turn_away
from fastmcp_aggregator.front.in_flight import InFlight


class Drain:
    """An ASGI app around another, which counts the requests that are being answered."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.in_flight = InFlight()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or only_listens(scope):
            await self._app(scope, receive, send)
        elif self.in_flight.is_closing:
            await turn_away(scope, receive, send, "the server is ending")
        else:
            with self.in_flight.one():
                await self._app(scope, receive, send)
