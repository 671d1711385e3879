"""Credentials of a remote child: the headers that its requests get, besides what the SDK puts there.

What belongs to no caller (the handshake, lists, signs of life) has the headers of the config, and the token of its
setting. A request of a caller has them too, but for the headers that are passed on: those are the caller's own, or
absent if it has none. So nothing that the operator has configured is used where the caller was to identify itself.
"""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from collections.abc import Hashable, Mapping
from typing import Protocol
from urllib.parse import unquote

import httpx2

from fastmcp_aggregator.access.keys import KEY_PREFIX
from fastmcp_aggregator.children.session.in_flight import caller_now, headers_of_caller
from fastmcp_aggregator.children.session.transport_failure import HttpFailed, HttpFailure
from fastmcp_aggregator.config import McpConfig, RemoteServer, StdioServer, UnresolvedServer
from fastmcp_aggregator.config.documents import Location
from fastmcp_aggregator.config.remote import header_fault
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.settings.model import AggregatorSettings
from fastmcp_aggregator.settings.options import ChildOptions, RemoteAccess

_AUTHORIZATION = "authorization"
EVERYBODY: Hashable = object()
"""The principal of credentials that are used for any."""


class TokenSource(Protocol):
    """The tokens of one account at the server; see `oauth/account.py`."""

    why_login_needed: str | None

    async def authorization(self) -> str:
        """The header's value for the next request.

        Raises:
            HttpFailed: there are no tokens that can be used.
        """
        ...

    async def renewed(self, refused: str) -> str:
        """The header's value in place of one that the server has refused.

        Raises:
            HttpFailed: there are no other tokens.
        """
        ...

    async def widened(self, refused: str, scopes: str | None) -> str:
        """The header's value in place of one that is too narrow for a request.

        Raises:
            HttpFailed: there is no other; the next login asks for these scopes.
        """
        ...


class Credentials:
    """The headers of one remote child."""

    def __init__(
        self,
        headers: Mapping[str, str],
        *,
        passed: frozenset[str] = frozenset(),
        login: TokenSource | None = None,
        only_for: Hashable = EVERYBODY,
    ) -> None:
        """All names are in lower case. `only_for` is the principal for whose requests, and for requests of nobody,
        these are; None: for requests of nobody alone.
        """
        self._only_for = only_for
        self._headers = headers
        self._passed = passed
        self._login = login

    @property
    def passes_headers(self) -> bool:
        """True if requests of callers have headers of their own."""
        return bool(self._passed)

    @property
    def why_login_needed(self) -> str | None:
        """Why a person has to log in; None: none has to, or can."""
        return None if self._login is None else self._login.why_login_needed

    async def headers(self) -> Mapping[str, str]:
        """The headers of the request of the present context, by names in lower case.

        Raises:
            HttpFailed: nobody has logged in to the server, or it is somebody else's request.
        """
        caller = caller_now()
        if self._only_for is not EVERYBODY and caller is not None and caller.account != self._only_for:
            raise HttpFailed(HttpFailure("auth", "it is called with each caller's own account, and this is another's"))
        own = self._headers
        if self._login is not None and not self._caller_has_its_own:
            own = {**own, _AUTHORIZATION: await self._login.authorization()}
        of_caller = headers_of_caller() if self._passed else None
        if of_caller is None:
            return own
        passed = {name: of_caller[name] for name in self._passed if name in of_caller}
        kept = {name: value for name, value in own.items() if name not in self._passed}
        return {**kept, **{name: value for name, value in passed.items() if not _is_for_us(value)}}

    @property
    def may_be_renewed(self) -> bool:
        """True if there may be other headers for the request of the present context, when its own were refused."""
        return self._login is not None and not self._caller_has_its_own

    async def renewed(self, refused: Mapping[str, str]) -> Mapping[str, str]:
        """The headers in place of those that were refused.

        Raises:
            HttpFailed: there are no others.
        """
        assert self._login is not None
        return {**refused, _AUTHORIZATION: await self._login.renewed(refused[_AUTHORIZATION])}

    async def widened(self, refused: Mapping[str, str], scopes: str | None) -> Mapping[str, str]:
        """The headers in place of those that are too narrow for a request.

        Raises:
            HttpFailed: there are no others.
        """
        assert self._login is not None
        return {**refused, _AUTHORIZATION: await self._login.widened(refused[_AUTHORIZATION], scopes)}

    @property
    def _caller_has_its_own(self) -> bool:
        """True if the Authorization of the present request is its caller's, or absent."""
        return _AUTHORIZATION in self._passed and headers_of_caller() is not None


