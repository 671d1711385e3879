"""Discovery and logins, with what a server and its authorization server may say to mislead."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp.shared.auth import OAuthClientInformationFull
from pydantic import ValidationError
from support.harness import free_port
from support.virtual_time import VirtualTimeLoop

from fastmcp_aggregator.children.http.network import tls
from fastmcp_aggregator.oauth import clients, discovery, grants
from fastmcp_aggregator.oauth import web as oauth_web
from fastmcp_aggregator.oauth.authorization import (
    Authorization,
    AuthorizationResponse,
    MixedUpError,
    Refused,
    authorization_response,
    redirect_uri,
)
from fastmcp_aggregator.oauth.clients import client_for, fitting
from fastmcp_aggregator.oauth.discovery import Provider, discovered
from fastmcp_aggregator.oauth.errors import ClientRefused, NoAnswer, NothingAsked, OAuthError, Unreachable
from fastmcp_aggregator.oauth.web import HttpAnswer, sent
from fastmcp_aggregator.settings.oauth import OAuthSettings

URL = "https://mcp.example.com/team/mcp"
ISSUER = "https://login.example.com"
BACK = redirect_uri("http://localhost:8765/callback", ISSUER)
RESOURCE: dict[str, Any] = {"resource": URL, "authorization_servers": [ISSUER], "scopes_supported": ["read"]}
METADATA: dict[str, Any] = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/authorize",
    "token_endpoint": f"{ISSUER}/token",
    "registration_endpoint": f"{ISSUER}/register",
    "response_types_supported": ["code"],
    "authorization_response_iss_parameter_supported": True,
}
PLAIN = OAuthSettings()


async def test_a_request_reads_no_certificates_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    tls()
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", lambda *_, **__: read.append(None))
    with pytest.raises(NoAnswer):
        await sent(httpx2.Request("GET", f"http://127.0.0.1:{free_port()}"))
    assert read == []


class Dripping(httpx2.AsyncBaseTransport, httpx2.AsyncByteStream):
    """A network behind which a byte comes now and then, without end."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, stream=self)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(3)
            yield b" "


@pytest.mark.parametrize(
    ("ask", "seconds", "words"),
    [
        (lambda: sent(httpx2.Request("GET", ISSUER)), 20, f"{ISSUER} cannot be asked: it did not answer in time"),
        (lambda: discovered(URL, PLAIN), 20, "it did not answer in time"),
    ],
)
def test_who_answers_byte_by_byte_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[[], Coroutine[Any, Any, object]], seconds: float, words: str
) -> None:
    monkeypatch.setattr(oauth_web, "Network", lambda *_: Dripping())
    loop = VirtualTimeLoop()
    try:
        with pytest.raises(NoAnswer, match=re.escape(words)):
            loop.run_until_complete(ask())
        assert loop.time() == seconds
    finally:
        loop.close()


def test_all_of_a_discovery_has_its_time(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    async def slowly(request: httpx2.Request) -> HttpAnswer:
        await asyncio.sleep(19)
        return await web.sent(request)

    monkeypatch.setattr(discovery, "sent", slowly)
    loop = VirtualTimeLoop()
    try:
        with pytest.raises(Unreachable, match="within 30 s"):
            loop.run_until_complete(discovered(URL, PLAIN))
        assert loop.time() == 30
    finally:
        loop.close()


class Web:
    """Answers by address; all others are not there."""

    def __init__(self) -> None:
        self.challenge = HttpAnswer(401, httpx2.Headers({"www-authenticate": "Bearer"}), b"")
        self.pages: dict[str, Any] = {
            "https://mcp.example.com/.well-known/oauth-protected-resource/team/mcp": RESOURCE,
            f"{ISSUER}/.well-known/oauth-authorization-server": METADATA,
            f"{ISSUER}/register": {"client_id": "made", "redirect_uris": [BACK]},
            f"{ISSUER}/token": {"access_token": "a", "token_type": "Bearer", "expires_in": 60, "refresh_token": "r"},
        }
        self.asked: list[str] = []
        self.forms: list[Mapping[str, str]] = []

    async def sent(self, request: httpx2.Request) -> HttpAnswer:
        url = str(request.url)
        self.asked.append(url)
        return self.challenge if url == URL else self._page(url)

    async def posted(self, url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> HttpAnswer:
        self.asked.append(url)
        self.forms.append(form)
        return self._page(url)

    def _page(self, url: str) -> HttpAnswer:
        page = self.pages.get(url)
        if isinstance(page, HttpAnswer):
            return page
        status = 404 if page is None else 201 if url.endswith("/register") else 200
        return HttpAnswer(status, httpx2.Headers(), json.dumps(page).encode())

    def changed(self, **metadata: Any) -> None:
        self.pages[f"{ISSUER}/.well-known/oauth-authorization-server"] = {**METADATA, **metadata}


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Web:
    found = Web()
    for module in (discovery, clients):
        monkeypatch.setattr(module, "sent", found.sent)
    monkeypatch.setattr(grants, "posted", found.posted)
    return found


async def begun(settings: OAuthSettings = PLAIN) -> Authorization:
    provider = await discovered(URL, settings)
    return Authorization.begun(provider, await client_for(provider, settings, BACK), BACK, settings)


def asked_of(authorization: Authorization) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(authorization.address).query).items()}


