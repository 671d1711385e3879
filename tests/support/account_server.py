"""An MCP server with accounts of many people, and its authorization server, in one app on a socket.

Who logs in is said by the test's browser, with `login_as` in the address. Refresh tokens are good once.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlencode

from fastmcp import FastMCP
from fastmcp.server.auth import AccessToken, RemoteAuthProvider, TokenVerifier
from fastmcp.server.auth.providers.jwt import JWTVerifier
from fastmcp.server.dependencies import get_access_token
from fastmcp.server.middleware import Middleware as FastMCPMiddleware
from pydantic import AnyHttpUrl
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fastmcp_aggregator.access.listening import listening_socket, url_of
from support.serving import served


class AccountServer(TokenVerifier):
    """Its tokens, by whose they are. `lifetime` is that of access tokens, in seconds."""

    def __init__(self, origin: str) -> None:
        super().__init__()
        self.origin = origin
        self.url = f"{origin}/mcp"
        """Of the server that the tokens are for."""
        self.lifetime = 3600.0
        self.access: dict[str, tuple[str, float]] = {}
        self.refresh: dict[str, str] = {}
        self.codes: dict[str, tuple[str, dict[str, str]]] = {}
        self.grants: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.issuer = origin
        self.trusted: JWTVerifier | None = None
        """What verifies the tokens that are exchanged."""
        self.wide: set[str] = set()
        """The access tokens with which `write` may be called."""
        self.presented: list[dict[str, str]] = []
        self.stillborn = 0
        """How many of the next renewed access tokens are not good any more when they are used."""
        self.registers = True
        """Whether clients may register themselves."""
        self.redirects: dict[str, list[str]] = {}
        """Where browsers may be sent back to, by the client that has registered so."""
        self.answers = asyncio.Event()
        """While it is not set, nobody gets tokens."""
        self.answers.set()
        self.says_who = True
        """Whether answers by a browser have an `iss` (RFC 9207)."""
        self.challenges: list[str] | None = None
        """The kinds of challenges (PKCE) that it says it takes."""
        self.sends_on: Callable[[dict[str, str]], str] | None = None
        """Where browsers are sent on to that come to log in, by what their address asks."""
        self.proofs: list[str | None] = []
        """The headers with which clients have proved themselves, for each request for tokens."""
        self.takes_id_jag_of = ""
        """The client of which identity assertions are taken, each once; empty: any assertion is taken, from anybody."""
        self._spent: set[str] = set()
        self.person = ""
        """Who is at the browser, if its address does not say."""
        self.hidden: dict[str, set[str]] = {}
        """The tools that somebody's account does not see."""
        self.listings: Counter[str] = Counter()
        """How often tools were listed, by whose account."""
        self.app: FastMCP[Any] = FastMCP("accounts", auth=RemoteAuthProvider(self, [AnyHttpUrl(origin)], origin))
        self.app.tool(self.whoami)
        self.app.tool(self.write)
        self.app.resource("me://who")(self.who)
        self.app.prompt(self.ask)
        self.app.add_middleware(OwnTools(self))
        for path, handler, methods in self._routes():
            self.app.custom_route(path, methods=methods)(handler)

    def whoami(self) -> dict[str, str]:
        """Whose account the call came with."""
        token = get_access_token()
        assert token is not None
        self.calls[token.client_id] += 1
        return {"who": token.client_id}

    def write(self) -> str:
        """What not all tokens are for; see `ScopeGuard`."""
        return "written"

    def who(self) -> str:
        """Whose account a resource was read with."""
        return self.whoami()["who"]

    def ask(self) -> str:
        """Whose account a prompt was got with."""
        return self.whoami()["who"]

    async def verify_token(self, token: str) -> AccessToken | None:
        who, ends = self.access.get(token, ("", 0.0))
        return AccessToken(token=token, client_id=who, scopes=[]) if ends > time.time() else None

    def issued(self, who: str) -> dict[str, Any]:
        """New tokens."""
        access, refresh = f"access-{secrets.token_hex(8)}", f"refresh-{secrets.token_hex(8)}"
        self.access[access], self.refresh[refresh] = (who, time.time() + self.lifetime), who
        return {"access_token": access, "token_type": "Bearer", "expires_in": 3600, "refresh_token": refresh}

    def revoke(self, who: str, *, also_refresh: bool) -> None:
        """Let the tokens of somebody be good no longer."""
        self.access = {token: kept for token, kept in self.access.items() if kept[0] != who}
        if also_refresh:
            self.refresh = {token: whose for token, whose in self.refresh.items() if whose != who}

    def _routes(self) -> list[tuple[str, Callable[[Request], Any], list[str]]]:
        return [
            ("/.well-known/oauth-authorization-server", self._metadata, ["GET"]),
            ("/register", self._register, ["POST"]),
            ("/authorize", self._authorize, ["GET"]),
            ("/token", self._token, ["POST"]),
            ("/revoke", self._revoke, ["POST"]),
        ]

    async def _metadata(self, request: Request) -> Response:
        paths = {"authorization": "authorize", "token": "token", "registration": "register", "revocation": "revoke"}
        if not self.registers:
            del paths["registration"]
        endpoints = {f"{name}_endpoint": f"{self.origin}/{path}" for name, path in paths.items()}
        more: dict[str, Any] = {
            "response_types_supported": ["code"],
            "authorization_response_iss_parameter_supported": self.says_who,
            "code_challenge_methods_supported": self.challenges,
        }
        return JSONResponse({"issuer": self.issuer, **endpoints, **more})

    async def _register(self, request: Request) -> Response:
        self.grants["registration"] += 1
        asked, client_id = await request.json(), f"client-{secrets.token_hex(4)}"
        self.redirects[client_id] = asked["redirect_uris"]
        return JSONResponse({**asked, "client_id": client_id}, 201)

    async def _authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        if self.sends_on is not None:
            return RedirectResponse(self.sends_on(asked))
        if asked["redirect_uri"] not in self.redirects.get(asked["client_id"], [asked["redirect_uri"]]):
            return JSONResponse({"error": "invalid_request"}, 400)
        back = {"state": asked["state"], **({"iss": self.issuer} if self.says_who else {})}
        if who := asked.get("login_as") or self.person:
            back["code"] = secrets.token_hex(8)
            self.codes[back["code"]] = (who, asked)
        else:
            back["error"] = "access_denied"
        return RedirectResponse(f"{asked['redirect_uri']}?{urlencode(back)}")

    async def _token(self, request: Request) -> Response:
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        await self.answers.wait()
        self.grants[form["grant_type"]] += 1
        self.proofs.append(request.headers.get("authorization"))
        if form["grant_type"] == "authorization_code":
            who, asked = self.codes.pop(form["code"], ("", {}))
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            is_proved = asked.get("code_challenge") == base64.urlsafe_b64encode(digest).decode().rstrip("=")
            if who and is_proved and asked["redirect_uri"] == form["redirect_uri"]:
                told = self.issued(who)
                if "write" in asked.get("scope", "").split():
                    self.wide.add(told["access_token"])
                return JSONResponse(told)
        elif assertion := form.get("subject_token") or form.get("assertion"):
            self.presented.append(form)
            found = await self.trusted.verify_token(assertion) if self.trusted is not None else None
            if found is not None and self._takes(assertion, found.claims):
                told = self.issued(f"{found.claims['sub']}-there")
                return JSONResponse({name: value for name, value in told.items() if name != "refresh_token"})
        elif form["grant_type"] == "client_credentials":
            return JSONResponse(self.issued("the-hub"))
        elif who := self.refresh.pop(form.get("refresh_token", ""), ""):
            told = self.issued(who)
            if self.stillborn:
                self.stillborn -= 1
                del self.access[told["access_token"]]
            return JSONResponse(told)
        self.grants["refused"] += 1
        return JSONResponse({"error": "invalid_grant"}, 400)

    def _takes(self, assertion: str, claims: dict[str, Any]) -> bool:
        """As draft-ietf-oauth-identity-assertion-authz-grant has it, if it is an ID-JAG that is wanted."""
        if not self.takes_id_jag_of:
            return True
        head = assertion.partition(".")[0]
        kind = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4))).get("typ")
        is_new, _ = claims["jti"] not in self._spent, self._spent.add(claims["jti"])
        wanted = ("oauth-id-jag+jwt", self.issuer, self.takes_id_jag_of, self.url)
        return is_new and (kind, claims["aud"], claims.get("client_id"), claims.get("resource")) == wanted

    async def _revoke(self, request: Request) -> Response:
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        who = self.refresh.get(form["token"]) or self.access.get(form["token"], ("", 0.0))[0]
        self.revoke(who, also_refresh=True)
        return Response()


