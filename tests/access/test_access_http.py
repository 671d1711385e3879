"""Who is let in over HTTP: API keys, tokens of an identity provider, and both."""

from __future__ import annotations

import asyncio
import json
import math
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fastmcp.server.auth.providers.jwt
import httpx2
import pytest
import support.serving
from fastmcp.server.auth import AccessToken, AuthProvider
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from support.harness import LEGACY, config
from support.tokens import AUDIENCE, ISSUER, OTHER_PAIR, PAIR, claims_of, signed, token

from fastmcp_aggregator import build_aggregator
from fastmcp_aggregator.access.keys import new_key
from fastmcp_aggregator.access.keys_file import write_keys
from fastmcp_aggregator.access.principal import ANYBODY, Principal
from fastmcp_aggregator.auth.claims import principal_of
from fastmcp_aggregator.auth.key_sets import KeySetTransport, public_keys
from fastmcp_aggregator.auth.verifiers import ProviderTokens, auth_from_settings
from fastmcp_aggregator.errors import ConfigError
from fastmcp_aggregator.settings.model import load_settings

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


def key_file(folder: Path, *owners: str, groups: list[str] | None = None, days: int | None = None) -> tuple[str, ...]:
    """A new file of keys; the keys of these owners."""
    expires = None if days is None else datetime.now(UTC) + timedelta(days=days)
    made = [new_key(owner, groups, expires) for owner in owners]
    write_keys(folder / "keys.json", [kept for _, kept in made])
    return tuple(key for key, _ in made)


def provider(folder: Path, *, keys: bool = False, tokens: bool = False, **settings: Any) -> AuthProvider:
    chosen: dict[str, Any] = {}
    if keys:
        chosen["keys_file"] = str(folder / "keys.json")
    if tokens:
        (folder / "provider.pem").write_text(PAIR.public_key)
        chosen |= {
            "jwt_issuer": ISSUER,
            "jwt_audience": AUDIENCE,
            "jwt_public_key_file": str(folder / "provider.pem"),
        }
    auth = auth_from_settings(load_settings(**chosen, **settings))
    assert auth is not None
    return auth


async def principal(auth: AuthProvider, credential: str) -> Principal | None:
    found = await auth.verify_token(credential)
    assert found is None or isinstance(found, AccessToken)
    return None if found is None else principal_of(found)


@asynccontextmanager
async def served(auth: AuthProvider) -> AsyncIterator[httpx2.AsyncClient]:
    app = build_aggregator(config(), auth=auth).http_app()
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as client,
    ):
        yield client


async def status(client: httpx2.AsyncClient, *headers: tuple[str, str]) -> int:
    accept = ("Accept", "application/json, text/event-stream")
    answer = await client.post("/mcp", json=INITIALIZE, headers=[accept, *headers])
    return answer.status_code


def test_without_a_source_there_is_no_authentication_and_no_default_secret() -> None:
    assert not load_settings().has_auth
    assert auth_from_settings(load_settings()) is None


@pytest.mark.parametrize("settings", [{"keys": True}, {"tokens": True}, {"keys": True, "tokens": True}])
def test_with_a_source_there_is_authentication(tmp_path: Path, settings: dict[str, bool]) -> None:
    key_file(tmp_path, "alice")
    assert provider(tmp_path, **settings)


async def test_an_app_in_python_lets_in_whom_its_settings_do(tmp_path: Path) -> None:
    (key,) = key_file(tmp_path, "alice")
    app = build_aggregator(config(), keys_file=str(tmp_path / "keys.json"))
    async with support.serving.browser(app) as http:
        assert (await http.post("/mcp/tools/list")).status_code == 401
        assert (await http.post("/mcp/tools/list", headers={"X-API-Key": key})).status_code == 200
    with pytest.raises(ConfigError, match=r"nothing\.json"):
        build_aggregator(config(), keys_file=str(tmp_path / "nothing.json"))


