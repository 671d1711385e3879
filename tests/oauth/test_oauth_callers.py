"""Callers with accounts of their own: each is asked to log in, and called with its own tokens and no others."""

from __future__ import annotations

import asyncio
import gc
import re
from pathlib import Path

import httpx2
import pytest
from mcp.shared.auth import OAuthClientInformationFull
from pydantic import AnyUrl
from support.account_crowd import crowd
from support.account_hub import CALL, Browser, address_in, around, asked, give, key_of, log_in, retried
from support.harness import config, until

from fastmcp_aggregator import ConfigError
from fastmcp_aggregator.callers.caller import Caller
from fastmcp_aggregator.children.http.credentials import require_credentials
from fastmcp_aggregator.config import load_config
from fastmcp_aggregator.oauth.account import keep, kept_accounts
from fastmcp_aggregator.oauth.authorization import redirect_uri
from fastmcp_aggregator.oauth.tokens import HUB
from fastmcp_aggregator.oauth.vault.vault import CLIENTS
from fastmcp_aggregator.settings.model import load_settings


async def test_a_modern_client_is_asked_and_its_call_goes_on(tmp_path: Path) -> None:
    async with around(tmp_path) as place:
        client = await place.client("alice", modern=True)
        result = await asked(client)
        _, answer = client.begin("tools/call", retried(result))
        page = await log_in(place, address_in(result), "alice")
        assert (page.status_code, "You are logged in to <b>crm</b>" in page.text) == (200, True)
        link = re.search(r'href="([^"]+)"', page.text)
        assert link is not None
        assert str(page.url.join(link[1])) == f"{place.front.origin}/#accounts"
        assert (await answer)["result"]["structuredContent"] == {"who": "alice-there"}
        assert (await client.result("tools/call", CALL))["structuredContent"] == {"who": "alice-there"}
        assert place.server.calls == {"alice-there": 2}


async def test_a_legacy_client_is_asked_and_its_call_goes_on(tmp_path: Path) -> None:
    async with around(tmp_path) as place:
        client = await place.client("alice")
        client.on_question = lambda method, params: {"result": {"action": "accept"}}
        _, answer = client.begin("tools/call", CALL)
        params = (await client.question("elicitation/create"))["params"]
        assert (await log_in(place, params["url"], "alice")).status_code == 200
        assert (await answer)["result"]["structuredContent"] == {"who": "alice-there"}
        told = await client.heard("notifications/elicitation/complete")
        assert told["params"] == {"elicitationId": params["elicitationId"]}


@pytest.mark.parametrize("modern", [True, False])
async def test_a_client_that_cannot_be_asked_is_told_where_to_log_in(tmp_path: Path, modern: bool) -> None:
    async with around(tmp_path) as place:
        client = await place.client("alice", modern=modern, can_be_asked=False)
        error = await client.error("tools/call", CALL)
        (elicitation,) = error["data"]["elicitations"]
        assert (error["code"], elicitation["mode"]) == (-32042, "url")
        assert elicitation["url"] in error["message"]
        assert (await log_in(place, elicitation["url"], "alice")).status_code == 200
        assert (await client.result("tools/call", CALL))["structuredContent"] == {"who": "alice-there"}


@pytest.mark.parametrize("modern", [True, False])
async def test_a_client_that_cannot_be_asked_logs_in_again_and_calls_at_once(tmp_path: Path, modern: bool) -> None:
    async with around(tmp_path) as place:
        await give(place.vault, place.server, "key:alice", "alice-there")
        place.server.revoke("alice-there", also_refresh=True)
        client = await place.client("alice", modern=modern, can_be_asked=False)
        (elicitation,) = (await client.error("tools/call", CALL))["data"]["elicitations"]
        assert (await log_in(place, elicitation["url"], "alice")).status_code == 200
        assert (await client.result("tools/call", CALL))["structuredContent"] == {"who": "alice-there"}


async def test_lists_come_with_the_hubs_account_and_calls_never(tmp_path: Path) -> None:
    async with around(tmp_path) as place:
        client = await place.client("bob", modern=True)
        assert [tool["name"] for tool in (await client.result("tools/list"))["tools"]] == ["crm:whoami", "crm:write"]
        await asked(client)
        assert place.server.calls == {}
        status = place.app.health()["crm"]
        assert "each caller has an account" in status.isolation_reason


