"""Attacks on the pages with which callers log in to servers: guesses, odd forms and answers, and what is recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.account_hub import Around, Browser, address_in, around, asked, give, key_of, mixed_up
from support.harness import until

from fastmcp_aggregator.oauth.account import kept_accounts
from fastmcp_aggregator.oauth.tokens import HUB


async def denials(folder: Path, count: int) -> list[dict[str, Any]]:
    """What the audit log has of refusals, once it has so many."""
    log = folder / "audit.jsonl"

    def lines() -> list[dict[str, Any]]:
        found = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return [line for line in found if line["event"] in ("denied", "authentication_failed", "auth")]

    await until(lambda: len(lines()) >= count)
    return lines()


async def links(place: Around) -> set[str]:
    """Whose accounts are kept."""
    return {each.principal for each in await kept_accounts(place.vault)}


async def test_guesses_at_a_login_are_recorded_and_link_nothing(tmp_path: Path) -> None:
    async with around(tmp_path, audit=str(tmp_path / "audit.jsonl")) as place:
        address = address_in(await asked(await place.client("alice", modern=True)))
        for guess in ("x", "fma_00000000_x", key_of(place, "alice")[:-1]):
            assert (await Browser().authenticate(address, guess)).status_code == 403
        lines = await denials(tmp_path, 3)
        assert len(lines) == 3
        assert all("fma_" not in json.dumps(line) for line in lines)
        assert all(line["reason"] == "the credentials are not valid" for line in lines)
        assert await links(place) == {HUB}


async def test_who_opens_the_login_of_somebody_else_is_recorded(tmp_path: Path) -> None:
    async with around(tmp_path, audit=str(tmp_path / "audit.jsonl")) as place:
        address = address_in(await asked(await place.client("alice", modern=True)))
        assert (await Browser().authenticate(address, key_of(place, "bob"))).status_code == 403
        (line,) = await denials(tmp_path, 1)
        assert (line["principal"], line["reason"]) == ("key:bob", "the login is somebody else's")
        assert await links(place) == {HUB}


async def test_who_begins_a_login_at_a_server_of_another_group_is_recorded(tmp_path: Path) -> None:
    groups = {"red": {"servers": ["crm"]}, "blue": {"servers": []}}
    async with (
        around(tmp_path, keys_of={"bob": ["blue"]}, groups=groups, audit=str(tmp_path / "audit.jsonl")) as place,
        place.front.browser(**place.credentials.of("bob")) as http,
    ):
        answers = [await http.post(f"/accounts/mine/{key}") for key in ("crm", "none")]
        assert [answer.status_code for answer in answers] == [404, 404]
        (line,) = await denials(tmp_path, 1)
        assert (line["principal"], line["path"]) == ("key:bob", "/accounts/mine/crm")
        assert line["reason"] == "the caller has no such server"


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", "application/x-www-form-urlencoded"),
        (b"form=" + b"x" * 40_000, "application/x-www-form-urlencoded"),
        (b"&".join(b"form=x" for _ in range(500)), "application/x-www-form-urlencoded"),
        (b"form=%ff%fe&credential=%00", "application/x-www-form-urlencoded"),
        (b"form=%ed%a0%80&credential=%ed%a0%80", "application/x-www-form-urlencoded"),
        (b'{"form":"x","credential":"y"}', "application/json"),
        (b'--x\r\nContent-Disposition: form-data; name="form"\r\n\r\nx\r\n--x--', "multipart/form-data; boundary=x"),
        (b"\x1f\x8b" + b"x" * 100, "application/x-www-form-urlencoded"),
    ],
)
async def test_odd_forms_are_refused(tmp_path: Path, content: bytes, kind: str) -> None:
    async with around(tmp_path) as place:
        address = address_in(await asked(await place.client("alice", modern=True)))
        async with place.front.browser() as http:
            for cookie in ("", "fastmcp_aggregator_form=x", "fastmcp_aggregator_form="):
                headers = {"content-type": kind, "cookie": cookie}
                answer = await http.post(address, content=content, headers=headers)
                assert answer.status_code in (400, 403), (cookie, answer.status_code)
        assert await links(place) == {HUB}


ANSWERS = [
    "",
    "state=",
    "state=" + "x" * 10_000,
    "state=%00&code=%00",
    "state=%ed%a0%80&code=x",
    "error=<script>alert(1)</script>&error_description=<img src=x>&state=x",
    "state=x&code=y&iss=javascript:alert(1)",
    "state=../../../etc/passwd&code=x",
    "state=x&state=y&code=a&code=b",
    "state[]=x&code[]=y",
    "&" * 5000,
    "=" * 5000,
]


async def test_odd_answers_of_an_authorization_server_link_and_show_nothing(tmp_path: Path) -> None:
    async with around(tmp_path) as place:
        await asked(await place.client("alice", modern=True))
        async with place.front.browser() as http:
            for odd in (
                "%ed%a0%80",
                "%00",
                "%3Fstate=x&code=y",
                "x" * 5000,
                "..%2f..%2ftokens",
                "%0d%0aset-cookie:%20a=b",
            ):
                got = await http.get(f"/accounts/callback/{odd}?state=x&code=y")
                assert got.status_code in (404, 414, 431, 502), (odd[:40], got.status_code)
                assert not {"location", "set-cookie"} & set(got.headers)
            for answer in ANSWERS:
                got = await http.get(
                    f"/accounts/callback/x?{answer}", headers={"cookie": "fastmcp_aggregator_login_0=x"}
                )
                assert got.status_code in (400, 404, 414, 431, 502), (answer[:40], got.status_code)
                assert "<script>alert" not in got.text
                assert "<img" not in got.text
                assert "location" not in got.headers
        assert await links(place) == {HUB}


async def test_a_login_that_a_hostile_server_sends_on_to_an_honest_one_is_refused(tmp_path: Path) -> None:
    """It would be sent the honest one's code, with the verifier."""
    log = tmp_path / "audit.jsonl"
    async with around(tmp_path, servers=2, lists="caller", audit=str(log)) as place:
        page = await mixed_up(place, "alice", "bob", comes_back_to="honest")
        assert (page.status_code, "from another authorization server" in page.text) == (403, True)
        (line,) = await denials(tmp_path, 1)
        assert (line["event"], line["path"]) == ("authentication_failed", "/accounts/callback")
        assert "the login of key:alice to 'crm1'" in line["reason"]
        assert [server.grants["authorization_code"] for server in place.servers] == [0, 0]
        assert await links(place) == set()


