"""Logins to MCP servers whose authorization server others wrote: oidc-provider, set up in different ways."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from fastmcp import FastMCP
from fastmcp.server.auth import RemoteAuthProvider
from fastmcp.server.auth.providers.jwt import JWTVerifier
from fastmcp.server.dependencies import get_access_token
from install_servers import IDENTITY_PROVIDERS, identity_folder, is_stamped
from joserfc.jwk import ECKey
from oidc_person import agreed
from pydantic import AnyHttpUrl
from real_servers import FOLDER
from support.chromium import CHROMIUM, launched
from support.credentials import Credentials
from support.harness import config, connected, free_port
from support.serving import served
from support.wire import PATIENCE

from fastmcp_aggregator import Aggregator, build_aggregator
from fastmcp_aggregator.access.listening import listening_socket, url_of
from fastmcp_aggregator.auth.verifiers import auth_from_settings
from fastmcp_aggregator.oauth.account import keep, kept_accounts
from fastmcp_aggregator.oauth.vault.vault import FileVault
from fastmcp_aggregator.settings.model import load_settings

FOLDER = identity_folder(FOLDER)
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not is_stamped(FOLDER, IDENTITY_PROVIDERS), reason="oidc-provider is not installed"),
]
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
_MODULE = FOLDER / "node" / "node_modules" / "oidc-provider" / "lib" / "index.js"
_HERE = Path(__file__).parent
SECRET = "a secret of thirty-two characters"
DOCUMENT = "https://client.example/id.json"


@dataclass
class Place:
    """An MCP server behind a provider, and where a hub keeps its tokens."""

    issuer: str
    url: str
    folder: Path

    @property
    def vault(self) -> FileVault:
        return FileVault(self.folder / "tokens")

    def hub(self, oauth: Any = True, **settings: Any) -> Aggregator:
        return build_aggregator(
            config(p={"url": self.url}),
            servers={"p": {"oauth": oauth}},
            oauth_dir=str(self.folder / "tokens"),
            **settings,
        )

    async def counts(self) -> dict[str, int]:
        """How often tokens were asked for, by grant."""
        async with httpx2.AsyncClient(trust_env=False) as http:
            found: dict[str, int] = (await http.get(f"{self.issuer}/counts")).json()
        return found

    def command(self, oauth: Any, *arguments: str) -> tuple[list[str], dict[str, str]]:
        """The command line of the program, and its environment."""
        (self.folder / "config.json").write_text(json.dumps(config(p={"url": self.url})))
        (self.folder / "settings.json").write_text(json.dumps({"servers": {"p": {"oauth": oauth}}}))
        first, *others = arguments
        line = [sys.executable, "-m", "fastmcp_aggregator", first, str(self.folder / "config.json"), *others]
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "BROWSER": f"{sys.executable} {_HERE / 'oidc_person.py'} %s &",
            "FASTMCP_AGGREGATOR_OAUTH_DIR": str(self.folder / "tokens"),
            "CLIENT_SECRET": SECRET,
            "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
        }
        return [*line, "--settings", str(self.folder / "settings.json")], environment

    async def run(self, oauth: Any, *arguments: str) -> tuple[int, str]:
        """The exit code of a command, and what it said."""
        line, environment = self.command(oauth, *arguments)
        process = await asyncio.create_subprocess_exec(
            *line,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
        assert process.returncode is not None
        return process.returncode, said.decode()


@asynccontextmanager
async def provider(**options: Any) -> AsyncIterator[str]:
    """Its issuer."""
    process = await asyncio.create_subprocess_exec(
        *("node", _HERE / "oidc_for_servers.mjs", _MODULE, json.dumps(options)), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield (await asyncio.wait_for(process.stdout.readline(), PATIENCE)).decode().strip()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@asynccontextmanager
async def place(folder: Path, scopes: list[str] | None = None, **options: Any) -> AsyncIterator[Place]:
    async with provider(scopes=scopes or [], **options) as issuer:
        listener = listening_socket("127.0.0.1", 0)
        origin = url_of(listener, "127.0.0.1")
        tokens = JWTVerifier(
            jwks_uri=f"{issuer}/jwks", issuer=issuer, audience=f"{origin}/mcp", required_scopes=scopes or None
        )
        app: FastMCP[Any] = FastMCP("child", auth=RemoteAuthProvider(tokens, [AnyHttpUrl(issuer)], origin))

        @app.tool
        def whoami() -> dict[str, Any]:
            token = get_access_token()
            return {"who": token.claims.get("sub") if token else None}

        async with served(app, listener=listener):
            yield Place(issuer, f"{origin}/mcp", folder)


def registered(port: int, **more: Any) -> dict[str, Any]:
    """A client that somebody has registered."""
    return {
        "client_id": "hub",
        "application_type": "native",
        "redirect_uris": [f"http://localhost:{port}/callback/{{digest}}"],
        "grant_types": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_method": "none",
        **more,
    }


async def called(place: Place, oauth: Any = True) -> Any:
    async with place.hub(oauth) as app, connected(app) as client:
        return (await client.call("p:whoami"))["who"]


async def test_a_client_registers_itself(tmp_path: Path) -> None:
    async with place(tmp_path, registration=True) as here:
        assert (
            (await here.run(True, "check"))[1]
            .rstrip()
            .endswith("Not logged in; run `fastmcp-aggregator login CONFIG p`.")
        )
        code, said = await here.run(True, "login", "p")
        assert code == 0, said
        assert await called(here) == "carol"
        assert "Logged in." in (await here.run(True, "check"))[1]


async def test_without_registration_check_and_login_say_what_to_write(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        for words in (await here.run(True, "check"))[1], (await here.run(True, "login", "p"))[1]:
            assert "lets no client register itself" in words
            assert "`client_id`" in words
        document = json.loads((await here.run(True, "check", "--json"))[1])
        assert document["logins"]["p"]["ways"] == ["client id", "client credentials", "private key"]
        written = "\n".join(document["logins"]["p"]["write"])
        assert written.startswith("[servers.p.oauth]\n")
        for setting in ("client_secret_env = ", "private_key_file = ", 'grant = "client_credentials"'):
            assert setting in written


@pytest.mark.parametrize("method", ["none", "client_secret_basic", "client_secret_post", "private_key_jwt"])
async def test_a_client_that_was_registered(tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLIENT_SECRET", SECRET)
    port = free_port()
    oauth: dict[str, Any] = {"client_id": "hub", "callback_port": port}
    client = registered(port, token_endpoint_auth_method=method)
    if method.startswith("client_secret"):
        oauth["client_secret_env"] = "CLIENT_SECRET"
        client["client_secret"] = SECRET
    elif method == "private_key_jwt":
        oauth["private_key_file"], client["jwks"] = key_in(tmp_path)
    async with place(tmp_path, clients=[client]) as here:
        if method != "none":
            oauth["issuer"] = here.issuer
        code, said = await here.run(oauth, "login", "p")
        assert code == 0, said
        assert SECRET not in said
        await expire(here)
        assert await called(here, oauth) == "carol"
        assert (await here.counts())["refresh_token"] == 1


async def test_a_client_metadata_document(tmp_path: Path) -> None:
    port = free_port()
    document = {key: value for key, value in registered(port).items() if key != "client_id"}
    async with place(tmp_path, documents=True, document=document) as here:
        oauth = {"client_metadata_url": DOCUMENT, "callback_port": port}
        assert "client metadata document" in (await here.run(True, "check"))[1]
        code, said = await here.run(oauth, "login", "p")
        assert code == 0, said
        assert await called(here, oauth) == "carol"


@pytest.mark.parametrize("proof", ["secret", "key"])
async def test_a_client_for_which_nobody_logs_in(tmp_path: Path, proof: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLIENT_SECRET", SECRET)
    client = {"client_id": "robot", "grant_types": ["client_credentials"], "redirect_uris": [], "response_types": []}
    oauth: dict[str, Any] = {"grant": "client_credentials", "client_id": "robot"}
    if proof == "secret":
        oauth["client_secret_env"] = "CLIENT_SECRET"
        client |= {"client_secret": SECRET, "token_endpoint_auth_method": "client_secret_basic"}
    else:
        oauth["private_key_file"], jwks = key_in(tmp_path)
        client |= {"jwks": jwks, "token_endpoint_auth_method": "private_key_jwt"}
    async with place(tmp_path, clients=[client], lifetime=1) as here:
        oauth["issuer"] = here.issuer
        assert "Nobody has to log in." in (await here.run(oauth, "check"))[1]
        async with here.hub(oauth) as app, connected(app) as client_:
            for _ in range(3):
                assert (await client_.call("p:whoami"))["who"] == "robot"
                await asyncio.sleep(0.6)
        assert (await here.counts())["client_credentials"] >= 2


async def test_scopes_that_the_server_wants_are_asked_for(tmp_path: Path) -> None:
    async with place(tmp_path, scopes=["read:all"], registration=True) as here:
        code, said = await here.run(True, "login", "p")
        assert code == 0, said
        (account,) = await kept_accounts(here.vault)
        assert "read:all" in (account.tokens.scope or "")
        assert await called(here) == "carol"


@pytest.mark.parametrize("rotation", ["always", "never"])
async def test_many_calls_with_ended_tokens_renew_once(tmp_path: Path, rotation: str) -> None:
    async with place(tmp_path, registration=True, rotation=rotation) as here:
        await here.run(True, "login", "p")
        for _ in range(3):
            await expire(here)
            await asyncio.gather(*(_called_often(here.hub()) for _ in range(4)))
        assert await here.counts() == {"authorization_code": 1, "refresh_token": 3}


async def _called_often(hub: Aggregator) -> None:
    async with hub, connected(hub) as client:
        assert await asyncio.gather(*(client.call("p:whoami") for _ in range(5))) == [{"who": "carol"}] * 5


async def test_an_address_that_is_pasted(tmp_path: Path) -> None:
    async with place(tmp_path, registration=True) as here:
        line, environment = here.command(True, "login", "p", "--no-browser")
        process = await asyncio.create_subprocess_exec(
            *line,
            env={name: value for name, value in environment.items() if name != "BROWSER"},
            stdin=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stderr is not None
        said = ""
        async with asyncio.timeout(PATIENCE):
            while not (found := re.search(r"^  (http\S+)$", said, re.MULTILINE)):
                said += (await process.stderr.readline()).decode()
            back = await asyncio.to_thread(agreed, found[1])
            process.stdin.write(f"{back}\n".encode())
            said += (await process.communicate())[1].decode()
        assert process.returncode == 0, said
        assert await called(here) == "carol"


EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
OUR_HUB = "https://hub.example.com/mcp"


async def test_callers_tokens_are_exchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers of the hub have tokens of the provider for the hub, and none for the server."""
    monkeypatch.setenv("CLIENT_SECRET", SECRET)
    hub = {"client_id": "hub", "client_secret": SECRET, "redirect_uris": [], "response_types": []}
    robots = [
        {"client_id": who, "client_secret": SECRET, "redirect_uris": [], "response_types": []}
        for who in ("alice", "bob")
    ]
    grants = [{"grant_types": [EXCHANGE]}, {"grant_types": ["client_credentials"]}]
    clients = [{**hub, **grants[0]}, *({**robot, **grants[1]} for robot in robots)]
    async with place(tmp_path, clients=clients, exchange=OUR_HUB) as here:
        oauth = {"account": "exchange", "client_id": "hub", "client_secret_env": "CLIENT_SECRET", "issuer": here.issuer}
        settings = load_settings(
            jwt_issuer=here.issuer, jwt_audience=OUR_HUB, jwt_jwks_url=f"{here.issuer}/jwks", public_url=OUR_HUB[:-4]
        )
        app = here.hub(oauth, auth=auth_from_settings(settings))
        async with served(app) as front, httpx2.AsyncClient(trust_env=False) as http:
            for who in ("alice", "bob"):
                form = {"grant_type": "client_credentials", "resource": OUR_HUB}
                told = (await http.post(f"{here.issuer}/token", data=form, auth=(who, SECRET))).json()
                headers = {"authorization": f"Bearer {told['access_token']}"}
                client = await front.connect(modern=True, headers=headers)
                for _ in range(3):
                    answer = await client.result("tools/call", {"name": "p:whoami", "arguments": {}})
                    assert answer["structuredContent"] == {"who": who}
            assert (await here.counts())[EXCHANGE] == 2


