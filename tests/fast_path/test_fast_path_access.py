"""Who is let in by the fast path is let in by the full path."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from fastmcp.server.auth import StaticTokenVerifier
from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from support.harness import PATIENCE, config, lean
from support.memory import build_aggregator
from support.serving import served
from test_both_paths import request, routed


class Known(AuthenticationBackend):
    """Authenticates everybody, and not with a bearer token."""

    async def authenticate(self, conn: Any) -> tuple[AuthCredentials, SimpleUser]:
        return AuthCredentials(["mcp"]), SimpleUser("somebody")


class Elsewise(StaticTokenVerifier):
    """A provider whose middleware authenticates in its own way."""

    def get_middleware(self) -> list[Any]:
        return [Middleware(AuthenticationMiddleware, backend=Known())]


@pytest.mark.parametrize("fast_path", [True, False])
async def test_a_user_without_a_token_is_refused(fast_path: bool) -> None:
    app = build_aggregator(config(a=lean()), auth=Elsewise({}, required_scopes=["mcp"]), fast_path=fast_path)
    async with served(app) as front, httpx2.AsyncClient(trust_env=False, timeout=PATIENCE) as http:
        headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        for headers_of_auth in ({}, {"authorization": "Bearer x"}):
            for _ in range(2):
                body = request("tools/call", '{"name": "a:echo"}', modern=True)
                sent = {**headers, **routed("tools/call", "a:echo"), **headers_of_auth}
                response = await http.post(front.url, content=body, headers=sent)
                assert response.status_code in (401, 404)
