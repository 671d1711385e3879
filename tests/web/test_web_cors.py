"""Web pages of other origins, and the names by which we are reached."""

from __future__ import annotations

import httpx2
import pytest
from fastmcp.server.auth import StaticTokenVerifier
from support.harness import config, lean
from support.memory import build_aggregator
from support.serving import browser
from test_web_http import GROUPS

from fastmcp_aggregator import Aggregator, AggregatorError, ConfigError
from fastmcp_aggregator.cli.main import main

PAGE = "https://app.example.com"
PATHS = ["/mcp", "/mcp/sse", "/mcp/messages", "/mcp/tools/list", "/status", "/groups/web/mcp", "/groups/web/mcp/sse"]
ASKED = "authorization,x-api-key,mcp-session-id,mcp-protocol-version,last-event-id,mcp-method,mcp-name,mcp-param-x"


def hub(*origins: str, auth: bool = True, **options: object) -> Aggregator:
    tokens = StaticTokenVerifier({"me": {"client_id": "me", "scopes": []}}) if auth else None
    servers = config(fetch=lean(), files=lean())
    return build_aggregator(servers, groups=GROUPS, auth=tokens, cors_origins=origins, **options)


async def preflight(http: httpx2.AsyncClient, path: str, origin: str = PAGE, **headers: str) -> httpx2.Response:
    asked = {"origin": origin, "access-control-request-method": "POST", "access-control-request-headers": ASKED}
    return await http.options(path, headers={**asked, **headers})


def cors_headers(response: httpx2.Response) -> set[str]:
    return {name for name in response.headers if name.startswith("access-control")}


async def test_a_page_that_is_let_in_may_ask_before_it_has_credentials_and_read_the_answer() -> None:
    async with browser(hub(PAGE)) as http:
        for path in PATHS:
            allowed = await preflight(http, path)
            assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, PAGE), path
            assert allowed.headers["access-control-allow-headers"] == ASKED
            assert {"GET", "POST", "DELETE"} <= {*allowed.headers["access-control-allow-methods"].split(", ")}
            assert "access-control-allow-credentials" not in allowed.headers
        refused = await http.post("/mcp/tools/list", headers={"origin": PAGE})
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, PAGE)
        answer = await http.post("/mcp/tools/list", headers={"origin": PAGE, "authorization": "Bearer me"})
        assert answer.status_code == 200
        assert "mcp-session-id" in answer.headers["access-control-expose-headers"]


async def test_other_pages_and_other_hosts_are_still_refused() -> None:
    async with browser(hub(PAGE)) as http:
        for path in PATHS:
            for headers in ({"origin": "https://evil.example"}, {"origin": f"{PAGE}.evil.example"}, {"origin": "null"}):
                answer = await preflight(http, path, **headers)
                assert (answer.status_code, cors_headers(answer)) == (403, set())
            assert (await preflight(http, path, host="evil.example")).status_code == 421


async def test_without_any_origin_there_is_no_header_of_it() -> None:
    async with browser(hub()) as http:
        own = str(http.base_url).rstrip("/")
        for answer in (
            await preflight(http, "/mcp", own),
            await http.post("/mcp/tools/list", headers={"origin": own}),
            await http.get("/health", headers={"origin": own}),
        ):
            assert not cors_headers(answer)
        assert (await preflight(http, "/mcp")).status_code == 403


async def test_any_page_may_come_only_where_callers_authenticate() -> None:
    async with browser(hub("*")) as http:
        assert (await preflight(http, "/mcp", "https://any.example")).headers["access-control-allow-origin"] == "*"
        assert (await http.post("/mcp/tools/list", headers={"origin": "https://any.example"})).status_code == 401
    with pytest.raises(AggregatorError, match="any web page could call every tool"):
        hub("*", auth=False).http_app()


def test_the_command_line_refuses_it_too(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTMCP_AGGREGATOR_CORS_ORIGINS", '["*"]')
    assert main(["examples/config.json", "--transport", "http"]) == 2
    assert "any web page could call every tool" in capsys.readouterr().err


@pytest.mark.parametrize("origin", ["app.example.com", "https://a.b/path", "https://a.b/", "https://*.b", "null", ""])
def test_what_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(ConfigError, match="must be origins such as"):
        hub(origin)


async def test_we_are_reached_by_the_names_that_are_set_and_by_no_other() -> None:
    app = hub(allowed_hosts=["hub.internal"], public_url="https://Hub.example.com/tools")
    async with browser(app) as http:
        for host, status in (
            ("hub.internal", 200),
            ("hub.internal:8000", 200),
            ("hub.example.com", 200),
            ("other.example.com", 421),
        ):
            assert (await http.get("/health", headers={"host": host})).status_code == status
