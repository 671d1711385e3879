"""The principal of an HTTP request, from the token with which it has authenticated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mcp.server.auth.provider import AccessToken

from fastmcp_aggregator.access.principal import ANYBODY, Principal
from fastmcp_aggregator.access.roles import CALL, METRICS, OBSERVE, USUAL, with_implied

CLAIM = "fastmcp_aggregator"
"""The claim in which the verifiers of this room say who it is: a `Principal`, which no token can contain."""

_OF_OTHERS = frozenset({CALL, OBSERVE, METRICS})
"""The roles of tokens of a provider of the app's own, which says nothing of roles."""


def claim_of(name: str, groups: Iterable[str] | None, roles: Iterable[str] = USUAL) -> dict[str, Any]:
    """The claim that a verifier adds to a token."""
    return {CLAIM: Principal(name, None if groups is None else frozenset(groups), with_implied(roles))}


def access_token_of(scope: Mapping[str, Any]) -> AccessToken | None:
    """The token with which an HTTP request has authenticated; None without one."""
    token: AccessToken | None = getattr(scope.get("user"), "access_token", None)
    return token


def principal_in(scope: Mapping[str, Any]) -> Principal:
    """The principal of an HTTP request; `ANYBODY`, if it is unauthenticated."""
    return principal_of(access_token_of(scope))


def principal_of(token: AccessToken | None) -> Principal:
    """The principal of a token; without one, anybody.

    A token of a provider of the app's own has no claim of ours: it is named by its subject or client, with the issuer
    if it tells one, and may use all groups and see everything.
    """
    if token is None:
        return ANYBODY
    claims = token.claims or {}
    about = claims.get(CLAIM)
    if isinstance(about, Principal):
        return about
    return Principal(subject_of(token, "token", claims.get("iss")), roles=_OF_OTHERS)


def subject_of(token: AccessToken, source: str, issuer: object) -> str:
    """The name of whom a token is about: its subject, or, in a token of a client for itself, the client."""
    of_issuer = "" if issuer is None else f"{issuer}#"
    if token.subject:
        return f"{source}:{of_issuer}{token.subject}"
    return f"client:{of_issuer}{getattr(token, 'original_client_id', None) or token.client_id}"
