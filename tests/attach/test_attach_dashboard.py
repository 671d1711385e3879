"""The address of a local hub's dashboard."""

from __future__ import annotations

import asyncio

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from support.doubles import Clock

from fastmcp_aggregator.local_hub.dashboard import SecretUrl


async def path_of(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"page {request.url.path}")


def unheard(*_: str) -> None: ...


@pytest.fixture
def clock() -> Clock:
    return Clock(0.0)


@pytest.fixture
def secret_url(clock: Clock) -> SecretUrl:
    return SecretUrl(Starlette(routes=[Route("/{path:path}", path_of)]), clock, unheard)


def browser(secret_url: SecretUrl) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=secret_url), base_url="http://127.0.0.1")


async def test_an_address_leads_to_the_page_once(secret_url: SecretUrl) -> None:
    address = secret_url.new_address()
    async with browser(secret_url) as client:
        answer = await client.get(address)
        assert answer.status_code == 303
        page = answer.headers["location"]
        assert (await client.get(page)).text == "page /"
        assert (await client.get(f"{page}dashboard/state")).text == "page /dashboard/state"
        assert (await client.get(address)).status_code == 404
        other = (await client.get(secret_url.new_address())).headers["location"]
        assert other == page


async def test_an_address_is_good_for_a_minute(secret_url: SecretUrl, clock: Clock) -> None:
    address = secret_url.new_address()
    clock.now = 61.0
    async with browser(secret_url) as client:
        assert (await client.get(address)).status_code == 404


@pytest.mark.parametrize("path", ["/", "/dashboard/state", "/mcp", "/open/", "/open/x", "//", "/%2e%2e/", "/open"])
async def test_all_else_is_not_found(secret_url: SecretUrl, path: str) -> None:
    secret_url.new_address()
    async with browser(secret_url) as client:
        assert (await client.get(path)).status_code == 404
        assert (await client.post(secret_url.new_address())).status_code == 404
    await asyncio.sleep(0)


@pytest.mark.parametrize("way", ["/{}", "//{}/", "/x{}/dashboard/", "/{}%2e"])
async def test_the_secret_part_of_the_address_is_in_no_refusal(clock: Clock, way: str) -> None:
    told: list[str] = []
    secret_url = SecretUrl(Starlette(), clock, lambda *about: told.extend(about))
    async with browser(secret_url) as client:
        secret = (await client.get(secret_url.new_address())).headers["location"].strip("/")
        assert (await client.get("http://127.0.0.1" + way.format(secret))).status_code == 404
    assert len(told) == 3
    assert secret not in "".join(told)


async def test_nobody_is_looked_up_for_an_address_that_was_never_made(clock: Clock) -> None:
    looked: list[object] = []
    secret_url = SecretUrl(Starlette(), clock, unheard, lambda scope: bool(looked.append(scope)))
    async with browser(secret_url) as client:
        assert (await client.get("/open/x")).status_code == 404
        assert looked == []
        assert (await client.get(secret_url.new_address())).status_code == 404
    assert len(looked) == 1


async def test_an_address_leads_nowhere_for_a_process_of_another_user_and_stays_good(clock: Clock) -> None:
    users = iter([False, True])
    secret_url = SecretUrl(Starlette(routes=[Route("/{path:path}", path_of)]), clock, unheard, lambda _: next(users))
    address = secret_url.new_address()
    async with browser(secret_url) as client:
        assert (await client.get(address)).status_code == 404
        assert (await client.get(address)).status_code == 303
