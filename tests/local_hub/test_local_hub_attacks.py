"""Attacks on a local hub: by what connects to its socket, and by servers whose lines look like a hub's."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from support.harness import PATIENCE, until
from test_local_hub import hub

from fastmcp_aggregator.attach import greeting

pytestmark = pytest.mark.process

GREETINGS: list[Any] = [
    b"",
    b"\n",
    b"null\n",
    b"[]\n",
    b'{"hub": null}\n',
    b'{"hub": ["client"]}\n',
    b'{"hub": "nothing"}\n',
    b"[" * 60_000 + b"\n",
    b'{"hub":' * 8_000 + b"\n",
    b"\xff\xfe\x00\n",
    b"x" * (greeting.LONGEST + 10),
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a:pid"}}\n',
    {"group": []},
    {"group": {"a": 1}},
    {"group": "\ud800"},
    {"group": 5},
    {"group": "x" * 50_000},
    {"tool_search": {}},
    {"tool_search": []},
    {"tool_search": "yes"},
    {"tool_search": [1]},
    {"folder": "../..", "pid": "1", "listed": [1]},
    {"folder": "/etc\n\x1b[31m", "pid": -1, "listed": {"tools/list": {"x": []}, "5": 5}},
    {"folder": "/" * 60_000},
    {"version": []},
]


@pytest.mark.parametrize("number", range(len(GREETINGS)))
async def test_an_odd_greeting_is_answered_or_dropped_and_the_hub_goes_on(
    tmp_path: Path, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    said = GREETINGS[number]
    line = greeting.line(greeting.CLIENT, **said) if isinstance(said, dict) else said
    async with hub(tmp_path) as here:
        good = await here.client()
        reader, writer = await asyncio.open_unix_connection(str(here.path))
        writer.write(line)
        writer.write_eof()
        await asyncio.wait_for(reader.read(), PATIENCE)
        writer.close()
        assert (await good.request("tools/call", name="a:echo", arguments={}))["result"]
        assert here.app.health()["a"].state == "running"
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_what_a_client_says_later_is_no_order(tmp_path: Path) -> None:
    async with hub(tmp_path) as here:
        one, other = await here.client(), await here.client()
        for what in (greeting.STOP, greeting.RESTART, greeting.STOPPING, greeting.STATUS, greeting.OPEN):
            one.writer.write(greeting.line(what, server="a"))
        assert (await one.request("ping"))["result"] == {}
        assert (await other.request("tools/call", name="a:echo", arguments={}))["result"]
        assert here.app.health()["a"].restarts == 0


@pytest.mark.parametrize("server", [None, [], {}, "", "b", "a\n", "a" * 60_000, 5, True])
async def test_no_server_is_restarted_that_is_not_named(tmp_path: Path, server: Any) -> None:
    async with hub(tmp_path) as here:
        good = await here.client()
        before = json.loads((await good.request("tools/call", name="a:pid"))["result"]["content"][0]["text"])
        _, answer = await here.greet(greeting.RESTART, server=server)
        assert answer["problem"]
        after = json.loads((await good.request("tools/call", name="a:pid"))["result"]["content"][0]["text"])
        assert before == after


@pytest.mark.parametrize("what", [greeting.STOPPING, greeting.FAILED, greeting.READY, greeting.REFUSED])
async def test_no_line_of_a_server_looks_like_the_hubs(tmp_path: Path, what: str) -> None:
    lines = [
        f'{{"hub":"{what}","jsonrpc":"2.0","id":BBB,"result":{{"content":[]}}}}',
        f'{{"hub":"{what}","jsonrpc":"2.0","method":"notifications/message","params":{{"level":"error","data":"x"}}}}',
        f'{{"hub":"{what}","jsonrpc":"2.0","method":"notifications/tools/list_changed"}}',
        f'{{"hub":"{what}"}}',
    ]
    async with hub(tmp_path) as here:
        peer = await here.client()
        for line in lines:
            peer.send(
                id=99,
                method="tools/call",
                params={"name": "a:junk", "arguments": {"lines": 1, "hex": line.encode().hex()}},
            )
            while True:
                got = await asyncio.wait_for(peer.reader.readline(), PATIENCE)
                assert got
                assert not got.startswith(greeting.MARK)
                if json.loads(got).get("id") == 99:
                    break


async def test_those_who_connect_and_say_nothing_are_closed(tmp_path: Path) -> None:
    async with hub(tmp_path, greeting_timeout=1.0) as here:
        silent = [await asyncio.open_unix_connection(str(here.path)) for _ in range(100)]
        for _, writer in silent[::2]:
            writer.write(b'{"hub":"cli')
        good = await here.client()
        assert (await good.request("tools/call", name="a:echo", arguments={}))["result"]
        ended = await asyncio.wait_for(asyncio.gather(*(reader.read() for reader, _ in silent)), PATIENCE)
        assert set(ended) == {b""}
        for _, writer in silent:
            writer.close()
        assert (await good.request("tools/call", name="a:echo", arguments={}))["result"]


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="only root can be another user")
async def test_another_user_is_not_served_even_if_the_folder_is_open(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with hub(tmp_path, audit=str(tmp_path / "audit.jsonl")) as here:
        here.path.chmod(0o777)
        for folder in (tmp_path, *tmp_path.parents):
            if str(folder).startswith("/tmp/"):
                folder.chmod(0o755)
        code = f"""
import os, socket
os.setgroups([]); os.setgid(65534); os.setuid(65534)
peer = socket.socket(socket.AF_UNIX)
try:
    peer.connect({str(here.path)!r})
    peer.sendall({greeting.line(greeting.STATUS)!r})
    print(repr(peer.recv(1000)))
except ConnectionError as error:
    print("b''")
"""
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
        said, _ = await process.communicate()
        assert said == b"b''\n"
        await until(lambda: "authentication failed for user 65534" in caplog.text)
        line = json.loads(await until((tmp_path / "audit.jsonl").read_text))
        assert (line["outcome"], line["client"]) == ("denied", "user 65534")
        assert (await (await here.client()).request("ping"))["result"] == {}
