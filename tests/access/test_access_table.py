"""The last table of `docs/access.md`: what a policy does when its input is missing, odd, too big, stale or down.

Each cell of the table is a test here, by the same names; a dash means that there is nothing of the kind.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from joserfc.jwk import RSAKey
from mcp.shared.auth import OAuthMetadata, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from support.account_hub import CALL, Browser, give
from support.account_hub import Around as Accounts
from support.account_hub import around as hub_with_accounts
from support.credentials import Credentials, bearer, token
from support.doubles import Clock, NoFlowControl, call
from support.harness import config, connected, free_port, lean, talking, until
from support.memory import build_aggregator, scripted
from support.redis_server import RedisServer
from support.remote_server import remote_server
from support.serving import served
from support.tokens import PAIR
from support.two_replicas import post, replicas, session_of
from support.wire import RawClient, until_answered
from support.wire_http import HttpClient

from fastmcp_aggregator import Aggregator
from fastmcp_aggregator.access.keys_file import read_keys, write_keys
from fastmcp_aggregator.access.listening import listening_socket
from fastmcp_aggregator.access.principal import Principal
from fastmcp_aggregator.attach import greeting
from fastmcp_aggregator.attach.systems import system
from fastmcp_aggregator.auth.verifiers import auth_from_settings
from fastmcp_aggregator.children.session.transport_failure import HttpFailed
from fastmcp_aggregator.children.stdio.transport import ProcessTransport
from fastmcp_aggregator.config.documents import MAX_BYTES
from fastmcp_aggregator.errors import AggregatorError, ConfigError, SharedStateError, StartupError
from fastmcp_aggregator.front.http.server import serve_http
from fastmcp_aggregator.groups import Group, load_groups
from fastmcp_aggregator.local_hub.dashboard import SecretUrl
from fastmcp_aggregator.local_hub.hub import LocalHub
from fastmcp_aggregator.local_hub.report import HubAbout
from fastmcp_aggregator.oauth.account import ExchangeAccount, LoginAccount, keep, kept_accounts
from fastmcp_aggregator.oauth.clients import client_for
from fastmcp_aggregator.oauth.discovery import Provider
from fastmcp_aggregator.oauth.errors import ClientRefused, Unreachable
from fastmcp_aggregator.oauth.tokens import Tokens
from fastmcp_aggregator.oauth.vault.errors import VaultError
from fastmcp_aggregator.oauth.vault.vault import FileVault, Vault
from fastmcp_aggregator.pinning.definitions import pins_of
from fastmcp_aggregator.pinning.pins import pins_from_settings
from fastmcp_aggregator.pinning.pins_file import write_pins
from fastmcp_aggregator.policies.audit import audit_of
from fastmcp_aggregator.policies.limits import limits_from_settings
from fastmcp_aggregator.policies.policy import Rejected
from fastmcp_aggregator.policies.validation import ArgumentValidation
from fastmcp_aggregator.replicas.rate_limiter import InMemoryRateLimiter, Rate
from fastmcp_aggregator.replicas.redis_connection import connect
from fastmcp_aggregator.replicas.redis_rate_limiter import RedisRateLimiter, _name
from fastmcp_aggregator.replicas.wire import MESSAGE_SIZE_LIMIT, TooLargeError, encoded
from fastmcp_aggregator.settings.model import load_settings
from fastmcp_aggregator.settings.oauth import OAuthSettings

PAGE = Path(__file__).parents[2] / "docs" / "access.md"
COLUMNS = ("missing", "malformed", "too big", "stale", "down")


@dataclass
class Around:
    """What a test needs."""

    folder: Path
    patch: pytest.MonkeyPatch
    log: pytest.LogCaptureFixture

    def file(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def too_big(self, name: str) -> Path:
        return self.file(name, " " * (MAX_BYTES + 1))


Cell = Callable[[Around], Awaitable[None]]
CELLS: dict[tuple[str, str], Cell] = {}


def cell(row: str, column: str) -> Callable[[Cell], Cell]:
    def put(test: Cell) -> Cell:
        assert (row, column) not in CELLS
        CELLS[row, column] = test
        return test

    return put


async def status(app: Any, headers: dict[str, str], path: str = "/mcp/tools/list") -> int:
    async with served(app) as front, front.browser() as http:
        return (await http.post(path, headers=headers, json={})).status_code


def start_is_refused(words: str, start: Callable[[], Any]) -> None:
    with pytest.raises(ConfigError, match=words):
        start()


# Groups.


def with_groups(around: Around, groups: Any) -> Aggregator:
    return build_aggregator(config(a=lean(), b=lean()), groups=around.file("group.json", json.dumps(groups)))


@cell("groups", "missing")
async def _(around: Around) -> None:
    start_is_refused("there is no file", lambda: load_groups(around.folder / "none.json", ["a"]))
    app = with_groups(around, {"red": {"servers": ["a"]}})
    async with app, connected(app.group("red")) as client:
        (around.folder / "group.json").unlink()
        with pytest.raises(ConfigError):
            await app.reload()
        assert await client.call("a:pid")
        assert (await client.error("tools/call", {"name": "b:pid"}))["code"] == -32602


@cell("groups", "malformed")
async def _(around: Around) -> None:
    for text in (
        "{",
        "[]",
        '{"red": {}}',
        '{"red": {"servers": ["nobody"]}}',
        '{"red": {"servers": ["a"], "tool": []}}',
    ):
        path = around.file("group.json", text)
        with pytest.raises(ConfigError):
            load_groups(path, ["a"])
    app = with_groups(around, {"red": {"servers": ["a"]}})
    async with app, connected(app.group("red")) as client:
        around.file("group.json", '{"red": {"servers": ["a", "b"]}, "red": {"servers": ["b"]}}')
        with pytest.raises(ConfigError):
            await app.reload()
        assert (await client.error("tools/call", {"name": "b:pid"}))["code"] == -32602


@cell("groups", "too big")
async def _(around: Around) -> None:
    start_is_refused("larger than 10 MiB", lambda: load_groups(around.too_big("group.json"), ["a"]))


@cell("groups", "stale")
async def _(around: Around) -> None:
    app = with_groups(around, {"red": {"servers": ["a", "b"]}})
    async with app, connected(app.group("red")) as client:
        assert await client.call("b:pid")
        around.file("group.json", '{"red": {"servers": ["a"]}}')
        await app.reload()
        assert (await client.error("tools/call", {"name": "b:pid"}))["code"] == -32602
        around.file("group.json", "{}")
        await app.reload()
        assert (await client.error("tools/call", {"name": "a:pid"}))["code"] == -32602


@cell("groups", "down")
async def _(around: Around) -> None:
    groups = {"red": {"servers": ["a", "b"], "tools": ["send"]}}
    servers = config(a=lean(tool_names=["send"]), b=lean(tool_names=["send"]))
    app = build_aggregator(servers, groups=groups, strict=False)
    scripted(app)["a"].options = {"exit_at_start": 1}
    async with app, connected(app.group("red")) as client:
        assert await client.names() == []
        assert "error" in await client.send("tools/call", {"name": "b:send", "arguments": {}})


# API keys.


async def with_keys(around: Around, change: Callable[[Credentials], Any]) -> int:
    """What the key of somebody gets after a change of the file."""
    credentials = Credentials(around.folder, {"ann": None})
    app = build_aggregator(config(a=lean()), auth=credentials.auth)
    async with served(app) as front, front.browser() as http:
        assert (await http.post("/mcp/tools/list", headers=credentials.of("ann"))).status_code == 200
        change(credentials)
        return (await http.post("/mcp/tools/list", headers=credentials.of("ann"))).status_code


@cell("API keys", "missing")
async def _(around: Around) -> None:
    assert await with_keys(around, lambda credentials: credentials.file.unlink()) == 401
    assert await status(build_aggregator(config(), auth=Credentials(around.folder, {}).auth), {}) == 401


@cell("API keys", "malformed")
async def _(around: Around) -> None:
    for text in ("{", "[]", '{"keys": [{"id": "x"}]}'):
        assert await with_keys(around, lambda credentials, text=text: credentials.file.write_text(text)) == 401

    def spoil_another_entry(credentials: Credentials) -> None:
        kept = json.loads(credentials.file.read_text())["keys"]
        credentials.file.write_text(json.dumps({"keys": [*kept, {"id": "x"}]}))

    assert await with_keys(around, spoil_another_entry) == 401
    assert await with_keys(around, lambda credentials: credentials.file.chmod(0o666)) == 401


@cell("API keys", "too big")
async def _(around: Around) -> None:
    assert await with_keys(around, lambda credentials: credentials.file.write_text(" " * (MAX_BYTES + 1))) == 401
    app = build_aggregator(config(), auth=Credentials(around.folder, {}).auth)
    assert await status(app, {"x-api-key": "fma_" + "x" * 30_000}) == 401


@cell("API keys", "stale")
async def _(around: Around) -> None:
    def expire(credentials: Credentials) -> None:
        (key,) = read_keys(credentials.file)
        write_keys(credentials.file, [replace(key, expires=key.created)])

    assert await with_keys(around, expire) == 401
    assert await with_keys(around, lambda credentials: write_keys(credentials.file, [])) == 401


@cell("API keys", "down")
async def _(around: Around) -> None:
    def unreadable(credentials: Credentials) -> None:
        credentials.file.unlink()
        credentials.file.mkdir()

    assert await with_keys(around, unreadable) == 401


# Tokens of an identity provider.


async def with_token(around: Around, path: str = "/groups/red/mcp/tools/list", **claims: Any) -> int:
    auth = Credentials(around.folder, {}).auth
    app = build_aggregator(config(a=lean()), groups={"red": {"servers": ["a"]}}, auth=auth)
    return await status(app, bearer(**claims), path)


@cell("tokens (JWT)", "missing")
async def _(around: Around) -> None:
    assert await with_token(around) == 200
    for claim in ("iss", "aud", "exp", "sub"):
        assert await with_token(around, **{claim: None}) == 401
    assert await with_token(around, sub=None, client_id="a-program") == 200
    assert await with_token(around, groups=None) == 404


@cell("tokens (JWT)", "malformed")
async def _(around: Around) -> None:
    app = build_aggregator(config(), auth=Credentials(around.folder, {}).auth)
    for text in ("x", "a.b.c", "eyJhbGciOiJub25lIn0.e30.", "%e9"):
        assert await status(app, {"authorization": f"Bearer {text}"}) == 401
    assert await with_token(around, nbf="soon") == 401
    for sub in ("", 5, ["ann"], {"ann": 1}):
        assert await with_token(around, sub=sub) == 401
    assert await with_token(around, cnf={"jkt": "x"}) == 401
    for groups in (5, {"red": True}, [["red"]], [None]):
        assert await with_token(around, groups=groups) == 404


@cell("tokens (JWT)", "too big")
async def _(around: Around) -> None:
    assert await with_token(around, sub="x" * 1_000_000) in (401, 431)


@cell("tokens (JWT)", "stale")
async def _(around: Around) -> None:
    assert await with_token(around, exp=int(time.time()) - 5) == 401
    assert await with_token(around, nbf=int(time.time()) + 60) == 401


@cell("tokens (JWT)", "down")
async def _(around: Around) -> None:
    credentials, port = Credentials(around.folder, {}), free_port()
    for name in ("jwt_public_key_file", "keys_file"):
        del credentials.settings[name]
    credentials.settings["jwt_jwks_url"] = f"http://127.0.0.1:{port}/keys"
    auth: Any = credentials.auth
    assert await auth.verify_token(token()) is None
    keys = json.dumps({"keys": [RSAKey.import_key(PAIR.public_key).as_dict()]}).encode()

    async def publish(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(keys)}\r\nconnection: close\r\n\r\n"
        writer.write(head.encode() + keys)
        writer.close()

    auth = credentials.auth
    provider = await asyncio.start_server(publish, "127.0.0.1", port)
    assert await auth.verify_token(token()) is not None
    provider.close()
    await provider.wait_closed()
    assert await auth.verify_token(token()) is not None
    assert auth._cache_ttl == 3600
    auth._jwks_cache_time -= 3600
    assert await auth.verify_token(token()) is None


# Logins of servers (OAuth).


LOGGED_IN_AT = "https://mcp.example.com/mcp"


async def login_fails(vault: Vault, words: str) -> None:
    with pytest.raises(HttpFailed) as caught:
        await LoginAccount(vault, LOGGED_IN_AT, OAuthSettings()).authorization()
    assert words in caught.value.failure.reason


async def logged_in(around: Around, **tokens: Any) -> FileVault:
    """A vault with tokens that have ended."""
    vault = FileVault(around.folder / "tokens")
    usual = {
        "url": LOGGED_IN_AT,
        "issuer": "https://login.example.com",
        "token_endpoint": f"http://127.0.0.1:{free_port()}/token",
        "resource": None,
        "client": {"client_id": "c", "redirect_uris": ["http://localhost/"]},
        "tokens": {"access_token": "t", "refresh_token": "r", **tokens},
        "obtained_at": 0,
        "expires_at": 1,
    }
    await keep(vault, Tokens.model_validate(usual))
    return vault


def spoil(around: Around, text: str) -> None:
    (file,) = (around.folder / "tokens").glob("tokens-*")
    file.write_text(text)


@cell("logins (OAuth)", "missing")
async def _(around: Around) -> None:
    await login_fails(FileVault(around.folder), "nobody has logged in to it")


@cell("logins (OAuth)", "malformed")
async def _(around: Around) -> None:
    vault = await logged_in(around)
    (file,) = (around.folder / "tokens").glob("tokens-*")
    sealed = file.read_text()
    for text in ("{", sealed[:-2] + "00", sealed.replace("file", "keyring")):
        spoil(around, text)
        await login_fails(vault, "cannot be read" if "keyring" not in text else "the system's keyring")


@cell("logins (OAuth)", "too big")
async def _(around: Around) -> None:
    vault = await logged_in(around)
    spoil(around, "[" * 1_000_000)
    await login_fails(vault, "cannot be read")


@cell("logins (OAuth)", "stale")
async def _(around: Around) -> None:
    await login_fails(await logged_in(around, refresh_token=None), "its login has expired")


@cell("logins (OAuth)", "down")
async def _(around: Around) -> None:
    await login_fails(await logged_in(around), "connection refused")


# The addresses of a request.


async def raw(*lines: str) -> int:
    """The status of a request with exactly these lines in its head; 0: the connection was closed."""
    async with served(build_aggregator(config())) as front:
        address = httpx2.URL(front.origin)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write("\r\n".join(["POST /mcp/tools/list HTTP/1.1", *lines, "content-length: 0", "", ""]).encode())
        answer = await reader.readline()
        writer.close()
        return int(answer.split()[1]) if answer else 0


@cell("Host", "missing")
async def _(around: Around) -> None:
    assert await raw() in (400, 421)
    assert await raw("host:") == 421


@cell("Host", "malformed")
async def _(around: Around) -> None:
    for host in ("evil.example.com", "localhost@evil.example.com", "[::1", "localhost.evil.example.com", "%6cocalhost"):
        assert await raw(f"host: {host}") == 421


@cell("Host", "too big")
async def _(around: Around) -> None:
    assert await raw(f"host: {'x' * 70_000}") in (421, 431)


@cell("Origin", "missing")
async def _(around: Around) -> None:
    assert await raw("host: localhost", "content-type: application/json") == 200
    told = ("host: localhost", "content-type: application/json", "sec-fetch-site: cross-site")
    assert await raw(*told, "sec-fetch-dest: image") == 403


@cell("Origin", "malformed")
async def _(around: Around) -> None:
    for origin in ("null", "https://evil.example.com", "x", "http://[::1", "http://localhost.evil.example.com"):
        assert await raw("host: localhost", "content-type: application/json", f"origin: {origin}") == 403


@cell("Origin", "too big")
async def _(around: Around) -> None:
    assert await raw("host: localhost", f"origin: http://{'x' * 70_000}") in (403, 431)


# Checked arguments.


async def refusal(schema: Any, arguments: Any) -> str:
    """What a call is told; empty if it passes."""
    policy = ArgumentValidation()
    asked = call(name="t", params={"arguments": arguments}, input_schema=schema)
    try:
        if (pending := policy.before(asked)) is not None:
            await pending
    except Rejected as rejection:
        return rejection.message
    return ""


OBJECT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@cell("arguments", "missing")
async def _(around: Around) -> None:
    assert "no input schema" in await refusal(None, {"n": 1})
    assert "required" in await refusal(OBJECT, None)


@cell("arguments", "malformed")
async def _(around: Around) -> None:
    assert await refusal(OBJECT, {"n": 1}) == ""
    for schema in (True, [], {"type": "objct"}, {"$ref": "#/nowhere"}, {"$ref": "https://example.com/schema"}):
        assert "cannot be checked" in await refusal(schema, {"n": 1})
    assert "not of type" in await refusal(OBJECT, [1])
    app = build_aggregator(config(a=lean()), validate_arguments=True)
    async with app, connected(app) as client:
        for arguments in ([], "x", 5, True):
            assert (await client.error("tools/call", {"name": "a:echo", "arguments": arguments}))["code"] == -32602


@cell("arguments", "too big")
async def _(around: Around) -> None:
    deep: Any = {}
    for _ in range(101):
        deep = {"x": deep}
    for odd in (deep, [1] * 60_000, [[[]]] * 60_000):
        assert "cannot be checked" in await refusal(OBJECT, {"n": 1, "more": odd})


@cell("arguments", "stale")
async def _(around: Around) -> None:
    policy = ArgumentValidation()
    for schema, passes in ((OBJECT, True), ({**OBJECT, "required": ["m"]}, False)):
        asked = call(name="t", params={"arguments": {"n": 1}}, input_schema=schema)
        pending = policy.before(asked)
        assert pending is not None
        if passes:
            await pending
        else:
            with pytest.raises(Rejected):
                await pending


# Pins that block.

READ = {"name": "read", "inputSchema": {"type": "object"}}


def blocking(path: Path) -> Any:
    return pins_from_settings(load_settings(pins=str(path), on_pin_mismatch="block"))


async def listed(around: Around, pins: dict[str, Any], **server: Any) -> list[str]:
    write_pins(around.folder / "pins.json", pins)
    settings = {"pins": str(around.folder / "pins.json"), "on_pin_mismatch": "block"}
    app = build_aggregator(config(a=lean(**server)), **settings)
    async with app, connected(app) as client:
        return await client.names()


async def pins_now(**server: Any) -> dict[str, Any]:
    async with build_aggregator(config(a=lean(**server))) as app:
        catalogue = app.children["a"].catalogue
        assert catalogue is not None
        return {"a": pins_of(catalogue.components, catalogue.instructions)}


@cell("pins", "missing")
async def _(around: Around) -> None:
    start_is_refused("there is no file", lambda: blocking(around.folder / "none.json"))
    assert await listed(around, {}) == []
    assert "a:new" not in await listed(around, await pins_now(), tool_names=["new"])


@cell("pins", "malformed")
async def _(around: Around) -> None:
    for text in ("{", "[]", '{"format": 3, "servers": {}}', '{"format": 2, "servers": {"a": {"tools": {"read": {}}}}}'):
        path = around.file("pins.json", text)
        with pytest.raises(ConfigError):
            blocking(path)
    write_pins(around.folder / "pins.json", await pins_now())
    changed = (around.folder / "pins.json").read_text().replace("The tool echo.", "The tool each.")
    start_is_refused("has a digest that is not", lambda: blocking(around.file("pins.json", changed)))


@cell("pins", "too big")
async def _(around: Around) -> None:
    start_is_refused("larger than 10 MiB", lambda: blocking(around.too_big("pins.json")))


@cell("pins", "stale")
async def _(around: Around) -> None:
    pins = await pins_now()
    assert "a:echo" in await listed(around, pins)
    names = await listed(around, pins, tool_extra={"_meta": {"ui": {}}})
    assert "a:echo" not in names
    assert "a:fail" in names
    old = {"sha256": "", "definition": READ}
    around.file("pins.json", json.dumps({"servers": {"a": {"tools": {"read": old}}}}))
    start_is_refused("has a digest that is not", lambda: blocking(around.folder / "pins.json"))


@cell("pins", "down")
async def _(around: Around) -> None:
    write_pins(around.folder / "pins.json", {})
    settings = {"pins": str(around.folder / "pins.json"), "on_pin_mismatch": "block"}
    app = build_aggregator(config(a=lean(resources=[{"uri": "note:///a", "name": "a"}])), strict=False, **settings)
    script = scripted(app)["a"]
    script.options = {"exit_at_start": 1}
    async with app, connected(app) as client:
        await until(lambda: app.health()["a"].last_error)
        script.options = {}
        assert "error" in await client.send("resources/read", {"uri": "note://a//a"})
        methods = [message["method"] for life in script.lives for message in life.received]
        assert "resources/read" not in methods


# Rate limits.

SLOW = Rate(per_minute=0.001, burst=2)


def limited(principal: Principal, **settings: Any) -> str:
    """Which of three calls pass."""
    limits = limits_from_settings(load_settings(rate_limit=0.001, rate_burst=2, **settings), has_auth=False)
    assert limits is not None
    found = ""
    for _ in range(3):
        try:
            limits.before(call(principal, is_remote=True))
            found += "y"
        except Rejected:
            found += "n"
    return found


@cell("rate limits", "missing")
async def _(around: Around) -> None:
    assert limited(Principal()) == "yyn"
    assert limits_from_settings(load_settings(), has_auth=True) is not None


@cell("rate limits", "malformed")
async def _(around: Around) -> None:
    for odd in (-1, "nan", "inf", "many"):
        with pytest.raises(ConfigError):
            load_settings(rate_limit=odd)
    callers = {"jwt:x#ann": {"rate_burst": 9}, "group:": {"rate_burst": 9}, "nobody": {"rate_burst": 9}}
    assert limited(Principal("key:ann"), callers=callers) == "yyn"


@cell("rate limits", "too big")
async def _(around: Around) -> None:
    limiter = InMemoryRateLimiter(most=2)
    for name in ("ann", "ann", "ben", "ann"):
        limiter.acquire(name, SLOW)
    limiter.acquire("eve", SLOW)
    assert limiter.acquire("ann", SLOW) > 0
    assert len(limiter._buckets) == 2


@cell("rate limits", "down")
async def _(around: Around) -> None:
    limits = RedisRateLimiter(f"redis://127.0.0.1:{free_port()}/0", InMemoryRateLimiter())
    assert [await limits.acquire("ann", SLOW) == 0 for _ in range(3)] == [True, True, False]
    await limits.close()


# Redis.


@cell("Redis", "missing")
async def _(around: Around) -> None:
    app = build_aggregator(config(), redis_url=f"redis://127.0.0.1:{free_port()}/0")
    with pytest.raises(SharedStateError):
        async with app._backend.sharing():
            raise AssertionError("it began")


@cell("Redis", "malformed")
async def _(around: Around) -> None:
    server = RedisServer(around.folder)
    await server.start()
    try:
        redis = connect(server.url)
        limits = RedisRateLimiter(server.url, InMemoryRateLimiter())
        for odd in ({"tokens": "x", "at": "0"}, {"tokens": "nan", "at": "nan"}):
            await redis.delete(_name("ann", SLOW))
            await redis.hset(_name("ann", SLOW), mapping=odd)  # type: ignore[misc]
            limits = RedisRateLimiter(server.url, InMemoryRateLimiter())
            assert [await limits.acquire("ann", SLOW) == 0 for _ in range(3)] == [True, True, False], odd
        await redis.set(_name("ben", SLOW), "text")
        limits = RedisRateLimiter(server.url, InMemoryRateLimiter())
        assert [await limits.acquire("ben", SLOW) == 0 for _ in range(3)] == [True, True, False]
        await asyncio.gather(limits.close(), redis.aclose())
    finally:
        server.stop()


@cell("Redis", "too big")
async def _(around: Around) -> None:
    with pytest.raises(TooLargeError):
        encoded({"answer": "x" * MESSAGE_SIZE_LIMIT})


@cell("Redis", "stale")
async def _(around: Around) -> None:
    app = build_aggregator(config(a=lean()))
    async with app, connected(app, modern=True) as client:
        state = {"requestState": f"held-{'0' * 16}.abc", "inputResponses": {}}
        error = await client.error("tools/call", {"name": "a:pid", "arguments": {}, **state})
        assert "the call that it continues is over" in error["message"]


@cell("Redis", "down")
async def _(around: Around) -> None:
    server = RedisServer(around.folder)
    await server.start()
    limits = RedisRateLimiter(server.url, InMemoryRateLimiter())
    try:
        assert [await limits.acquire("ann", SLOW) == 0 for _ in range(3)] == [True, True, False]
    finally:
        server.stop()
    assert [await limits.acquire("ann", SLOW) == 0 for _ in range(3)] == [True, False, False], "one above the limit"
    await limits.close()


# The audit log without which nothing is done.


@cell("audit log", "missing")
async def _(around: Around) -> None:
    app = build_aggregator(config(a=lean()), audit=str(around.file("file", "") / "audit.jsonl"))
    with pytest.raises((AggregatorError, OSError)):
        async with app:
            raise AssertionError("it began")


def refusing(around: Around) -> Any:
    audit = audit_of(load_settings(audit=str(around.folder / "audit.jsonl"), audit_on_failure="refuse"))
    assert audit is not None
    return audit


@cell("audit log", "too big")
async def _(around: Around) -> None:
    audit = refusing(around)
    audit.before(call())
    while not audit.log.must_reject:  # nobody writes: it is not open
        audit.log.record("call", {"arguments": ["x" * 2000] * 500})
    with pytest.raises(Rejected, match="could not be recorded"):
        audit.before(call())


@cell("audit log", "down")
async def _(around: Around) -> None:
    audit = refusing(around)
    around.patch.setattr(audit.log._destination, "write", _full)
    with audit.log:
        audit.log.record("call", {})
        await until(lambda: audit.log.must_reject)
        with pytest.raises(Rejected, match="could not be recorded"):
            audit.before(call())
        around.patch.undo()


def _full(_: bytes) -> int:
    raise OSError(28, "No space left on device")


# Roles.


async def operates(around: Around, headers: dict[str, str], **settings: Any) -> int:
    credentials = Credentials(around.folder, {"ann": None})
    auth = auth_from_settings(load_settings(**credentials.settings, **settings))
    app = build_aggregator(config(a=lean()), auth=auth)
    async with served(app) as front, front.browser() as http:
        return (await http.get("/keys", headers=headers)).status_code


@cell("roles", "missing")
async def _(around: Around) -> None:
    assert await operates(around, bearer(), jwt_roles_claim="roles") == 403
    assert await operates(around, bearer(roles=["operate"])) == 403


@cell("roles", "malformed")
async def _(around: Around) -> None:
    for roles in ("Operate", "call,operate", [["operate"]], {"operate": True}, 1, ["operate "]):
        assert await operates(around, bearer(roles=roles), jwt_roles_claim="roles") == 403
    credentials = Credentials(around.folder, {"ann": None})
    document = json.loads(credentials.file.read_text())
    document["keys"][0]["roles"] = ["call", "root"]
    credentials.file.write_text(json.dumps(document))
    start_is_refused("must be a list of one or more of", lambda: read_keys(credentials.file))


@cell("roles", "stale")
async def _(around: Around) -> None:
    credentials = Credentials(around.folder, {"ann": None})
    (before,) = read_keys(credentials.file)
    write_keys(credentials.file, [replace(before, roles=frozenset({"operate"}))])
    app = build_aggregator(config(a=lean()), auth=credentials.auth)
    async with served(app) as front, front.browser() as http:
        assert (await http.get("/keys", headers=credentials.of("ann"))).status_code == 200
        write_keys(credentials.file, [before])
        assert (await http.get("/keys", headers=credentials.of("ann"))).status_code == 403


# The dashboard of a local hub.


def unheard(*_: str) -> None: ...


async def page(scope: Any, receive: Any, send: Any) -> None:
    await PlainTextResponse("page")(scope, receive, send)


def through(secret_url: SecretUrl) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(secret_url), base_url="http://127.0.0.1")


@cell("addresses of a local hub's page", "missing")
async def _(around: Around) -> None:
    async with through(SecretUrl(page, Clock(), unheard)) as http:
        for path in ("/", "/mcp", "/health", "/dashboard/state", "/open", "/open/"):
            assert (await http.get(path)).status_code == 404


@cell("addresses of a local hub's page", "malformed")
async def _(around: Around) -> None:
    secret_url = SecretUrl(page, Clock(), unheard)
    address = secret_url.new_address()
    ways = [
        f"/{address}",
        f"{address}/",
        f"{address}x",
        address[:-1],
        address.upper(),
        address.replace("/open", "/OPEN"),
    ]
    async with through(secret_url) as http:
        for way in (*ways, "/open/%00", "/open/%ed%a0%80", "/open/" + "x" * 5000):
            assert (await http.get(f"http://127.0.0.1{way}")).status_code == 404, way
        for method in ("POST", "HEAD", "PUT", "OPTIONS"):
            assert (await http.request(method, address)).status_code == 404
        assert (await http.get(address)).status_code == 303


@cell("addresses of a local hub's page", "stale")
async def _(around: Around) -> None:
    clock = Clock(0.0)
    secret_url = SecretUrl(page, clock, unheard)
    used, old = secret_url.new_address(), secret_url.new_address()
    async with through(secret_url) as http:
        both = await asyncio.gather(http.get(used), http.get(used))
        assert sorted(answer.status_code for answer in both) == [303, 404]
        clock.now = 61.0
        assert (await http.get(old)).status_code == 404


# A local hub's socket.


@asynccontextmanager
async def local_hub(around: Around, *, greeting_timeout: float = 5.0) -> AsyncIterator[Path]:
    path = around.folder / "hub.sock"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()
    app = build_aggregator(config(a=lean()), strict=False)
    hub = LocalHub(
        app,
        system.Listener(listener),
        HubAbout("1", "work", "c"),
        keep_for=lambda *_: None,
        idle=60,
        greeting_timeout=greeting_timeout,
    )
    running = asyncio.create_task(hub.run())
    try:
        yield path
    finally:
        hub.end("the test is over")
        await running


async def answer_at(path: Path, *said: bytes) -> bytes:
    """What comes on a connection to the socket until it is closed."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    try:
        for each in said:
            writer.write(each)
        return await asyncio.wait_for(reader.read(), 30)
    except ConnectionError:
        return b""
    finally:
        writer.close()