@pytest.mark.parametrize(
    "settings",
    [{"keys_file": "k"}, {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_jwks_url": ISSUER}],
)
def test_the_settings_tell_whether_there_will_be_authentication_before_it_is_made(settings: dict[str, str]) -> None:
    assert load_settings(**settings).has_auth


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], 401),
        ([("Authorization", "Bearer {alice}")], 200),
        ([("authorization", "bearer {alice}")], 200),
        ([("X-API-Key", "{alice}")], 200),
        ([("X-API-Key", "{alice}"), ("Authorization", "Bearer {alice}")], 200),
        ([("Authorization", "Bearer {alice}"), ("authorization", "bearer {alice}")], 200),
        ([("Authorization", "Bearer {alice}"), ("Authorization", "Bearer x")], 400),
        ([("Authorization", "Bearer {alice}"), ("Authorization", "Basic {alice}")], 400),
        ([("X-API-Key", "{alice}"), ("Authorization", "Bearer {bob}")], 400),
        ([("X-API-Key", "{alice}"), ("X-API-Key", "{bob}")], 400),
        ([("X-API-Key", "{alice}"), ("Authorization", "Basic YTpi")], 400),
        ([("X-API-Key", "wrong"), ("Authorization", "Bearer {alice}")], 400),
        ([("X-API-Key", "")], 401),
        ([("X-API-Key", "wrong")], 401),
        ([("Authorization", "{alice}")], 401),
        ([("Authorization", "Basic {alice}")], 401),
        ([("Cookie", "key={alice}")], 401),
    ],
)
async def test_a_key_lets_in_as_a_bearer_token_or_in_its_own_header(
    tmp_path: Path, headers: list[tuple[str, str]], expected: int
) -> None:
    alice, bob = key_file(tmp_path, "alice", "bob")
    filled = [(name, value.format(alice=alice, bob=bob)) for name, value in headers]
    async with served(provider(tmp_path, keys=True)) as client:
        assert await status(client, *filled) == expected


async def test_a_revoked_key_is_refused_by_the_program_that_runs(tmp_path: Path) -> None:
    (key,) = key_file(tmp_path, "alice")
    async with served(provider(tmp_path, keys=True)) as client:
        assert await status(client, ("X-API-Key", key)) == 200
        write_keys(tmp_path / "keys.json", [])
        assert await status(client, ("X-API-Key", key)) == 401


@pytest.mark.parametrize("groups", [None, ["web"]])
async def test_a_key_tells_whose_it_is_and_its_groups_and_stays_out_of_the_token(
    tmp_path: Path, groups: list[str] | None
) -> None:
    (key,) = key_file(tmp_path, "alice", groups=groups, days=1)
    auth = provider(tmp_path, keys=True)
    found = await auth.verify_token(key)
    assert isinstance(found, AccessToken)
    assert principal_of(found) == Principal("key:alice", None if groups is None else frozenset(groups))
    assert key.split("_", 2)[2] not in repr(found)
    assert found.expires_at is not None


@pytest.mark.parametrize(
    ("claims", "is_let_in"),
    [
        ({}, True),
        ({"aud": ["another", AUDIENCE]}, True),
        ({"nbf": int(time.time()) - 5}, True),
        ({"aud": "another"}, False),
        ({"aud": None}, False),
        ({"iss": "https://evil.example.com"}, False),
        ({"iss": None}, False),
        ({"exp": int(time.time()) - 5}, False),
        ({"exp": None}, False),
        ({"exp": 253402300799}, True),
        ({"exp": 253402300800}, False),  # the first second of the year 10000
        ({"exp": int(time.time() * 1000)}, False),  # milliseconds
        ({"exp": 10**400}, False),
        ({"exp": math.inf}, False),  # what 1e999 is read as
        ({"nbf": int(time.time()) + 3600}, False),
        ({"nbf": "soon"}, False),
        ({"pair": OTHER_PAIR}, False),
        ({"cnf": {"jkt": "x"}}, False),
    ],
)
async def test_a_token_lets_in_if_it_is_the_providers_for_us_and_for_now(
    tmp_path: Path, claims: dict[str, Any], is_let_in: bool
) -> None:
    found = await principal(provider(tmp_path, tokens=True), token(**claims))
    assert found == (Principal(f"jwt:{ISSUER}#carol") if is_let_in else None)


