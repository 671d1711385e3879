"""The pages and routes with which callers log in to servers with accounts of their own, beside a hub's MCP endpoint:

/accounts/login/{id}    asks who opens it to authenticate, and sends the browser to the authorization server
/accounts/callback/{id} where the browser comes back to, from the issuer with this digest
/accounts/mine          where who asks may log in, and is: behind authentication
/accounts/mine/{key}    POST begins a login there for who asks, in the browser that asks; DELETE ends the account
/accounts               who has accounts where, for operators
/accounts/revoke        POST ends one, for operators: `{"server": KEY, "principal": NAME}`
/accounts/hub/{key}     POST begins a login for the hub, by an operator

The pages have no script, load nothing, and are in no frame. A form is taken from pages of this origin alone (the guard
of all requests sees to that), and only from browsers that have been shown it.
"""

from __future__ import annotations

import html
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from fastmcp_aggregator.access.principal import ANYBODY, Principal
from fastmcp_aggregator.auth.claims import principal_in, principal_of
from fastmcp_aggregator.children.http.credentials import shown_url
from fastmcp_aggregator.config import RemoteServer
from fastmcp_aggregator.front.http.connection import whole_body
from fastmcp_aggregator.front.http.security import guarded_route, json_body, without_head
from fastmcp_aggregator.groups import DEFAULT_GROUP
from fastmcp_aggregator.oauth.account import kept_accounts, kept_tokens
from fastmcp_aggregator.oauth.authorization import MixedUpError, authorization_response
from fastmcp_aggregator.oauth.errors import OAuthError
from fastmcp_aggregator.oauth.logins import LOGIN_LIFETIME, PATH, LoginOverError, Site, WrongBrowserError, cookie_of
from fastmcp_aggregator.oauth.revocation import revoke
from fastmcp_aggregator.oauth.tokens import HUB, Tokens
from fastmcp_aggregator.oauth.vault.errors import VaultError
from fastmcp_aggregator.relay.instances.caller_catalogues import site_of
from fastmcp_aggregator.web.dashboard.routes import Hub
from fastmcp_aggregator.web.operations import LONGEST_NAME, operator_route

_LARGEST_FORM = 32 * 1024
_LOGIN = f"{PATH}/login"
_CALLBACK = f"{PATH}/callback"
_FORM_COOKIE = "fastmcp_aggregator_form"
_STYLE = "body{font:1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:4rem auto;padding:0 1rem}input{width:100%}"
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style nonce="{nonce}">{style}</style><h1>{title}</h1>{body}</html>"""
_BACK = '<p><a href="../../#accounts">All accounts</a></p>'
_FORM = """<p>{text}</p><form method="post"><input type="hidden" name="form" value="{form}">
<p><label>Your API key or token for this hub<br><input type="password" name="credential" autocomplete="off"
required></label></p><p><button>Go on</button></p></form>"""


class AccountSites:
    """The servers of one hub at which people log in, as it is configured now, by server key."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def of_callers(self) -> Mapping[str, Site]:
        """Where calls are made with callers' own accounts."""
        found = {key: site_of(child) for key, child in self._hub.children.items()}
        return {key: site for key, site in found.items() if site is not None}

    def of(self, principal: Principal) -> Mapping[str, Site]:
        """The sites of this caller's groups, at which it may log in."""
        mine = {key for group in self._hub.groups() if principal.may_use(group.id) for key in group.servers}
        return {
            key: site for key, site in self.of_callers().items() if key in mine and site.settings.account == "caller"
        }

    def of_hub(self) -> Mapping[str, Site]:
        """Where the hub has an account that a person logs in to."""
        found = {}
        for key, child in self._hub.children.items():
            oauth, server = child.options.endpoint.access.oauth, child.server
            is_by_person = oauth is not None and oauth.grant == "authorization_code" and not child.stands_for_instances
            if oauth is not None and is_by_person and isinstance(server, RemoteServer):
                found[key] = Site(key, shown_url(server.url), oauth)
        return found