@pytest.mark.parametrize("modern", [True, False])
async def test_reads_and_prompts_come_with_the_callers_account(tmp_path: Path, modern: bool) -> None:
    async with around(tmp_path) as place:
        for who in ("alice", "bob"):
            await give(place.vault, place.server, f"key:{who}", f"{who}-there")
            client = await place.client(who, modern=modern)
            (resource,) = (await client.result("resources/list"))["resources"]
            read = await client.result("resources/read", {"uri": resource["uri"]})
            prompt = await client.result("prompts/get", {"name": "crm:ask"})
            assert read["contents"][0]["text"] == prompt["messages"][0]["content"]["text"] == f"{who}-there"
        stranger = await place.client("carol", modern=modern, can_be_asked=False)
        assert (await stranger.error("resources/read", {"uri": resource["uri"]}))["code"] == -32042
        assert (await stranger.error("prompts/get", {"name": "crm:ask"}))["code"] == -32042
        assert set(place.server.calls) == {"alice-there", "bob-there"}


async def test_a_call_that_lost_its_way_is_not_made_with_the_hubs_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever goes wrong above: the credentials know for whom a request is."""
    async with around(tmp_path) as place:
        monkeypatch.setattr("fastmcp_aggregator.front.pipeline.site_of", lambda child: None)
        monkeypatch.setattr("fastmcp_aggregator.relay.instances.instances.Instances.is_shared", lambda *_: True)
        for modern in (True, False):
            client = await place.client("alice", modern=modern)
            assert "each caller's own account" in (await client.error("tools/call", CALL))["message"]
        assert place.server.calls == {}


async def test_who_refuses_is_not_called_for(tmp_path: Path) -> None:
    async with around(tmp_path) as place:
        client = await place.client("alice", modern=True)
        result = await asked(client)
        error = await client.error("tools/call", retried(result, "decline"))
        assert "the person did not log in" in error["message"]
        _, answer = client.begin("tools/call", retried(result))
        page = await Browser().log_in(address_in(result), key_of(place, "alice"), None)
        assert (page.status_code, "access was denied" in page.text) == (502, True)
        assert "access was denied" in (await answer)["error"]["message"]
        assert place.server.calls == {}


async def test_a_login_that_is_refused_later_is_asked_for_again(tmp_path: Path) -> None:
    async with around(tmp_path) as place:
        await give(place.vault, place.server, "key:alice", "alice-there")
        client = await place.client("alice", modern=True)
        assert (await client.result("tools/call", CALL))["structuredContent"] == {"who": "alice-there"}
        place.server.revoke("alice-there", also_refresh=False)
        assert (await client.result("tools/call", CALL))["structuredContent"] == {"who": "alice-there"}
        assert place.server.grants["refresh_token"] == 1
        place.server.revoke("alice-there", also_refresh=True)
        result = await asked(client)
        await log_in(place, address_in(result), "alice", "alice-anew")
        answer = await client.result("tools/call", retried(result))
        assert answer["structuredContent"] == {"who": "alice-anew"}
        assert place.server.grants["refused"] == 1


async def test_a_token_that_is_refused_as_soon_as_it_is_renewed_is_renewed_again(tmp_path: Path) -> None:
    async with around(tmp_path) as place:
        await give(place.vault, place.server, "key:alice", "alice-there")
        client = await place.client("alice", modern=True)
        assert (await client.result("tools/call", CALL))["structuredContent"] == {"who": "alice-there"}
        place.server.revoke("alice-there", also_refresh=False)
        place.server.stillborn = 1
        assert (await client.result("tools/call", CALL))["structuredContent"] == {"who": "alice-there"}
        assert place.server.grants["refresh_token"] == 2
        place.server.revoke("alice-there", also_refresh=False)
        place.server.stillborn = 100
        assert "authentication failed" in (await client.error("tools/call", CALL))["message"]
        assert place.server.grants["refresh_token"] <= 2 + 3 * 3  # three for each request, and not for ever


async def test_a_call_ends_by_its_deadline_though_its_tokens_are_not_renewed(tmp_path: Path) -> None:
    async with around(tmp_path, call_timeout=0.3) as place:
        await give(place.vault, place.server, "key:alice", "alice-there")
        tokens = await place.tokens_of("key:alice")
        await keep(place.vault, tokens.model_copy(update={"expires_at": 1.0}))
        place.server.answers.clear()
        client = await place.client("alice", modern=True)
        error = await client.error("tools/call", CALL)
        assert "its authorization server has not answered within 0.3 s" in error["message"]
        place.server.answers.set()
        await until(lambda: place.server.grants["refresh_token"] == 1)  # it went on meanwhile


async def test_the_scopes_that_a_call_wants_are_asked_for(tmp_path: Path) -> None:
    write = {"name": "crm:write", "arguments": {}}
    async with around(tmp_path) as place:
        await give(place.vault, place.server, "key:alice", "alice-there")
        client = await place.client("alice", modern=True)
        assert (await client.result("tools/call", CALL))["structuredContent"] == {"who": "alice-there"}
        result = await asked(client, write)
        browser = Browser()
        sent = await browser.authenticate(address_in(result), key_of(place, "alice"))
        assert httpx2.URL(sent.headers["location"]).params["scope"] == "write"
        await browser.come_back(sent.headers["location"], "alice-there")
        answer = await client.result("tools/call", {**retried(result), **write})
        assert answer["structuredContent"] == {"result": "written"}


async def test_a_person_sees_and_ends_their_own_accounts(tmp_path: Path) -> None:
    async with around(tmp_path) as place:
        for who in ("alice", "bob"):
            await give(place.vault, place.server, f"key:{who}", f"{who}-there")
        async with place.front.browser(**place.credentials.of("alice")) as http:
            assert [each["server"] for each in (await http.get("/accounts/mine")).json()] == ["crm"]
            assert (await http.delete("/accounts/mine/crm")).json() == {"server": "crm", "isRevokedThere": True}
            assert (await http.delete("/accounts/mine/crm")).status_code == 404
        async with place.front.browser() as http:
            assert (await http.get("/accounts/mine")).status_code == 401
            assert (await http.delete("/accounts/mine/crm")).status_code == 401
        assert (await place.tokens_of("key:bob")).principal == "key:bob"
        assert "alice-there" not in {who for who, _ in place.server.access.values()}


# Attacks.


async def test_no_client_is_registered_where_challenges_are_not_taken(tmp_path: Path) -> None:
    async with around(tmp_path) as place:
        place.server.challenges = ["plain"]
        page = await log_in(place, address_in(await asked(await place.client("alice", modern=True))), "alice")
        assert (page.status_code, "does not protect logins" in page.text) == (502, True)
        assert place.server.grants["registration"] == 0


async def test_a_client_with_another_redirect_address_or_of_another_server_registers_anew(tmp_path: Path) -> None:
    async with around(tmp_path) as place:
        old = OAuthClientInformationFull(
            client_id="old", redirect_uris=[AnyUrl(f"{place.front.origin}/accounts/callback")]
        )
        issuer, plain = place.server.issuer, f"{place.front.origin}/accounts/callback"
        back = redirect_uri(plain, issuer)
        for of in (plain, back, f"{back}\nhttps://other.example.com/mcp"):
            await place.vault.keep(CLIENTS, f"{issuer}\n{of}", old.model_dump_json().encode())
        for _ in range(2):
            address = address_in(await asked(await place.client("alice", modern=True)))
            sent = await Browser().authenticate(address, key_of(place, "alice"))
            params = httpx2.URL(sent.headers["location"]).params
            assert params["client_id"] != "old"
            assert place.server.redirects[params["client_id"]] == [params["redirect_uri"]]
        assert place.server.grants["registration"] == 1


async def test_a_link_that_is_handed_to_somebody_else_links_nothing(tmp_path: Path) -> None:
    async with around(tmp_path) as place:
        result = await asked(await place.client("alice", modern=True))
        page = await log_in(place, address_in(result), "bob")
        assert (page.status_code, "started by another caller; nothing was linked" in page.text) == (403, True)
        assert {each.principal for each in await kept_accounts(place.vault)} == {HUB}


async def test_an_answer_for_one_browser_is_not_taken_from_another(tmp_path: Path) -> None:
    """Somebody authenticates as themselves, and has another person finish at the authorization server."""
    async with around(tmp_path) as place:
        result = await asked(await place.client("alice", modern=True))
        hers, his = Browser(), Browser()
        sent = await hers.authenticate(address_in(result), key_of(place, "alice"))
        page = await his.come_back(sent.headers["location"], "bob-there")
        assert (page.status_code, "another browser; nothing was linked" in page.text) == (403, True)
        assert {each.principal for each in await kept_accounts(place.vault)} == {HUB}
        page = await hers.come_back(sent.headers["location"], "alice-there")
        assert page.status_code == 200  # nobody ends another's login
        assert {each.principal for each in await kept_accounts(place.vault)} == {HUB, "key:alice"}


async def test_several_logins_go_on_in_one_browser(tmp_path: Path) -> None:
    async with around(tmp_path) as place:
        result = await asked(await place.client("alice", modern=True))
        browser, sent = Browser(), []
        for _ in range(2):  # tabs, of which she goes on in the first
            sent.append(await browser.authenticate(address_in(result), key_of(place, "alice")))
        page = await browser.come_back(sent[0].headers["location"], "alice-there")
        assert page.status_code == 200, page.text
        assert {each.principal for each in await kept_accounts(place.vault)} == {HUB, "key:alice"}


async def test_a_code_that_another_browser_has_brought_is_of_no_use_to_the_right_one(tmp_path: Path) -> None:
    """Somebody has another person log in, and gets the address at which that person's browser has ended."""
    async with around(tmp_path) as place:
        result = await asked(await place.client("alice", modern=True))
        hers, his = Browser(), Browser()
        sent = await hers.authenticate(address_in(result), key_of(place, "alice"))
        back = (await his.http.get(f"{sent.headers['location']}&login_as=bob-there")).headers["location"]
        assert [(await each.http.get(back)).status_code for each in (his, hers)] == [403, 403]
        assert {each.principal for each in await kept_accounts(place.vault)} == {HUB}
        page = await log_in(place, address_in(result), "alice")
        assert page.status_code == 200  # her own link leads to another login