class OwnTools(FastMCPMiddleware):
    """Lists to each account what it sees."""

    def __init__(self, server: AccountServer) -> None:
        self._server = server

    async def on_list_tools(self, context: Any, call_next: Any) -> Any:
        token = get_access_token()
        assert token is not None
        self._server.listings[token.client_id] += 1
        hidden = self._server.hidden.get(token.client_id, ())
        return [tool for tool in await call_next(context) if tool.name not in hidden]


class ScopeGuard:
    """Lets nobody write whose token is not for that (RFC 6750, section 3.1)."""

    def __init__(self, app: ASGIApp, server: AccountServer) -> None:
        self._app = app
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        body = await request.body()
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if b'"tools/call"' in body and b'"write"' in body and token not in self._server.wide:
            challenge = 'Bearer error="insufficient_scope", scope="write"'
            await Response(status_code=403, headers={"WWW-Authenticate": challenge})(scope, receive, send)
            return
        parts = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def again() -> Message:
            return next(parts, None) or await receive()

        await self._app(scope, again, send)


@asynccontextmanager
async def account_server() -> AsyncIterator[AccountServer]:
    listener = listening_socket("127.0.0.1", 0)
    server = AccountServer(url_of(listener, "127.0.0.1"))
    async with served(server.app, listener=listener, middleware=[Middleware(ScopeGuard, server=server)]):
        yield server
