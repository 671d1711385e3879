"""Instructions, skills, tasks and pages of a server at which each caller has an account: each has those of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.account_hub import Around, around, give
from support.remote_server import Request
from support.talking_server import TalkingServer, talking_server
from support.wire import Message
from support.wire_http import HttpClient

from fastmcp_aggregator.relay.instances.instances import name_of

SKILLS, TASKS, PAGES = (f"io.modelcontextprotocol/{name}" for name in ("skills", "tasks", "ui"))
BOTH = pytest.mark.parametrize("modern", [True, False])
MAKE = {"name": "crm:task", "arguments": {"polls": 0}}
SKILL = {"uri": "skill://crm/sew/SKILL.md"}
NO_TASK = {"code": -32602, "message": "Task not found"}
TAKES = {"elicitation": {"url": {}}, "extensions": {TASKS: {}}}
CAPABILITIES = {"tools": {}, "resources": {}, "extensions": {SKILLS: {}, TASKS: {}}}


def offer_of(who: str) -> Message:
    """What the server has for somebody's account."""
    skill = {"uri": "skill://sew/SKILL.md", "frontmatter": {"name": f"sew of {who}", "description": ""}}
    page = {"_meta": {"ui": {"resourceUri": "ui://page"}}}
    results = {
        "skills/list": {"skills": [skill], "ttlMs": 60_000, "cacheScope": "public"},
        "skills/get": {"skill": skill, "ttlMs": 0, "cacheScope": "private"},
    }
    return {"instructions": f"For {who}.", "name": who, "results": results, "tool_extra": page}


class Guarded:
    """The server: a child of its own for each account; `asked` are the requests of each."""

    def __init__(self, server: TalkingServer) -> None:
        self.asked: dict[str, list[str]] = defaultdict(list)
        self._server = server
        self._children: dict[str, Any] = {}

    def let_in(self, place: Around) -> None:
        """Have it take the tokens of the place's accounts."""

        async def require_account(request: Request) -> bool:
            token = request.headers.get("authorization", "").removeprefix("Bearer ")
            who, _ = place.server.access.get(token, ("", 0.0))
            if not who:
                await request.respond(401)
                return True
            self.asked[who].append(request.method)
            self._server._options = {"era": "modern", "capabilities": CAPABILITIES, **offer_of(who)}
            self._server._options["tool_names"] = ["task", "finish"]
            self._server.children.pop("only", None)
            if who in self._children:
                self._server.children["only"] = self._children[who]
            else:
                self._children[who] = self._server._begin("only")
            return False

        self._server.misbehave = require_account


@asynccontextmanager
async def teaching(folder: Path, lists: str = "caller") -> AsyncIterator[tuple[Around, Guarded]]:
    async with talking_server(era="modern") as server, around(folder, lists=lists, url=server.url) as place:
        guarded = Guarded(server)
        guarded.let_in(place)
        yield place, guarded


async def logged_in(place: Around, *people: str) -> None:
    for who in people:
        await give(place.vault, place.server, f"key:{who}", f"{who}-there")


async def client_of(place: Around, who: str, *, modern: bool = True) -> HttpClient:
    return await place.front.connect(modern=modern, headers=place.credentials.of(who), capabilities=TAKES)


def address_in(error: Message) -> str:
    assert error["code"] == -32042, error
    address: str = error["data"]["elicitations"][0]["url"]
    return address


async def introduction_to(place: Around, who: str, *, modern: bool = True) -> Message:
    introduction: Message = (await client_of(place, who, modern=modern)).introduction
    return introduction


@BOTH
async def test_instructions_are_those_of_the_callers_own_account(tmp_path: Path, modern: bool) -> None:
    async with teaching(tmp_path) as (place, _):
        await logged_in(place, "alice", "bob")
        for _ in range(2):
            told = {w: await introduction_to(place, w, modern=modern) for w in ("alice", "bob", "carol")}
            for who in ("alice", "bob"):
                assert told[who]["instructions"].endswith(f"## crm\nFor {who}-there.")
            assert "For " not in told["carol"]["instructions"]


@BOTH
async def test_instructions_are_not_told_any_more_once_the_account_is_revoked(tmp_path: Path, modern: bool) -> None:
    async with teaching(tmp_path) as (place, _):
        await logged_in(place, "alice")
        assert "For alice-there." in (await introduction_to(place, "alice", modern=modern))["instructions"]
        async with place.front.browser(**place.credentials.of("alice")) as http:
            assert (await http.delete("/accounts/mine/crm")).status_code == 200
        assert "For " not in (await introduction_to(place, "alice", modern=modern))["instructions"]


async def test_extensions_are_those_of_the_own_account_or_all_that_it_may_turn_out_to_have(tmp_path: Path) -> None:
    async with teaching(tmp_path) as (place, _):
        await logged_in(place, "alice")
        declared = {
            who: (await introduction_to(place, who))["capabilities"]["extensions"].keys() for who in ("alice", "carol")
        }
        assert declared == {"alice": {SKILLS, TASKS}, "carol": {SKILLS, TASKS, PAGES}}


async def test_skills_are_those_of_the_callers_own_account(tmp_path: Path) -> None:
    async with teaching(tmp_path) as (place, guarded):
        await logged_in(place, "alice", "bob")
        for who in ("alice", "bob", "alice"):
            client = await client_of(place, who)
            listed = await client.result("skills/list")
            assert [each["frontmatter"]["name"] for each in listed["skills"]] == [f"sew of {who}-there"]
            assert (listed["cacheScope"], listed["ttlMs"]) == ("private", 0)
            assert (await client.result("skills/get", SKILL))["skill"] == listed["skills"][0]
        carol = await client_of(place, "carol")
        assert (await carol.result("skills/list"))["skills"] == []
        assert set(guarded.asked) == {"alice-there", "bob-there"}