async def test_answers_from_other_browsers_fill_nothing(tmp_path: Path) -> None:
    async with around(tmp_path) as place:
        hers, his = Browser(), Browser()
        result = await asked(await place.client("alice", modern=True))
        sent = await hers.authenticate(address_in(result), key_of(place, "alice"))
        back = (await hers.http.get(f"{sent.headers['location']}&login_as=alice-there")).headers["location"]
        kept = len(list((tmp_path / "tokens").iterdir()))
        made_up = [httpx2.URL(back).copy_set_param("code", str(number)) for number in range(12)]
        statuses = [(await his.http.get(each)).status_code for each in made_up]
        assert statuses == [403] * 9 + [404] * 3  # it is over
        assert len(list((tmp_path / "tokens").iterdir())) <= kept + 1


async def test_a_form_of_another_site_or_without_its_cookie_is_not_taken(tmp_path: Path) -> None:
    async with around(tmp_path) as place:
        address = address_in(await asked(await place.client("alice", modern=True)))
        key = key_of(place, "alice")
        for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}):
            assert (await Browser().authenticate(address, key, **headers)).status_code == 403
        async with place.front.browser() as http:
            assert (await http.post(address, data={"form": "x", "credential": key})).status_code == 403


async def test_answers_that_are_replayed_swapped_or_made_up_link_nothing(tmp_path: Path) -> None:
    async with around(tmp_path) as place:
        alice, bob = [await place.client(who, modern=True) for who in ("alice", "bob")]
        results = [await asked(alice), await asked(bob)]
        browsers = Browser(), Browser()
        sent = [
            await browser.authenticate(address_in(result), key_of(place, who))
            for browser, result, who in zip(browsers, results, ("alice", "bob"), strict=True)
        ]
        backs = [
            (await browser.http.get(f"{each.headers['location']}&login_as={who}")).headers["location"]
            for browser, each, who in zip(browsers, sent, ("alice-there", "bob-there"), strict=True)
        ]
        swapped = httpx2.URL(backs[0]).copy_set_param("state", httpx2.URL(backs[1]).params["state"])
        assert (await browsers[0].http.get(swapped)).status_code == 403
        other = httpx2.URL(backs[0]).copy_set_param("iss", "https://evil.example")
        assert (await browsers[0].http.get(other)).status_code == 403
        assert (await browsers[0].http.get(backs[0])).status_code == 404
        for made_up in ("", "?state=x&code=y", "?state=x&state=y", "?code=y"):
            answer = await browsers[0].http.get(f"{place.front.origin}/accounts/callback/x{made_up}")
            assert answer.status_code in (404, 502)
            assert "location" not in answer.headers
        assert {each.principal for each in await kept_accounts(place.vault)} == {HUB}