async def test_a_login_from_refusal_to_tokens(web: Web) -> None:
    authorization = await begun()
    asked = asked_of(authorization)
    assert (asked["client_id"], asked["resource"], asked["scope"]) == ("made", URL, "read")
    assert asked["code_challenge_method"] == "S256"
    brought = AuthorizationResponse(BACK, {"state": asked["state"], "code": "c", "iss": ISSUER})
    tokens = await authorization.finished(brought, PLAIN)
    assert (tokens.issuer, tokens.resource, tokens.tokens.access_token) == (ISSUER, URL, "a")
    (form,) = web.forms
    assert (form["code"], form["resource"], form["redirect_uri"]) == ("c", URL, BACK)
    assert form["code_verifier"] == authorization.verifier
    for secret in ("'a'", "'r'", authorization.verifier, authorization.state):
        assert secret not in repr(tokens) + repr(authorization)


@pytest.mark.parametrize(
    ("methods", "is_begun"), [(None, True), (["plain", "S256"], True), (["plain"], False), ([], False)]
)
async def test_only_who_says_that_it_takes_no_challenges_is_refused(
    web: Web, methods: list[str] | None, *, is_begun: bool
) -> None:
    web.changed(code_challenge_methods_supported=methods)
    provider = await discovered(URL, PLAIN)
    if is_begun:
        provider.require_pkce()
    else:
        with pytest.raises(OAuthError, match="does not protect logins"):
            provider.require_pkce()


async def test_settings_say_what_is_asked_for(web: Web) -> None:
    settings = OAuthSettings(client_id="own", scopes=("a", "b"), resource="none", audience="aud")
    asked = asked_of(await begun(settings))
    assert (asked["client_id"], asked["scope"], asked["audience"], "resource" in asked) == ("own", "a b", "aud", False)
    assert f"{ISSUER}/register" not in web.asked


async def test_what_a_provider_wants_besides_is_in_the_address_of_a_login(web: Web) -> None:
    asked = asked_of(await begun(OAuthSettings(authorization_query="access_type=offline&prompt=select_account")))
    assert (asked["access_type"], asked["prompt"], asked["response_type"]) == ("offline", "select_account", "code")


@pytest.mark.parametrize("query", ["state=mine", "a=1&redirect_uri=https://evil.example", "odd", "a=1&b"])
def test_what_is_sent_besides_replaces_nothing_that_protects_a_login(query: str) -> None:
    with pytest.raises(ValidationError, match="authorization_query"):
        OAuthSettings(authorization_query=query)