@cell("a local hub's socket", "missing")
async def _(around: Around) -> None:
    async with local_hub(around, greeting_timeout=0.1) as path:
        assert await answer_at(path) == b""
        assert await answer_at(path, b'{"hub": "client"') == b""


@cell("a local hub's socket", "malformed")
async def _(around: Around) -> None:
    async with local_hub(around) as path:
        for line in (b"\n", b"[]\n", b'{"hub": 5}\n', b'{"hub": "nothing"}\n', b"\xff\n", b'{"jsonrpc": "2.0"}\n'):
            assert await answer_at(path, line) == b"", line


@cell("a local hub's socket", "too big")
async def _(around: Around) -> None:
    async with local_hub(around) as path:
        assert await answer_at(path, b"x" * (greeting.LONGEST + 10)) == b""
        assert await answer_at(path, greeting.line(greeting.CLIENT, group="x" * greeting.LONGEST)) == b""


@cell("a local hub's socket", "stale")
async def _(around: Around) -> None:
    async with local_hub(around) as path:
        answer = await answer_at(path, greeting.line(greeting.CLIENT, version="0.0"))
        assert b"another version" in answer
        assert greeting.read(answer)[0] == greeting.REFUSED


@cell("a local hub's socket", "down")
async def _(around: Around) -> None:
    around.patch.setattr("fastmcp_aggregator.attach.peer.user_of", lambda _: None)
    async with local_hub(around) as path:
        assert await answer_at(path, greeting.line(greeting.STATUS)) == b""