def in_chromium(address: str, key: str | None, login: str) -> str:
    """Log in as a person does; the text of the last page. `key` is for a hub's page, which comes first."""
    with launched() as browser:
        page = browser.new_page()
        page.goto(address)
        if key is not None:
            page.fill("input[name=credential]", key)
            page.click("button")
        page.fill("input[name=login]", login)
        page.fill("input[name=password]", "any")
        page.click("button[type=submit]")
        page.click("button[type=submit]")
        page.wait_for_load_state()
        return page.inner_text("body")


@needs_chromium
async def test_a_login_in_chromium(tmp_path: Path) -> None:
    async with place(tmp_path, registration=True) as here:
        line, environment = here.command(True, "login", "p")
        process = await asyncio.create_subprocess_exec(
            *line, env={**environment, "BROWSER": "true %s &"}, stderr=asyncio.subprocess.PIPE
        )
        assert process.stderr is not None
        async with asyncio.timeout(PATIENCE):
            while not (found := re.match(r"Log in at: (\S+)", (await process.stderr.readline()).decode())):
                pass
            shown = await asyncio.to_thread(in_chromium, found[1], None, "dave")
            said = (await process.communicate())[1].decode()
        assert (process.returncode, "Logged in" in shown or "successful" in shown) == (0, True), said + shown
        assert await called(here) == "dave"


