"""Skills (SEP-2640) of several servers, as those of one: merged page by page, and asked for by address."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.harness import config, connected, lean
from support.memory import build_aggregator
from support.serving import served
from support.wire import Message, RawClient

SKILLS = "io.modelcontextprotocol/skills"
PAGES = [pytest.param(modern, era) for modern in (True,) for era in ("modern",)]


def skill(name: str) -> Message:
    root = f"skill://{name}"
    digest = f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"
    files = [{"uri": f"{root}/{path}", "digest": digest, "size": 3} for path in ("SKILL.md", "more/why.md")]
    matter = {"name": name, "description": f"How to {name}", "metadata": {"uri": "skill://not/ours"}}
    return {"uri": f"{root}/SKILL.md", "frontmatter": matter, "resources": files, "x-own": [1]}


def published(key: str, name: str) -> Message:
    original = skill(name)
    files = [{**each, "uri": each["uri"].replace("skill://", f"skill://{key}/")} for each in original["resources"]]
    return {**original, "uri": f"skill://{key}/{name}/SKILL.md", "resources": files}


def teaching(*names: str, flags: Message | None = None, **results: Any) -> Message:
    capabilities = {"tools": {}, "resources": {}, "extensions": {SKILLS: flags or {}}}
    hints = {"ttlMs": 7, "cacheScope": "public"}
    listed = {"skills": [skill(name) for name in names], **hints}
    folder = {"resources": [{"uri": "skill://sew/more/why.md", "name": "why.md"}], "nextCursor": "c"}
    got = {"skill": skill(names[0]), **hints} if names else {}
    answers = {"skills/list": listed, "skills/get": got, "resources/directory/read": folder, **results}
    return lean(era="modern", capabilities=capabilities, results=answers)


@asynccontextmanager
async def client_of(
    *, modern: bool = True, settings: Message | None = None, **entries: Message
) -> AsyncIterator[RawClient]:
    async with build_aggregator(config(**entries), **(settings or {})) as app, connected(app, modern=modern) as client:
        yield client


async def pages(client: RawClient) -> list[Message]:
    found: list[Message] = []
    cursor: Message = {}
    while True:
        page = await client.result("skills/list", cursor)
        found.append(page)
        if "nextCursor" not in page:
            return found
        cursor = {"cursor": page["nextCursor"]}


@pytest.mark.parametrize(("modern", "era"), PAGES)
async def test_the_skills_of_all_servers_are_one_list(modern: bool, era: str) -> None:
    plain = lean(era="modern")
    async with client_of(a=teaching("sew", "knit"), none=plain, empty=teaching(), b=teaching("sew")) as client:
        found = await pages(client)
        listed = [each for page in found for each in page["skills"]]
        assert listed == [published("a", "sew"), published("a", "knit"), published("b", "sew")]
        assert {(page["ttlMs"], page["cacheScope"], page["resultType"]) for page in found} == {
            (7, "public", "complete")
        }


@pytest.mark.parametrize(("modern", "era"), PAGES)
async def test_the_pages_of_a_server_stay_its_own(modern: bool, era: str) -> None:
    first = {"skills": [skill("sew")], "nextCursor": "its own", "ttlMs": 0, "cacheScope": "private"}
    async with client_of(a=teaching(**{"skills/list": first}), b=teaching("knit")) as client:
        page = await client.result("skills/list")
        assert page["skills"] == [published("a", "sew")]
        # It lists the same for every cursor: there is no end to it, as directly.
        again = await client.result("skills/list", {"cursor": page["nextCursor"]})
        assert again["nextCursor"] == page["nextCursor"]


@pytest.mark.parametrize(("modern", "era"), PAGES)
async def test_a_server_that_cannot_list_is_passed_over(modern: bool, era: str) -> None:
    broken = lean(era="modern", capabilities={"tools": {}, "extensions": {SKILLS: {}}})
    async with client_of(a=broken, b=teaching("knit")) as client:
        assert [each for page in await pages(client) for each in page["skills"]] == [published("b", "knit")]


async def test_a_policy_that_refuses_is_no_server_that_is_passed_over() -> None:
    app = build_aggregator(config(a=teaching("sew")), rate_limit=1, rate_burst=1)
    async with served(app) as front:
        client = await front.connect(modern=True)
        assert (await client.result("skills/list"))["skills"]
        assert (await client.error("skills/list"))["code"] == -32029


@pytest.mark.parametrize(("modern", "era"), PAGES)
async def test_a_skill_is_got_by_its_address(modern: bool, era: str) -> None:
    async with client_of(a=teaching("sew"), b=teaching("knit")) as client:
        result = await client.result("skills/get", {"uri": "skill://b/knit/SKILL.md"})
        assert result["skill"] == published("b", "knit")
        assert result["ttlMs"] == 7


@pytest.mark.parametrize(("modern", "era"), PAGES)
async def test_a_folder_is_read_by_its_address(modern: bool, era: str) -> None:
    async with client_of(a=teaching("sew"), b=teaching("sew", flags={"directoryRead": True})) as client:
        assert client.introduction["capabilities"]["extensions"] == {SKILLS: {"directoryRead": True}}
        result = await client.result("resources/directory/read", {"uri": "skill://b/sew/more"})
        assert result["resources"] == [{"uri": "skill://b/sew/more/why.md", "name": "why.md"}]
        assert result["nextCursor"] == "c"
        # A server that has not declared it is not asked.
        error = await client.error("resources/directory/read", {"uri": "skill://a/sew/more"})
        assert error["code"] == -32602


@pytest.mark.parametrize(("modern", "era"), PAGES)
async def test_what_no_server_has_is_invalid(modern: bool, era: str) -> None:
    async with client_of(a=teaching("sew"), b=lean(era="modern")) as client:
        for uri in ("skill://b/sew/SKILL.md", "skill://c/sew/SKILL.md", "x", ""):
            error = await client.error("skills/get", {"uri": uri})
            assert (error["code"], error["data"]) == (-32602, {"uri": uri})
        for params in ({}, {"uri": 1}):
            assert (await client.error("skills/get", params))["code"] == -32602
        deep = base64.b64encode(b"[" * 30_000).decode()
        for cursor in ("x", 1, "eA==", "W10=", "WyJnb25lIiwgbnVsbF0=", deep):
            assert (await client.error("skills/list", {"cursor": cursor}))["code"] == -32602


async def test_a_server_s_own_error_has_its_address_published() -> None:
    async with client_of(a=lean(era="modern")) as client:
        error = {"code": -32602, "message": "nothing there", "data": {"uri": "file:///x", "why": 1}}
        told = await client.error("tools/call", {"name": "a:error", "arguments": error})
        assert told == {**error, "data": {"uri": "file://a//x", "why": 1}}
        other = {"code": -32050, "message": "else", "data": {"uri": "file:///x"}}
        assert await client.error("tools/call", {"name": "a:error", "arguments": other}) == other


@pytest.mark.parametrize("method", ["skills/list", "skills/get", "resources/directory/read", "tasks/get"])
async def test_legacy_clients_have_no_such_methods(method: str) -> None:
    async with client_of(modern=False, a=teaching("sew")) as client:
        assert "extensions" not in client.introduction["capabilities"]
        assert (await client.error(method, {"uri": "skill://a/sew/SKILL.md", "taskId": "x"}))["code"] == -32601


async def test_without_prefixes_the_only_server_with_skills_is_asked() -> None:
    settings = {"prefix": False, "strict": False}
    async with client_of(a=teaching("sew"), b=lean(era="modern"), settings=settings) as client:
        assert (await client.result("skills/get", {"uri": "skill://sew/SKILL.md"}))["skill"] == skill("sew")
    async with client_of(a=teaching("sew"), b=teaching("knit"), settings=settings) as client:
        assert (await client.error("skills/get", {"uri": "skill://sew/SKILL.md"}))["code"] == -32602
