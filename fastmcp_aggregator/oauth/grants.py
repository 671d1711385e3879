"""Token requests, and what the refusals of a token endpoint mean (RFC 6749, section 5.2)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress

from mcp.shared.auth import JWT_BEARER_GRANT_TYPE, OAuthClientInformationFull, OAuthToken
from pydantic import ValidationError

from fastmcp_aggregator.oauth.clients import authenticated
from fastmcp_aggregator.oauth.errors import ClientRefused, LoginRequired, Unreachable
from fastmcp_aggregator.oauth.web import posted
from fastmcp_aggregator.settings.oauth import OAuthSettings

_OF_LOGIN = {
    "invalid_grant": "its login has expired or was revoked",
    "invalid_client": "its authorization server does not know this client any more",
    "unauthorized_client": "its authorization server does not let this client renew its login",
    "invalid_scope": "its authorization server does not give these scopes any more",
    "interaction_required": "its authorization server wants the person to log in again",
    "login_required": "its authorization server wants the person to log in again",
    "consent_required": "its authorization server wants the person to agree again",
}
_OF_CLIENT = {
    "invalid_client": "its authorization server does not know this client, or its secret or key",
    "unauthorized_client": "its authorization server does not let this client do this",
    "unsupported_grant_type": "its authorization server does not offer this grant",
    "invalid_scope": "its authorization server does not give these scopes",
    "invalid_target": "its authorization server gives no tokens for this `resource` or `audience`",
    "invalid_grant": "its authorization server refuses what was presented",
    "invalid_request": "its authorization server does not take this request",
    "access_denied": "its authorization server denies it",
}
_OF_CODE = {
    **_OF_CLIENT,
    "invalid_grant": "its authorization server does not take the code (any more): it is good once, and not for long",
}
_TOKEN = re.compile(r"[!-~](?:[ -~]*[!-~])?")  # RFC 6749, appendix A.12
_LONGEST_TOKEN = 32 * 1024
_MOST_SECONDS = 2**63
_LATER = frozenset({"temporarily_unavailable", "server_error", "slow_down"})


class Grants:
    """The token endpoint of one provider, asked as one client. Every method raises OAuthError if there is no token."""

    def __init__(
        self, token_endpoint: str, issuer: str, client: OAuthClientInformationFull, settings: OAuthSettings
    ) -> None:
        self._endpoint = token_endpoint
        self._issuer = issuer
        self._client = client
        self._settings = settings

    async def code(self, code: str, verifier: str, redirect_uri: str, resource: str | None) -> OAuthToken:
        """The tokens for an authorization code."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        return await self._asked(form, None, resource, _OF_CODE)

    async def refresh(self, refresh_token: str, resource: str | None) -> OAuthToken:
        """New tokens for a refresh token (RFC 6749, section 6). Raises LoginRequired: it is not good any more."""
        form = {"grant_type": "refresh_token", "refresh_token": refresh_token}
        return await self._asked(form, None, resource, _OF_LOGIN, LoginRequired)

    async def client_credentials(self, scopes: str | None, resource: str | None) -> OAuthToken:
        """A token for the client itself (RFC 6749, section 4.4)."""
        return await self._asked({"grant_type": "client_credentials"}, scopes, resource)

    async def exchange(self, token: str, scopes: str | None, resource: str | None) -> OAuthToken:
        """A token for whom another token is about (RFC 8693)."""
        form = {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "subject_token": token,
            "subject_token_type": "urn:ietf:params:oauth:token-type:access_token",
            "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
        }
        return await self._asked(form, scopes, resource)

    async def assertion(self, token: str, scopes: str | None, resource: str | None) -> OAuthToken:
        """A token for whom an assertion is about (RFC 7523, section 2.1)."""
        return await self._asked({"grant_type": JWT_BEARER_GRANT_TYPE, "assertion": token}, scopes, resource)

    async def _asked(
        self,
        form: dict[str, str],
        scopes: str | None,
        resource: str | None,
        words: Mapping[str, str] = _OF_CLIENT,
        refused: type[LoginRequired | ClientRefused] = ClientRefused,
    ) -> OAuthToken:
        if scopes:
            form["scope"] = scopes
        if resource is not None:
            form["resource"] = resource
        if self._settings.audience is not None:
            form["audience"] = self._settings.audience
        data, headers = await authenticated(form, self._client, self._settings, self._issuer)
        answer = await posted(self._endpoint, data, headers)
        if answer.status == 200:
            try:
                return _usable(OAuthToken.model_validate_json(answer.body))
            except ValidationError:
                raise Unreachable("its authorization server answered with something else than tokens") from None
        code = _error_code(answer.body)
        if answer.status not in (400, 401, 403) or code in _LATER:
            raise Unreachable(f"its authorization server gives no tokens now (HTTP status {answer.status}); try again")
        raise refused(words.get(code, f"its authorization server refuses (HTTP status {answer.status})"))


def _usable(token: OAuthToken) -> OAuthToken:
    """A token that can be sent, and be kept. Raises ClientRefused: it cannot."""
    if not token.access_token:
        raise ClientRefused("its authorization server gave an empty token")
    if not _TOKEN.fullmatch(token.access_token):
        raise ClientRefused("its authorization server gave a token that cannot be in a header")
    if any(len(each or "") > _LONGEST_TOKEN for each in (token.access_token, token.refresh_token, token.scope)):
        raise ClientRefused(f"its authorization server gave a token of more than {_LONGEST_TOKEN // 1024} KiB")
    if abs(token.expires_in or 0) > _MOST_SECONDS:
        raise ClientRefused("its authorization server gave a token that expires at no time that there is")
    return token


def _error_code(body: bytes) -> str:
    with suppress(ValueError, RecursionError):
        found = json.loads(body)
        if isinstance(found, dict) and isinstance(found.get("error"), str):
            return str(found["error"])
    return ""
