"""Logging in to a remote server that asks for OAuth, and serving with what that has brought. The server is real."""

from __future__ import annotations

import asyncio
import functools
import io
import json
import socket
import stat
import sys
import textwrap
import threading
import time
import webbrowser
from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from fastmcp import FastMCP
from fastmcp.server.auth import RemoteAuthProvider
from fastmcp.server.auth.auth import ClientRegistrationOptions, RevocationOptions
from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider
from fastmcp.server.auth.providers.jwt import JWTVerifier
from identity_provider import IdentityProvider, identity_provider
from pydantic import AnyHttpUrl
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from support.harness import PATIENCE, config, connected, until
from support.serving import served
from support.tokens import AUDIENCE, PAIR

from fastmcp_aggregator import Aggregator, AggregatorSettings, StartupError, build_aggregator
from fastmcp_aggregator.access.listening import listening_socket, url_of
from fastmcp_aggregator.cli.actions.accounts.login import logged_in
from fastmcp_aggregator.cli.actions.accounts.providers import login_reports, told
from fastmcp_aggregator.cli.main import main
from fastmcp_aggregator.config import RemoteServer, load_config
from fastmcp_aggregator.oauth.account import keep, kept_accounts
from fastmcp_aggregator.oauth.authorization import redirect_uri
from fastmcp_aggregator.oauth.tokens import Tokens
from fastmcp_aggregator.oauth.vault.errors import VaultError
from fastmcp_aggregator.oauth.vault.vault import FileVault
from fastmcp_aggregator.settings.oauth import OAuthSettings

pytestmark = pytest.mark.process


class Provider(InMemoryOAuthProvider):
    """Counts how often tokens are renewed."""

    renewals = 0

    async def exchange_refresh_token(self, *arguments: Any) -> Any:
        self.renewals += 1
        return await super().exchange_refresh_token(*arguments)


class ProtectedServer:
    """An MCP server over HTTP that lets in whoever has a token of its own authorization server."""

    def __init__(self, url: str) -> None:
        self.url = f"{url}/mcp"
        registration, revocation = ClientRegistrationOptions(enabled=True), RevocationOptions(enabled=True)
        self.auth = Provider(base_url=url, client_registration_options=registration, revocation_options=revocation)
        self.app: FastMCP[Any] = FastMCP("protected", auth=self.auth)

        @self.app.tool
        def whoami() -> dict[str, str]:
            return {"who": "somebody"}

    @property
    def good_tokens(self) -> set[str]:
        return set(self.auth.access_tokens)

    def forget(self, *, also_refresh: bool) -> None:
        """Revoke what was given out."""
        self.auth.access_tokens.clear()
        if also_refresh:
            self.auth.refresh_tokens.clear()


@asynccontextmanager
async def protected(*, is_open: bool = False) -> AsyncIterator[ProtectedServer]:
    listener = listening_socket("127.0.0.1", 0)
    server = ProtectedServer(url_of(listener, "127.0.0.1"))
    if is_open:
        server.app.auth = None
    async with served(server.app, listener=listener):
        yield server


def browser(folder: Path) -> str:
    """A program for `$BROWSER` that agrees to everything."""
    program = folder / "browser.py"
    program.write_text(
        textwrap.dedent("""
            import sys, urllib.request
            urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sys.argv[1]).read()
        """)
    )
    return f"{sys.executable} {program} %s &"


class Addressed(Protocol):
    """A server that can be logged in to."""

    url: str


def announce(monkeypatch: pytest.MonkeyPatch, **metadata: Any) -> None:
    """Let identity providers have these metadata, whatever they do."""
    here = IdentityProvider._metadata

    async def lying(self: IdentityProvider, request: Request) -> Response:
        return JSONResponse({**json.loads(bytes((await here(self, request)).body)), **metadata})

    monkeypatch.setattr(IdentityProvider, "_metadata", lying)


@dataclass
class OneOfMany:
    """An MCP server whose callers log in elsewhere, at what is `announced`."""

    url: str


@asynccontextmanager
async def one_of_many(provider: IdentityProvider, announced: str) -> AsyncIterator[OneOfMany]:
    listener = listening_socket("127.0.0.1", 0)
    origin = url_of(listener, "127.0.0.1")
    tokens = JWTVerifier(public_key=PAIR.public_key, issuer=provider.issuer, audience=AUDIENCE)
    app: FastMCP[Any] = FastMCP("child", auth=RemoteAuthProvider(tokens, [AnyHttpUrl(announced)], origin))
    async with served(app, listener=listener):
        yield OneOfMany(f"{origin}/mcp")