@pytest.mark.parametrize(
    ("metadata", "settings", "words"),
    [
        ({}, {}, None),
        ({"registration_endpoint": None}, {}, "set `client_id`"),
        ({"registration_endpoint": None}, {"client_id": "c"}, None),
        ({"registration_endpoint": None, "client_id_metadata_document_supported": True}, {}, "`client_metadata_url`"),
        (
            {"registration_endpoint": None, "client_id_metadata_document_supported": True},
            {"client_metadata_url": "https://c.example/id"},
            None,
        ),
        ({"registration_endpoint": None}, {"client_metadata_url": "https://c.example/id"}, "no client metadata"),
        ({}, {"client_metadata_url": "https://c.example/id"}, None),
    ],
)
async def test_what_a_provider_needs_is_said(
    web: Web, metadata: dict[str, Any], settings: dict[str, Any], words: str | None
) -> None:
    web.changed(**metadata)
    provider = await discovered(URL, OAuthSettings(**settings))
    found = fitting(provider, OAuthSettings(**settings))
    assert (found is None) == (words is None)
    assert words is None or words in (found or "")


async def test_a_server_that_asks_for_nothing_needs_nothing(web: Web) -> None:
    web.challenge = HttpAnswer(200, httpx2.Headers(), b"{}")
    web.pages.clear()
    with pytest.raises(NothingAsked):
        await discovered(URL, PLAIN)


@pytest.mark.parametrize(
    "lie",
    [
        {"issuer": "https://evil.example"},
        {"issuer": f"{ISSUER}/other"},
        {"token_endpoint": "http://login.example.com/token"},
        {"token_endpoint": "https://169.254.169.254/token"},
        {"authorization_endpoint": "https://[fd00:ec2::254]/authorize"},
        {"registration_endpoint": "http://2852039166/register"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"token_endpoint": 17},
    ],
    ids=str,
)
async def test_poisoned_metadata_of_an_authorization_server_lead_nowhere(web: Web, lie: dict[str, Any]) -> None:
    web.changed(**lie)
    with pytest.raises(OAuthError):
        await begun()
    assert not web.forms


@pytest.mark.parametrize(
    "lie",
    [
        {"resource": "https://bank.example/mcp"},
        {"resource": "https://mcp.example.com/team/mcp/deeper"},
        {"resource": "https://mcp.example.com.evil.example/team/mcp"},
        {"authorization_servers": ["http://login.example.com"]},
        {"authorization_servers": ["https://169.254.169.254"]},
    ],
    ids=str,
)
async def test_poisoned_metadata_of_a_server_lead_nowhere(web: Web, lie: dict[str, Any]) -> None:
    web.pages["https://mcp.example.com/.well-known/oauth-protected-resource/team/mcp"] = {**RESOURCE, **lie}
    with pytest.raises(Unreachable):
        await begun()


async def test_a_challenge_cannot_lead_to_a_metadata_service(web: Web) -> None:
    lead = 'Bearer resource_metadata="https://169.254.169.254/latest"'
    web.challenge = HttpAnswer(401, httpx2.Headers({"www-authenticate": lead}), b"")
    with pytest.raises(Unreachable, match="cloud metadata service"):
        await discovered(URL, PLAIN)
    assert web.asked == [URL]


async def test_a_secret_goes_to_the_issuer_of_the_settings_alone(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("S", "s3cret")
    settings = OAuthSettings(client_id="c", client_secret_env="S", issuer="https://other.example")
    with pytest.raises(ClientRefused, match=r"`issuer` in its settings is https://other\.example"):
        await begun(settings)
    authorization = await begun(OAuthSettings(client_id="c", client_secret_env="S", issuer=f"{ISSUER}/"))
    assert "s3cret" not in repr(authorization) + authorization.model_dump_json()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"state": "another"}, "`state`"),
        ({"state": ""}, "`state`"),
        ({"iss": "https://evil.example"}, "`iss`"),
        ({"iss": None}, "`iss`"),
        ({"code": None}, "no authorization code"),
        ({"error": "access_denied"}, "access was denied"),
        ({"error": "x\x1b[31m" * 100}, "refused: x"),
    ],
)
async def test_what_a_browser_brings_must_be_of_this_login(web: Web, change: dict[str, Any], words: str) -> None:
    authorization = await begun()
    brought = {"state": authorization.state, "code": "c", "iss": ISSUER, **change}
    with pytest.raises(Refused) as caught:
        await authorization.finished(
            AuthorizationResponse(BACK, {name: value for name, value in brought.items() if value is not None}), PLAIN
        )
    assert words in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert not web.forms


