"""Authentication failures: HTTP requests without valid credentials, observed in one place."""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_CREDENTIALS = (b"authorization", b"x-api-key")


class AuthenticationFailures:
    """ASGI middleware that reports each 401, and each 403 for a missing scope: client address, path, reason."""

    def __init__(self, app: ASGIApp, on_failure: Callable[[str, str, str], None]) -> None:
        self._app = app
        self._on_failure = on_failure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start" and (reason := _rejection_reason(scope, message)):
                client = scope.get("client")
                self._on_failure(client[0] if client else "", scope["path"], reason)
            await send(message)

        await self._app(scope, receive, watched if scope["type"] == "http" else send)


def _rejection_reason(scope: Scope, start: Message) -> str | None:
    """Why authentication has refused a request; None if it has not."""
    if start["status"] == 401:
        has_any = any(name in _CREDENTIALS for name, _ in scope["headers"])
        return "the credentials are not valid" if has_any else "there are no credentials"
    if start["status"] == 403 and any(name == b"www-authenticate" for name, _ in start["headers"]):
        return "the token lacks a scope that is required"
    return None