@pytest.mark.parametrize(
    ("kind", "is_let_in"),
    [
        ("JWT", True),
        ("at+jwt", True),
        ("application/AT+jwt", True),
        ("oauth-id-jag+jwt", True),
        ("logout+jwt", False),
        ("token-introspection+jwt", False),
        ("secevent+jwt", False),
        ("", False),
    ],
)
async def test_a_token_that_says_it_is_for_something_else_does_not_let_in(
    tmp_path: Path, kind: str, is_let_in: bool
) -> None:
    found = await principal(provider(tmp_path, tokens=True), signed(claims_of(), typ=kind))
    assert found == (Principal(f"jwt:{ISSUER}#carol") if is_let_in else None)


async def test_a_token_is_refused_while_the_keys_of_the_provider_come_without_an_end() -> None:
    async def spaces() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0.01)

    async def keys(_: Request) -> Response:
        return StreamingResponse(spaces(), media_type="application/json")

    async with support.serving.served(Starlette(routes=[Route("/jwks.json", keys)])) as front:
        auth = ProviderTokens(
            groups_claim=None,
            roles_claim=None,
            timeout=0.2,
            issuer=ISSUER,
            audience=AUDIENCE,
            jwks_uri=f"{front.origin}/jwks.json",
            http_client=httpx2.AsyncClient(transport=KeySetTransport()),
        )
        found = await asyncio.gather(*(principal(auth, token(kid=f"k{number}")) for number in range(5)))
        assert found == [None] * 5
        await front.abort()


async def is_let_in_by(url: str) -> bool:
    """Whether a good token of the provider is, which publishes its keys there."""
    auth = auth_from_settings(load_settings(jwt_issuer=ISSUER, jwt_audience=AUDIENCE, jwt_jwks_url=url))
    assert auth is not None
    return await principal(auth, token(kid="own")) is not None


async def test_no_more_is_read_of_a_key_set_than_one_may_have() -> None:
    sent, is_over = 0, asyncio.Event()

    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
        with suppress(ConnectionError):
            while sent < 64 * 1024 * 1024:
                writer.write(b" " * 65536)
                await writer.drain()
                sent += 65536
        writer.close()
        is_over.set()

    provider = await asyncio.start_server(send, "127.0.0.1", 0)
    host, port = provider.sockets[0].getsockname()
    assert not await is_let_in_by(f"http://{host}:{port}/jwks.json")
    await is_over.wait()
    assert sent < 16 * 1024 * 1024, "with what the sockets buffer"
    provider.close()
    await provider.wait_closed()


OWN_KEY = json.dumps({**RSAKey.import_key(PAIR.public_key).as_dict(private=False), "kid": "own"})


def test_of_the_keys_of_a_set_what_is_public_and_short_is_taken() -> None:
    private = dict.fromkeys(("d", "p", "q", "dp", "dq", "qi", "k", "oth", "x5c", "use"), "AQAB")
    keys = [{"kty": "RSA", "n": "AQAB", **private}, {"n": "A" * 1401}, {"kty": ["RSA"]}, {"kid": "a" * 1400}]
    assert public_keys(json.dumps({"keys": keys}).encode()) == [{"kty": "RSA", "n": "AQAB"}, {"kid": "a" * 1400}]


@pytest.mark.parametrize(
    ("body", "is_good"),
    [
        (f'{{"keys": [{OWN_KEY}]}}', True),
        (f'{{"keys": [{OWN_KEY}, 1, null, [], {{}}, {{"kty": "RSA", "kid": [], "n": 1}}]}}', True),
        (f'{{"keys": [{OWN_KEY}, {{"kty": "RSA", "kid": "\\ud800", "n": "\\ud800", "e": "AQAB"}}]}}', True),
        (f'{{"keys": [{OWN_KEY}{", 0" * 99}]}}', True),
        (f'{{"keys": [{OWN_KEY}{", 0" * 100}]}}', False),
        (f'{{"keys": [{OWN_KEY}, {{"x5c": [0{", 0" * 2000}]}}]}}', False),
        (f'{{"keys": [{OWN_KEY}], "a": {"[" * 100_000}', False),
        (f'{{"keys": [{OWN_KEY}], "a": {"9" * 5000}}}', False),
        (f"[{OWN_KEY}]", False),
        ('{"keys": 1}', False),
        ('{"keys": {"own": 1}}', False),
        ('"keys"', False),
        ("", False),
        ("\0" * 5000, False),
    ],
)
async def test_a_key_set_that_is_odd_lets_nobody_in(body: str, is_good: bool) -> None:
    async def keys(_: Request) -> Response:
        return Response(body, media_type="application/json")

    async with support.serving.served(Starlette(routes=[Route("/jwks.json", keys)])) as front:
        assert await is_let_in_by(f"{front.origin}/jwks.json") is is_good