# Sessions over HTTP, and their ends.


def one_server() -> dict[str, Any]:
    return {"document": config(a=lean())}


async def delete(front: Any, session: str) -> int:
    async with front.browser(**{"Mcp-Session-Id": session}) as http:
        return (await http.delete("/mcp")).status_code


@cell("sessions over HTTP", "missing")
async def _(around: Around) -> None:
    async with replicas(**one_server()) as hub, hub.fronts[0].browser() as http:
        headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "a:pid"}}
        assert (await http.post("/mcp", json=message, headers=headers)).status_code == 400


@cell("sessions over HTTP", "malformed")
async def _(around: Around) -> None:
    async with replicas(**one_server()) as hub:
        for session in ("x", "0" * 31, "0" * 32, "%00", "../" * 10):
            assert (await post(hub.fronts[1], session)).status_code == 404


@cell("sessions over HTTP", "too big")
async def _(around: Around) -> None:
    async with replicas(**one_server()) as hub:
        assert (await post(hub.fronts[1], "0" * 5000)).status_code == 404
        with contextlib.suppress(httpx2.TransportError):  # it may be closed before it has been read
            assert (await post(hub.fronts[1], "0" * 400_000)).status_code == 431


@cell("sessions over HTTP", "stale")
async def _(around: Around) -> None:
    async with replicas(**one_server()) as hub:
        session = session_of(await hub.fronts[0].connect())
        assert await delete(hub.fronts[0], session) == 200
        assert [(await post(front, session)).status_code for front in hub.fronts] == [404, 404]