class AccountPages:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._accounts = hub.backend.accounts
        self._logins = hub.backend.logins
        self._sites = AccountSites(hub)
        self._auth = hub.auth
        public = urlsplit(hub.settings.public_url or "")
        self._is_secure = public.scheme == "https"
        self._path = f"{public.path.rstrip('/')}{PATH}"
        """The path of the cookies."""

    def routes(self) -> list[BaseRoute]:
        return [
            Route(f"{PATH}/login/{{id}}", self._login, methods=["GET", "POST"]),
            without_head(Route(f"{_CALLBACK}/{{id}}", self._callback)),
            guarded_route(f"{PATH}/mine", self._mine, self._auth),
            guarded_route(f"{PATH}/mine/{{key:path}}", self._end, self._auth, methods=["DELETE"]),
            guarded_route(f"{PATH}/mine/{{key:path}}", self._begin, self._auth, methods=["POST"]),
            operator_route(self._hub, PATH, self._all, "GET"),
            operator_route(self._hub, f"{PATH}/revoke", self._revoke, "POST"),
            operator_route(self._hub, f"{PATH}/hub/{{key:path}}", self._begin_for_hub, "POST", "login"),
        ]

    async def _login(self, request: Request) -> Response:
        try:
            login = await self._logins.found(request.path_params["id"])
            site = self._sites.of_callers().get(login.server)
            if site is None:
                raise LoginOverError("there is no such server any more")
            if request.method != "POST":
                return self._form(login.server)
            principal = await self._authenticated(request)
            if principal is None:
                return self._form(
                    login.server, "That is not a key or token of this hub, or this page has expired.", 403
                )
            if principal.name != login.principal:
                self._hub.policies.request_denied(principal, DEFAULT_GROUP, _LOGIN, "the login is somebody else's")
            elif (rejection := await self._hub.policies.limit(principal, DEFAULT_GROUP)) is not None:
                return self._form(login.server, f"{rejection.message}.", 429)
            redirect = await self._logins.send(login, principal.name, site)
        except WrongBrowserError as error:  # of somebody who is known, which is recorded above
            return _not_logged_in(error, 403)
        except (OAuthError, VaultError) as error:
            return self._told(request, _LOGIN, error)
        response = RedirectResponse(redirect.address, 303, _headers())
        self._set(response, redirect.cookie, redirect.secret)
        return response

    async def _callback(self, request: Request) -> Response:
        try:
            came_to = f"{self._logins.callback}/{quote(request.path_params['id'], safe='', errors='replace')}"
            answer = authorization_response(f"{came_to}?{request.url.query}")
            sites = {**self._sites.of_hub(), **self._sites.of_callers()}
            settings = {key: site.settings for key, site in sites.items()}
            cookie = cookie_of(answer.query["state"])
            login, tokens = await self._logins.finish(answer, request.cookies.get(cookie, ""), settings)
        except (OAuthError, VaultError) as error:
            return self._told(request, _CALLBACK, error)
        self._forget(sites[login.server], tokens)
        # Who the browser is of is not known here; it is the one in which the login was begun.
        self._hub.policies.operated(ANYBODY, "logged_in", login.server, account=login.principal or None)
        if login.principal == HUB:
            self._start(login.server)
            whose = "The hub is logged in to"
        else:
            whose = "You are logged in to"
        body = f"<p>{whose} <b>{html.escape(login.server)}</b>, as <b>{html.escape(login.principal or 'itself')}</b> "
        response = _page(
            "Logged in", f"{body} of this hub. You can close this page; what waits for it goes on.</p>{_BACK}"
        )
        response.delete_cookie(cookie, path=self._path)
        return response

    def _start(self, key: str) -> None:
        """Connect at once: a server that has refused its credentials is left alone for a while."""
        if not self._hub.children[key].is_serving:
            self._hub.restart(key)

    async def _mine(self, request: Request) -> Response:
        principal = principal_in(request.scope)
        try:
            mine = await self._of(principal)
        except VaultError as error:
            return _unreadable(error)
        sites = self._sites.of(principal)
        return JSONResponse([_described(key, mine.get(key)) for key in sites])

    async def _begin(self, request: Request) -> Response:
        principal, key = principal_in(request.scope), request.path_params["key"]
        site = self._sites.of(principal).get(key)
        if site is None or self._auth is None:
            if key in self._sites.of_callers():
                path, reason = request.scope["path"], "the caller has no such server"
                self._hub.policies.request_denied(principal, DEFAULT_GROUP, path, reason)
            return JSONResponse({"error": f"you cannot log in to {key!r}"}, 404)
        if (rejection := await self._hub.policies.limit(principal, DEFAULT_GROUP)) is not None:
            return JSONResponse({"error": rejection.message}, 429)
        self._hub.policies.operated(principal, "login", key)
        return await self._sent(principal.name, site)

    async def _begin_for_hub(self, request: Request) -> Response:
        key = request.path_params["key"]
        site = self._sites.of_hub().get(key)
        if site is None:
            return JSONResponse({"error": f"the hub does not log in to {key!r}"}, 404)
        if self._hub.settings.public_url is None:
            why = f"set `public_url`, or run `fastmcp-aggregator login CONFIG {key}`"
            return JSONResponse({"error": why}, 409)
        self._hub.policies.operated(principal_in(request.scope), "login", key)
        return await self._sent(HUB, site)

    async def _sent(self, principal: str, site: Site) -> Response:
        """The address of the authorization server, for the browser that has asked, and no other."""
        try:
            login = await self._logins.begin(principal, site.key)
            redirect = await self._logins.send(login, principal, site)
        except (OAuthError, VaultError) as error:
            return JSONResponse({"error": str(error)}, 502)
        response = JSONResponse({"address": redirect.address})
        self._set(response, redirect.cookie, redirect.secret)
        return response

    async def _end(self, request: Request) -> Response:
        principal, key = principal_in(request.scope), request.path_params["key"]
        try:
            account = (await self._of(principal)).get(key)
            if account is None:
                return JSONResponse({"error": f"you have no account at {key!r}"}, 404)
            self._hub.policies.operated(principal, "logout", key)
            return await self._ended(self._sites.of_callers()[key], account)
        except VaultError as error:
            return _unreadable(error)

    async def _all(self, request: Request) -> Response:
        self._hub.policies.operated(principal_in(request.scope), "accounts", None)
        try:
            accounts = await kept_accounts(self._accounts.vault)
        except VaultError as error:
            return _unreadable(error)
        keys = {site.url: key for key, site in {**self._sites.of_hub(), **self._sites.of_callers()}.items()}
        known = [each for each in accounts if each.url in keys]
        told = [{**_described(keys[each.url], each), "principal": each.principal} for each in known]
        return JSONResponse(told)

    async def _revoke(self, request: Request) -> Response:
        named = await _names_in(request)
        if named is None:
            return JSONResponse({"error": 'the body must be JSON: {"server": KEY, "principal": NAME}'}, 400)
        key, principal = named
        site = (self._sites.of_hub() if principal == HUB else self._sites.of_callers()).get(key)
        try:
            account = None if site is None else await kept_tokens(self._accounts.vault, site.url, principal)
            if site is None or account is None:
                return JSONResponse({"error": f"there is no account of {principal!r} at {key!r}"}, 404)
            self._hub.policies.operated(principal_in(request.scope), "revoke", key, account=principal)
            return await self._ended(site, account)
        except VaultError as error:
            return _unreadable(error)

    async def _ended(self, site: Site, account: Tokens) -> Response:
        is_revoked = await revoke(self._accounts.vault, account, site.settings)
        self._forget(site, account)
        return JSONResponse({"server": site.key, "isRevokedThere": is_revoked})

    def _forget(self, site: Site, account: Tokens) -> None:
        self._accounts.account(site.url, site.settings, account.principal).forget()

    async def _of(self, principal: Principal) -> Mapping[str, Tokens]:
        """The accounts of a caller, by server key."""
        found = {
            key: await kept_tokens(self._accounts.vault, site.url, principal.name)
            for key, site in self._sites.of_callers().items()
        }
        return {key: account for key, account in found.items() if account is not None}

    def _refused(self, request: Request, path: str, reason: str) -> None:
        """Record a refusal of somebody unknown. The addresses of logins are secrets, so `path` is told instead."""
        client = request.client.host if request.client is not None else ""
        self._hub.policies.authentication_failed(client, path, reason)

    async def _authenticated(self, request: Request) -> Principal | None:
        """The principal that has sent a form which was shown to it; None: it is unknown."""
        form = await _form_in(request)
        shown = request.cookies.get(_FORM_COOKIE, "")
        is_shown = bool(shown) and secrets.compare_digest(shown.encode(), form.get("form", "").encode())
        if not is_shown or request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
            self._refused(request, _LOGIN, "the form was not shown to this browser")
            return None
        token = None if self._auth is None else await self._auth.verify_token(form.get("credential", "").strip())
        if token is None:
            self._refused(request, _LOGIN, "the credentials are not valid")
            return None
        return principal_of(token)

    def _told(self, request: Request, path: str, error: Exception) -> Response:
        """The page that says why a login goes no further."""
        is_denied = isinstance(error, WrongBrowserError | MixedUpError)
        status = 403 if is_denied else 404 if isinstance(error, LoginOverError) else 502
        if isinstance(error, MixedUpError):
            self._refused(request, path, str(error))
        elif status == 403:
            self._refused(request, path, "the login was begun in another browser")
        elif status == 404:
            self._refused(request, path, "unknown or expired login")
        return _not_logged_in(error, status)

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
            name,
            value,
            max_age=int(LOGIN_LIFETIME),
            path=self._path,
            secure=self._is_secure,
            httponly=True,
            samesite="lax",
        )


def _not_logged_in(error: Exception, status: int) -> Response:
    return _page("Not logged in", f"<p>{html.escape(str(error))}.</p>", status)


def _described(key: str, account: Tokens | None) -> dict[str, Any]:
    if account is None:
        return {"server": key, "isLoggedIn": False}
    return {
        "server": key,
        "isLoggedIn": not account.is_refused,
        "issuer": account.issuer,
        "scopes": (account.tokens.scope or "").split(),
        "since": account.logged_in_at or account.obtained_at,
    }


def _unreadable(error: VaultError) -> Response:
    return JSONResponse({"error": str(error)}, 503)


async def _names_in(request: Request) -> tuple[str, str] | None:
    """The server and the principal that a request names."""
    match await json_body(request):
        case {"server": str(key), "principal": str(name)} if max(len(key), len(name)) <= LONGEST_NAME:
            return key, name
    return None


async def _form_in(request: Request) -> dict[str, str]:
    """The fields of a form; none of one that is too large, or is no form."""
    try:
        body = await whole_body(request, _LARGEST_FORM) or b""
        return {name: values[0] for name, values in parse_qs(body.decode("utf-8"), max_num_fields=10).items()}
    except (ClientDisconnect, ValueError):
        return {}


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
