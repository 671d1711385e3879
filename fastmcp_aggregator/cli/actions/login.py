"""An OAuth login in a browser; its tokens are kept for the program that serves."""

from __future__ import annotations

import argparse
import asyncio
import logging
import time
import warnings
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
from fastmcp.client.auth import OAuth
from key_value.aio.stores.memory import MemoryStore
from mcp.client.auth import OAuthFlowError
from mcp.shared.auth import AuthorizationCodeResult
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from fastmcp_aggregator.children.http.credentials import default_oauth_dir, shown_url
from fastmcp_aggregator.children.http.metadata_addresses import guard
from fastmcp_aggregator.children.http.oauth import Tokens, keep_tokens
from fastmcp_aggregator.children.session.transport_failure import HttpFailed
from fastmcp_aggregator.cli.running.starting import load, run_command
from fastmcp_aggregator.cli.terminal.console import say
from fastmcp_aggregator.cli.terminal.exits import FINE, UsageError
from fastmcp_aggregator.config import McpConfig, RemoteServer, UnresolvedServer
from fastmcp_aggregator.errors import AggregatorError
from fastmcp_aggregator.libraries import OF_LOGIN, require_parts
from fastmcp_aggregator.version import VERSION

_LISTENING_PAUSE = 0.01
_PERSON_BOUND = 300.0
"""Seconds that a person has to log in."""
_HANDSHAKE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": HANDSHAKE_PROTOCOL_VERSIONS[-1],
        "capabilities": {},
        "clientInfo": {"name": "fastmcp-aggregator", "version": VERSION},
    },
}
"""What makes a server say that a login is needed."""


def run(options: argparse.Namespace) -> int:
    require_parts(OF_LOGIN)
    config, settings = load(options)
    server = _remote(config, options.server)
    if not options.debug:
        logging.getLogger("mcp").setLevel(logging.CRITICAL)  # it logs what is told below, with a traceback
    directory = default_oauth_dir() if settings.oauth_dir is None else Path(settings.oauth_dir).expanduser()
    is_used = server.key in settings.servers and settings.servers[server.key].oauth
    work = _log_in(server, directory, options.port, is_used=is_used)
    return run_command(work)


def _remote(config: McpConfig, key: str) -> RemoteServer:
    server = config.servers.get(key)
    if isinstance(server, RemoteServer):
        return server
    if isinstance(server, UnresolvedServer):
        raise UsageError(f"cannot log in to {key!r}: {server.reason}")
    remote = [other for other, entry in config.servers.items() if isinstance(entry, RemoteServer)]
    why = "there is no server" if server is None else "there is no login for a server without a `url`:"
    raise UsageError(f"{why} {key!r}; servers with a `url`: {', '.join(map(repr, remote)) or 'none'}")


async def _log_in(server: RemoteServer, directory: Path, port: int | None, *, is_used: bool) -> int:
    try:
        tokens = await _tokens(server, port)
        path = keep_tokens(directory, tokens)
    except (OAuthFlowError, httpx2.HTTPError, httpx2.InvalidURL, HttpFailed, OSError, RuntimeError) as error:
        raise AggregatorError(f"logging in to {server.key!r} failed: {error}") from error
    say(f"logged in to {server.key!r}; the tokens are in {path}")
    if not is_used:
        say(f"They are used once the settings have `oauth = true` under [servers.{server.key}].")
    return FINE


class _InBrowser(OAuth):
    """Also says where the browser is sent, for a person who opens it by hand. With `issuer`, that is the authorization
    server, whatever the server says.
    """

    has_asked = False
    """Whether a person has been asked."""

    def __init__(self, url: str, port: int | None, issuer: str | None = None) -> None:
        self._issuer = issuer
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the store in memory is only on the way to the file
            super().__init__(
                url,
                client_name="fastmcp-aggregator",
                token_storage=MemoryStore(),
                callback_port=port,
                callback_timeout=_PERSON_BOUND,
                httpx_client_factory=_client,
            )

    def with_issuer_as_written(self) -> _InBrowser | None:
        """The same with an issuer that may have been written otherwise than it was announced; None: it was not.

        Servers that keep it as a pydantic URL announce `https://host` as `https://host/`. Both are one origin with the
        same metadata, so that no other can take its place; those with a path have to be the same to the letter.
        """
        announced = self.context.auth_server_url or ""
        is_accepted = self.context.oauth_metadata is not None or self.has_asked
        if is_accepted or urlsplit(announced)[2:] != ("/", "", ""):
            return None
        return _InBrowser(self.mcp_url, self._callback_port, announced.removesuffix("/"))

    def _select_authorization_server(self, advertised: list[str]) -> str:
        return self._issuer or super()._select_authorization_server(advertised)

    async def redirect_handler(self, authorization_url: str) -> None:
        self.has_asked = True
        say(f"Log in at: {authorization_url}")
        self._answer = asyncio.create_task(super().callback_handler())
        try:
            await self._until_listening(self._answer)
            await super().redirect_handler(authorization_url)
        except BaseException:
            self._answer.cancel()
            raise

    async def callback_handler(self) -> AuthorizationCodeResult:
        """What the browser brings. It is waited for since before the browser was opened: where somebody is logged in
        already, it is back at once.
        """
        return await self._answer

    async def _until_listening(self, answer: asyncio.Task[AuthorizationCodeResult]) -> None:
        (back,) = self.context.client_metadata.redirect_uris or []
        while not answer.done():
            try:
                _, writer = await asyncio.open_connection(back.host, back.port)
            except OSError:
                await asyncio.sleep(_LISTENING_PAUSE)
            else:
                writer.close()
                return


async def _tokens(server: RemoteServer, port: int | None) -> Tokens:
    """What a login has brought.

    Raises:
        AggregatorError: the server asked for no login.
        OAuthFlowError, httpx2.HTTPError, OSError, RuntimeError: the login failed.
    """
    url = shown_url(server.url)
    oauth = _InBrowser(url, port)
    try:
        status = await _handshake(server, oauth)
    except OAuthFlowError:
        again = oauth.with_issuer_as_written()
        if again is None:
            raise
        oauth = again
        status = await _handshake(server, oauth)
    context = oauth.context
    if context.current_tokens is None or context.client_info is None:
        raise AggregatorError(
            f"{server.key!r} requires no login: it answered without asking for one (HTTP status {status})"
        )
    expires_in = context.current_tokens.expires_in
    return Tokens(
        url=url,
        token_endpoint=oauth._get_token_endpoint(),
        resource=context.get_resource_url() if context.should_include_resource_param() else None,
        client=context.client_info,
        tokens=context.current_tokens,
        expires_at=None if expires_in is None else time.time() + expires_in,
    )


def _client(
    headers: dict[str, str] | None = None, timeout: httpx2.Timeout | None = None, auth: httpx2.Auth | None = None
) -> httpx2.AsyncClient:
    """For all requests of a login, some of which go where the server says."""
    return httpx2.AsyncClient(auth=auth, headers=headers, timeout=timeout or 30.0, event_hooks={"request": [guard]})


async def _handshake(server: RemoteServer, oauth: OAuth) -> int:
    """The status of a server's answer, after a login if it asked for one."""
    headers = {"Accept": "application/json, text/event-stream", **server.plain_headers()}
    async with (
        _client(auth=oauth) as client,
        client.stream("POST", server.url, json=_HANDSHAKE, headers=headers) as response,
    ):
        return response.status_code