@cell("sessions over HTTP", "down")
async def _(around: Around) -> None:
    async with replicas(**one_server()) as hub:
        session = session_of(await hub.fronts[0].connect())
        hub.shared.is_away = True
        assert [(await post(front, session)).status_code for front in hub.fronts] == [200, 404]


async def after_notice(notice: Any, *, ends: bool = False) -> int:
    """What a session is answered, at the replica that has taken it over, after a notice; `ends`: at last."""
    async with replicas(**one_server()) as hub:
        session = session_of(await hub.fronts[0].connect())
        assert (await post(hub.fronts[1], session)).status_code == 200
        hub.shared.documents.clear()  # or it would be opened again
        hub.apps[1]._backend.changes.on_notice({"kind": "session", **notice(session)})
        await asyncio.sleep(0.01)

        async def status() -> int:
            return (await post(hub.fronts[1], session)).status_code

        return int(await until_answered(status, lambda found: found == 404)) if ends else await status()


@cell("ends of sessions, told by replicas", "missing")
async def _(around: Around) -> None:
    for notice in ({}, {"group": "default"}):
        assert await after_notice(lambda _, notice=notice: notice) == 200
    assert await after_notice(lambda session: {"id": session}) == 200
    assert await after_notice(lambda session: {"group": "default", "id": session}, ends=True) == 404