async def test_who_asks_for_a_skill_without_an_account_is_told_where_to_log_in(tmp_path: Path) -> None:
    """There is no answer to such a request that asks something."""
    async with teaching(tmp_path) as (place, _):
        client = await client_of(place, "alice")
        assert address_in(await client.error("skills/get", SKILL))
        await logged_in(place, "alice")
        assert (await client.result("skills/get", SKILL))["skill"]["frontmatter"]["name"] == "sew of alice-there"


async def test_skills_are_listed_with_the_hubs_account_and_got_with_the_callers(tmp_path: Path) -> None:
    async with teaching(tmp_path, lists="hub") as (place, guarded):
        client = await client_of(place, "alice")
        listed = (await client.result("skills/list"))["skills"]
        assert [each["frontmatter"]["name"] for each in listed] == ["sew of the-hub"]
        assert address_in(await client.error("skills/get", SKILL))
        await logged_in(place, "alice")
        assert (await client.result("skills/get", SKILL))["skill"]["frontmatter"]["name"] == "sew of alice-there"
        assert "skills/get" not in guarded.asked["the-hub"]


async def test_pages_are_those_of_the_callers_own_account(tmp_path: Path) -> None:
    async with teaching(tmp_path) as (place, _):
        await logged_in(place, "alice", "bob")
        for who in ("alice", "bob"):
            client = await client_of(place, who)
            page = (await client.result("tools/list"))["tools"][0]["_meta"]["ui"]["resourceUri"]
            read = await client.result("resources/read", {"uri": page})
            assert read["contents"][0]["text"] == f"{who}-there reads ui://page"


# Tasks.


@pytest.mark.parametrize("lists", ["caller", "hub"])
async def test_a_task_is_asked_for_with_the_account_that_it_was_made_with(tmp_path: Path, lists: str) -> None:
    async with teaching(tmp_path, lists) as (place, guarded):
        await logged_in(place, "alice", "bob")
        alice, bob, carol = [await client_of(place, who) for who in ("alice", "bob", "carol")]
        task = {"taskId": (await alice.result("tools/call", MAKE))["taskId"]}
        await bob.result("tools/call", MAKE)  # which the server calls the same
        for stranger in (bob, carol):
            for method in ("tasks/get", "tasks/cancel"):
                assert await stranger.error(method, task) == NO_TASK
        assert (await alice.result("tasks/get", task))["status"] == "completed"
        assert guarded.asked["alice-there"].count("tasks/get") == 1
        assert [who for who, asked in guarded.asked.items() if "tasks/get" in asked] == ["alice-there"]


async def test_a_task_outlives_the_connection_and_the_login_that_it_was_made_with(tmp_path: Path) -> None:
    async with teaching(tmp_path) as (place, _):
        await logged_in(place, "alice")
        client = await client_of(place, "alice")
        task = {"taskId": (await client.result("tools/call", MAKE))["taskId"]}
        close_instances(place)
        place.server.revoke("alice-there", also_refresh=True)
        for more in ({}, {"requestState": "held-guessed"}):  # no pending call is asked for its task
            assert address_in(await client.error("tasks/get", {**task, **more}))
        await logged_in(place, "alice")
        assert (await client.result("tasks/get", task))["status"] == "completed"


async def test_what_a_server_says_of_a_task_comes_to_whose_account_it_is(tmp_path: Path) -> None:
    async with teaching(tmp_path) as (place, _):
        await logged_in(place, "alice", "bob")
        alice, bob = [await client_of(place, who) for who in ("alice", "bob")]
        made = await alice.result("tools/call", {**MAKE, "arguments": {"polls": 1000}})
        close_instances(place)
        for client in (alice, bob):
            client.begin("subscriptions/listen", {"notifications": {"taskIds": [made["taskId"]]}})
        granted = [
            (await client.heard("notifications/subscriptions/acknowledged"))["params"]["notifications"].get("taskIds")
            for client in (alice, bob)
        ]
        assert granted == [[made["taskId"]], None]
        await alice.result("tools/call", {"name": "crm:finish", "arguments": {}})
        told = (await alice.heard("notifications/tasks"))["params"]
        assert (told["taskId"], told["status"]) == (made["taskId"], "completed")


async def test_a_call_that_has_become_a_task_is_not_made_again_for_want_of_a_token(tmp_path: Path) -> None:
    async with teaching(tmp_path) as (place, guarded):
        await logged_in(place, "alice")
        client = await client_of(place, "alice", modern=False)
        _, answer = client.begin("tools/call", {**MAKE, "arguments": {"polls": 1000, "required": True}})
        while "tasks/get" not in guarded.asked["alice-there"]:
            await client.result("ping")
        place.server.revoke("alice-there", also_refresh=True)
        assert "crm" in (await answer)["error"]["message"]
        assert guarded.asked["alice-there"].count("tools/call") == 2  # the first was refused, for it takes no tasks
        assert client.questions == []


def close_instances(place: Around) -> None:
    runtime = place.app._backend.runtime
    assert runtime is not None
    for instance, _ in list(runtime.instances):
        runtime.instances.renew(runtime.children["crm"], name_of(instance))
