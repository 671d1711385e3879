"""Accounts over HTTP: everybody's own, and for operators those of all and of the hub."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.account_hub import CALL, Around, Browser, address_in, around, asked, give, key_of
from support.harness import until

from fastmcp_aggregator.oauth.account import kept_accounts
from fastmcp_aggregator.oauth.tokens import HUB


@asynccontextmanager
async def hub(folder: Path, **settings: Any) -> AsyncIterator[Around]:
    """Where `chief` operates."""
    async with around(folder, people=("alice", "bob", "chief"), roles={"chief": {"operate"}}, **settings) as place:
        yield place


async def begun(place: Around, browser: Browser, path: str, who: str) -> httpx2.Response:
    return await browser.http.post(f"{place.front.origin}/accounts/{path}", headers=place.credentials.of(who))


async def mine(place: Around, who: str) -> Any:
    async with place.front.browser(**place.credentials.of(who)) as http:
        return (await http.get("/accounts/mine")).json()


async def test_a_person_logs_in_from_the_page_of_their_accounts(tmp_path: Path) -> None:
    async with hub(tmp_path, lists="caller") as place:
        assert await mine(place, "alice") == [{"server": "crm", "isLoggedIn": False}]
        browser = Browser()
        answer = await begun(place, browser, "mine/crm", "alice")
        page = await browser.come_back(answer.json()["address"], "alice-there")
        assert (page.status_code, "You are logged in to <b>crm</b>" in page.text) == (200, True)
        (account,) = await mine(place, "alice")
        assert (account["server"], account["isLoggedIn"], account["issuer"]) == ("crm", True, place.server.issuer)
        assert await mine(place, "bob") == [{"server": "crm", "isLoggedIn": False}]
        client = await place.client("alice", modern=True)
        assert (await client.result("tools/call", CALL))["structuredContent"] == {"who": "alice-there"}


async def test_what_people_do_with_their_accounts_is_recorded(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    async with hub(tmp_path, lists="caller", audit=str(audit)) as place:
        browser = Browser()
        answer = await begun(place, browser, "mine/crm", "alice")
        await browser.come_back(answer.json()["address"], "alice-there")
        async with place.front.browser(**place.credentials.of("alice")) as http:
            assert (await http.delete("/accounts/mine/crm")).status_code == 200
        lines = await until(lambda: [json.loads(line) for line in audit.read_text().splitlines()][2:] and audit)
        told = [json.loads(line) for line in lines.read_text().splitlines()]
        assert [(line["principal"], line["operation"], line["server"], line.get("account")) for line in told] == [
            ("key:alice", "login", "crm", None),
            ("anonymous", "logged_in", "crm", "key:alice"),
            ("key:alice", "logout", "crm", None),
        ]


async def test_a_login_from_the_page_is_finished_by_no_other_browser(tmp_path: Path) -> None:
    async with hub(tmp_path, lists="caller") as place:
        answer = await begun(place, Browser(), "mine/crm", "alice")
        page = await Browser().come_back(answer.json()["address"], "bob-there")
        assert (page.status_code, "another browser; nothing was linked" in page.text) == (403, True)
        assert await kept_accounts(place.vault) == []


async def test_a_head_of_the_pages_of_a_login_does_nothing(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    async with hub(tmp_path, lists="caller", audit=str(log)) as place:
        address = address_in(await asked(await place.client("alice", modern=True)))
        browser = Browser()
        assert (await browser.http.head(address)).status_code == 200
        sent = await browser.authenticate(address, key_of(place, "alice"))
        back = await browser.http.head(f"{place.front.origin}/accounts/callback/x?state=x")
        assert (sent.status_code, back.status_code, back.headers["allow"]) == (303, 405, "GET")
        assert "denied" not in log.read_text()


async def test_only_servers_of_ones_groups_can_be_logged_in_to(tmp_path: Path) -> None:
    groups = {"g": {"name": "g", "description": "", "servers": ["crm1"]}}
    async with hub(tmp_path, servers=2, lists="caller", groups=groups, keys_of={"alice": ["g"]}) as place:
        assert [each["server"] for each in await mine(place, "alice")] == ["crm1"]
        answer = await begun(place, Browser(), "mine/crm", "alice")
        assert (answer.status_code, "address" in answer.json()) == (404, False)


async def test_an_operator_sees_and_revokes_the_accounts_of_all(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    async with hub(tmp_path, audit=str(log)) as place:
        for who in ("alice", "bob"):
            await give(place.vault, place.server, f"key:{who}", f"{who}-there")
        client = await place.client("alice", modern=True)
        assert (await client.result("tools/call", CALL))["structuredContent"] == {"who": "alice-there"}
        async with place.front.browser(**place.credentials.of("chief")) as http:
            found = (await http.get("/accounts")).json()
            assert [(each["server"], each["principal"]) for each in found] == [
                ("crm", HUB),
                ("crm", "key:alice"),
                ("crm", "key:bob"),
            ]
            assert "access-" not in json.dumps(found)
            assert "refresh-" not in json.dumps(found)
            ended = await http.post("/accounts/revoke", json={"server": "crm", "principal": "key:alice"})
            assert ended.json() == {"server": "crm", "isRevokedThere": True}
            again = await http.post("/accounts/revoke", json={"server": "crm", "principal": "key:alice"})
            assert again.status_code == 404
            for body in (
                {},
                {"server": "crm"},
                {"server": 1, "principal": "x"},
                [],
                {"server": "crm", "principal": "x" * 2000},
            ):
                assert (await http.post("/accounts/revoke", json=body)).status_code == 400
        result = await client.result("tools/call", CALL)
        assert result["resultType"] == "input_required"  # at once, and not when somebody looks next
        assert {each.principal for each in await kept_accounts(place.vault)} == {HUB, "key:bob"}
        await until(lambda: '"revoke"' in log.read_text())
        assert '"key:alice"' in next(line for line in log.read_text().splitlines() if '"revoke"' in line)


@pytest.mark.parametrize("who", ["alice", None])
async def test_who_does_not_operate_sees_and_ends_no_others_account(tmp_path: Path, who: str | None) -> None:
    async with hub(tmp_path) as place:
        await give(place.vault, place.server, "key:bob", "bob-there")
        headers = place.credentials.of(who) if who else {}
        async with place.front.browser(**headers) as http:
            answers = [
                await http.get("/accounts"),
                await http.post("/accounts/revoke", json={"server": "crm", "principal": "key:bob"}),
                await http.post("/accounts/hub/crm"),
            ]
            assert {answer.status_code for answer in answers} == {403 if who else 401}
        assert len(await kept_accounts(place.vault)) == 2


async def test_an_operator_logs_the_hub_in(tmp_path: Path) -> None:
    async with hub(tmp_path, strict=False) as place:
        place.server.revoke("the-hub", also_refresh=True)
        async with place.front.browser(**place.credentials.of("chief")) as http:
            await http.post("/restart/crm")
            await until(lambda: place.app.health()["crm"].login_needed)
        browser = Browser()
        answer = await begun(place, browser, "hub/crm", "chief")
        page = await browser.come_back(answer.json()["address"], "the-hub")
        assert (page.status_code, "The hub is logged in to <b>crm</b>" in page.text) == (200, True)
        await until(lambda: place.app.health()["crm"].state == "running")
        assert (await place.tokens_of(HUB)).issuer == place.server.issuer
        assert (await begun(place, browser, "hub/none", "chief")).status_code == 404


async def test_a_credential_that_is_refused_is_led_nowhere(tmp_path: Path) -> None:
    async with hub(tmp_path, lists="caller") as place:
        answer = await Browser().http.post(f"{place.front.origin}/accounts/mine/crm")
        assert (answer.status_code, "set-cookie" in answer.headers) == (401, False)