@cell("ends of sessions, told by replicas", "malformed")
async def _(around: Around) -> None:
    for group in (None, 5, ["default"], "another", "DEFAULT"):
        assert await after_notice(lambda session, group=group: {"group": group, "id": session}) == 200
    assert await after_notice(lambda session: {"group": "default", "id": [session]}) == 200


@cell("ends of sessions, told by replicas", "too big")
async def _(around: Around) -> None:
    assert await after_notice(lambda session: {"group": "default", "id": session + "0" * 1_000_000}) == 200


@cell("ends of sessions, told by replicas", "stale")
async def _(around: Around) -> None:
    assert await after_notice(lambda _: {"group": "default", "id": "0" * 32}) == 200


@cell("ends of sessions, told by replicas", "down")
async def _(around: Around) -> None:
    async with replicas(**one_server()) as hub:  # which tell each other nothing
        session = session_of(await hub.fronts[0].connect())
        assert (await post(hub.fronts[1], session)).status_code == 200
        assert await delete(hub.fronts[0], session) == 200
        assert [(await post(front, session)).status_code for front in hub.fronts[1:]] == [200]


# Identity assertions, and client metadata documents.


THERE = Provider("https://crm.example/mcp", "https://login.example", "https://crm.example/mcp", None, None)
FOR_US = {"aud": "https://login.example", "client_id": "us", "resource": "https://crm.example/mcp"}


