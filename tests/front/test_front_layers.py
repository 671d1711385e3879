"""The order of the layers around an app over HTTP, outermost first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from starlette.middleware import Middleware
from support.harness import config

from fastmcp_aggregator import Aggregator, build_aggregator
from fastmcp_aggregator.access.keys import new_key
from fastmcp_aggregator.access.keys_file import write_keys
from fastmcp_aggregator.front.http.boundary import Drain, ErrorBoundary

CORS = ["CORSMiddleware"]
ADDRESS = ["HostGuard"]
AUTHENTICATION = ["AuthenticationMiddleware", "AuthContextMiddleware"]


def names(app: Any) -> list[str]:
    return [layer.cls.__name__ for layer in app.user_middleware]


def hub(*, has_auth: bool, **settings: Any) -> Aggregator:
    auth = StaticTokenVerifier({"t": {"client_id": "c", "scopes": []}}) if has_auth else None
    return build_aggregator(config(), groups={"web": {"servers": []}}, auth=auth, fast_path=True, **settings)


def test_without_authentication() -> None:
    app = hub(has_auth=False)
    checks, own = (
        ["Pace", "ErrorBoundary", "RemoteParent", *ADDRESS],
        ["Gate", "FastEndpoint", "RequestContextMiddleware", "Disconnects"],
    )
    assert names(app.http_app()) == [*checks, "GroupApps", *own]
    assert names(app.group("web").http_app()) == [*checks, *own]
    assert names(app.group("web").http_app_behind_checks("/mcp", {})) == own


def test_with_authentication() -> None:
    app = hub(has_auth=True, cors_origins=["https://example.com"])
    checks = ["Pace", "ErrorBoundary", "RemoteParent", "AuthenticationFailures", "RequestContextMiddleware", *ADDRESS]
    own = ["Membership", "Revocation", "Sessions", "Gate", "FastEndpoint", "Disconnects"]
    assert names(app.http_app()) == [*checks, *CORS, *AUTHENTICATION, "GroupApps", *own]
    assert names(app.group("web").http_app()) == [*checks, *CORS, *AUTHENTICATION, *own]
    assert names(app.group("web").http_app_behind_checks("/mcp", {})) == own


def test_api_keys_need_no_request_context_so_it_is_not_made_for_plain_calls(tmp_path: Path) -> None:
    _, kept = new_key("ann", None, None)
    write_keys(tmp_path / "keys.json", [kept])
    app = build_aggregator(config(), keys_file=str(tmp_path / "keys.json"), fast_path=True)
    layers = names(app.http_app())
    assert layers.count("RequestContextMiddleware") == 1
    assert layers.index("FastEndpoint") < layers.index("RequestContextMiddleware") < layers.index("Disconnects")


def test_what_is_off_is_not_there_and_what_is_given_is_innermost() -> None:
    given = Middleware(Drain)
    app = hub(has_auth=False).http_app(transport="sse", host_origin_protection=False, middleware=[given])
    assert names(app) == [
        "Pace",
        "ErrorBoundary",
        "RemoteParent",
        "GroupApps",
        "Gate",
        "RequestContextMiddleware",
        "Drain",
    ]


@pytest.mark.parametrize("has_auth", [False, True])
def test_fastmcp_has_no_layers_that_are_left_out(has_auth: bool) -> None:
    app = hub(has_auth=has_auth)
    plain = names(FastMCP(auth=app.auth).http_app(host_origin_protection=True, middleware=[Middleware(ErrorBoundary)]))
    ours = {"HostOriginGuardMiddleware": "HostGuard"}
    assert {ours.get(name, name) for name in plain} <= set(names(app.http_app()))
