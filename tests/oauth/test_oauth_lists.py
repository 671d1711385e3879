"""Servers that list to each caller what its own account sees: nothing of one is listed to another, or after its end."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from support.account_hub import CALL, Around, address_in, around, asked, give, log_in, retried
from support.wire_http import HttpClient

from fastmcp_aggregator.front.fastmcp import tool_index
from fastmcp_aggregator.naming.tool_ranking import Tool
from fastmcp_aggregator.oauth.account import kept_accounts
from fastmcp_aggregator.oauth.revocation import revoke
from fastmcp_aggregator.settings.oauth import OAuthSettings

LOG_IN = ["crm:log_in"]
ALL = ["crm:whoami", "crm:write"]
BOTH = pytest.mark.parametrize("modern", [True, False])


async def listed(client: HttpClient) -> list[str]:
    return [tool["name"] for tool in (await client.result("tools/list"))["tools"]]


async def logged_in(place: Around, who: str, account: str | None = None) -> None:
    await give(place.vault, place.server, f"key:{who}", account or f"{who}-there")


@BOTH
async def test_each_caller_is_listed_what_its_own_account_sees(tmp_path: Path, modern: bool) -> None:
    async with around(tmp_path, lists="caller") as place:
        place.server.hidden = {"bob-there": {"write"}}
        for who in ("alice", "bob"):
            await logged_in(place, who)
        clients = {who: await place.client(who, modern=modern) for who in ("alice", "bob", "carol")}
        for _ in range(2):
            found = {who: await listed(client) for who, client in clients.items()}
            assert found == {"alice": ALL, "bob": ["crm:whoami"], "carol": LOG_IN}
        assert set(place.server.listings) == {"alice-there", "bob-there"}  # and never as the hub


@BOTH
async def test_lists_of_one_caller_are_for_no_shared_cache(tmp_path: Path, modern: bool) -> None:
    async with around(tmp_path, lists="caller") as place:
        await logged_in(place, "alice")
        for who in ("alice", "carol"):
            result = await (await place.client(who, modern=True)).result("tools/list")
            assert (result["cacheScope"], result["ttlMs"]) == ("private", 0)


async def test_what_another_account_does_not_see_is_not_to_be_called_either(tmp_path: Path) -> None:
    async with around(tmp_path, lists="caller") as place:
        place.server.hidden = {"bob-there": {"whoami"}}
        for who in ("alice", "bob"):
            await logged_in(place, who)
        alice, bob = [await place.client(who, modern=True) for who in ("alice", "bob")]
        assert (await alice.result("tools/call", CALL))["structuredContent"] == {"who": "alice-there"}
        assert "Tool not found: crm:whoami" in (await bob.error("tools/call", CALL))["message"]
        assert place.server.calls == {"alice-there": 1}


async def test_the_tool_that_is_listed_without_an_account_leads_to_one(tmp_path: Path) -> None:
    async with around(tmp_path, lists="caller") as place:
        client = await place.client("alice")
        client.on_question = lambda method, params: {"result": {"action": "accept"}}
        assert await listed(client) == LOG_IN
        _, answer = client.begin("tools/call", {"name": LOG_IN[0], "arguments": {}})
        params = (await client.question("elicitation/create"))["params"]
        assert (await log_in(place, params["url"], "alice")).status_code == 200
        assert "You are logged in to 'crm'" in (await answer)["result"]["content"][0]["text"]
        await client.heard("notifications/tools/list_changed")
        assert await listed(client) == ALL


async def test_a_call_that_is_begun_without_an_account_ends_with_its_result(tmp_path: Path) -> None:
    """Also of a tool that was listed nowhere yet."""
    async with around(tmp_path, lists="caller") as place:
        client = await place.client("alice", modern=True)
        result = await asked(client)
        assert (await log_in(place, address_in(result), "alice")).status_code == 200
        answer = await client.result("tools/call", retried(result))
        assert answer["structuredContent"] == {"who": "alice-there"}


async def test_a_tool_that_is_named_before_the_login_and_is_not_seen_after_it_is_not_called(tmp_path: Path) -> None:
    async with around(tmp_path, lists="caller") as place:
        place.server.hidden = {"alice-there": {"whoami"}}
        client = await place.client("alice")
        client.on_question = lambda method, params: {"result": {"action": "accept"}}
        _, answer = client.begin("tools/call", CALL)
        params = (await client.question("elicitation/create"))["params"]
        assert (await log_in(place, params["url"], "alice")).status_code == 200
        assert "there is no 'whoami' for your account" in (await answer)["error"]["message"]
        assert place.server.calls == {}


async def test_a_login_of_one_caller_is_told_to_nobody_else(tmp_path: Path) -> None:
    async with around(tmp_path, lists="caller") as place:
        alice, bob = [await place.client(who) for who in ("alice", "bob")]
        assert [await listed(client) for client in (alice, bob)] == [LOG_IN, LOG_IN]
        await logged_in(place, "alice")
        assert await listed(alice) == ALL
        await alice.heard("notifications/tools/list_changed")
        assert await listed(bob) == LOG_IN
        assert [told for told in bob.notifications if told["method"] == "notifications/tools/list_changed"] == []


# Attacks.


@BOTH
async def test_a_list_is_not_there_any_more_once_the_account_is_revoked(tmp_path: Path, modern: bool) -> None:
    async with around(tmp_path, lists="caller") as place:
        await logged_in(place, "alice")
        client = await place.client("alice", modern=modern)
        assert await listed(client) == ALL
        async with place.front.browser(**place.credentials.of("alice")) as http:
            assert (await http.delete("/accounts/mine/crm")).status_code == 200
        assert await listed(client) == LOG_IN


async def test_a_list_is_not_there_any_more_once_the_account_is_revoked_elsewhere(tmp_path: Path) -> None:
    async with around(tmp_path, lists="caller") as place:
        place.app._backend.accounts.look_interval = 0.0
        await logged_in(place, "alice")
        client = await place.client("alice", modern=True)
        assert await listed(client) == ALL
        await revoke(place.vault, await place.tokens_of("key:alice"), OAuthSettings())
        assert await listed(client) == LOG_IN


async def test_a_list_of_one_account_is_not_that_of_the_next_login(tmp_path: Path) -> None:
    """One principal, who logs in as somebody else, at another replica."""
    async with around(tmp_path, lists="caller") as place:
        place.app._backend.accounts.look_interval = 0.0
        place.server.hidden = {"guest-there": {"write"}}
        await logged_in(place, "alice")
        client = await place.client("alice", modern=True)
        assert await listed(client) == ALL
        await logged_in(place, "alice", "guest-there")
        assert await listed(client) == ["crm:whoami"]
        assert (await client.result("tools/call", CALL))["structuredContent"] == {"who": "guest-there"}


async def test_no_more_lists_are_kept_than_callers_may_have_instances(tmp_path: Path) -> None:
    people = [f"p{number}" for number in range(6)]
    async with around(tmp_path, lists="caller", people=people, max_isolated_sessions=4) as place:
        for who in people:
            await logged_in(place, who)
            found = await listed(await place.client(who, modern=True))
            assert found in (ALL, LOG_IN)
        assert len(place.app._backend.runtime.catalogues._of) <= 4  # type: ignore[union-attr]


@BOTH
async def test_a_refused_refresh_ends_the_list(tmp_path: Path, modern: bool) -> None:
    async with around(tmp_path, lists="caller") as place:
        await logged_in(place, "alice")
        client = await place.client("alice", modern=modern, can_be_asked=False)
        assert await listed(client) == ALL
        place.server.revoke("alice-there", also_refresh=True)
        assert (await client.error("tools/call", CALL))["code"] == -32042
        assert await listed(client) == LOG_IN
        assert (await place.tokens_of("key:alice")).is_refused


async def test_nobody_sees_what_the_hubs_own_account_would(tmp_path: Path) -> None:
    async with around(tmp_path, lists="caller") as place:
        await give(place.vault, place.server, "", "the-hub")
        assert await listed(await place.client("carol", modern=True)) == LOG_IN
        assert (place.server.listings, place.server.calls) == ({}, {})
        assert len(await kept_accounts(place.vault)) == 1


def about(place: Around) -> Any:
    return place.app.health()["crm"]


async def test_a_server_without_a_session_of_its_own_is_no_failure(tmp_path: Path) -> None:
    async with around(tmp_path, lists="caller") as place:
        assert (about(place).state, about(place).last_error, about(place).login_needed) == ("sleeping", None, False)
        async with place.front.browser(**place.credentials.of("alice")) as http:
            assert (await http.get("/ready")).status_code == 200
            await http.post("/wake/crm")
        assert about(place).state == "sleeping"


async def test_a_group_has_of_the_callers_own_tools_what_it_has_of_any(tmp_path: Path) -> None:
    groups = {"g": {"name": "g", "description": "", "servers": ["crm"], "tools": ["crm:who*"]}}
    async with around(tmp_path, lists="caller", groups=groups) as place:
        await logged_in(place, "alice")
        alice, carol = [
            await place.front.connect("g", modern=True, headers=place.credentials.of(who)) for who in ("alice", "carol")
        ]
        assert (await listed(alice), await listed(carol)) == (["crm:whoami"], LOG_IN)
        for client in (alice, carol):
            error = await client.error("tools/call", {"name": "crm:write", "arguments": {}})
            assert "Tool not found: crm:write" in error["message"]
        assert (await carol.error("tools/call", CALL))["code"] == -32042


async def test_names_without_a_prefix_are_those_of_the_own_account(tmp_path: Path) -> None:
    async with around(tmp_path, servers=2, lists="caller", prefix=False) as place:
        await logged_in(place, "alice")
        alice, carol = [await place.client(who, modern=True) for who in ("alice", "carol")]
        assert await listed(alice) == ["whoami", "write", "log_in_crm1"]
        assert await listed(carol) == ["log_in_crm", "log_in_crm1"]
        answer = await alice.result("tools/call", {"name": "whoami", "arguments": {}})
        assert answer["structuredContent"] == {"who": "alice-there"}


async def test_a_search_finds_what_the_callers_own_account_sees(tmp_path: Path) -> None:
    async with around(tmp_path, lists="caller", tool_search=True) as place:
        await logged_in(place, "alice")
        found = {}
        for who in ("alice", "carol", "alice"):
            client = await place.client(who, modern=True)
            search = {"name": "search_tools", "arguments": {"query": "crm whoami whose account"}}
            found[who] = str(await client.result("tools/call", search))
        assert ("crm:whoami" in found["alice"], "crm:whoami" in found["carol"]) == (True, False)


async def test_lists_of_callers_who_search_in_turn_are_indexed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    class Counted(tool_index.ToolRanking):
        def __init__(self, tools: Iterable[Tool]) -> None:
            made.append(self)
            super().__init__(tools)

    async with around(tmp_path, lists="caller", tool_search=True) as place:
        await logged_in(place, "alice")
        monkeypatch.setattr(tool_index, "ToolRanking", Counted)
        clients = [await place.client(who, modern=True) for who in ("alice", "carol", "bob")]
        for client in clients * 3:
            await client.result("tools/call", {"name": "search_tools", "arguments": {"query": "whose account"}})
    assert len(made) == 2  # Alice's, and one for the two who have no account


async def test_resources_and_prompts_are_those_of_the_own_account(tmp_path: Path) -> None:
    async with around(tmp_path, lists="caller") as place:
        await logged_in(place, "alice")
        alice, carol = [await place.client(who, modern=True) for who in ("alice", "carol")]
        for method, key in (("resources/list", "resources"), ("prompts/list", "prompts")):
            assert (len((await alice.result(method))[key]), (await carol.result(method))[key]) == (1, [])
        read = await alice.result("resources/read", {"uri": "me://crm/who"})
        prompt = await alice.result("prompts/get", {"name": "crm:ask"})
        assert read["contents"][0]["text"] == prompt["messages"][0]["content"]["text"] == "alice-there"


async def test_updates_are_for_whose_account_sees_the_resource(tmp_path: Path) -> None:
    async with around(tmp_path, lists="caller", servers=2, prefix=False) as place:
        await logged_in(place, "alice")
        assert (await (await place.client("alice", modern=True)).result("resources/list"))["resources"]
        shows = place.app._directory.shows
        assert [shows("me://who", principal) for principal in ("key:alice", "key:bob", None)] == [True, False, False]