def assertion(kind: str = "oauth-id-jag+jwt", **claims: Any) -> str:
    return token(kind, **{**FOR_US, **claims})


class Exchange:
    """What a hub has of a caller's exchange: how often an assertion was presented, and what came of it."""

    def __init__(self, answer: Exception | None = None) -> None:
        self.answer = answer
        self.presented = 0
        self.account: Any = object.__new__(ExchangeAccount)
        self.account._settings = SimpleNamespace(client_id="us", exchange="jwt_bearer")

    async def assertion(self, *_: Any) -> OAuthToken:
        self.presented += 1
        if self.answer is not None:
            raise self.answer
        return OAuthToken(access_token="t")

    async def granted(self, presented: str) -> OAuthToken:
        self.account.offer(presented)
        return await self.account._granted(self, THERE)  # type: ignore[no-any-return]


async def not_presented(presented: str) -> None:
    exchange = Exchange()
    with pytest.raises(ClientRefused, match="the caller's assertion is not for"):
        await exchange.granted(presented)
    assert exchange.presented == 0


@cell("identity assertions (ID-JAG)", "missing")
async def _(around: Around) -> None:
    for claim in ("aud", "client_id"):
        await not_presented(assertion(**{claim: None}))
    for resource in (FOR_US["resource"], None):
        exchange = Exchange()
        assert await exchange.granted(assertion(resource=resource))
        assert exchange.presented == 1


@cell("identity assertions (ID-JAG)", "malformed")
async def _(around: Around) -> None:
    evil = "https://evil.example"
    for aud in (5, {}, [], [FOR_US["aud"], evil], evil, "https://login.example.evil"):
        await not_presented(assertion(aud=aud))
    for client_id in ("US", "them", ["us"], 5):
        await not_presented(assertion(client_id=client_id))
    for resource in (f"{evil}/mcp", [], {}, 5):
        await not_presented(assertion(resource=resource))


@cell("identity assertions (ID-JAG)", "too big")
async def _(around: Around) -> None:
    app = build_aggregator(config(), auth=Credentials(around.folder, {}).auth)
    assert await status(app, {"authorization": f"Bearer {assertion(jti='x' * 1_000_000)}"}) in (401, 431)


@cell("identity assertions (ID-JAG)", "stale")
async def _(around: Around) -> None:
    exchange, spent = Exchange(), assertion()
    assert await exchange.granted(spent)
    with pytest.raises(ClientRefused, match="good once"):
        await exchange.granted(spent)
    assert exchange.presented == 1
    assert await exchange.granted(assertion(jti="another"))
    refused = Exchange(ClientRefused("no"))
    for _ in range(2):
        with pytest.raises(ClientRefused):
            await refused.granted(spent)
    assert refused.presented == 1


@cell("identity assertions (ID-JAG)", "down")
async def _(around: Around) -> None:
    exchange, kept = Exchange(Unreachable("nobody answers")), assertion()
    for _ in range(2):
        with pytest.raises(Unreachable):
            await exchange.granted(kept)
    assert exchange.presented == 2


@cell("client metadata documents (CIMD)", "missing")
async def _(around: Around) -> None:
    document = OAuthSettings(client_metadata_url="https://hub.example/client.json")
    for takes, settings, words in ((True, OAuthSettings(), "set `client_metadata_url`"), (None, document, "takes no")):
        metadata = OAuthMetadata(
            issuer=AnyHttpUrl(THERE.issuer),
            authorization_endpoint=AnyHttpUrl(f"{THERE.issuer}/a"),
            token_endpoint=AnyHttpUrl(f"{THERE.issuer}/t"),
            client_id_metadata_document_supported=takes,
        )
        with pytest.raises(ClientRefused, match=words):
            await client_for(replace(THERE, metadata=metadata), settings, "http://localhost/callback")


@cell("client metadata documents (CIMD)", "malformed")
async def _(around: Around) -> None:
    for url in ("http://hub.example/client.json", "https://hub.example", "https://hub.example/", "client.json", ""):
        servers = {"crm": {"oauth": {"client_metadata_url": url}}}
        start_is_refused("client_metadata_url", lambda servers=servers: load_settings(servers=servers))


# What a proxy says of its client.


async def client_seen(proxies: Sequence[str], *lines: str) -> str:
    """The address that the program takes a request to be from, or the status of its refusal."""

    async def seen(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.client.host if request.client else "")

    app = Starlette(routes=[Route("/", seen)])
    stop, listening = asyncio.Event(), asyncio.Event()
    with listening_socket("127.0.0.1", 0) as listener:
        serving = asyncio.create_task(serve_http(app, listener, stop, on_listening=listening.set, proxies=proxies))
        await listening.wait()
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write("\r\n".join(["GET / HTTP/1.1", "host: 127.0.0.1", "connection: close", *lines, "", ""]).encode())
        try:
            head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        except ConnectionError:  # it was refused before all was sent
            head, body = "HTTP/1.1 431", ""
        writer.close()
        stop.set()
        await serving
    return body if " 200 " in head else head.split()[1]


@cell("trusted proxies", "missing")
async def _(around: Around) -> None:
    assert await client_seen((), "x-forwarded-for: 192.0.2.7") == "127.0.0.1"
    assert await client_seen(("127.0.0.1",)) == "127.0.0.1"


@cell("trusted proxies", "malformed")
async def _(around: Around) -> None:
    start_is_refused("must be an address", lambda: load_settings(trusted_proxies=["*"]))
    assert await client_seen(("127.0.0.1",), "x-forwarded-for: 192.0.2.9, 192.0.2.7, 127.0.0.1") == "192.0.2.7"
    assert await client_seen(("127.0.0.1",), "x-forwarded-for: 192.0.2.9,") == "127.0.0.1"
    assert await client_seen(("127.0.0.1",), "x-forwarded-for: 192.0.2.9, nonsense") == "nonsense"


@cell("trusted proxies", "too big")
async def _(around: Around) -> None:
    longest, too_long = 63 * 1024, 320 * 1024
    assert await client_seen(("127.0.0.1",), "x-forwarded-for: " + "192.0.2.7".rjust(longest, ",")) == "192.0.2.7"
    assert await client_seen(("127.0.0.1",), "x-forwarded-for: " + "192.0.2.7".rjust(too_long, ",")) == "431"


# Accounts of callers.


@asynccontextmanager
async def with_accounts(around: Around) -> AsyncIterator[tuple[Accounts, HttpClient]]:
    """A hub and alice's client, who is logged in to the server `crm`, as is the hub."""
    async with hub_with_accounts(around.folder) as place:
        await give(place.vault, place.server, "key:alice", "alice-there")
        yield place, await place.client("alice", modern=True)


