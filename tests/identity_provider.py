"""A small identity provider: clients register themselves, everybody is let in at once, tokens are JWTs."""

from __future__ import annotations

import time
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
from fastmcp.client.auth import OAuth
from key_value.aio.stores.memory import MemoryStore
from mcp.client.auth import AuthorizationCodeResult
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from support.serving import served
from support.tokens import AUDIENCE, signed
from support.wire import PATIENCE


class IdentityProvider:
    """One whose issuer is its origin and `path`. `resources` are the addresses for which tokens were asked."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.issuer = ""
        self.resources: list[str] = []
        self.app = Starlette(
            routes=[
                Route(f"/.well-known/oauth-authorization-server{path.rstrip('/')}", self._metadata),
                Route("/register", self._register, methods=["POST"]),
                Route("/authorize", self._authorize),
                Route("/token", self._token, methods=["POST"]),
            ]
        )

    async def _metadata(self, request: Request) -> Response:
        origin = str(request.base_url).rstrip("/")
        return JSONResponse(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{origin}/authorize",
                "token_endpoint": f"{origin}/token",
                "registration_endpoint": f"{origin}/register",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": True,
            }
        )

    async def _register(self, request: Request) -> Response:
        return JSONResponse({**await request.json(), "client_id": "app"}, 201)

    async def _authorize(self, request: Request) -> Response:
        asked = request.query_params
        back = urlencode({"code": "code", "state": asked["state"], "iss": self.issuer})
        return RedirectResponse(f"{asked['redirect_uri']}?{back}")

    async def _token(self, request: Request) -> Response:
        self.resources += parse_qs((await request.body()).decode())["resource"]
        claims = {"iss": self.issuer, "aud": AUDIENCE, "sub": "carol", "exp": int(time.time()) + 60}
        return JSONResponse({"access_token": signed(claims), "token_type": "Bearer", "expires_in": 60})


@asynccontextmanager
async def identity_provider(path: str = "") -> AsyncIterator[IdentityProvider]:
    """It, on a socket."""
    provider = IdentityProvider(path)
    async with served(provider.app) as front:
        provider.issuer = front.origin + path
        yield provider


class AtOnce(OAuth):
    """FastMCP's login, without a browser."""

    def __init__(self, mcp_url: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that the tokens are in memory
            super().__init__(mcp_url, token_storage=MemoryStore())

    async def redirect_handler(self, authorization_url: str) -> None:
        """Go where a browser would be sent, but for the last step."""
        async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE) as http:
            self._sent_back = (await http.get(authorization_url)).headers["location"]

    async def callback_handler(self) -> AuthorizationCodeResult:
        """What a browser would have brought back."""
        brought: dict[str, Any] = {
            name: values[0] for name, values in parse_qs(urlsplit(self._sent_back).query).items()
        }
        return AuthorizationCodeResult(code=brought["code"], state=brought["state"], iss=brought.get("iss"))
