"""Clients that log in by themselves: what they are told of the identity provider, at `/mcp` and at each group."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastmcp import Client
from fastmcp.server.auth import AuthProvider, RemoteAuthProvider, StaticTokenVerifier
from identity_provider import AtOnce, IdentityProvider, identity_provider
from pydantic import AnyHttpUrl
from support.harness import config, lean
from support.memory import build_aggregator
from support.serving import served
from support.tokens import AUDIENCE, PAIR

from fastmcp_aggregator.access.listening import listening_socket, url_of
from fastmcp_aggregator.auth.claims import claim_of
from fastmcp_aggregator.auth.verifiers import auth_from_settings
from fastmcp_aggregator.settings.model import load_settings

HUB = "https://hub.example.com"
GROUPS = {"web": {"servers": ["fetch"], "tools": ["pid"]}}
WELL_KNOWN = "/.well-known/oauth-protected-resource"


def auth(folder: Path, issuer: str, public_url: str = HUB, **settings: Any) -> AuthProvider:
    (folder / "provider.pem").write_text(PAIR.public_key)
    chosen = load_settings(
        jwt_issuer=issuer,
        jwt_audience=AUDIENCE,
        jwt_public_key_file=str(folder / "provider.pem"),
        public_url=public_url,
        **settings,
    )
    made = auth_from_settings(chosen)
    assert made is not None
    return made


@asynccontextmanager
async def hub(auth: AuthProvider | None, **settings: Any) -> AsyncIterator[httpx2.AsyncClient]:
    app = build_aggregator(config(fetch=lean(), files=lean()), groups=GROUPS, auth=auth, **settings).http_app()
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as http,
    ):
        yield http


def pointed_to(refused: httpx2.Response) -> str:
    """The path of the metadata to which a 401 points."""
    assert refused.status_code == 401
    address = refused.headers["www-authenticate"].partition('resource_metadata="')[2].partition('"')[0]
    assert address.startswith(HUB)
    return str(address.removeprefix(HUB))


ISSUERS = ["https://login.example.com", "https://login.example.com/", "https://Login.Example.com:443/a/realm"]


@pytest.mark.parametrize("issuer", ISSUERS)
@pytest.mark.parametrize("place", ["/mcp", "/groups/web/mcp", "/groups/default/mcp"])
async def test_each_address_points_to_its_own_metadata_with_the_issuer_as_written(
    tmp_path: Path, issuer: str, place: str
) -> None:
    async with hub(auth(tmp_path, issuer)) as http:
        address = pointed_to(await http.post(place, json={}))
        assert address == WELL_KNOWN + place
        assert (await http.get(address)).json() == {
            "resource": HUB + place,
            "authorization_servers": [issuer],
            "bearer_methods_supported": ["header"],
        }


async def test_below_a_path_the_metadata_of_groups_is_where_the_standard_has_it(tmp_path: Path) -> None:
    async with hub(auth(tmp_path, ISSUERS[0], f"{HUB}/tools/")) as http:
        address = pointed_to(await http.post("/groups/web/mcp", json={}))
        assert address == f"{WELL_KNOWN}/tools/groups/web/mcp"
        assert (await http.get(address)).json()["resource"] == f"{HUB}/tools/groups/web/mcp"


async def test_a_wrong_token_is_pointed_there_too_and_keys_let_in_beside_it(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text('{"keys": []}')
    keys.chmod(0o600)
    async with hub(auth(tmp_path, ISSUERS[0], keys_file=str(keys))) as http:
        refused = await http.post("/groups/web/mcp", json={}, headers={"authorization": "Bearer wrong"})
        assert pointed_to(refused) == f"{WELL_KNOWN}/groups/web/mcp"
        assert 'error="invalid_token"' in refused.headers["www-authenticate"]


async def test_a_provider_of_the_apps_own_is_told_of_in_the_same_way() -> None:
    verifier = StaticTokenVerifier({}, required_scopes=["mcp"])
    own = RemoteAuthProvider(verifier, [AnyHttpUrl("https://login.example.com/x")], HUB, resource_name="Ours")
    async with hub(own) as http:
        address = pointed_to(await http.post("/groups/web/mcp", json={}))
        assert (await http.get(address)).json() == {
            "resource": f"{HUB}/groups/web/mcp",
            "authorization_servers": ["https://login.example.com/x"],
            "scopes_supported": ["mcp"],
            "resource_name": "Ours",
            "bearer_methods_supported": ["header"],
        }


REQUESTS = [
    ("POST", "/mcp"),
    ("GET", "/mcp"),
    ("DELETE", "/mcp"),
    ("PUT", "/mcp"),
    ("OPTIONS", "/mcp"),
    ("POST", "/mcp/"),
    ("POST", "/mcp/tools/call"),
    ("GET", "/mcp/tools/call"),
    ("GET", "/mcp/sse"),
    ("POST", "/mcp/messages"),
    ("POST", ""),
    ("POST", "/"),
    ("GET", "/health"),
    ("GET", "/.well-known/oauth-protected-resource/mcp"),
]
STRANGERS = [
    {},
    {"authorization": "Bearer wrong"},
    {"x-api-key": "wrong"},
    {"mcp-session-id": "x"},
    {"origin": "https://a.b"},
]


@pytest.mark.parametrize("has_metadata", [True, False])
async def test_without_credentials_nobody_learns_which_groups_there_are(tmp_path: Path, has_metadata: bool) -> None:
    provider = auth(tmp_path, ISSUERS[0]) if has_metadata else StaticTokenVerifier({"me": {"client_id": "me"}})
    async with hub(provider, cors_origins=["https://a.b"]) as http:

        async def answer(group: str, method: str, path: str, headers: dict[str, str]) -> Any:
            answer = await http.request(method, f"/groups/{group}{path}", headers=headers)
            told = sorted((name, value.replace(group, "ID")) for name, value in answer.headers.items())
            return answer.status_code, told, answer.text.replace(group, "ID")

        for method, path in REQUESTS:
            for headers in STRANGERS:
                known = await answer("web", method, path, headers)
                assert await answer("none", method, path, headers) == known, (method, path, headers)
        metadata = [await http.get(f"{WELL_KNOWN}/groups/{group}/mcp") for group in ("web", "none")]
        assert [found.status_code for found in metadata] == [200 if has_metadata else 404] * 2


async def test_with_credentials_a_group_that_is_not_there_is_not_found() -> None:
    verifier = StaticTokenVerifier({"me": {"client_id": "me", "scopes": [], **claim_of("me", None)}})
    async with hub(verifier) as http:
        for path in ("/mcp", "/mcp/tools/list", "/mcp/messages"):
            found = await http.post(f"/groups/none{path}", json={}, headers={"authorization": "Bearer me"})
            assert (found.status_code, found.text.partition(":")[0]) == (404, "Not Found")


@pytest.mark.parametrize("group_id", ['a"b', "a b", ".hidden", "x" * 65, "a%0d%0ab"])
async def test_what_can_be_no_group_has_no_metadata(tmp_path: Path, group_id: str) -> None:
    async with hub(auth(tmp_path, ISSUERS[0])) as http:
        assert (await http.get(f"{WELL_KNOWN}/groups/{group_id}/mcp")).status_code == 404
        refused = await http.post(f"/groups/{group_id}/mcp")
        assert refused.status_code in (401, 404)
        assert "/groups/" not in refused.headers.get("WWW-Authenticate", "")


@asynccontextmanager
async def hub_on_a_socket(provider: IdentityProvider, folder: Path) -> AsyncIterator[str]:
    """The origin of a hub on a socket."""
    listener = listening_socket("127.0.0.1", 0)
    origin = url_of(listener, "127.0.0.1")
    app = build_aggregator(
        config(fetch=lean(), files=lean()), groups=GROUPS, auth=auth(folder, provider.issuer, origin)
    )
    async with served(app, listener=listener):
        yield origin


@pytest.mark.parametrize("path", ["", "/", "/a/realm"])
@pytest.mark.parametrize("place", ["/mcp", "/groups/web/mcp"])
async def test_a_client_logs_in_by_itself(tmp_path: Path, path: str, place: str) -> None:
    async with identity_provider(path) as provider, hub_on_a_socket(provider, tmp_path) as origin:
        async with Client(origin + place, auth=AtOnce(origin + place)) as client:
            assert "fetch:pid" in {tool.name for tool in await client.list_tools()}
            assert await client.call_tool("fetch:pid")
        assert set(provider.resources) == {origin + place}