def spoil_account(around: Around, text: str) -> None:
    for file in (around.folder / "tokens").glob("tokens-*"):
        file.write_text(text)


@cell("accounts of callers", "missing")
async def _(around: Around) -> None:
    async with with_accounts(around) as (place, _):
        bob = await place.client("bob", modern=True)
        assert (await bob.result("tools/call", CALL))["resultType"] == "input_required"
        assert place.server.calls == {}


@cell("accounts of callers", "malformed")
async def _(around: Around) -> None:
    async with with_accounts(around) as (place, alice):
        spoil_account(around, "{")
        assert "cannot be read" in (await alice.error("tools/call", CALL))["message"]
        assert place.server.calls == {}


@cell("accounts of callers", "too big")
async def _(around: Around) -> None:
    async with with_accounts(around) as (place, alice):
        spoil_account(around, "[" * 1_000_000)
        assert "cannot be read" in (await alice.error("tools/call", CALL))["message"]
        assert place.server.calls == {}


@cell("accounts of callers", "stale")
async def _(around: Around) -> None:
    async with with_accounts(around) as (place, alice):
        place.server.revoke("alice-there", also_refresh=False)
        assert (await alice.result("tools/call", CALL))["structuredContent"] == {"who": "alice-there"}
        place.server.revoke("alice-there", also_refresh=True)
        assert (await alice.result("tools/call", CALL))["resultType"] == "input_required"
        assert place.server.calls == {"alice-there": 1}


@cell("accounts of callers", "down")
async def _(around: Around) -> None:
    async with with_accounts(around) as (place, alice):
        around.patch.setattr(type(place.vault), "read", unreadable)
        assert "cannot be read" in (await alice.error("tools/call", CALL))["message"]
        assert place.server.calls == {}


async def unreadable(*_: Any) -> Any:
    raise VaultError("the vault cannot be read")


# What a browser brings back from an authorization server.


@asynccontextmanager
async def on_the_way_back(around: Around) -> AsyncIterator[tuple[Browser, httpx2.URL]]:
    """A browser in which alice logs in, and the address at which it comes back; afterwards she is not logged in."""
    async with hub_with_accounts(around.folder, lists="caller") as place:
        browser, headers = Browser(), place.credentials.of("alice")
        begun = await browser.http.post(f"{place.front.origin}/accounts/mine/crm", headers=headers)
        there = await browser.http.get(f"{begun.json()['address']}&login_as=alice-there")
        yield browser, httpx2.URL(there.headers["location"])
        assert place.server.grants["authorization_code"] == 0
        assert await kept_accounts(place.vault) == []


@cell("browsers that come back from a login", "missing")
async def _(around: Around) -> None:
    async with on_the_way_back(around) as (browser, back):
        assert (await browser.http.get(back.copy_remove_param("state"))).status_code == 502
        assert (await Browser().http.get(back)).status_code == 403
        assert (await browser.http.get(back.copy_with(path="/accounts/callback"))).status_code == 404
        assert (await browser.http.get(back.copy_remove_param("iss"))).status_code == 403


@cell("browsers that come back from a login", "malformed")
async def _(around: Around) -> None:
    async with on_the_way_back(around) as (browser, back):
        assert (await browser.http.get(back.copy_set_param("state", "x"))).status_code == 404
        assert (await browser.http.get(back.copy_with(path="/accounts/callback/x"))).status_code == 403
        assert (await browser.http.get(back)).status_code == 404


@cell("browsers that come back from a login", "too big")
async def _(around: Around) -> None:
    async with on_the_way_back(around) as (browser, back):
        assert (await browser.http.get(back.copy_set_param("code", "x" * 5000))).status_code == 502


@cell("browsers that come back from a login", "stale")
async def _(around: Around) -> None:
    async with on_the_way_back(around) as (browser, back):
        for file in (around.folder / "tokens").glob("login-*"):
            file.unlink()  # its time is over
        assert (await browser.http.get(back)).status_code == 404


@cell("browsers that come back from a login", "down")
async def _(around: Around) -> None:
    async with on_the_way_back(around) as (browser, back):
        with around.patch.context() as patched:
            patched.setattr(FileVault, "read", unreadable)
            assert (await browser.http.get(back)).status_code == 502


# The page.


# Calls that wait for an answer.

ASKING = {"name": "a:play", "arguments": {"script": [{"ask": {"x": {"method": "roots/list"}}}]}}
IS_OVER = "requestState: the call that it continues is over; call again without it"


@asynccontextmanager
async def asked(app: Aggregator) -> AsyncIterator[tuple[RawClient, dict[str, Any]]]:
    """A client that was asked, and the request with which it answers."""
    async with app, connected(app, modern=True, capabilities={"roots": {}}) as client:
        round_ = await client.result("tools/call", ASKING)
        answers = {name: {"roots": []} for name in round_["inputRequests"]}
        yield client, {**ASKING, "requestState": round_["requestState"], "inputResponses": answers}


@cell("calls that wait for their caller's answer", "missing")
async def _(around: Around) -> None:
    async with asked(build_aggregator(config(a=talking()))) as (client, back):
        del back["requestState"]
        assert (await client.result("tools/call", back))["resultType"] == "input_required"


@cell("calls that wait for their caller's answer", "malformed")
async def _(around: Around) -> None:
    async with asked(build_aggregator(config(a=talking()))) as (client, back):
        for state in (back["requestState"][:-1], "held-*", "", 1, {"x": 1}):
            assert (await client.error("tools/call", {**back, "requestState": state}))["code"] == -32602
        assert (await client.result("tools/call", back))["resultType"] == "complete"


@cell("calls that wait for their caller's answer", "too big")
async def _(around: Around) -> None:
    async with asked(build_aggregator(config(a=talking()))) as (client, back):
        long = back["requestState"] + "x" * 1_000_000
        assert (await client.error("tools/call", {**back, "requestState": long}))["message"] == IS_OVER


@cell("calls that wait for their caller's answer", "stale")
async def _(around: Around) -> None:
    async with asked(build_aggregator(config(a=talking()))) as (client, back):
        assert (await client.result("tools/call", back))["resultType"] == "complete"
        assert (await client.error("tools/call", back))["message"] == IS_OVER


@cell("calls that wait for their caller's answer", "down")
async def _(around: Around) -> None:
    app = build_aggregator(config(a=talking()))
    scripts = scripted(app)
    async with asked(app) as (client, back):
        scripts["a"].life.die()
        await until(lambda: len(scripts["a"].lives) == 2 and app.health()["a"].state == "running")
        error = await client.error("tools/call", back)
        assert (error["code"], error["data"]["server"]) == (-32000, "a")


# Tasks.

TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


@asynccontextmanager
async def with_task(app: Aggregator) -> AsyncIterator[tuple[RawClient, str]]:
    async with app, connected(app, modern=True, capabilities=TASKS) as client:
        yield client, (await client.result("tools/call", {"name": "a:task", "arguments": {}}))["taskId"]


def tasking() -> Aggregator:
    return build_aggregator(config(a=lean(era="modern", tool_names=["task"]), b=lean()))


async def is_no_task(client: RawClient, task_id: Any) -> None:
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        assert (await client.error(method, {"taskId": task_id, "inputResponses": {}}))["code"] == -32602


