"""The pages and routes with which callers log in to servers with accounts of their own, beside a hub's MCP endpoint:

/accounts/login/{id}    asks who opens it to authenticate, and sends the browser to the authorization server
/accounts/callback      where the browser comes back to
/accounts/mine          the accounts of who asks, as JSON; `DELETE /accounts/mine/{key}` ends one: behind authentication

The pages have no script, load nothing, and are in no frame. A form is taken from pages of this origin alone (the guard
of all requests sees to that), and only from browsers that have been shown it.
"""

from __future__ import annotations

import html
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from fastmcp_aggregator.auth.claims import principal_in, principal_of
from fastmcp_aggregator.front.http.security import guarded_route
from fastmcp_aggregator.oauth.account import kept_accounts
from fastmcp_aggregator.oauth.accounts import Accounts
from fastmcp_aggregator.oauth.authorization import brought_by
from fastmcp_aggregator.oauth.errors import OAuthError
from fastmcp_aggregator.oauth.logins import LIFETIME, PATH, LoginOverError, Logins, Site, WrongBrowserError
from fastmcp_aggregator.oauth.revocation import revoke
from fastmcp_aggregator.oauth.tokens import Tokens
from fastmcp_aggregator.oauth.vault.errors import VaultError

_MOST = 32 * 1024
"""Bytes of a form."""
_COOKIE = "fastmcp_aggregator_login"
_FORM_COOKIE = "fastmcp_aggregator_form"
_STYLE = "body{font:1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:4rem auto;padding:0 1rem}input{width:100%}"
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style nonce="{nonce}">{style}</style><h1>{title}</h1>{body}</html>"""
_FORM = """<p>{text}</p><form method="post"><input type="hidden" name="form" value="{form}">
<p><label>Your API key or token for this hub<br><input type="password" name="credential" autocomplete="off"
required></label></p><p><button>Go on</button></p></form>"""


class AccountPages:
    """The pages of one hub. `sites` has the servers at which callers have accounts, by key; `auth` lets callers in."""

    def __init__(self, accounts: Accounts, logins: Logins, sites: Any, auth: Any, *, is_secure: bool) -> None:
        self._accounts = accounts
        self._logins = logins
        self._sites = sites
        self._auth = auth
        self._is_secure = is_secure

    def routes(self) -> list[BaseRoute]:
        """All of them."""
        return [
            Route(f"{PATH}/login/{{id}}", self._login, methods=["GET", "POST"]),
            Route(f"{PATH}/callback", self._callback),
            guarded_route(f"{PATH}/mine", self._mine, self._auth),
            guarded_route(f"{PATH}/mine/{{key:path}}", self._end, self._auth, methods=["DELETE"]),
        ]

    async def _login(self, request: Request) -> Response:
        try:
            login = await self._logins.found(request.path_params["id"])
            site = self._present_sites().get(login.server)
            if site is None:
                raise LoginOverError("there is no such server any more")
            if request.method == "GET":
                return self._form(login.server)
            principal = await self._authenticated(request)
            if principal is None:
                return self._form(login.server, "That is no key or token of this hub, or this page is too old.", 403)
            address, browser = await self._logins.send(login, principal, site)
        except (OAuthError, VaultError) as error:
            return _told(error)
        response = RedirectResponse(address, 303, _headers())
        self._set(response, _COOKIE, browser)
        return response

    async def _callback(self, request: Request) -> Response:
        try:
            brought = brought_by(f"?{request.url.query}")
            settings = {key: site.settings for key, site in self._present_sites().items()}
            login, _ = await self._logins.finish(brought, request.cookies.get(_COOKIE, ""), settings)
        except (OAuthError, VaultError) as error:
            return _told(error)
        body = f"<p>You are logged in to <b>{html.escape(login.server)}</b>, as <b>{html.escape(login.principal)}</b> "
        response = _page("Logged in", f"{body} of this hub. You can close this page; your call goes on.</p>")
        response.delete_cookie(_COOKIE, path=PATH)
        return response

    async def _mine(self, request: Request) -> Response:
        try:
            mine = await self._of(principal_in(request.scope).name)
        except VaultError as error:
            return JSONResponse({"error": str(error)}, 503)
        return JSONResponse(
            [
                {"server": key, "issuer": each.issuer, "scopes": (each.tokens.scope or "").split()}
                for key, each in mine.items()
            ],
            headers={"Cache-Control": "no-store"},
        )

    async def _end(self, request: Request) -> Response:
        key = request.path_params["key"]
        try:
            account = (await self._of(principal_in(request.scope).name)).get(key)
            if account is None:
                return JSONResponse({"error": f"you have no account at {key!r}"}, 404)
            site = self._present_sites()[key]
            is_revoked = await revoke(self._accounts.vault, account, site.settings)
            self._accounts.account(site.url, site.settings, account.principal).forget()
        except VaultError as error:
            return JSONResponse({"error": str(error)}, 503)
        return JSONResponse({"server": key, "isRevokedThere": is_revoked})

    async def _of(self, principal: str) -> Mapping[str, Tokens]:
        keys = {site.url: key for key, site in self._present_sites().items()}
        accounts = await kept_accounts(self._accounts.vault)
        return {keys[each.url]: each for each in accounts if each.principal == principal and each.url in keys}

    async def _authenticated(self, request: Request) -> str | None:
        """Who has sent a form that was shown to it; None: nobody that is known."""
        form = await _form_in(request)
        shown = request.cookies.get(_FORM_COOKIE, "")
        if not shown or not secrets.compare_digest(shown.encode(), form.get("form", "").encode()):
            return None
        if request.headers.get("sec-fetch-site", "same-origin") != "same-origin" or self._auth is None:
            return None
        token = await self._auth.verify_token(form.get("credential", "").strip())
        return None if token is None else principal_of(token).name

    def _form(self, server: str, text: str = "", status: int = 200) -> Response:
        value = secrets.token_urlsafe(24)
        words = text or "You were asked to log in there, with an account of your own. Say first who you are here."
        body = _FORM.format(text=html.escape(words), form=value)
        response = _page(f"Log in to {html.escape(server)}", body, status)
        self._set(response, _FORM_COOKIE, value)
        return response

    def _set(self, response: Response, name: str, value: str) -> None:
        """Lax: the browser comes back from another site."""
        response.set_cookie(
            name, value, max_age=int(LIFETIME), path=PATH, secure=self._is_secure, httponly=True, samesite="lax"
        )

    def _present_sites(self) -> Mapping[str, Site]:
        found: Mapping[str, Site] = self._sites()
        return found


async def _form_in(request: Request) -> dict[str, str]:
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > _MOST:
                return {}
        return {name: values[0] for name, values in parse_qs(body.decode("utf-8"), max_num_fields=10).items()}
    except (ClientDisconnect, ValueError):
        return {}


def _told(error: Exception) -> Response:
    status = 403 if isinstance(error, WrongBrowserError) else 404 if isinstance(error, LoginOverError) else 502
    return _page("Not logged in", f"<p>{html.escape(str(error))}.</p>", status)


def _page(title: str, body: str, status: int = 200) -> Response:
    nonce = secrets.token_urlsafe(16)
    text = _PAGE.format(title=title, body=body, nonce=nonce, style=_STYLE)
    return HTMLResponse(text, status, _headers(nonce))


def _headers(nonce: str = "") -> dict[str, str]:
    # Without `form-action`: browsers apply it to where a form's answer leads, too, which is an authorization server.
    policy = f"default-src 'none'; style-src 'nonce-{nonce}'; base-uri 'none'; frame-ancestors 'none'"
    return {
        "Content-Security-Policy": policy,
        "Cache-Control": "no-store",
        "Referrer-Policy": "same-origin",  # with `no-referrer` browsers would hide the origin of the form, too
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }
