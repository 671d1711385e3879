"""OAuth tokens of a remote child: kept in a file by `login`, and refreshed from there, without a person.

Theory. A program that serves has no browser, and must not wait for a person; so a child without usable tokens fails,
and says which command mends that. It is tried again as any child that rejects its credentials, and finds new tokens in
the file by itself. All connections to one address share one `Login`, because a refresh token may be good for one time
only.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import httpx2
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import BaseModel, ValidationError

from fastmcp_aggregator.children.http.event_streams import read_body
from fastmcp_aggregator.children.http.failures import AUTH_PAUSE, of_exception
from fastmcp_aggregator.children.http.metadata_addresses import guard
from fastmcp_aggregator.children.session.transport_failure import HttpFailed, HttpFailure
from fastmcp_aggregator.files.atomic import PRIVATE, write_whole

logger = logging.getLogger(__name__)

_MARGIN = 30.0
"""Seconds before its end in which a token is no longer used."""
_TIMEOUT = 20.0
"""Seconds that the authorization server has to answer."""
_ANSWER_LIMIT = 1024 * 1024
_REFUSED = frozenset({400, 401, 403})
_UNUSED: Any = None
"""In place of a registration and a storage: the SDK's context is there only to compose a request."""


class Tokens(BaseModel):
    """What `login` keeps: the tokens, and with what and where they are renewed. `expires_at` is in Unix seconds."""

    url: str
    token_endpoint: str
    resource: str | None
    client: OAuthClientInformationFull
    tokens: OAuthToken
    expires_at: float | None

    def are_good(self, now: float) -> bool:
        """Whether the access token can be used for a while."""
        return self.expires_at is None or now < self.expires_at - _MARGIN


def tokens_file(directory: Path, url: str) -> Path:
    """Where the tokens for an address are."""
    host = "".join(c if c.isalnum() or c in ".-" else "_" for c in httpx2.URL(url).host)[:60]
    return directory / f"{host}-{hashlib.sha256(url.encode()).hexdigest()[:16]}.json"


def keep_tokens(directory: Path, tokens: Tokens) -> Path:
    """Write them where `serve` looks for them, readable by their owner only; return the file.

    Raises:
        AggregatorError, OSError: they cannot be written.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = tokens_file(directory, tokens.url)
    write_whole(path, tokens.model_dump_json(indent=2, exclude_none=True) + "\n", mode=PRIVATE)
    return path


class Login:
    """The tokens for one address; see `login_for`."""

    def __init__(self, directory: Path, url: str) -> None:
        self._directory = directory
        self._file = tokens_file(directory, url)
        self._url = url
        self._tokens: Tokens | None = None
        self._renewing = asyncio.Lock()

    async def authorization(self) -> str:
        """The header's value for the next request.

        Raises:
            HttpFailed: there are no tokens that can be used.
        """
        if self._tokens is None or not self._tokens.are_good(time.time()):
            await self._renew(refused=None)
        assert self._tokens is not None
        return f"Bearer {self._tokens.tokens.access_token}"

    async def renewed(self, refused: str) -> str:
        """The header's value in place of one that the server has refused.

        Raises:
            HttpFailed: there are no other tokens.
        """
        await self._renew(refused)
        return await self.authorization()

    async def _renew(self, refused: str | None) -> None:
        async with self._renewing:
            tokens = self._tokens = await asyncio.to_thread(self._read)
            is_refused = refused == f"Bearer {tokens.tokens.access_token}"
            if not is_refused and tokens.are_good(time.time()):
                return  # somebody else has renewed them, or logged in again
            if tokens.tokens.refresh_token is None:
                raise _login_needed("its login has expired")
            self._tokens = await self._refreshed(tokens, tokens.tokens.refresh_token)
            await asyncio.to_thread(keep_tokens, self._directory, self._tokens)

    def _read(self) -> Tokens:
        try:
            tokens = Tokens.model_validate_json(self._file.read_bytes())
        except FileNotFoundError:
            raise _login_needed("nobody has logged in to it") from None
        except (OSError, ValidationError):
            logger.warning("%s cannot be read", self._file)
            raise _login_needed("the file with its tokens cannot be read") from None
        if tokens.url != self._url:
            logger.warning("%s has the tokens of another address", self._file)
            raise _login_needed("the file with its tokens is for another address")
        return tokens

    async def _refreshed(self, tokens: Tokens, refresh_token: str) -> Tokens:
        """New tokens from the authorization server (RFC 6749, section 6)."""
        context = OAuthContext(tokens.url, _UNUSED, _UNUSED, None, None, client_info=tokens.client)
        asked = {"grant_type": "refresh_token", "refresh_token": refresh_token, "client_id": tokens.client.client_id}
        if tokens.resource is not None:
            asked["resource"] = tokens.resource
        data, headers = context.prepare_token_auth(asked, {})
        status, body = await _posted(tokens.token_endpoint, data, headers)
        if status in _REFUSED:
            raise _login_needed("its login has expired")
        try:
            new = OAuthToken.model_validate_json(body)
        except ValidationError:
            reason = f"its authorization server answered a renewal with HTTP status {status}"
            raise HttpFailed(HttpFailure("status", reason, AUTH_PAUSE)) from None
        # What is left out stays as it was (RFC 6749, section 6).
        kept = {"refresh_token": new.refresh_token or refresh_token, "scope": new.scope or tokens.tokens.scope}
        expires_at = None if new.expires_in is None else time.time() + new.expires_in
        return tokens.model_copy(update={"tokens": new.model_copy(update=kept), "expires_at": expires_at})


_LOGINS: WeakValueDictionary[tuple[Path, str], Login] = WeakValueDictionary()


def login_for(directory: Path, url: str) -> Login:
    """The login for an address, the same for all who ask while one of them has it."""
    login = _LOGINS.get((directory, url))
    if login is None:
        login = _LOGINS[directory, url] = Login(directory, url)
    return login


def _login_needed(why: str) -> HttpFailed:
    return HttpFailed(HttpFailure("auth", f"{why}; run `fastmcp-aggregator login CONFIG SERVER`", AUTH_PAUSE))


async def _posted(url: str, data: dict[str, str], headers: dict[str, str]) -> tuple[int, bytes]:
    """The status and the body of the answer to a form.

    Raises:
        HttpFailed: there was no answer.
    """
    try:
        request = httpx2.Request(
            "POST",
            url,
            data=data,
            headers={**headers, "Accept": "application/json", "Accept-Encoding": "identity"},
        )
        async with httpx2.AsyncClient(timeout=_TIMEOUT, event_hooks={"request": [guard]}) as client:
            response = await client.send(request, stream=True)
            return response.status_code, await read_body(response, _ANSWER_LIMIT)
    except (httpx2.HTTPError, httpx2.InvalidURL, HttpFailed) as error:
        failure = of_exception(error)
        reason = f"its authorization server: {failure.reason}"
        raise HttpFailed(HttpFailure("status", reason, AUTH_PAUSE)) from None
