"""Which HTTP requests are of this machine's users: all that is told to them must not leave it."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from fastmcp.server.auth import StaticTokenVerifier
from support.harness import config, until

from fastmcp_aggregator import build_aggregator
from fastmcp_aggregator.access.loopback import is_local, is_one_of, network_of


def scope(client: str | None = "127.0.0.1", host: str = "127.0.0.1:8000", *more: tuple[str, str]) -> dict[str, Any]:
    headers = [("host", host), *more]
    return {
        "type": "http",
        "http_version": "1.1",
        "client": None if client is None else (client, 50000),
        "headers": [(name.encode(), value.encode()) for name, value in headers],
    }


@pytest.mark.parametrize(
    "here", [scope(), scope("::1", "[::1]:8000"), scope("127.0.0.1", "localhost"), scope("127.8.0.1", "LOCALHOST:80")]
)
def test_a_request_over_loopback_is_local(here: dict[str, Any]) -> None:
    assert is_local(here)


@pytest.mark.parametrize(
    "there",
    [
        {},
        scope(None),
        scope("192.0.2.9"),
        scope("testclient"),
        scope("127.0.0.1", "hub.example.org"),
        scope("127.0.0.1", "127.0.0.1.example.org"),
        scope("127.0.0.1", ""),
        scope("127.0.0.1", "[::1"),
        scope("127.0.0.1", "localhost", ("host", "hub.example.org")),
        scope("127.0.0.1", "localhost", ("X-Forwarded-For", "127.0.0.1")),
        scope("127.0.0.1", "localhost", ("x-forwarded-proto", "https")),
        scope("127.0.0.1", "localhost", ("forwarded", "for=192.0.2.9")),
        scope("127.0.0.1", "localhost", ("via", "1.1 proxy")),
        scope("127.0.0.1", "localhost", ("x-real-ip", "192.0.2.9")),
        {**scope(), "http_version": "1.0"},
        {**scope(), "user": object()},
    ],
)
def test_a_request_that_may_come_from_elsewhere_is_not_local(there: dict[str, Any]) -> None:
    assert not is_local(there)


async def test_with_authentication_nobody_is_local() -> None:
    auth = StaticTokenVerifier({"t": {"client_id": "me", "scopes": []}})
    app = build_aggregator(config(gone={"command": "/opt/private/program"}), strict=False, auth=auth)
    async with (
        app,
        httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app.http_app()),
            base_url="http://127.0.0.1",
            headers={"authorization": "Bearer t"},
        ) as http,
    ):
        await until(lambda: app.health()["gone"].last_error)
        told = await http.get("/status")
    assert told.json()["servers"]["gone"]["last_error"] == "it could not be started; see the log of the aggregator"


@pytest.mark.parametrize(
    ("address", "whose"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unix", "unix"),
        ("", ""),
    ],
)
def test_a_client_has_all_addresses_of_its_network(address: str, whose: str) -> None:
    assert network_of(address) == whose


def test_an_address_is_one_of_networks() -> None:
    networks = ("10.0.0.0/8", "::1")
    assert [is_one_of(address, networks) for address in ("10.1.2.3", "::1", "::ffff:10.0.0.1")] == [True] * 3
    assert not any(is_one_of(address, networks) for address in ("11.0.0.1", "::2", "", "unix"))
    assert not is_one_of("127.0.0.1", ())