ODD_TOKENS: list[tuple[dict[str, Any], str]] = [
    ({"access_token": ""}, "empty token"),
    ({"access_token": "a\r\nX-Injected: 1"}, "cannot be in a header"),
    ({"access_token": " a"}, "cannot be in a header"),
    ({"access_token": "a\x00"}, "cannot be in a header"),
    ({"access_token": "\u00e4"}, "cannot be in a header"),
    ({"access_token": "a" * 900_000}, "more than 32 KiB"),
    ({"refresh_token": "r" * 900_000}, "more than 32 KiB"),
    ({"scope": "s" * 900_000}, "more than 32 KiB"),
    ({"expires_in": 10**400}, "expires"),
    ({"expires_in": -(10**400)}, "expires"),
]


@pytest.mark.parametrize(("given", "words"), ODD_TOKENS)
async def test_tokens_that_cannot_be_used_are_refused_at_the_login(web: Web, given: dict[str, Any], words: str) -> None:
    token = f"{ISSUER}/token"
    web.pages[token] = {**web.pages[token], **given}
    authorization = await begun()
    brought = AuthorizationResponse(BACK, {"state": authorization.state, "code": "c", "iss": ISSUER})
    with pytest.raises(ClientRefused, match=words):
        await authorization.finished(brought, PLAIN)


@pytest.mark.parametrize(
    "given", [{"expires_in": 2**63 - 1}, {"access_token": "a" * 32_768}, {"access_token": "a b~/+="}]
)
async def test_tokens_that_are_just_large_enough_are_taken(web: Web, given: dict[str, Any]) -> None:
    token = f"{ISSUER}/token"
    web.pages[token] = {**web.pages[token], **given}
    authorization = await begun()
    brought = AuthorizationResponse(BACK, {"state": authorization.state, "code": "c", "iss": ISSUER})
    tokens = await authorization.finished(brought, PLAIN)
    assert tokens.are_good(0)


@pytest.mark.parametrize(
    "address",
    [
        redirect_uri("http://localhost:8765/callback", "https://evil.example"),
        "http://localhost:8765/callback",
        BACK.upper(),
        f"{BACK}/",
        "",
    ],
)
async def test_what_comes_back_to_another_address_is_not_used(web: Web, address: str) -> None:
    web.changed(authorization_response_iss_parameter_supported=None)
    authorization = await begun()
    with pytest.raises(MixedUpError, match="another authorization server"):
        await authorization.finished(AuthorizationResponse(address, {"state": authorization.state, "code": "c"}), PLAIN)
    assert not web.forms
    await authorization.finished(AuthorizationResponse(BACK, {"state": authorization.state, "code": "c"}), PLAIN)
    assert web.forms


@pytest.mark.parametrize(
    "text",
    ["", "http://localhost/callback", "?code=a&state=b", "state=b", "?code=a&code=b&state=c", "?state=" + "x" * 5000],
)
def test_what_is_pasted_must_be_an_address_with_an_answer(text: str) -> None:
    with pytest.raises(Refused):
        authorization_response(text)
    brought = authorization_response(f" {BACK}?code=a&state=b \n")
    assert brought == AuthorizationResponse(BACK, {"code": "a", "state": "b"})


async def test_a_client_that_registers_is_bound_to_its_issuer(web: Web) -> None:
    web.pages[f"{ISSUER}/register"] = {"client_id": "made", "redirect_uris": [BACK], "issuer": "https://evil.example"}
    client = await client_for(await discovered(URL, PLAIN), PLAIN, BACK)
    assert client.issuer == ISSUER


def test_a_server_from_before_metadata_has_its_endpoints_where_they_were() -> None:
    old = Provider(URL, "https://mcp.example.com", None, None, None)
    assert old.authorization_endpoint == "https://mcp.example.com/authorize"
    assert old.registration_endpoint == "https://mcp.example.com/register"
    assert old.revocation_endpoint is None


def test_the_sdk_composes_proofs_of_a_client_as_is_relied_on() -> None:
    client = OAuthClientInformationFull(
        client_id="c", client_secret="s", token_endpoint_auth_method="client_secret_basic", redirect_uris=None
    )
    form, headers = clients._context(client).prepare_token_auth({"a": "b"}, {})
    assert (form, headers) == ({"a": "b"}, {"Authorization": "Basic Yzpz"})
