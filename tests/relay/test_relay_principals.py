"""Callers that have authenticated, on one server: what it says after its answer reaches nobody else."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.credentials import Credentials
from support.harness import config, talking, until
from support.keyed_hub import KeyedHub, keyed_hub
from support.talking_server import talking_server
from support.wire import EVERYTHING, META, Message
from support.wire_http import HttpClient

from fastmcp_aggregator import build_aggregator
from fastmcp_aggregator.front.fast_path import http

pytestmark = pytest.mark.process

LOG = "notifications/message"
SPEAKS = [{"say": LOG, "params": {"level": "info", "data": "ann's"}}, {"ask": {"x": {"method": "roots/list"}}}]
WAITS = [{"wait": "gate"}]
ERAS = pytest.mark.parametrize("modern", [False, True], ids=["legacy clients", "modern clients"])


@asynccontextmanager
async def hub(folder: Path, entry: Message, **settings: Any) -> AsyncIterator[KeyedHub]:
    """A hub with a server in two groups, and a key for each."""
    credentials = Credentials(folder, {name: [name] for name in ("ann", "ben")})
    groups = {name: {"servers": ["a"]} for name in ("ann", "ben")}
    async with keyed_hub(
        folder, credentials, config(a=entry), build=build_aggregator, groups=groups, **settings
    ) as hub:
        yield hub


async def connect(hub: KeyedHub, name: str, *, modern: bool, capabilities: Message = EVERYTHING) -> HttpClient:
    """A client with the key of the group `name`, which answers every question."""
    client = await hub.connect(name, name=name, modern=modern, capabilities=capabilities)
    client.on_question = lambda method, params: {"result": {"roots": [], "by": name}}
    return client


def speak(hub: KeyedHub) -> None:
    """Have the server do now what it was told to do later."""
    os.kill(hub.app.health()["a"].pid or 0, signal.SIGUSR1)


def begin(client: HttpClient, *script: Message) -> asyncio.Future[Message]:
    meta = {f"{META}logLevel": "debug"} if client.is_modern else {}
    return asyncio.ensure_future(
        client.converse("tools/call", {"name": "a:play", "arguments": {"script": script}, "_meta": meta})
    )


def heard(client: HttpClient) -> list[Any]:
    logs = [message["params"]["data"] for message in client.notifications if message["method"] == LOG]
    return logs + [question["method"] for question in client.questions]


@ERAS
async def test_what_a_server_says_after_its_answer_never_reaches_another_principal(
    tmp_path: Path, modern: bool
) -> None:
    async with hub(tmp_path, talking()) as opened:
        ann, ben = [await connect(opened, name, modern=modern) for name in ("ann", "ben")]
        await begin(ann, {"later": SPEAKS})
        bens = begin(ben, {"wait": "gate"})
        await ann.report("a", lambda report: report["waiting"] == ["gate"])
        speak(opened)
        report = await ann.report("a", lambda report: report["answers"])
        assert report["answers"][0]["x"]["error"]["code"] == -32600
        assert 'isolation = "session"' in report["answers"][0]["x"]["error"]["message"]
        await ann.call("a:open", gate="gate")
        await bens
        assert heard(ann) == heard(ben) == []


@ERAS
async def test_the_only_principal_that_a_server_has_had_is_told_and_asked(tmp_path: Path, modern: bool) -> None:
    async with hub(tmp_path, talking()) as opened:
        ann = await connect(opened, "ann", modern=modern)
        answered = await begin(ann, *SPEAKS)
        assert '"by": "ann"' in answered["result"]["content"][0]["text"]
        assert heard(ann) == ["ann's", "roots/list"]


async def test_a_new_process_has_had_no_principal(tmp_path: Path) -> None:
    async with hub(tmp_path, talking()) as opened:
        ann, ben = [await connect(opened, name, modern=False) for name in ("ann", "ben")]
        await begin(ann)
        await begin(ben, *SPEAKS)
        assert heard(ben) == []
        os.kill(opened.app.health()["a"].pid or 0, signal.SIGKILL)
        await until(lambda: opened.app.health()["a"].restarts == 1)
        await begin(ben, *SPEAKS)
        assert heard(ben) == ["ann's", "roots/list"]


async def test_whoever_follows_a_resource_is_one_of_the_principals(tmp_path: Path) -> None:
    async with hub(tmp_path, talking()) as opened:
        ann, ben = [await connect(opened, name, modern=False) for name in ("ann", "ben")]
        await ann.result("resources/subscribe", {"uri": "note://a//a"})
        await begin(ben, *SPEAKS)
        assert heard(ben) == []


@ERAS
async def test_with_an_instance_for_each_session_everybody_is_told_and_asked_what_is_theirs(
    tmp_path: Path, modern: bool
) -> None:
    async with hub(tmp_path, talking(), servers={"a": {"isolation": "session"}}) as opened:
        for name in ("ann", "ben"):
            client = await connect(opened, name, modern=modern)
            await begin(client, *SPEAKS)
            assert heard(client) == ["ann's", "roots/list"]


async def test_what_comes_on_the_stream_of_a_request_reaches_its_principal_however_many_there_are(
    tmp_path: Path,
) -> None:
    async with talking_server() as server, hub(tmp_path, server.entry) as opened:
        for name in ("ann", "ben"):
            client = await connect(opened, name, modern=False)
            await begin(client, *SPEAKS)
            assert heard(client) == ["ann's", "roots/list"]


async def test_a_call_on_the_fast_path_hears_nothing_of_what_a_server_says_late_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http.Exchange, "answer_timeout", 60.0)
    async with hub(tmp_path, talking()) as opened:
        ann = await connect(opened, "ann", modern=False)
        ben = await connect(opened, "ben", modern=False, capabilities={})  # such calls take the fast path
        await begin(ann, {"later": SPEAKS})
        counts = opened.app._backend.path_counts
        counts.declined.clear()  # the first call may have waited for the server to start
        bens = asyncio.ensure_future(ben.result("tools/call", {"name": "a:play", "arguments": {"script": WAITS}}))
        await ann.report("a", lambda report: report["waiting"] == ["gate"])
        speak(opened)
        report = await ann.report("a", lambda report: report["answers"])
        assert report["answers"][0]["x"]["error"]["code"] == -32600
        await ann.call("a:open", gate="gate")
        await bens
        assert counts.answered
        assert not counts.declined
        assert not counts.taken_over
        assert heard(ann) == heard(ben) == []


@pytest.mark.parametrize("first", ["ann", "ben"])
async def test_what_a_remote_server_says_late_on_the_stream_of_its_session_reaches_nobody_else(
    first: str, tmp_path: Path
) -> None:
    async with talking_server() as server, hub(tmp_path, server.entry) as opened:
        ann, ben = [await connect(opened, name, modern=False) for name in ("ann", "ben")]
        one, other = (ann, ben) if first == "ann" else (ben, ann)
        await begin(one)
        others = begin(other, {"wait": "gate"})
        await one.report("a", lambda report: report["waiting"] == ["gate"])
        server.child.play_outside(*SPEAKS)
        report = await one.report("a", lambda report: report["answers"])
        assert report["answers"][0]["x"]["error"]["code"] == -32600
        await one.call("a:open", gate="gate")
        await others
        assert heard(ann) == heard(ben) == []
