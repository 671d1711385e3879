"""Requests without valid credentials are told of, wherever they are refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastmcp.server.auth import AccessToken, AuthProvider
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from starlette.authentication import SimpleUser
from starlette.responses import PlainTextResponse
from support.credentials import Credentials
from support.memory import build_aggregator
from support.virtual_time import elapsed

from fastmcp_aggregator.access.keys_file import FollowedKeys
from fastmcp_aggregator.auth.claims import CLAIM, claim_of
from fastmcp_aggregator.auth.verifiers import KeyVerifier
from fastmcp_aggregator.front.http.security import AuthenticationFailures, HostGuard, Membership
from fastmcp_aggregator.policies.refused_callers import RefusedCallers

NOBODY = "there are no credentials"
CLAIMS = claim_of("ann", ["web"])
STRANGER = "the credentials are not valid"
OLD_KEY = "the API key 0123abcd is not valid"


async def told_of(
    status: int, headers: list[tuple[bytes, bytes]], app: Any = None, **scope: Any
) -> tuple[list[tuple[str, ...]], int]:
    """What is told of a request that is answered with a status, and the status that the client gets."""
    told: list[tuple[str, ...]] = []
    sent: list[Any] = []

    async def receive() -> Any: ...

    async def send(message: Any) -> None:
        sent.append(message)

    app = app or AuthenticationFailures(PlainTextResponse("", status), lambda *failure: told.append(failure))
    whole = {"type": "http", "method": "POST", "path": "/mcp", "headers": headers, "client": ("192.0.2.7", 9), **scope}
    await app(whole, receive, send)
    return told, sent[0]["status"]


@pytest.mark.parametrize(
    ("status", "headers", "failures"),
    [
        (401, [], [("192.0.2.7", "/mcp", NOBODY)]),
        (401, [(b"host", b"x")], [("192.0.2.7", "/mcp", NOBODY)]),
        (401, [(b"authorization", b"Bearer x")], [("192.0.2.7", "/mcp", STRANGER)]),
        (401, [(b"x-api-key", b"x")], [("192.0.2.7", "/mcp", STRANGER)]),
        (401, [(b"x-api-key", b"fma_0123abcd_s3cret")], [("192.0.2.7", "/mcp", OLD_KEY)]),
        (401, [(b"authorization", b"Bearer fma_0123abcd_s3cret")], [("192.0.2.7", "/mcp", OLD_KEY)]),
        (401, [(b"x-api-key", b"fma_s3cret_0123abcd")], [("192.0.2.7", "/mcp", STRANGER)]),
        (401, [(b"x-api-key", b"fma_0123abcds3cret")], [("192.0.2.7", "/mcp", STRANGER)]),
        (200, [], []),
        (403, [(b"authorization", b"Bearer x")], []),
        (404, [], []),
    ],
)
async def test_each_401_is_told_of_once(
    status: int, headers: list[tuple[bytes, bytes]], failures: list[tuple[str, str, str]]
) -> None:
    assert await told_of(status, headers) == (failures, status)


async def test_a_token_without_a_scope_that_is_required_is_told_of_too() -> None:
    told: list[tuple[str, ...]] = []

    async def nothing(*_: Any) -> Any: ...

    refusal = PlainTextResponse("", 403, {"www-authenticate": 'Bearer error="insufficient_scope"'})
    app = AuthenticationFailures(refusal, lambda *failure: told.append(failure))
    scope = {"type": "http", "method": "GET", "path": "/status", "headers": [], "client": ("192.0.2.7", 9)}
    await app(scope, nothing, nothing)
    assert told == [("192.0.2.7", "/status", "the token lacks a scope that is required")]


async def test_a_client_without_an_address_is_told_of_too() -> None:
    told, _ = await told_of(401, [], client=None)
    assert told == [("", "/mcp", NOBODY)]


def test_an_address_that_goes_on_with_wrong_credentials_is_answered_in_turns() -> None:
    async def flood() -> None:
        for _ in range(40):
            assert (await told_of(401, [], app=app))[1] == 401
        await told_of(401, [], app=app, client=("198.51.100.1", 9))

    app = AuthenticationFailures(PlainTextResponse("", 401), lambda *failure: None)
    assert 0.1 < elapsed(flood()) < 0.5


@pytest.mark.parametrize(
    ("path", "status", "user", "is_slowed"),
    [
        ("/unknown", 404, None, True),
        ("/", 200, None, True),
        ("/mcp", 405, None, True),
        ("/mcp", 200, SimpleUser("ann"), False),
        ("/health", 200, None, False),
        ("/ready", 503, None, False),
        ("/health", 421, None, True),
        ("/health", 405, None, True),
    ],
)
def test_what_is_answered_without_credentials_takes_turns_but_no_look(
    path: str, status: int, user: Any, is_slowed: bool
) -> None:
    async def flood() -> None:
        for _ in range(40):
            assert (await told_of(0, [], app=app, path=path, user=user))[1] == status

    app = AuthenticationFailures(PlainTextResponse("", status), lambda *failure: None)
    assert (0.1 < elapsed(flood()) < 0.5) if is_slowed else elapsed(flood()) == 0


@pytest.mark.parametrize("header", ["authorization", "x-api-key"])
@pytest.mark.parametrize("accepted", ["keys", "keys and tokens"])
def test_who_has_a_key_waits_for_nobody_else_of_the_address(tmp_path: Path, header: str, accepted: str) -> None:
    credentials = Credentials(tmp_path, {"ann": None})
    key = credentials.keys["ann"]
    sent = {header: f"Bearer {key}" if header == "authorization" else key}
    auth = credentials.auth if accepted == "keys and tokens" else KeyVerifier(FollowedKeys(credentials.file))

    async def work() -> None:
        loop = asyncio.get_running_loop()
        async with unstarted(auth) as http:
            flood = [asyncio.create_task(http.get(path)) for path in ("/", "/unknown") for _ in range(60)]
            await asyncio.sleep(0.1)
            began = loop.time()
            for _ in range(40):
                assert (await http.get("/status", headers=sent)).status_code == 200
            assert loop.time() == began
            assert not all(each.done() for each in flood)
            await asyncio.gather(*flood)

    elapsed(work())


def test_who_has_authenticated_but_lacks_a_scope_slows_nobody_else_of_the_address() -> None:
    refusal = PlainTextResponse("", 403, {"www-authenticate": 'Bearer error="insufficient_scope"'})
    refused = RefusedCallers()
    app = AuthenticationFailures(refusal, lambda *_: None, refused)

    async def flood() -> None:
        user = AuthenticatedUser(AccessToken(token="t", client_id="ann", scopes=[], claims=CLAIMS))
        for _ in range(40):
            await told_of(0, [], app=app, user=user)

    assert 0.1 < elapsed(flood()) < 0.5
    assert [*refused.lately] == [CLAIMS[CLAIM].bare]


@pytest.mark.parametrize("group", ["web", "docs"])
def test_who_asks_for_groups_of_others_takes_turns(group: str) -> None:
    async def flood() -> None:
        user = AuthenticatedUser(AccessToken(token="t", client_id="ann", scopes=[], claims=CLAIMS))
        for _ in range(40):
            await told_of(0, [], app=app, user=user)

    app = Membership(PlainTextResponse(""), group, "/mcp", lambda *_: None, RefusedCallers())
    assert (0.1 < elapsed(flood()) < 0.5) if group == "docs" else elapsed(flood()) == 0


def test_requests_for_another_host_take_turns() -> None:
    async def flood() -> None:
        for _ in range(40):
            assert (await told_of(0, [(b"host", b"evil.example")], app=app, server=("127.0.0.1", 80)))[1] == 421

    app = HostGuard(PlainTextResponse(""), {"mode": "auto"}, (), lambda *_: None, RefusedCallers())
    assert 0.1 < elapsed(flood()) < 0.5


async def test_what_is_not_http_passes() -> None:
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    async def nothing(*_: Any) -> Any: ...

    await AuthenticationFailures(app, lambda *_: None)({"type": "lifespan"}, nothing, nothing)
    assert seen == ["lifespan"]


@pytest.mark.parametrize(
    ("headers", "is_about_key"),
    [
        ({"authorization": "Bearer fma_00000000_wrong"}, True),
        ({"x-api-key": "anything"}, True),
        ({"authorization": "Bearer eyJhbGciOiJSUzI1NiJ9.e30.x"}, False),
    ],
)
async def test_who_has_sent_a_wrong_key_is_told_of_keys_and_not_of_tokens(
    tmp_path: Path, headers: dict[str, str], is_about_key: bool
) -> None:
    async with unstarted(Credentials(tmp_path, {"ann": None}).auth) as http:
        for path in ("/mcp", "/status"):
            answer = await http.post(path, headers=headers) if path == "/mcp" else await http.get(path, headers=headers)
            assert answer.status_code == 401
            assert ("API key is not known" in answer.json()["error_description"]) is is_about_key
            assert ("API key is not known" in answer.headers["www-authenticate"]) is is_about_key
            assert ("re-register" in answer.text) is not is_about_key
            assert answer.json()["error"] == "invalid_token"


async def test_who_has_sent_nothing_is_told_what_to_send(tmp_path: Path) -> None:
    async with unstarted(Credentials(tmp_path, {"ann": None}).auth) as http:
        for answer in (await http.post("/mcp"), await http.get("/status")):
            assert (answer.status_code, answer.json()["error"]) == (401, "unauthorized")
            assert "X-API-Key" in answer.json()["error_description"]
            assert "error" not in answer.headers["www-authenticate"], "RFC 6750, 3.1: none without credentials"


async def test_what_is_for_another_host_is_logged_with_the_settings_to_look_at(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with unstarted(Credentials(tmp_path, {"ann": None}).auth) as http:
        for _ in range(20):
            assert (await http.get("/status", headers={"host": "hub.example.org"})).status_code == 421
    told = {record.getMessage() for record in caplog.records if record.levelname == "WARNING"}
    assert told == {
        "a request was refused for 127.0.0.1 at /status: Host 'hub.example.org': see `allowed_hosts` and `cors_origins`"
    }


async def test_failures_are_logged_with_their_address_and_not_all_of_a_flood(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with unstarted(Credentials(tmp_path, {"ann": None}).auth) as http:
        for _ in range(50):
            assert (await http.get("/status", headers={"x-api-key": "wrong"})).status_code == 401
            assert (await http.get("/status")).status_code == 401
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert 0 < len(told) < 10
    assert set(told) == {"authentication failed for 127.0.0.1 at /status: the credentials are not valid"}


@asynccontextmanager
async def unstarted(auth: AuthProvider) -> AsyncIterator[httpx2.AsyncClient]:
    app = build_aggregator({"mcpServers": {}}, auth=auth).http_app()
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as http:
        yield http
