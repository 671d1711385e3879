"""Unhandled exceptions: callers get an id, the log the details. And what callers on other machines are not told."""

from __future__ import annotations

import json
import logging
import re
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.server.middleware import Middleware
from mcp.shared.exceptions import MCPError
from starlette.requests import ClientDisconnect
from support.harness import config, connected, lean
from support.memory import build_aggregator
from support.serving import served
from support.wire import ELSEWHERE

from fastmcp_aggregator import Aggregator
from fastmcp_aggregator.children.calls import Calls
from fastmcp_aggregator.cli.terminal.logs import PlainFormatter, StructuredFormatter
from fastmcp_aggregator.front.http.boundary import ErrorBoundary
from fastmcp_aggregator.observability.redaction import Redactor
from fastmcp_aggregator.relay.rounds import Rounds

SECRET = "/home/ann/hunter2.py"
MISSING = {"command": "/opt/private/bin/no-such-server", "env": {"TOKEN": "hunter2-token"}}


def broken(app: Aggregator, monkeypatch: pytest.MonkeyPatch) -> Aggregator:
    """An app with a fault of ours on the path of every call."""

    async def ask(*_: Any) -> Any:
        raise RuntimeError(SECRET)

    monkeypatch.setattr(Rounds, "ask", ask)
    monkeypatch.setattr(Calls, "reserve", lambda *_: False)
    return app


def check(error: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """Whether an error tells an id and no more, under which the log has all that is known."""
    assert error["code"] == -32603
    told = re.fullmatch(r"Internal error \(id ([0-9a-f]{8})\)", error["message"])
    assert told, error
    assert error.keys() == {"code", "message"}
    records = [record for record in caplog.records if told[1] in record.getMessage()]
    assert len(records) == 1
    for formatter in (PlainFormatter(Redactor(["hunter2"])), StructuredFormatter(Redactor(["hunter2"]), "json")):
        line = formatter.format(records[0])
        assert f"id {told[1]}" in line
        assert "Traceback" in line
        assert "RuntimeError: /home/ann/***.py" in line


async def test_over_stdio_and_in_memory(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    app = broken(build_aggregator(config(a=lean())), monkeypatch)
    async with app:
        for modern in (False, True):
            async with connected(app, modern=modern) as client:
                check(await client.error("tools/call", {"name": "a:echo"}), caplog)
        async with Client(app) as client:
            with pytest.raises(MCPError, match=r"Internal error \(id") as raised:
                await client.call_tool("a:echo")
            check(raised.value.error.model_dump(exclude_none=True), caplog)


async def test_over_http(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    app = broken(build_aggregator(config(a=lean())), monkeypatch)
    async with served(app) as front:
        for modern in (False, True):
            client = await front.connect(modern=modern)
            check(await client.error("tools/call", {"name": "a:echo"}), caplog)
    async with served(app) as front, front.browser() as http:
        old = await front.connect_sse()
        check(await old.error("tools/call", {"name": "a:echo"}), caplog)
        answer = await http.post(front.url + "/tools/call", json={"name": "a:echo"})
        assert answer.status_code == 500
        check(answer.json()["error"], caplog)


async def test_beside_the_mcp_endpoint(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    app = build_aggregator(config(a=lean()), groups={"web": {"servers": ["a"]}})

    def fail(*_: Any) -> Any:
        raise RuntimeError(SECRET)

    async with served(app) as front, front.browser() as http:
        monkeypatch.setattr(app, "health", fail)
        monkeypatch.setattr(app._directory, "ready", fail)
        monkeypatch.setattr(app, "group", fail)
        for method, path in (("GET", "/status"), ("POST", "/mcp/tools/call"), ("POST", "/groups/web/mcp")):
            answer = await http.request(method, front.url.replace("/mcp", path), json={"name": "echo"})
            assert answer.status_code == 500
            check(answer.json()["error"], caplog)


async def test_what_has_begun_or_was_left_or_is_not_http_breaks_as_it_did(caplog: pytest.LogCaptureFixture) -> None:
    async def nothing(*_: Any) -> Any: ...

    def app(error: Exception, *, begins: bool = False) -> ErrorBoundary:
        async def inner(scope: Any, receive: Any, send: Any) -> None:
            if begins:
                await send({"type": "http.response.start", "status": 200, "headers": []})
            raise error

        return ErrorBoundary(inner)

    http = {"type": "http", "method": "GET", "path": "/", "headers": []}
    for broken_app, scope, expected in (
        (app(RuntimeError("x"), begins=True), http, RuntimeError),
        (app(RuntimeError("x")), {"type": "lifespan"}, RuntimeError),
        (app(ClientDisconnect()), http, ClientDisconnect),
    ):
        with pytest.raises(expected):
            await broken_app(scope, nothing, nothing)
    assert not caplog.records


@pytest.mark.parametrize("strict", [True, False])
async def test_who_is_not_here_is_not_told_of_commands_and_files(strict: bool) -> None:
    app = build_aggregator(config(a=lean(), gone=MISSING), strict=strict)
    async with served(app) as front, front.browser() as http:
        client = await front.connect_sse(headers=ELSEWHERE)
        http.headers.update(ELSEWHERE)
        error = await client.error("tools/call", {"name": "gone:read"})
        listed = await client.send("tools/list")
        answer = await http.post(front.url + "/tools/call", json={"name": "read" if strict else "gone:read"})
        status = (await http.get(front.url.replace("/mcp", "/status"))).text
        for told in map(json.dumps, (error, listed, answer.json(), status)):
            assert "/opt/private" not in told
            assert "hunter2" not in told
        assert "it could not be started; see the log of the aggregator" in error["message"]
        assert "it could not be started; see the log of the aggregator" in status
        assert answer.status_code in (500, 503)
    assert app.health() == {}


async def test_who_is_here_is_told() -> None:
    app = build_aggregator(config(a=lean(), gone=MISSING), strict=False)
    async with app, connected(app) as client, served(app) as front:
        for here in (client, await front.connect(), await front.connect(modern=True)):
            error = await here.error("tools/call", {"name": "gone:read"})
            assert "command not found: '/opt/private/bin/no-such-server'" in error["message"]
        assert "/opt/private" in str(app.health()["gone"].last_error)


async def test_with_middleware_of_fastmcp_it_is_the_same() -> None:
    app = build_aggregator(config(a=lean(tools=1), gone=MISSING), strict=False)
    app.add_middleware(Middleware())
    async with served(app) as front:
        client = await front.connect(headers=ELSEWHERE)
        assert "/opt/private" not in json.dumps(await client.send("tools/call", {"name": "gone:read"}))


async def test_with_middleware_of_fastmcp_an_unforeseen_error_has_an_id_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = build_aggregator(config(a=lean()))
    app.add_middleware(Middleware())

    async def ask(*_: Any) -> Any:
        raise RuntimeError(SECRET)

    monkeypatch.setattr(Rounds, "ask", ask)
    async with served(app) as front:
        for modern in (False, True):
            client = await front.connect(modern=modern)
            told = json.dumps(await client.send("tools/call", {"name": "a:echo"}))
            assert SECRET not in told
            (incident,) = re.findall(r"Internal error \(id ([0-9a-f]{8})\)", told)
            assert [record for record in caplog.records if f"id {incident}" in record.getMessage()]


async def test_a_servers_own_error_passes_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    app = build_aggregator(config(a=lean()))
    async with served(app) as front:
        client = await front.connect()
        params = {"name": "a:error", "arguments": {"code": -31999, "message": f"see {SECRET}"}}
        error = await client.error("tools/call", params)
        assert (error["code"], error["message"]) == (-31999, f"see {SECRET}")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
