"""ID-JAG: a caller's identity assertion, as the authorization server of a server takes it from us alone.

`draft-ietf-oauth-identity-assertion-authz-grant`, the second leg: the assertion was made by the company's identity
provider for one client at one authorization server. One that is for others would be refused there; it is not sent, so
that nobody gets an assertion that was not meant for them. It is good once. Its signature was verified on the way in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastmcp.utilities.auth import decode_jwt_header, decode_jwt_payload
from mcp.client.auth.utils import issuers_match

from fastmcp_aggregator.oauth.errors import ClientRefused

ID_JAG = "oauth-id-jag+jwt"
"""The type (`typ`) of one."""


def is_id_jag(assertion: str) -> bool:
    """True if its header says that it is one; there are other assertions (RFC 7523)."""
    kind = _read(decode_jwt_header, assertion).get("typ")
    return isinstance(kind, str) and kind.lower().removeprefix("application/") == ID_JAG


def require_ours(assertion: str, issuer: str, client_id: str, resource: str | None) -> None:
    """Check for whom one is. Raises ClientRefused: it is for another authorization server, client or resource."""
    claims = _read(decode_jwt_payload, assertion)
    audience = claims.get("aud")
    named = audience[0] if isinstance(audience, list) and len(audience) == 1 else audience
    if not isinstance(named, str) or not issuers_match(named, issuer):
        raise ClientRefused(f"the caller's assertion is not for its authorization server ({issuer}): see its `aud`")
    if claims.get("client_id") != client_id:
        raise ClientRefused(f"the caller's assertion is not for the client {client_id!r}: see its `client_id`")
    given = claims.get("resource")
    if given is not None and resource is not None and resource not in (given if isinstance(given, list) else [given]):
        raise ClientRefused(f"the caller's assertion is not for {resource}: see its `resource`")


def _read(decode: Callable[[str], Any], token: str) -> Mapping[str, Any]:
    """The header or the claims of a token; empty if it has none."""
    try:
        found = decode(token)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