async def test_a_login_of_somebody_else_continues_no_call(tmp_path: Path) -> None:
    async with around(tmp_path) as place:
        alice, bob = [await place.client(who, modern=True) for who in ("alice", "bob")]
        result = await asked(alice)
        error = await bob.error("tools/call", retried(result))
        assert "this login is over" in error["message"]
        assert place.server.calls == {}


async def test_pages_lead_nowhere_that_an_address_names(tmp_path: Path) -> None:
    async with around(tmp_path) as place, place.front.browser() as http:
        for path in (
            "login/none",
            "login/none?next=https://evil.example",
            "callback/x?x=1",
        ):
            answer = await http.get(f"/accounts/{path}")
            assert answer.status_code in (404, 502)
            assert "evil" not in answer.text + str(answer.headers)
            assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
            assert answer.headers["referrer-policy"] == "same-origin"  # or browsers would send no origin with the form


def test_accounts_of_callers_need_an_address_that_their_browsers_come_back_to() -> None:
    settings = load_settings(servers={"crm": {"oauth": {"account": "caller"}}})
    found = load_config(config(crm={"url": "https://mcp.example.com"}))
    with pytest.raises(ConfigError, match="needs `public_url`"):
        require_credentials(found, settings)


@pytest.mark.parametrize("modern", [True, False])
async def test_two_calls_at_once_are_one_login(tmp_path: Path, modern: bool) -> None:
    async with around(tmp_path) as place:
        client = await place.client("alice", modern=modern)
        client.on_question = lambda method, params: {"result": {"action": "accept"}}
        if modern:
            results = await asyncio.gather(asked(client), asked(client))
            (address,) = {address_in(result) for result in results}
            answers = [client.begin("tools/call", retried(result))[1] for result in results]
        else:
            answers = [client.begin("tools/call", CALL)[1] for _ in range(2)]
            while len(client.questions) < 2:
                await client.result("ping")
            (address,) = {question["params"]["url"] for question in client.questions}
        assert (await log_in(place, address, "alice")).status_code == 200
        for answer in answers:
            assert (await answer)["result"]["structuredContent"] == {"who": "alice-there"}


