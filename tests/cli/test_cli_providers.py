"""What `check` says of the authorization servers of remote servers, from their metadata."""

from __future__ import annotations

import hashlib

import pytest
from mcp.shared.auth import OAuthMetadata

from fastmcp_aggregator.cli.actions.accounts.providers import told, wanted
from fastmcp_aggregator.oauth.discovery import Provider
from fastmcp_aggregator.settings.oauth import OAuthSettings

ISSUER = "https://login.example"
PORT = 'callback_port = 8765  # not with `account = "caller"`'
DIGEST = hashlib.sha256(ISSUER.encode()).hexdigest()[:32]
LOCAL = f"http://localhost:8765/callback/{DIGEST}"
HUB = f"https://hub.example/accounts/callback/{DIGEST}"
REDIRECT = "the redirect address that its client is registered with has to be"


def provider(scopes: str | None = None, **metadata: object) -> Provider:
    known = {
        "issuer": ISSUER,
        "authorization_endpoint": f"{ISSUER}/authorize",
        "token_endpoint": f"{ISSUER}/token",
        "response_types_supported": ["code"],
    }
    found = OAuthMetadata.model_validate({**known, **metadata})
    return Provider("https://notes.example/mcp", ISSUER, None, scopes, found)


def said(of: Provider, own: OAuthSettings | None = None, public_url: str | None = None) -> list[str]:
    return [line.strip() for line in told({"notes": wanted("notes", of, own, public_url)})]


def test_a_provider_where_nobody_logs_in_is_told_with_the_grant_and_its_proofs() -> None:
    of = provider(
        "notes.read notes.write",
        grant_types_supported=["client_credentials"],
        token_endpoint_auth_methods_supported=["client_secret_post", "private_key_jwt"],
    )
    assert said(of, OAuthSettings()) == [
        f"notes: {ISSUER} takes: client credentials, private key, for the scopes "
        "`notes.read notes.write`. Nobody logs in at its authorization server: its clients have access themselves; "
        "set `grant`; write:",
        "[servers.notes.oauth]",
        'grant = "client_credentials"',
        'client_id = "…"',
        'client_secret_env = "NAME_OF_A_VARIABLE"  # the client\'s secret; or',
        'private_key_file = "client.pem"  # the private key, of which the provider has the public one',
        f'issuer = "{ISSUER}"',
    ]


def test_a_provider_without_registration_is_told_with_each_way_that_it_has() -> None:
    of = provider(
        grant_types_supported=["authorization_code", "client_credentials"],
        token_endpoint_auth_methods_supported=["none", "client_secret_basic"],
    )
    assert said(of, OAuthSettings())[1:] == [
        f"{REDIRECT} {LOCAL}",
        "[servers.notes.oauth]",
        'client_id = "…"',
        'client_secret_env = "NAME_OF_A_VARIABLE"  # if the client has a secret',
        f'issuer = "{ISSUER}"',
        PORT,
        '# grant = "client_credentials"  # instead of `callback_port`, if nobody is to log in',
    ]


def test_a_client_id_without_the_proof_that_the_provider_wants_is_told() -> None:
    of = provider(token_endpoint_auth_methods_supported=["private_key_jwt"])
    lines = said(of, OAuthSettings(client_id="hub", issuer=ISSUER))
    assert "takes no client without a proof of itself; set one" in lines[0]
    assert 'private_key_file = "client.pem"' in "\n".join(lines)
    assert "client_secret_env" not in "\n".join(lines)


@pytest.mark.parametrize("methods", [None, ["none"], ["client_secret_basic", "none"]])
def test_a_provider_that_registers_clients_needs_nothing_more(methods: list[str] | None) -> None:
    of = provider(registration_endpoint=f"{ISSUER}/register", token_endpoint_auth_methods_supported=methods)
    assert said(of) == [
        f"notes: {ISSUER} takes: dynamic registration, client id. Not logged in; run `fastmcp-aggregator login CONFIG "
        "notes`.",
        "[servers.notes]",
        "oauth = true",
    ]


@pytest.mark.parametrize(
    ("own", "addresses"),
    [
        ({"client_id": "hub", "callback_port": 8765}, f"{LOCAL} and {HUB}"),
        ({"client_id": "hub"}, f"{LOCAL.replace('8765', 'PORT')} and {HUB}"),
        ({"client_metadata_url": "https://hub.example/client.json", "callback_port": 8765}, f"{LOCAL} and {HUB}"),
        ({"client_id": "hub", "account": "caller"}, HUB),
        ({"client_id": "hub", "account": "caller", "lists": "hub", "callback_port": 8765}, f"{LOCAL} and {HUB}"),
        ({}, None),
    ],
)
def test_the_redirect_addresses_of_a_client_that_does_not_register_itself_are_told(
    own: dict[str, object], addresses: str | None
) -> None:
    of = provider(registration_endpoint=f"{ISSUER}/register", client_id_metadata_document_supported=True)
    lines = said(of, OAuthSettings.model_validate(own), "https://hub.example/")
    assert lines[1:] == ([] if addresses is None else [f"{REDIRECT} {addresses}"])