@pytest.fixture(autouse=True)
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody whose browser agrees to everything, and whose tokens are kept in a folder of the test."""

    def opened(url: str) -> bool:
        visit = functools.partial(httpx2.get, url, follow_redirects=True, timeout=PATIENCE, trust_env=False)
        threading.Thread(target=visit).start()
        return True

    monkeypatch.setattr(webbrowser, "open", opened)
    monkeypatch.setenv("BROWSER", "any")
    monkeypatch.setenv("FASTMCP_AGGREGATOR_OAUTH_DIR", str(tmp_path / "tokens"))


async def log_in(server: Addressed, folder: Path, *arguments: str) -> tuple[int, str]:
    """Run `login`; its exit code and what it said."""
    return await run(server, folder, ["login"], *arguments)


async def run(server: Addressed, folder: Path, command: list[str], *arguments: str) -> tuple[int, str]:
    """Run a command on the config, in a thread of this process; its exit code and what it said."""
    said = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    with redirect_stdout(said), redirect_stderr(said):
        work = asyncio.to_thread(main, [*command, written(server, folder), *arguments])
        code = await asyncio.wait_for(work, PATIENCE)
    said.seek(0)
    return code, said.read()


def written(server: Addressed, folder: Path) -> str:
    """The path of a config with this server."""
    servers = {"p": {"url": server.url}, "s": {"command": "x"}, "u": {"url": "http://${HOST_WITHOUT_VALUE}/"}}
    file = folder / "config.json"
    file.write_text(json.dumps(config(**servers)))
    return str(file)


async def log_in_as_a_program(server: Addressed, folder: Path) -> tuple[int, str]:
    """Run `login p` as a process, with a browser that is one, too."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fastmcp_aggregator", "login", written(server, folder), "p"),
        env={
            "PATH": "/usr/bin:/bin",
            "BROWSER": browser(folder),
            "FASTMCP_AGGREGATOR_OAUTH_DIR": str(folder / "tokens"),
            "HOME": str(folder),
            "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode is not None
    return process.returncode, said.decode()


def hub(server: ProtectedServer, folder: Path, **settings: Any) -> Aggregator:
    own = {"p": {"oauth": True}}
    return build_aggregator(config(p={"url": server.url}), servers=own, oauth_dir=str(folder / "tokens"), **settings)


async def kept(folder: Path) -> Tokens:
    (tokens,) = await kept_accounts(FileVault(folder / "tokens"))
    return tokens


async def change(folder: Path, **fields: Any) -> None:
    await keep(FileVault(folder / "tokens"), (await kept(folder)).model_copy(update=fields))


async def test_the_callback_is_served_before_the_browser_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def opened(url: str) -> bool:
        back = urlsplit(parse_qs(urlsplit(url).query)["redirect_uri"][0])
        socket.create_connection((back.hostname, back.port), PATIENCE).close()
        threads.append(
            threading.Thread(target=httpx2.get, args=(url,), kwargs={"follow_redirects": True, "timeout": PATIENCE})
        )
        threads[-1].start()
        return True

    monkeypatch.setattr(webbrowser, "open", opened)
    async with protected() as server, asyncio.timeout(PATIENCE):
        vault, options = FileVault(tmp_path), Namespace(port=None, browser=True)
        tokens = await logged_in(RemoteServer(key="p", label="p", url=server.url), OAuthSettings(), vault, options)
        assert tokens.tokens.access_token in server.good_tokens
        await asyncio.to_thread(threads[0].join)


async def test_a_browser_that_comes_back_from_another_server_ends_the_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages: list[httpx2.Response] = []

    def visit(url: str) -> None:
        back = httpx2.URL(httpx2.get(url, timeout=PATIENCE, trust_env=False).headers["location"])
        others = redirect_uri(str(back.copy_with(path="/callback", query=None)), "https://honest.example")
        pages.append(httpx2.get(f"{others}?{back.query.decode()}", timeout=PATIENCE, trust_env=False))

    def opened(url: str) -> bool:
        threading.Thread(target=visit, args=(url,)).start()
        return True

    monkeypatch.setattr(webbrowser, "open", opened)
    async with protected() as server:
        code, said = await log_in(server, tmp_path, "p")
        assert (code, "from another authorization server" in said) == (1, True), said
        assert not server.good_tokens
        assert not list((tmp_path / "tokens").glob("tokens-*"))
    await until(lambda: pages)
    assert "from another authorization server" in pages[0].text


async def test_a_login_is_kept_for_its_owner_only_and_serves(tmp_path: Path) -> None:
    async with protected() as server:
        code, said = await log_in_as_a_program(server, tmp_path)
        assert code == 0, said
        assert "logged in to 'p'" in said
        assert "oauth = true" in said
        files = list((tmp_path / "tokens").iterdir())
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
        assert stat.S_IMODE((tmp_path / "tokens").stat().st_mode) == 0o700
        shown = said + "".join(file.read_text() for file in files)
        assert not [token for token in server.good_tokens if token in shown]
        async with hub(server, tmp_path) as app, connected(app) as client:
            assert await client.call("p:whoami") == {"who": "somebody"}


async def test_a_login_that_cannot_be_kept_is_ended_there_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(*_: Any) -> None:
        raise VaultError("no space left on device")

    monkeypatch.setattr("fastmcp_aggregator.cli.actions.accounts.login.keep", full)
    async with protected() as server:
        code, said = await log_in(server, tmp_path, "p")
        assert (code, "no space left on device" in said, "oauth_dir" in said) == (1, True, True)
        assert not server.good_tokens
        assert not server.auth.refresh_tokens


async def test_expired_tokens_are_renewed_and_kept_without_asking_anybody(tmp_path: Path) -> None:
    async with protected() as server:
        await log_in(server, tmp_path, "p")
        before = await kept(tmp_path)
        await change(tmp_path, expires_at=time.time() - 1)
        async with hub(server, tmp_path) as app, connected(app) as client:
            assert await client.call("p:whoami") == {"who": "somebody"}
        after = await kept(tmp_path)
        assert after.tokens.access_token != before.tokens.access_token
        assert after.tokens.refresh_token != before.tokens.refresh_token
        assert after.expires_at is not None
        assert after.expires_at > time.time()


async def test_calls_whose_token_is_refused_meanwhile_are_made_with_one_renewed_token(tmp_path: Path) -> None:
    async with protected() as server:
        await log_in(server, tmp_path, "p")
        async with hub(server, tmp_path) as app, connected(app) as client:
            assert await client.call("p:whoami") == {"who": "somebody"}
            server.forget(also_refresh=False)
            calls = [client.call("p:whoami") for _ in range(8)]
            assert await asyncio.gather(*calls) == [{"who": "somebody"}] * 8
            assert server.auth.renewals == 1


async def test_without_a_login_the_server_says_what_to_do_and_the_hub_waits_for_nobody(tmp_path: Path) -> None:
    async with protected() as server, asyncio.timeout(PATIENCE):
        with pytest.raises(StartupError) as caught:
            async with hub(server, tmp_path):
                pytest.fail("entered")
    assert "nobody has logged in to it; run `fastmcp-aggregator login CONFIG SERVER`" in str(caught.value)


async def test_a_logout_removes_the_tokens_and_revokes_them_there(tmp_path: Path) -> None:
    async with protected() as server:
        await log_in(server, tmp_path, "p")
        code, said = await run(server, tmp_path, ["accounts", "list"], "--json")
        (account,) = json.loads(said)["accounts"]
        assert (code, account["server"], account["url"], account["principal"]) == (0, "p", server.url, None)
        assert not [token for token in server.good_tokens if token in said]
        code, said = await run(server, tmp_path, ["logout"], "p")
        assert (code, said) == (0, "the hub is logged out of 'p'; the tokens are removed, and revoked there too\n")
        assert not server.good_tokens
        assert (await run(server, tmp_path, ["logout"], "p"))[0] == 1
        assert "there are no accounts" in (await run(server, tmp_path, ["accounts", "list"]))[1]


@pytest.mark.parametrize("damage", ["revoked", "torn", "none"])
async def test_a_login_that_is_of_no_use_any_more_says_so(tmp_path: Path, damage: str) -> None:
    async with protected() as server:
        await log_in(server, tmp_path, "p")
        words = {"revoked": "its login has expired", "torn": "cannot be read", "none": "nobody has logged in"}[damage]
        (file,) = (tmp_path / "tokens").glob("tokens-*")
        match damage:
            case "revoked":
                server.forget(also_refresh=True)
            case "torn":
                file.write_text("{")
            case "none":
                file.unlink()
        async with hub(server, tmp_path, strict=False) as app:
            await until(lambda: app.health()["p"].last_error)
            status = app.health()["p"]
        assert status.auth_error
        assert status.login_needed == (damage != "torn")
        assert words in (status.last_error or "")
        if status.login_needed:
            assert "run `fastmcp-aggregator login CONFIG SERVER`" in (status.last_error or "")
        assert (await log_in(server, tmp_path, "p"))[0] == 0


async def test_only_a_server_with_an_address_can_be_logged_in_to(tmp_path: Path) -> None:
    async with protected() as server:
        assert await log_in(server, tmp_path, "s") == (
            2,
            "there is no login for a server without a `url`: 's'; servers with a `url`: 'p', 'u'\n",
        )
        code, said = await log_in(server, tmp_path, "u")
        assert (code, "HOST_WITHOUT_VALUE is not set" in said) == (2, True)
        assert await log_in(server, tmp_path, "q") == (2, "there is no server 'q'; servers with a `url`: 'p', 'u'\n")


async def test_a_login_to_a_server_that_does_not_run_says_what_to_look_at(tmp_path: Path) -> None:
    with closing(listening_socket("127.0.0.1", 0)) as listener:
        address = url_of(listener, "127.0.0.1")
    code, said = await log_in(OneOfMany(f"{address}/mcp"), tmp_path, "p")
    assert code == 1
    assert f"logging in to 'p' failed: {address} cannot be asked: connection refused" in said
    assert said.endswith(
        "Check that it runs and that this machine reaches it (a VPN, HTTPS_PROXY); if the address is wrong, it is "
        f"`url` in {tmp_path / 'config.json'}.\n"
    )


async def test_a_server_that_asks_for_no_login_is_left_alone(tmp_path: Path) -> None:
    async with protected(is_open=True) as server:
        assert await log_in(server, tmp_path, "p") == (
            1,
            f"asking {server.url} where to log in\n"
            "'p' requires no login: it answered without asking for a login (HTTP status 200)\n",
        )
        assert not (tmp_path / "tokens").exists()


@pytest.mark.parametrize("field", ["registration_endpoint", "token_endpoint", "authorization_endpoint"])
async def test_a_login_never_goes_where_a_cloud_hands_out_credentials(
    tmp_path: Path, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server says where its logins are."""
    announce(monkeypatch, **{field: f"http://169.254.170.23/{field}"})
    async with identity_provider() as provider, one_of_many(provider, provider.issuer) as server:
        code, said = await log_in(server, tmp_path, "p")
    assert code == 1
    assert "that of a cloud metadata service" in said


@pytest.mark.parametrize("methods", [["plain"], []])
async def test_where_challenges_are_not_taken_login_and_check_say_so_and_no_client_is_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, methods: list[str]
) -> None:
    registered: list[Request] = []

    async def registers(self: IdentityProvider, request: Request) -> Response:
        registered.append(request)
        return Response(status_code=400)

    announce(monkeypatch, code_challenge_methods_supported=methods)
    monkeypatch.setattr(IdentityProvider, "_register", registers)
    why = "its authorization server does not protect logins: it takes no PKCE with S256"
    async with identity_provider() as provider, one_of_many(provider, provider.issuer) as server:
        code, said = await log_in(server, tmp_path, "p")
        settings = AggregatorSettings(oauth_dir=str(tmp_path / "tokens"))
        reports = await login_reports(load_config(config(p={"url": server.url})), settings, ["p"])
    assert (code, said.splitlines()[-1]) == (1, f"logging in to 'p' failed: {why}")
    assert list(told(reports)) == [f"  p: {why}"]
    assert registered == []


async def test_a_file_of_variables_in_the_working_directory_does_not_move_the_tokens(tmp_path: Path) -> None:
    """It may have come with a repository."""
    (tmp_path / ".env").write_text(f"FASTMCP_HOME={tmp_path / 'stolen'}\n")
    code = (
        "from fastmcp_aggregator.oauth.accounts import directory_of\n"
        "from fastmcp_aggregator.settings.model import load_settings\n"
        "print(directory_of(load_settings()))"
    )
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path / "home")}
    for more, folder in (({}, "home/.local/share/fastmcp"), ({"FASTMCP_HOME": str(tmp_path / "own")}, "own")):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", code),
            cwd=tmp_path,
            env={**environment, **more},
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
        assert said.decode().strip() == str(tmp_path / folder / "aggregator-oauth")


async def test_a_file_of_variables_in_the_working_directory_sets_nothing_of_the_program(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("FASTMCP_LOG_LEVEL=NONSENSE\n")
    (tmp_path / "mcp.json").write_text('{"mcpServers": {}}')
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fastmcp_aggregator", "list", "mcp.json"),
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert (process.returncode, said.count(b"\n")) == (0, 1)
    assert said.startswith(b"mcp.json has no server to list")


async def test_a_slash_that_nobody_wrote_after_an_issuer_without_a_path_does_not_matter(tmp_path: Path) -> None:
    async with identity_provider() as provider, one_of_many(provider, provider.issuer) as server:
        code, said = await log_in(server, tmp_path, "p")
        assert code == 0, said
        assert said.count("Log in at:") == 1


@pytest.mark.parametrize(
    ("path", "announced", "issuer"),
    [
        ("", "", "http://other.example"),
        ("", "", "{origin}/other"),
        ("/a", "/a/", "{origin}/a"),
        ("/a", "/a", "{origin}"),
    ],
)
async def test_an_issuer_that_is_another_is_refused_before_anybody_is_asked(
    tmp_path: Path, path: str, announced: str, issuer: str
) -> None:
    async with identity_provider(path) as provider:
        origin = provider.issuer.removesuffix(path)
        provider.issuer = issuer.format(origin=origin)
        async with one_of_many(provider, origin + announced) as server:
            code, said = await log_in(server, tmp_path, "p")
    assert code == 1
    assert f"issuer mismatch: {provider.issuer}" in said
    assert "Log in at:" not in said