async def test_a_client_that_comes_back_for_a_login_that_is_over_has_its_call_made(tmp_path: Path) -> None:
    async with around(tmp_path) as place:
        client = await place.client("alice", modern=True)
        first = await asked(client)
        await log_in(place, address_in(first), "alice")
        place.server.revoke("alice-there", also_refresh=True)
        second = await asked(client)  # which is another login, by now
        assert address_in(second) != address_in(first)
        await log_in(place, address_in(second), "alice")
        for result in (first, second):
            assert (await client.result("tools/call", retried(result)))["structuredContent"] == {"who": "alice-there"}


async def test_calls_that_are_answered_leave_nothing_behind(tmp_path: Path) -> None:
    """The instance of their account is there for a while; they are not."""
    async with around(tmp_path) as place:
        await give(place.vault, place.server, "key:alice", "alice-there")
        client = await place.client("alice", modern=True)
        await client.result("tools/call", CALL)
        before = callers()
        for _ in range(19):
            await client.result("tools/call", CALL)
        assert callers() - before < 10


def callers() -> int:
    """How many there are in this process; other tests may have left some."""
    gc.collect()
    return sum(isinstance(each, Caller) for each in gc.get_objects())


# Many.


@pytest.mark.parametrize(
    ("people", "servers", "calls"),
    [(2, 1, 8), pytest.param(20, 5, 100, marks=[pytest.mark.process, pytest.mark.no_cover])],
)
async def test_no_call_is_made_with_anothers_account(tmp_path: Path, people: int, servers: int, calls: int) -> None:
    """With tokens that end and are revoked all the time."""
    async with crowd(tmp_path, people, servers) as crowded:
        await crowded.make(calls)
        assert (crowded.ended["result"], crowded.is_clean) == (calls, True), crowded.told
        assert crowded.ended["login"] >= min(people * servers, calls) / 4
