"""The `X-API-Key` header, translated to `Authorization: Bearer`."""

from __future__ import annotations

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_OURS = b"x-api-key"
_STANDARD = b"authorization"


class ApiKeyHeader:
    """ASGI middleware in front of authentication. Rejects a request with two different credentials with a 400."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        keys = [value for name, value in scope.get("headers", ()) if name == _OURS]
        if not keys:
            await self._app(scope, receive, send)
            return
        bearer = b"Bearer " + keys[0].strip()
        others = [value for name, value in scope["headers"] if name == _STANDARD]
        if any(_comparable(value) != bearer for value in [*others, *(b"Bearer " + key.strip() for key in keys)]):
            answer = PlainTextResponse("send one credential: Authorization or X-API-Key, not two that differ", 400)
            await answer(scope, receive, send)
            return
        rest = [header for header in scope["headers"] if header[0] != _STANDARD]
        await self._app({**scope, "headers": [*rest, (_STANDARD, bearer)]}, receive, send)


def _comparable(authorization: bytes) -> bytes:
    scheme, _, token = authorization.strip().partition(b" ")
    return b"Bearer " + token.strip() if scheme.lower() == b"bearer" else authorization
