"""A hub in this process: clients on its socket, their greeting, their calls, and their end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from support.harness import PATIENCE, config, lean, talking, until

from fastmcp_aggregator import Aggregator, build_aggregator
from fastmcp_aggregator.attach import greeting
from fastmcp_aggregator.attach.systems import system
from fastmcp_aggregator.children.timings import Timings
from fastmcp_aggregator.local_hub.hub import LocalHub
from fastmcp_aggregator.local_hub.report import HubAbout

pytestmark = pytest.mark.process

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


class Peer:
    """A client on the socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._number = 0

    def send(self, **message: Any) -> None:
        self.writer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def read(self) -> dict[str, Any]:
        line = await asyncio.wait_for(self.reader.readline(), PATIENCE)
        message: dict[str, Any] = json.loads(line) if line else {}
        return message

    async def heard_until(self, last: str) -> list[str]:
        """The methods of what comes before this."""
        methods = []
        while (method := (await self.read())["method"]) != last:
            methods.append(method)
        return methods

    async def request(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        self.send(id=self._number, method=method, params=params)
        while (answer := await self.read()).get("id") != self._number:
            assert answer
        return answer

    async def initialize(self) -> None:
        await self.request("initialize", **HELLO)
        self.send(method="notifications/initialized")


class Hub:
    def __init__(self, app: Aggregator, path: Path, served: LocalHub) -> None:
        self.app = app
        self.path = path
        self.served = served

    async def greet(self, what: str = greeting.CLIENT, **about: Any) -> tuple[Peer, dict[str, Any]]:
        """Connect and say what is wanted; the hub's answer."""
        reader, writer = await asyncio.open_unix_connection(str(self.path), limit=64 * 1024**2)
        writer.write(greeting.line(what, **about))
        peer = Peer(reader, writer)
        return peer, await peer.read()

    async def client(self, **about: Any) -> Peer:
        peer, answer = await self.greet(**about)
        assert answer["hub"] == greeting.READY, answer
        await peer.initialize()
        return peer


@asynccontextmanager
async def hub(
    tmp_path: Path,
    idle: float = 60.0,
    why: str = "",
    entry: dict[str, Any] | None = None,
    greeting_timeout: float = 5.0,
    **options: Any,
) -> AsyncIterator[Hub]:
    """A hub with one server, `a`."""
    app = build_aggregator(config(a=entry or lean()), strict=False, **options)
    path = tmp_path / "hub.sock"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()
    served = LocalHub(
        app,
        system.Listener(listener),
        HubAbout("1", "work", "c"),
        keep_for=lambda *_: None,
        idle=idle,
        greeting_timeout=greeting_timeout,
    )
    running = asyncio.create_task(served.run())
    try:
        yield Hub(app, path, served)
    finally:
        served.end("the test is over")
        assert await asyncio.wait_for(running, PATIENCE) == (why or "the test is over")
        assert not path.exists()


async def test_each_client_sees_its_group_and_its_search(tmp_path: Path) -> None:
    groups = {"few": {"id": "few", "name": "Few", "servers": ["a"], "tools": ["a:echo"]}}
    async with hub(tmp_path, groups=groups) as here:
        everything = await here.client()
        few = await here.client(group="few")
        search = await here.client(tool_search=True)
        names = [
            {tool["name"] for tool in (await peer.request("tools/list"))["result"]["tools"]}
            for peer in (everything, few, search)
        ]
        assert len(names[0]) > 20
        assert names[1:] == [{"a:echo"}, {"search_tools", "call_tool"}]
        _, answer = await here.greet(group="none")
        assert (answer["hub"], answer["reason"]) == (greeting.REFUSED, "the hub has no group 'none'")


async def test_a_bridge_of_another_version_is_refused(tmp_path: Path) -> None:
    async with hub(tmp_path) as here:
        _, answer = await here.greet(version="0.0.1")
        assert answer["hub"] == greeting.REFUSED


async def test_a_client_that_is_gone_takes_its_calls_with_it_and_no_others(tmp_path: Path) -> None:
    async with hub(tmp_path) as here:
        one, other = await here.client(), await here.client()
        for peer in (one, other):
            peer.send(id="held", method="tools/call", params={"name": "a:hold", "arguments": {}})
        child = here.app.children["a"]
        await until(lambda: child.calls.in_flight == 2)
        one.writer.close()
        await until(lambda: child.calls.in_flight == 1)
        await other.request("tools/call", name="a:release", arguments={})


async def test_between_calls_a_server_is_heard_by_the_only_client_here_that_has_used_it(tmp_path: Path) -> None:
    async with hub(tmp_path, entry=talking()) as here:
        one, other = await here.client(), await here.client()
        said = {"say": "notifications/message", "params": {"level": "info", "data": "between"}}
        script = [{"later": [said, {"changed": "tools"}]}]

        async def heard() -> list[list[str]]:
            """What each client hears of what the server says now, up to the change that all are told."""
            os.kill(here.app.health()["a"].pid or 0, signal.SIGUSR1)
            return [await peer.heard_until("notifications/tools/list_changed") for peer in (one, other)]

        await one.request("tools/call", name="a:play", arguments={"script": script})
        assert await heard() == [["notifications/message"], []]
        assert "result" in await other.request("resources/subscribe", uri="talk://a/play/x")
        assert await heard() == [[], []]
        one.writer.close()
        await until(lambda: len(here.served.clients) == 1)
        one = await here.client()
        assert await heard() == [[], ["notifications/message"]]


async def test_a_call_with_a_relative_path_never_reaches_a_server_that_runs_in_another_clients_folder(
    tmp_path: Path,
) -> None:
    async with hub(tmp_path, isolation="auto") as here:
        folders = [tmp_path / "one", tmp_path / "other"]
        for folder in folders:
            folder.mkdir()
        peers = [await here.client(folder=str(folder)) for folder in folders]

        async def pids(**arguments: Any) -> list[Any]:
            """The processes that serve the two."""
            answers = [await peer.request("tools/call", name="a:pid", arguments=arguments) for peer in peers]
            return [json.loads(answer["result"]["content"][0]["text"])["pid"] for answer in answers]

        one, other = await pids(text='in ./here, or: "./here"')
        assert one == other
        one, other = await pids(paths=["./src"])
        assert one != other
        assert await pids() == [one, other]
        assert here.app.health()["a"].isolation == "directory"


async def test_a_client_that_writes_nothing_more_still_gets_its_answers(tmp_path: Path) -> None:
    async with hub(tmp_path) as here:
        one, other = await here.client(), await here.client()
        one.send(id="held", method="tools/call", params={"name": "a:hold", "arguments": {}})
        await until(lambda: here.app.children["a"].calls.in_flight == 1)
        one.writer.write_eof()
        await other.request("tools/call", name="a:release", arguments={})
        assert (await one.read())["id"] == "held"
        assert await one.read() == {}


async def test_a_client_is_told_if_its_lists_are_others_than_they_were(tmp_path: Path) -> None:
    async with hub(tmp_path) as here:
        peer = await here.client(listed={"tools/list": "of another hub"})
        assert (await peer.read())["method"] == "notifications/tools/list_changed"


async def test_clients_are_told_that_the_hub_ends_after_their_answers(tmp_path: Path) -> None:
    async with hub(tmp_path, why="`fastmcp-aggregator stop` has told it to") as here:
        one, other = await here.client(), await here.client()
        one.send(id="held", method="tools/call", params={"name": "a:hold", "arguments": {}})
        await until(lambda: here.app.children["a"].calls.in_flight == 1)
        release = {"name": "a:release", "arguments": {}}
        other.send(id="release", method="tools/call", params=release)
        _, answer = await here.greet(greeting.STOP)
        assert answer["hub"] == greeting.STOPPING
        said = [await one.read(), await one.read()]
        assert {each.get("id") or each["hub"] for each in said} == {"held", greeting.STOPPING}
        assert await one.read() == {}


@pytest.mark.parametrize("fast_path", [True, False], ids=["fast path", "full path"])
async def test_a_call_that_the_end_of_the_hub_does_not_wait_for_is_answered_so(fast_path: bool, tmp_path: Path) -> None:
    async with hub(tmp_path, fast_path=fast_path) as here:
        here.app._backend.timings = Timings(drain_timeout=0.1)
        peer = await here.client()
        await peer.request("tools/call", name="a:echo", arguments={})
        peer.send(id="7", method="tools/call", params={"name": "a:hold", "arguments": {}})
        await until(lambda: here.app.children["a"].calls.in_flight == 1)
        here.served.end("the test is over")
        assert (await peer.read())["hub"] == greeting.STOPPING
        answer = await peer.read()
        assert answer["id"] == "7"
        assert answer["error"]["message"].startswith("the aggregator has ended before this request was answered")
        assert await peer.read() == {}


async def test_a_hub_without_clients_ends(tmp_path: Path) -> None:
    async with hub(tmp_path, why="it has had no client for 0.05 s") as here:
        peer = await here.client()
        here.served._idle = 0.05  # not before: the first client may take longer to come
        assert here.served._idling is None
        assert "result" in await peer.request("ping")
        peer.writer.close()
        await until(lambda: not here.path.exists())


async def test_a_hub_that_is_to_end_with_its_last_client_waits_for_the_first(tmp_path: Path) -> None:
    async with hub(tmp_path, idle=0.0, why="it has had no client for 0 s") as here:
        for _ in range(5):
            await asyncio.sleep(0)
        peer = await here.client()
        assert "result" in await peer.request("ping")
        peer.writer.close()
        await until(lambda: not here.path.exists())


async def test_what_a_hub_tells_of_itself(tmp_path: Path) -> None:
    async with hub(tmp_path) as here:
        await here.client(folder="/somewhere", pid=7, group=None)
        _, about = await here.greet(greeting.STATUS)
        assert (about["name"], list(about["servers"]), about["memory"] > 1e6) == ("work", ["a"], True)
        [client] = about["clients"]
        assert (client["name"], client["folder"], client["pid"]) == ("test", "/somewhere", 7)


async def test_a_client_that_does_not_read_holds_nobody_up(tmp_path: Path) -> None:
    async with hub(tmp_path) as here:
        deaf, other = await here.client(), await here.client()
        listing = {"id": "x", "method": "tools/list", "params": {}}
        for _ in range(3000):
            deaf.send(**listing)
        assert "result" in await other.request("tools/call", name="a:echo", arguments={})
        deaf.writer.transport.abort()
        assert "result" in await other.request("tools/call", name="a:echo", arguments={})


@pytest.mark.skipif(sys.platform != "linux", reason="it waits for a process without taking notice of it")
@pytest.mark.parametrize("times", [1, 3])
async def test_a_call_that_a_killed_server_could_not_be_sent_goes_to_the_next(tmp_path: Path, times: int) -> None:
    async with hub(tmp_path) as here:
        peer = await here.client()
        for number in range(times):
            await peer.request("tools/call", name="a:echo", arguments={})
            calling = asyncio.ensure_future(peer.request("tools/call", name="a:echo", arguments={"n": number}))
            await asyncio.sleep(0)
            os.kill(pid := here.app.health()["a"].pid or 0, signal.SIGKILL)
            with suppress(ChildProcessError):  # a thread of asyncio was faster
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            answer = await asyncio.wait_for(calling, PATIENCE)
            assert "result" in answer, answer