@needs_chromium
async def test_callers_log_in_with_accounts_of_their_own_in_chromium(tmp_path: Path) -> None:
    async with place(tmp_path, registration=True) as here:
        await here.run(True, "login", "p")
        credentials = Credentials(tmp_path, {"alice": None, "bob": None})
        listener = listening_socket("127.0.0.1", 0)
        app = here.hub({"account": "caller"}, auth=credentials.auth, public_url=url_of(listener, "127.0.0.1"))
        async with served(app, listener=listener) as front:
            call = {"name": "p:whoami", "arguments": {}}
            for name, login in (("alice", "alice-there"), ("bob", "bob-there")):
                capabilities = {"elicitation": {"url": {}}}
                client = await front.connect(modern=True, headers=credentials.of(name), capabilities=capabilities)
                asked = await client.result("tools/call", call)
                address = asked["inputRequests"]["login"]["params"]["url"]
                back = {"requestState": asked["requestState"], "inputResponses": {"login": {"action": "accept"}}}
                _, answer = client.begin("tools/call", {**call, **back})
                shown = await asyncio.to_thread(in_chromium, address, credentials.keys[name], login)
                assert "You are logged in to p, as key:" + name in shown
                assert (await answer)["result"]["structuredContent"] == {"who": login}
            assert len({account.client.client_id for account in await kept_accounts(here.vault)}) == 2


def key_in(folder: Path) -> tuple[str, dict[str, Any]]:
    """A file with a private key, and the set with its public one."""
    pem = generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "key.pem").write_bytes(pem)
    public: Mapping[str, Any] = ECKey.import_key(pem).as_dict(private=False)
    return str(folder / "key.pem"), {"keys": [{**public, "use": "sig", "alg": "ES256"}]}


async def expire(here: Place) -> None:
    """Let the kept access token be over."""
    (account,) = await kept_accounts(here.vault)
    await keep(here.vault, account.model_copy(update={"expires_at": time.time() - 1}))