@cell("tasks", "missing")
async def _(around: Around) -> None:
    async with with_task(tasking()) as (client, _):
        for method in ("tasks/get", "tasks/cancel"):
            assert (await client.error(method, {}))["code"] == -32602
        await is_no_task(client, "")


@cell("tasks", "malformed")
async def _(around: Around) -> None:
    async with with_task(tasking()) as (client, task_id):
        for odd in (task_id[:-8], task_id.swapcase(), "task-1", "v1.AAAA"):
            await is_no_task(client, odd)


@cell("tasks", "too big")
async def _(around: Around) -> None:
    async with with_task(tasking()) as (client, task_id):
        await is_no_task(client, task_id + "A" * 10_000)


@cell("tasks", "stale")
async def _(around: Around) -> None:
    app = build_aggregator(
        config(a=lean(era="modern", tool_names=["task"]), b=lean()), groups={"g": {"servers": ["a", "b"]}}
    )
    async with app, connected(app.group("g"), modern=True, capabilities=TASKS) as client:
        task_id = (await client.result("tools/call", {"name": "a:task", "arguments": {}}))["taskId"]
        app._backend.regroup(lambda _: Group("g", servers=("b",)))
        await is_no_task(client, task_id)


@cell("tasks", "down")
async def _(around: Around) -> None:
    app = tasking()
    scripts = scripted(app)
    async with with_task(app) as (client, task_id):
        scripts["a"].life.die()
        await until(lambda: len(scripts["a"].lives) == 2 and app.health()["a"].state == "running")
        assert "not found" in (await client.error("tasks/get", {"taskId": task_id}))["message"]


# What servers say and ask.


@asynccontextmanager
async def two_of_one_server(around: Around) -> AsyncIterator[tuple[HttpClient, HttpClient, Callable[[], Any]]]:
    """Two who have authenticated, and have both called a shared server of the older era."""
    credentials = Credentials(around.folder, {"ann": None, "bob": None})
    app = build_aggregator(config(a=talking()), auth=credentials.auth)
    scripts = scripted(app)
    async with served(app) as front:
        ann, bob = [
            await front.connect(headers=credentials.of(who), capabilities={"roots": {}}) for who in ("ann", "bob")
        ]
        for client in (ann, bob):
            await client.call("a:play", script=[])
        yield ann, bob, lambda: scripts["a"].life.child


async def is_told_nothing(ann: HttpClient, bob: HttpClient) -> None:
    for client in (ann, bob):
        await client.call("a:play", script=[])
        assert not client.questions
        assert not [each for each in client.notifications if each["method"] != "notifications/progress"]


@cell("what a server says and asks", "missing")
async def _(around: Around) -> None:
    async with two_of_one_server(around) as (ann, bob, _):
        said = {"say": "notifications/message", "params": {"level": "info", "data": "of ann"}}
        (answer,) = await ann.call("a:play", script=[said, {"ask": {"x": {"method": "roots/list"}}}])
        assert "cannot tell which client to ask" in answer["x"]["error"]["message"]
        await is_told_nothing(ann, bob)


@cell("what a server says and asks", "malformed")
async def _(around: Around) -> None:
    async with two_of_one_server(around) as (ann, bob, _):
        for token in ("x", 1, None, {"x": 1}):
            said = {"say": "notifications/progress", "params": {"progressToken": token, "progress": 1}}
            await ann.call("a:play", script=[said])
        await is_told_nothing(ann, bob)
        assert not [*ann.notifications, *bob.notifications]


class Pipe(NoFlowControl):
    server_key = "a"


@cell("what a server says and asks", "too big")
async def _(around: Around) -> None:
    transport = ProcessTransport(Pipe(), has_fast_path=False)  # type: ignore[arg-type]
    for said in ('"method":"notifications/message"', '"id":1,"method":"roots/list"'):
        line = f'{{"jsonrpc":"2.0",{said},"params":{{"x":"{"x" * 5_000_000}"}}}}'
        assert transport._without_excess([line.encode()]) == []


@cell("what a server says and asks", "stale")
async def _(around: Around) -> None:
    async with two_of_one_server(around) as (ann, bob, child):
        said = {"say": "notifications/message", "params": {"level": "info", "data": "of ann"}}
        await ann.call("a:play", script=[{"later": [said, {"ask": {"x": {"method": "roots/list"}}}]}])
        child().play_outside(*child().kept)
        await is_told_nothing(ann, bob)


# Addresses of servers.


async def is_never_sent_to(host: str, port: int, words: str) -> None:
    with pytest.raises(StartupError, match=words):
        async with build_aggregator(config(r={"url": f"http://{host}:{port}/mcp"})):
            pytest.fail("entered")


async def is_found_by_the_connection_alone(around: Around, code: int) -> None:
    """The name is not found when it is looked up, and then found by what connects."""
    resolved, looked_up = socket.getaddrinfo, 0

    def fails_at_first(*asked: Any, **options: Any) -> Any:
        nonlocal looked_up
        looked_up += 1
        if looked_up == 1:
            raise socket.gaierror(code, "not found")
        return resolved(*asked, **options)

    around.patch.setattr(socket.socket, "getpeername", lambda _: ("169.254.169.254", 80))
    around.patch.setattr(socket, "getaddrinfo", fails_at_first)
    async with remote_server() as server:
        await is_never_sent_to("localhost", server.port, "its address is that of a cloud metadata service")
        assert server.requests == []
    assert looked_up > 1


@cell("addresses of servers", "missing")
async def _(around: Around) -> None:
    await is_found_by_the_connection_alone(around, socket.EAI_NONAME)


@cell("addresses of servers", "malformed")
async def _(around: Around) -> None:
    for host in ("0xa9fea9fe", "0251.0376.0251.0376", "[::ffff:169.254.169.254]", "METADATA.google.internal."):
        await is_never_sent_to(host, 9, "its address is that of a cloud metadata service|InvalidURL")


@cell("addresses of servers", "stale")
async def _(around: Around) -> None:
    around.patch.setattr(socket.socket, "getpeername", lambda _: ("169.254.169.254", 80))
    async with remote_server() as server:
        await is_never_sent_to("localhost", server.port, "its address is that of a cloud metadata service")
        assert server.requests == []


@cell("addresses of servers", "down")
async def _(around: Around) -> None:
    await is_found_by_the_connection_alone(around, socket.EAI_AGAIN)


@pytest.mark.parametrize("name", [": ".join(key) for key in CELLS])
async def test_a_policy_does_not_open_when_something_is(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    row, _, column = name.partition(": ")
    if row == "Redis" and shutil.which("redis-server") is None:
        pytest.skip("needs redis-server")
    await CELLS[row, column](Around(tmp_path, monkeypatch, caplog))


def test_the_page_has_these_cells() -> None:
    lines = PAGE.read_text().partition("## Policies fail closed")[2].splitlines()
    rows = [[part.strip() for part in line.strip("|").split(" | ")] for line in lines if line.startswith("| ")]
    (_, *header), *body = rows
    assert tuple(header) == COLUMNS
    named = [(row.partition(":")[0], dict(zip(COLUMNS, texts, strict=True))) for row, *texts in body]
    told = {(row, column) for row, texts in named for column, text in texts.items() if text != "–"}
    assert told == CELLS.keys()