async def test_a_key_of_the_provider_that_comes_or_goes_is_known_within_the_bounds_that_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr(
        fastmcp.server.auth.providers.jwt, "time", SimpleNamespace(monotonic=lambda: now, time=time.time)
    )
    published = {"old": PAIR}

    async def keys(_: Request) -> Response:
        known = {kid: RSAKey.import_key(pair.public_key).as_dict(private=False) for kid, pair in published.items()}
        return JSONResponse({"keys": [{**key, "kid": kid, "alg": "RS256"} for kid, key in known.items()]})

    async with support.serving.served(Starlette(routes=[Route("/jwks.json", keys)])) as front:
        settings = {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_jwks_url": f"{front.origin}/jwks.json"}
        auth = auth_from_settings(load_settings(**settings))
        assert auth is not None

        async def are_let_in() -> tuple[bool, bool]:
            old, new = token(kid="old"), token(kid="new", pair=OTHER_PAIR)
            return await principal(auth, old) is not None, await principal(auth, new) is not None

        assert await are_let_in() == (True, False)
        published |= {"new": OTHER_PAIR}
        now += 29
        assert await are_let_in() == (True, False)
        now += 2
        assert await are_let_in() == (True, True)
        del published["old"]
        now += 3599
        assert await are_let_in() == (True, True)
        now += 2
        assert await are_let_in() == (False, True)


async def test_a_token_without_a_signature_does_not_let_in(tmp_path: Path) -> None:
    head = "eyJhbGciOiJub25lIn0"
    assert await principal(provider(tmp_path, tokens=True), f"{head}.{token().split('.')[1]}.") is None


@pytest.mark.parametrize("nested", ["[" * 40_000, '{"a":' * 10_000])
async def test_a_token_whose_head_is_nested_deep_does_not_let_in(tmp_path: Path, nested: str) -> None:
    head = urlsafe_b64encode(nested.encode()).decode().rstrip("=")
    assert await principal(provider(tmp_path, tokens=True), f"{head}.e30.AA") is None


@pytest.mark.parametrize(
    ("setting", "claims", "groups"),
    [
        (None, {"groups": ["web"]}, None),
        ("groups", {"groups": ["web", "docs"]}, {"web", "docs"}),
        ("groups", {"groups": "web docs"}, {"web", "docs"}),
        ("groups", {"groups": " web  docs "}, {"web", "docs"}),
        ("groups", {"groups": "x\u00a0web\u2028docs\tall"}, {"x\u00a0web\u2028docs\tall"}),
        ("groups", {"groups": ["web", 5]}, {"web"}),
        ("groups", {"groups": {"web": True}}, set()),
        ("groups", {}, set()),
        ("realm.roles", {"realm": {"roles": ["web"]}}, {"web"}),
        ("realm.roles", {"realm.roles": ["docs"], "realm": {"roles": ["web"]}}, {"docs"}),
        ("realm.roles", {"realm": "web"}, set()),
        ("groups", {"fastmcp_aggregator": {"name": "root", "groups": None}}, set()),
        (None, {"fastmcp_aggregator": {"name": "root", "groups": None}}, None),
    ],
)
async def test_a_claim_has_the_groups_and_a_token_without_it_has_none(
    tmp_path: Path, setting: str | None, claims: dict[str, Any], groups: set[str] | None
) -> None:
    auth = provider(tmp_path, tokens=True, jwt_groups_claim=setting)
    assert await principal(auth, token(**claims)) == Principal(
        f"jwt:{ISSUER}#carol", None if groups is None else frozenset(groups)
    )


@pytest.mark.parametrize("public_url", [None, "https://hub.example.com"])
async def test_keys_and_tokens_let_in_side_by_side(tmp_path: Path, public_url: str | None) -> None:
    (key,) = key_file(tmp_path, "alice", groups=["default"])
    auth = provider(tmp_path, keys=True, tokens=True, public_url=public_url)
    assert await principal(auth, key) == Principal("key:alice", frozenset({"default"}))
    assert await principal(auth, token()) == Principal(f"jwt:{ISSUER}#carol")
    assert await principal(auth, token(aud="another")) is None
    async with served(auth) as client:
        assert await status(client, ("X-API-Key", key)) == 200
        assert await status(client, ("Authorization", f"Bearer {token()}")) == 200
        assert await status(client, ("Authorization", "Bearer wrong")) == 401


async def test_with_a_public_address_clients_find_the_identity_provider(tmp_path: Path) -> None:
    auth = provider(tmp_path, tokens=True, public_url="https://hub.example.com")
    async with served(auth) as client:
        refused = await client.post("/mcp", json=INITIALIZE)
        address = refused.headers["www-authenticate"].partition('resource_metadata="')[2].rstrip('"')
        assert address.startswith("https://hub.example.com/.well-known/")
        found = await client.get(address.removeprefix("https://hub.example.com"))
    assert found.json()["authorization_servers"] == [ISSUER]
    assert found.json()["resource"] == "https://hub.example.com/mcp"


def test_a_missing_file_is_told_before_anything_is_served(tmp_path: Path) -> None:
    for settings in (
        {"keys_file": str(tmp_path / "none.json")},
        {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_public_key_file": str(tmp_path / "none.pem")},
    ):
        with pytest.raises(ConfigError) as caught:
            auth_from_settings(load_settings(**settings))
        assert caught.value.code == "file_not_found"


@pytest.mark.parametrize(
    "settings",
    [
        {"jwt_issuer": ISSUER, "jwt_jwks_url": ISSUER},
        {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE},
        {"jwt_audience": AUDIENCE},
        {"jwt_jwks_url": ISSUER},
        {"jwt_groups_claim": "groups"},
        {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_jwks_url": ISSUER, "jwt_public_key_file": "x"},
        {"jwt_issuer": ISSUER, "jwt_audience": "", "jwt_jwks_url": ISSUER},
        {"jwt_issuer": "login.example.com", "jwt_audience": AUDIENCE, "jwt_jwks_url": ISSUER},
        {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_jwks_url": ISSUER, "jwt_algorithm": "HS256"},
        {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_jwks_url": ISSUER, "jwt_algorithm": "none"},
    ],
)
def test_tokens_that_could_not_be_checked_in_full_are_refused_as_settings(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        load_settings(**settings)


def seeing(name: str) -> Principal:
    """Who may use all groups, and see everything."""
    return Principal(name, roles=frozenset({"call", "metrics", "observe"}))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (None, ANYBODY),
        (AccessToken(token="t", client_id="app", scopes=[]), seeing("client:app")),
        (AccessToken(token="t", client_id="app", scopes=[], subject="carol"), seeing("token:carol")),
        (
            AccessToken(token="t", client_id="app", scopes=[], subject="carol", claims={"iss": ISSUER}),
            seeing(f"token:{ISSUER}#carol"),
        ),
        (AccessToken(token="t", client_id='["s","app"]', scopes=[], original_client_id="app"), seeing("client:app")),
        (
            AccessToken(
                token="t",
                client_id="app",
                scopes=[],
                claims={"fastmcp_aggregator": {"name": "key:root", "groups": None}},
            ),
            seeing("client:app"),
        ),
    ],
)
def test_a_token_of_a_provider_of_the_apps_own_names_its_owner(found: AccessToken | None, expected: Principal) -> None:
    assert principal_of(found) == expected