def credentials_of(server: RemoteServer, access: RemoteAccess, login: TokenSource | None = None) -> Credentials:
    """The credentials of the config and the settings, with the tokens of a login.

    Raises:
        ChildServerError: the variable with the token is not set, or its value cannot be a header.
    """
    headers = {name.lower(): value for name, value in server.plain_headers().items()}
    url = httpx2.URL(server.url)
    if url.username or url.password:
        headers[_AUTHORIZATION] = "Basic " + b64encode(f"{url.username}:{url.password}".encode()).decode()
    if access.bearer_env is not None:
        headers[_AUTHORIZATION] = f"Bearer {_token(server.key, access.bearer_env)}"
    only_for = access.principal if access.is_per_caller else EVERYBODY
    return Credentials(headers, passed=access.pass_headers, login=login, only_for=only_for)


def require_credentials(config: McpConfig, settings: AggregatorSettings) -> None:
    """Check what the settings say about the credentials of the config's servers.

    That the variable with a token is not set is a problem if they are strict, and otherwise that server's failure.

    Raises:
        ConfigError: with everything that cannot be meant so.
    """
    root = Location("settings")
    for key, server in config.servers.items():
        access, location = ChildOptions.from_settings(settings, server).endpoint.access, root.at("servers").at(key)
        if access == RemoteAccess() or isinstance(server, UnresolvedServer):
            continue
        if isinstance(server, StdioServer):
            location.report(
                "has `bearer_env`, `oauth`, `pass_headers` or `pass_credentials`, which are for servers with a `url`"
            )
            continue
        if access.oauth is not None and access.oauth.account == "caller" and settings.public_url is None:
            location.at("oauth").at("account").report("needs `public_url`, to which the browsers of callers come back")
        names = {name.lower() for name in server.plain_headers()}
        has_own = _AUTHORIZATION in names or bool(httpx2.URL(server.url).userinfo)
        if has_own and (access.oauth is not None or access.bearer_env is not None):
            location.report("has `oauth` or `bearer_env`, and the config has an Authorization for it; keep one of them")
        variable = access.bearer_env if settings.strict else None
        if variable is not None and not os.environ.get(variable, "").strip():
            message = f"the environment variable {variable} is not set"
            location.at("bearer_env").report(message, code="missing_env_var")
    root.raise_problems()


def shown_url(url: str) -> str:
    """A URL for the SDK, and for a file of tokens: without user info, query and fragment, which are sent otherwise."""
    return str(httpx2.URL(url).copy_with(userinfo=b"", query=None, fragment=None))


def _token(key: str, variable: str) -> str:
    token = os.environ.get(variable, "").strip()
    if not token:
        raise _without_token(key, f"the environment variable {variable} (its `bearer_env`) is not set")
    if header_fault("Authorization", token) is not None:
        raise _without_token(key, f"the value of {variable} (its `bearer_env`) cannot be a token")
    return token


def _is_for_us(value: str) -> bool:
    """True if a caller's header has an API key of this program, which is nobody else's to see."""
    return KEY_PREFIX in value or any(KEY_PREFIX in _plain(word) for word in value.split())


def _plain(word: str) -> str:
    """A word as it was before it was encoded, if it was: in Basic credentials, or for a cookie or an address."""
    try:
        decoded = b64decode(word + "=" * (-len(word) % 4), altchars=b"-_").decode("latin-1")
    except ValueError:
        decoded = ""
    return f"{unquote(word)} {decoded}"


def _without_token(key: str, reason: str) -> ChildServerError:
    return ChildServerError(key, "startup", reason, public_reason="there are no credentials for it that can be used")
