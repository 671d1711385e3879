"""Revocation of an account: its tokens are removed here, and revoked at their authorization server (RFC 7009)."""

from __future__ import annotations

from fastmcp_aggregator.oauth.clients import authenticated
from fastmcp_aggregator.oauth.errors import OAuthError
from fastmcp_aggregator.oauth.tokens import Tokens
from fastmcp_aggregator.oauth.vault.vault import TOKENS, Vault
from fastmcp_aggregator.oauth.web import posted
from fastmcp_aggregator.settings.oauth import OAuthSettings


async def revoke(vault: Vault, tokens: Tokens, settings: OAuthSettings) -> bool:
    """End an account; whether its authorization server has revoked the tokens too.

    Raises:
        VaultError: they cannot be removed.
    """
    async with vault.locked(TOKENS, tokens.name):  # or a renewal that is under way would bring them back
        document = await vault.read(TOKENS, tokens.name)
        newest = tokens if document is None else Tokens.model_validate_json(document)
        await vault.remove(TOKENS, tokens.name)
    return await revoked_there(newest, settings)


async def revoked_there(tokens: Tokens, settings: OAuthSettings) -> bool:
    """Revoke tokens at their authorization server; whether nothing can be got with them any more.

    That is so once the refresh token is revoked. Access tokens that are verified without asking, as JWTs, expire.
    """
    held = tokens.tokens
    kinds = {"refresh_token": held.refresh_token, "access_token": held.access_token}
    try:
        revoked = [await _is_revoked(tokens, settings, kind, token) for kind, token in kinds.items() if token]
    except OAuthError:
        return False
    return revoked[0]


async def _is_revoked(tokens: Tokens, settings: OAuthSettings, kind: str, token: str) -> bool:
    if tokens.revocation_endpoint is None:
        return False
    form = {"token": token, "token_type_hint": kind}
    data, headers = await authenticated(form, tokens.client, settings, tokens.issuer)
    answer = await posted(tokens.revocation_endpoint, data, headers)
    if answer.status == 400 and not headers:
        # Servers made with the MCP SDK want the field, also of clients that have no secret.
        answer = await posted(tokens.revocation_endpoint, {"client_secret": "", **data}, headers)
    return answer.status == 200
