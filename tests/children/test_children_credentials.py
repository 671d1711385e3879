"""What a remote server is sent: its own credentials, and with a call what is passed on of its caller's headers."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP
from starlette.types import Receive, Scope, Send
from support.credentials import Credentials
from support.harness import LEGACY, PATIENCE, RawClient, config, connected, lean, until
from support.memory import build_aggregator
from support.remote_server import RemoteServer, Request, remote_server
from support.serving import served

from fastmcp_aggregator import Aggregator, ConfigError, StartupError
from fastmcp_aggregator.access.keys import new_key
from fastmcp_aggregator.children.http.credentials import require_credentials
from fastmcp_aggregator.config import load_config
from fastmcp_aggregator.settings.model import load_settings

CALLERS_OWN = {
    "X-User": "alice",
    "X-Other": "o",
    "Authorization": "Bearer callers-own",
    "Cookie": "session=callers-own",
    "X-API-Key": "callers-own",
}


def hub(server: RemoteServer, headers: dict[str, str] | None = None, **own: Any) -> Aggregator:
    """An aggregator with one remote server; `headers` are those of its entry, `own` its settings."""
    return build_aggregator(config(r={"url": server.url, "headers": headers or {}}), servers={"r": own})


async def sent_with(client: RawClient) -> dict[str, str]:
    """The headers that a call of this client reached the server with."""
    result = await client.call("r:echo")
    found: dict[str, str] = result if "host" in result else json.loads(result["content"][0]["text"])
    return found


def about_nobody(server: RemoteServer) -> list[Request]:
    """The requests that were made for no caller."""
    return [request for request in server.requests if request.method != "tools/call"]


@pytest.mark.parametrize("is_modern_server", [True, False])
@pytest.mark.parametrize("is_modern_client", [True, False])
@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ([], {}),
        (["X-User"], {"x-user": "alice"}),
        (["x-user", "authorization"], {"x-user": "alice", "authorization": "Bearer callers-own"}),
        (["cookie", "x-api-key"], {"cookie": "session=callers-own", "x-api-key": "callers-own"}),
    ],
)
async def test_of_a_callers_headers_those_that_are_named_go_on_with_its_call(
    named: list[str], expected: dict[str, str], is_modern_client: bool, is_modern_server: bool
) -> None:
    async with remote_server() as server:
        server.is_modern = is_modern_server
        credentials = [name for name in named if name.lower() != "x-user"]
        app = hub(
            server, pass_headers=[name for name in named if name not in credentials], pass_credentials=credentials
        )
        async with served(app) as front:
            client = await front.connect(modern=is_modern_client, headers=CALLERS_OWN)
            sent = await sent_with(client)
        names = {name.lower() for name in CALLERS_OWN}
        assert {name: value for name, value in sent.items() if name in names} == expected
        assert about_nobody(server)
        assert not [request.headers for request in about_nobody(server) if names & request.headers.keys()]


@pytest.mark.parametrize("is_modern_server", [True, False])
async def test_calls_at_the_same_time_each_have_the_headers_of_their_caller(is_modern_server: bool) -> None:
    callers = [f"caller-{number}" for number in range(10)]
    waiting: list[Request] = []
    go = asyncio.Event()

    async def hold(request: Request) -> bool:
        if request.method == "tools/call":
            waiting.append(request)
            await asyncio.wait_for(go.wait(), PATIENCE)
        return False

    async with remote_server() as server:
        server.is_modern = is_modern_server
        async with served(hub(server, pass_headers=["x-user"])) as front:
            clients = [await front.connect(headers={"X-User": name}) for name in callers]
            silent = await front.connect()
            server.misbehave = hold
            calls = [asyncio.create_task(sent_with(client)) for client in [*clients, silent]]
            await until(lambda: len(waiting) == len(calls))
            go.set()
            sent = await asyncio.gather(*calls)
            assert [headers.get("x-user") for headers in sent] == [*callers, None]
            await silent.result("ping")
        assert not [request for request in about_nobody(server) if "x-user" in request.headers]


async def test_a_cookie_goes_with_the_requests_of_the_caller_for_whom_it_was_set(tmp_path: Path) -> None:
    async def set_cookie(request: Request) -> bool:
        if request.method == "initialize":
            server.open_session = "s"
            about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "r", "version": ""}}
            head = {"set_cookie": "lb=of-nobody; Path=/", "mcp_session_id": "s"}
            await request.answer({"protocolVersion": LEGACY, **about}, **head)
        elif request.method == "tools/call":
            result = {"content": [{"type": "text", "text": json.dumps(request.headers)}]}
            await request.answer(result, set_cookie=f"sid=number-{len(server.requests)}; Path=/")
        else:
            return False
        return True

    credentials = Credentials(tmp_path, {"alice": None, "bob": None})
    async with remote_server() as server:
        server.misbehave = set_cookie
        app = build_aggregator(config(r={"url": server.url}), auth=credentials.auth)
        async with served(app) as front:
            alice, bob = [await front.connect(headers=credentials.of(name)) for name in ("alice", "bob")]
            first = [(await sent_with(client))["cookie"] for client in (alice, bob)]
            assert first == ["lb=of-nobody", "lb=of-nobody"]
            own = [(await sent_with(client))["cookie"] for client in (alice, bob)]
            assert own[0].startswith("lb=of-nobody; sid=number-")
            assert own[0] != own[1]
        assert not [request for request in about_nobody(server) if "sid" in request.headers.get("cookie", "")]


@pytest.mark.parametrize("cookies", [["a=" + "x" * 20_000], [f"c{number}={number}" for number in range(51)]])
async def test_a_server_that_sets_many_or_large_cookies_gets_none_back(cookies: list[str]) -> None:
    async def set_cookies(request: Request) -> bool:
        if request.method == "tools/call":
            result = {"content": [{"type": "text", "text": json.dumps(request.headers)}]}
            await request.answer(result, **{"x": "y\r\n" + "\r\n".join(f"Set-Cookie: {each}" for each in cookies)})
        return request.method == "tools/call"

    async with remote_server(set_cookies) as server, served(hub(server)) as front:
        client = await front.connect()
        for _ in range(3):
            assert "cookie" not in await sent_with(client)
        cookies[:] = ["sid=1"]
        await sent_with(client)
        assert (await sent_with(client))["cookie"] == "sid=1"


@pytest.mark.parametrize(("passed", "expected"), [([], "sid=of-alice"), (["x-user"], None)])
async def test_cookies_are_the_sessions_unless_callers_are_told_apart(passed: list[str], expected: str | None) -> None:
    async def set_cookie(request: Request) -> bool:
        if request.method != "tools/call":
            return False
        result = {"content": [{"type": "text", "text": json.dumps(request.headers)}]}
        await request.answer(result, set_cookie=f"sid=of-{request.headers.get('x-user', 'alice')}")
        return True

    async with remote_server(set_cookie) as server, served(hub(server, pass_headers=passed)) as front:
        alice, bob = await front.connect(headers={"X-User": "alice"}), await front.connect(headers={"X-User": "bob"})
        assert "cookie" not in await sent_with(alice)
        assert (await sent_with(bob)).get("cookie") == expected
        assert (await sent_with(alice)).get("cookie") == expected


async def test_a_call_that_is_given_up_takes_its_headers_along_and_leaves_none() -> None:
    go = asyncio.Event()

    async def hold(request: Request) -> bool:
        if request.is_bad:
            await asyncio.wait_for(go.wait(), PATIENCE)
        return False

    async with remote_server(hold) as server, served(hub(server, pass_headers=["x-user"])) as front:
        alice, bob = await front.connect(headers={"X-User": "alice"}), await front.connect(headers={"X-User": "bob"})
        number, _ = alice.begin("tools/call", {"name": "r:bad", "arguments": {}})
        await until(lambda: any(request.is_bad for request in server.requests))
        alice.notify("notifications/cancelled", {"requestId": number})
        await until(lambda: server.counts["notifications/cancelled"] == 1)
        go.set()
        assert (await sent_with(bob))["x-user"] == "bob"
        with_a_user = {
            (request.method, request.headers["x-user"]) for request in server.requests if "x-user" in request.headers
        }
        assert with_a_user <= {("tools/call", "alice"), ("tools/call", "bob"), ("notifications/cancelled", "alice")}


async def test_a_server_of_the_sse_transport_gets_them_with_the_message_and_not_on_its_stream() -> None:
    seen: list[tuple[str, str | None]] = []
    server: FastMCP[Any] = FastMCP("sse")
    server.tool(lambda: {"host": "x"}, name="echo")
    inner = server.http_app(transport="sse", path="/sse")

    async def watched(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            seen.append((scope["method"], dict(scope["headers"]).get(b"x-user", b"").decode() or None))
        await inner(scope, receive, send)

    async with served(watched) as remote:
        entry = {"url": f"{remote.origin}/sse", "type": "sse"}
        app = build_aggregator(config(r=entry), servers={"r": {"pass_headers": ["x-user"]}})
        async with served(app) as front:
            for name in ("alice", "bob"):
                await (await front.connect(headers={"X-User": name})).call("r:echo")
    assert [name for _, name in seen if name] == ["alice", "bob"]
    assert {method for method, name in seen if name} == {"POST"}


@pytest.mark.parametrize(
    ("headers", "expected"),
    [({"Authorization": "Bearer callers-own"}, "Bearer callers-own"), ({}, None)],
)
async def test_what_a_caller_is_to_bring_itself_is_not_replaced_by_what_is_configured(
    headers: dict[str, str], expected: str | None
) -> None:
    async with remote_server() as server:
        app = hub(server, {"Authorization": "Bearer operators"}, pass_credentials=["authorization"])
        async with served(app) as front:
            sent = await sent_with(await front.connect(headers=headers))
        assert sent.get("authorization") == expected
        assert {request.headers.get("authorization") for request in about_nobody(server)} == {"Bearer operators"}


async def test_a_caller_that_does_not_come_over_http_is_served_with_what_is_configured() -> None:
    async with remote_server() as server:
        app = hub(server, {"Authorization": "Bearer operators"}, pass_credentials=["authorization"])
        async with app, connected(app) as client:
            assert (await sent_with(client))["authorization"] == "Bearer operators"


@pytest.mark.parametrize(
    ("header", "form"),
    [
        ("Authorization", "Bearer {}"),
        ("X-API-Key", "{}"),
        ("Cookie", "theme=dark; key={}; x=1"),
        ("Cookie", 'key="{}"'),
        ("Authorization", "Basic user"),
        ("X-User", "https://example.com/?key={}"),
    ],
)
async def test_a_key_of_the_hub_is_never_passed_on(header: str, form: str) -> None:
    key, _ = new_key("alice", None, None)
    value = form.format(key)
    if form == "Basic user":
        value = f"Basic {b64encode(f'user:{key}'.encode()).decode()}"
    async with remote_server() as server:
        app = hub(server, pass_headers=["x-user"], pass_credentials=["authorization", "x-api-key", "cookie"])
        async with served(app) as front:
            sent = await sent_with(await front.connect(headers={"X-User": "alice", header: value}))
        assert sent.get(header.lower()) is None
        assert header == "X-User" or sent["x-user"] == "alice"
        assert key not in repr([request.headers for request in server.requests])


@pytest.mark.parametrize(
    "header",
    [
        *("Authorization", "Cookie", "X-API-Key", "api_key", "apikey", "X-Auth-Token", "X-Access-Token", "X-Token"),
        *("X-Amz-Security-Token", "X-Amz-Access-Key", "X-CSRFToken", "X-Session", "X-Session-Id", "X-User-Password"),
        *("Cf-Access-Jwt-Assertion", "X-Goog-Iap-Jwt-Assertion", "X-Amzn-Oidc-Data", "X-Client-Secret", "X-Signature"),
        *("X-Auth", "PRIVATE-TOKEN", "X-Vault-Token", "Authentication", "X-Forwarded-Access-Token"),
    ],
)
def test_credentials_are_passed_on_only_if_they_are_named_as_such(header: str) -> None:
    with pytest.raises(ConfigError, match="name it in `pass_credentials`"):
        load_settings(servers={"r": {"pass_headers": ["x-user", header]}})
    assert load_settings(servers={"r": {"pass_credentials": [header]}})


@pytest.mark.parametrize("header", ["x-user", "x-tenant", "x-request-id", "x-author", "traceparent", "x-keyboard"])
def test_other_headers_are_no_credentials(header: str) -> None:
    assert load_settings(servers={"r": {"pass_headers": [header]}})


def test_what_the_connection_to_a_proxy_has_is_never_passed_on() -> None:
    for name in ("pass_headers", "pass_credentials"):
        with pytest.raises(ConfigError, match="belongs to the connection"):
            load_settings(servers={"r": {name: ["Proxy-Authorization"]}})


# A bearer token from the environment.


async def test_a_bearer_token_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMOTE_TOKEN", " t0ken\n")
    async with remote_server() as server:
        app = hub(server, bearer_env="REMOTE_TOKEN")
        async with app, connected(app) as client:
            await sent_with(client)
        assert {request.headers.get("authorization") for request in server.requests} == {"Bearer t0ken"}


@pytest.mark.parametrize(("value", "words"), [("", "is not set"), ("t0\nken", "cannot be a token")])
async def test_a_server_whose_token_is_not_there_says_which_variable_is_missing(
    monkeypatch: pytest.MonkeyPatch, value: str, words: str
) -> None:
    monkeypatch.setenv("REMOTE_TOKEN", value)
    async with remote_server() as server:
        with pytest.raises(ConfigError if not value else StartupError) as caught:
            async with hub(server, bearer_env="REMOTE_TOKEN"):
                pytest.fail("entered")
    assert "REMOTE_TOKEN" in str(caught.value)
    assert words in str(caught.value)
    assert "t0" not in str(caught.value).replace("REMOTE_TOKEN", "")


async def test_without_strict_a_server_whose_token_is_not_there_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REMOTE_TOKEN", raising=False)
    async with remote_server() as server:
        app = build_aggregator(
            config(good=lean(), r={"url": server.url}), servers={"r": {"bearer_env": "REMOTE_TOKEN"}}, strict=False
        )
        async with app:
            await until(lambda: app.health()["r"].last_error)
            assert "REMOTE_TOKEN (its `bearer_env`) is not set" in (app.health()["r"].last_error or "")
            assert app.health()["good"].last_error is None


# What cannot be meant so.


@pytest.mark.parametrize(
    ("entry", "own", "problem"),
    [
        ({"command": "x"}, {"oauth": True}, "$.servers.r: has `bearer_env`, `oauth`, `pass_headers`"),
        ({"command": "x"}, {"pass_headers": ["x-user"]}, "$.servers.r: has `bearer_env`, `oauth`, `pass_headers`"),
        ({"url": "http://h"}, {"bearer_env": "NOT_SET"}, "$.servers.r.bearer_env: the environment variable NOT_SET is"),
        ({"url": "http://u:p@h"}, {"bearer_env": "IS_SET"}, "$.servers.r: has `oauth` or `bearer_env`, and the config"),
        (
            {"url": "http://h", "headers": {"authorization": "x"}},
            {"oauth": True},
            "$.servers.r: has `oauth` or `bearer_env`, and the config",
        ),
        ({"url": "http://h", "headers": {"authorization": "x"}}, {"pass_credentials": ["authorization"]}, None),
        ({"url": "http://h"}, {"bearer_env": "IS_SET"}, None),
        ({"command": "x"}, {}, None),
    ],
)
def test_settings_that_do_not_fit_the_server_are_told_at_once(
    monkeypatch: pytest.MonkeyPatch, entry: dict[str, Any], own: dict[str, Any], problem: str | None
) -> None:
    monkeypatch.setenv("IS_SET", "t")
    settings = load_settings(oauth_dir="/tokens", servers={"r": own})
    found = []
    try:
        require_credentials(load_config(config(r=entry)), settings)
    except ConfigError as error:
        found = [str(detail) for detail in error.details]
    assert len(found) == (problem is not None)
    assert not problem or found[0].startswith(problem)


@pytest.mark.parametrize(
    "own",
    [
        {"oauth": True, "bearer_env": "X"},
        *({"pass_headers": [name]} for name in ("Host", "Content-Length", "MCP-Session-Id", "x-*", "*", "a b", "")),
        {"pass_headers": ["Authorization: s3cret"]},
    ],
)
def test_settings_that_nothing_can_be_made_of_are_refused(own: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(servers={"r": own})
    assert "s3cret" not in str(caught.value)