async def test_a_server_takes_no_redirect_address_of_another(tmp_path: Path) -> None:
    """As all have to (RFC 9700, section 2.1): the hub's client is registered with its issuer's own."""
    async with around(tmp_path, servers=2, lists="caller") as place:
        page = await mixed_up(place, "alice", "bob", comes_back_to="hostile")
        assert (page.status_code, str(page.url).startswith(place.server.origin)) == (400, True)
        assert [server.grants["authorization_code"] for server in place.servers] == [0, 0]


async def test_ids_of_logins_that_are_made_up_lead_nowhere(tmp_path: Path) -> None:
    async with around(tmp_path) as place:
        await asked(await place.client("alice", modern=True))
        async with place.front.browser() as http:
            for made_up in (
                "x",
                "..%2f..%2ftokens",
                "%00",
                "x" * 6000,
                "state%20x",
                "%ed%a0%80",
                "%0d%0aset-cookie:%20a=b",
            ):
                for method in ("GET", "POST", "HEAD", "DELETE"):
                    answer = await http.request(method, f"/accounts/login/{made_up}")
                    assert answer.status_code in (404, 405, 414, 431), (made_up[:20], method, answer.status_code)
                    assert "set-cookie" not in answer.headers


async def test_accounts_of_others_are_neither_seen_nor_ended(tmp_path: Path) -> None:
    async with around(tmp_path) as place:
        await give(place.vault, place.server, "key:alice", "alice-there")
        async with place.front.browser(**place.credentials.of("bob")) as http:
            assert (await http.get("/accounts/mine")).json() == [{"server": "crm", "isLoggedIn": False}]
            for method, path in (("GET", ""), ("POST", "/revoke"), ("POST", "/hub/crm")):
                body = {"server": "crm", "principal": "key:alice"}
                assert (await http.request(method, f"/accounts{path}", json=body)).status_code == 403
            for key in ("crm", "../mine/crm", "%2e%2e/crm", "crm/", "key:alice/crm", "crm%00", ""):
                answer = await http.delete(f"/accounts/mine/{key}")
                assert answer.status_code in (404, 405), (key, answer.status_code)
        assert await links(place) == {HUB, "key:alice"}


async def test_a_login_begun_for_one_is_not_finished_by_ones_own_state(tmp_path: Path) -> None:
    """Bob puts his own cookie and answer into alice's browser: what is linked is his own, to himself."""
    async with around(tmp_path) as place:
        await asked(await place.client("alice", modern=True))
        bob = address_in(await asked(await place.client("bob", modern=True)))
        his, hers = Browser(), Browser()
        sent = await his.authenticate(bob, key_of(place, "bob"))
        back = (await his.http.get(f"{sent.headers['location']}&login_as=bob-there")).headers["location"]
        hers.http.cookies = httpx2.Cookies(his.http.cookies)
        assert (await hers.http.get(back)).status_code == 200
        assert await links(place) == {HUB, "key:bob"}


async def test_logins_are_begun_no_more_often_than_calls_are_made(tmp_path: Path) -> None:
    async with (
        around(tmp_path, rate_limit=1, rate_burst=3) as place,
        place.front.browser(**place.credentials.of("bob")) as http,
    ):
        statuses = [(await http.post("/accounts/mine/crm")).status_code for _ in range(8)]
        assert statuses == [200] * 3 + [429] * 5


async def test_a_link_is_opened_no_more_often_than_calls_are_made(tmp_path: Path) -> None:
    async with around(tmp_path, rate_limit=1, rate_burst=4) as place:
        address = address_in(await asked(await place.client("alice", modern=True)))
        browser, key = Browser(), key_of(place, "alice")
        statuses = [(await browser.authenticate(address, key)).status_code for _ in range(6)]
        assert statuses == [303] * 3 + [429] * 3
