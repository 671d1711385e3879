"""The first answers on stdio: what is answered before the rest of the program is there, and how it is handed over."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import platformdirs
import pytest
from support.harness import PATIENCE, config, lean, running, until

from fastmcp_aggregator.catalogue.persisted.store import CatalogueStore
from fastmcp_aggregator.cli.running.introduction import introduction_of
from fastmcp_aggregator.config import load_config
from fastmcp_aggregator.early import answers
from fastmcp_aggregator.early.front import EarlyFront, Handover
from fastmcp_aggregator.early.known_client import signature_in
from fastmcp_aggregator.groups.loader import load_groups
from fastmcp_aggregator.settings.model import load_settings

LEGACY_PARAMS: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}
META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
TOOLS = b'{"tools":[]}'


def line(method: str, id_: Any = None, params: Any = None) -> bytes:
    message = {"jsonrpc": "2.0", "method": method}
    message |= {} if id_ is None else {"id": id_}
    message |= {} if params is None else {"params": params}
    return json.dumps(message).encode()


HELLO = line("initialize", 1, LEGACY_PARAMS)
LIST = line("tools/list", 2)
CALL = line("tools/call", 3, {"name": "x"})


class Pipes:
    """A front between two pipes, with a client that is known."""

    def __init__(
        self, known: Mapping[str, bytes], params: Mapping[str, Any] = LEGACY_PARAMS, method: str = "initialize"
    ):
        self.stdin, self.say = os.pipe()
        self.hear, self.stdout = os.pipe()
        signature = signature_in(method, params)
        assert signature
        self.front = EarlyFront({signature: known}, self.stdin, self.stdout)
        self.front.start()

    def write(self, *lines: bytes) -> None:
        os.write(self.say, b"".join(line + b"\n" for line in lines))

    def read(self) -> dict[str, Any]:
        data = b""
        while not data.endswith(b"\n"):
            data += os.read(self.hear, 1)
        message: dict[str, Any] = json.loads(data)
        return message

    def end(self) -> Handover:
        state = self.front.take_over()
        for descriptor in (self.stdin, self.say, self.stdout):
            os.close(descriptor)
        rest = b""
        while chunk := os.read(self.hear, 65536):
            rest += chunk
        os.close(self.hear)
        self.written = rest
        return state


@pytest.fixture
def pipes() -> Pipes:
    return Pipes({"initialize": b'{"serverInfo":{}}', "tools/list": TOOLS})


def test_a_known_client_is_answered_and_the_rest_kept_in_order(pipes: Pipes) -> None:
    initialized = line("notifications/initialized")
    pipes.write(HELLO, initialized, LIST, CALL, line("ping", "p"), line("tools/list", 4, {"cursor": "x"}))
    assert [pipes.read() for _ in range(3)] == [
        {"jsonrpc": "2.0", "id": 1, "result": {"serverInfo": {}}},
        {"jsonrpc": "2.0", "id": 2, "result": {"tools": []}},
        {"jsonrpc": "2.0", "id": "p", "result": {}},
    ]
    os.write(pipes.say, b'{"half')
    pipes.front.has_begun.wait(PATIENCE)
    state = pipes.end()
    assert state.first == HELLO
    assert state.lines[:2] == [initialized, CALL]
    assert state.answered == {"tools/list": TOOLS}
    assert state.unwritten == pipes.written == b""


@pytest.mark.parametrize(
    "first",
    [
        line("initialize", 1, {**LEGACY_PARAMS, "capabilities": {"sampling": {}}}),
        line("initialize", 1, {**LEGACY_PARAMS, "clientInfo": {"name": "another", "version": "1"}}),
        line("initialize", 1, {**LEGACY_PARAMS, "protocolVersion": "2024-11-05"}),
        line("initialize", 1, {**LEGACY_PARAMS, "clientInfo": {"name": "test"}}),
        line("initialize", 1.5, LEGACY_PARAMS),
        line("initialize", None, LEGACY_PARAMS),
        b"[]",
        b"\xff",
        b"[" * 100_000,
        LIST,
        line("tools/list", 2, {"_meta": META}),
    ],
)
def test_of_a_client_that_is_not_known_everything_is_kept(pipes: Pipes, first: bytes) -> None:
    pipes.write(first[:60_000], LIST, CALL)
    os.write(pipes.say, b"\n")
    state = _kept(pipes, 4)
    assert [each for each in state.lines if each] == [first[:60_000], LIST, CALL]
    assert state.first is None
    assert pipes.written == b""


def _kept(pipes: Pipes, number: int) -> Handover:
    """End when so many lines were read."""
    ends = time.monotonic() + PATIENCE
    while len(pipes.front._state.lines) < number and time.monotonic() < ends:
        time.sleep(0.001)
    return pipes.end()


def test_a_modern_client_is_known_by_each_of_its_requests() -> None:
    pipes = Pipes({"server/discover": b'{"a":1}', "tools/list": TOOLS}, {"_meta": META}, "server/discover")
    other = {**META, "io.modelcontextprotocol/clientCapabilities": {"roots": {}}}
    pipes.write(
        line("server/discover", 1, {"_meta": META}),
        line("tools/list", 2, {"_meta": {**META, "progressToken": 5}}),
        line("tools/list", 3, {"_meta": other}),
        line("ping", 4, {"_meta": META}),
        line("tools/list", 5, {"_meta": META}),
    )
    assert [pipes.read()["id"] for _ in range(3)] == [1, 2, 5]
    state = pipes.end()
    assert [json.loads(each)["id"] for each in state.lines] == [3, 4]


def test_an_answer_that_is_cut_by_the_handover_is_handed_over_too() -> None:
    big = json.dumps({"tools": ["x" * 1_000_000]}).encode()
    pipes = Pipes({"initialize": b"{}", "tools/list": big})
    pipes.write(HELLO, LIST, CALL)
    assert pipes.read()["id"] == 1
    while os.stat(pipes.hear).st_size == 0 and not _is_full(pipes.stdout):
        os.sched_yield()
    state = pipes.end()
    assert json.loads(pipes.written + state.unwritten)["result"] == json.loads(big)
    assert state.unwritten
    assert state.lines == [CALL]


def _is_full(descriptor: int) -> bool:
    import select

    return not select.select([], [descriptor], [], 0)[1]


def test_answers_are_read_only_while_everything_is_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(answers.cache_folder()) / "catalogues"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "secret").write_bytes(b"s" * 32)
    (folder / "secret").chmod(0o600)
    file = tmp_path / "config.json"
    file.write_text("{}")
    absent = tmp_path / "absent"
    made = answers.AnswersFile("a", [str(file), str(absent)], ["TOKEN_OF_MINE"], os.environ)
    made.keep("client", {"initialize": b"{}", "tools/list": TOOLS})
    assert answers.read("a") == {"client": {"initialize": b"{}", "tools/list": TOOLS}}
    assert answers.read("b") is None
    assert Path(made.path).stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv("TOKEN_OF_MINE", "1")
    assert answers.read("a") is None
    monkeypatch.delenv("TOKEN_OF_MINE")
    monkeypatch.setenv("FASTMCP_AGGREGATOR_NEW", "1")
    assert answers.read("a") is None
    monkeypatch.delenv("FASTMCP_AGGREGATOR_NEW")
    assert answers.read("a")
    absent.touch()
    assert answers.read("a") is None
    absent.unlink()
    file.write_text("{ }")
    assert answers.read("a") is None
    file.write_text("{}")
    os.utime(file, ns=(0, made._files[1][2]))
    whole = Path(made.path).read_bytes()
    for cut in (0, 1, 20, len(whole) - 1):
        Path(made.path).write_bytes(whole[:cut])
        assert answers.read("a") is None


def test_the_cache_folder_is_the_one_of_platformdirs(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("/somewhere", "", None):
        if value is None:
            monkeypatch.delenv("XDG_CACHE_HOME")
        else:
            monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert answers.cache_folder() == platformdirs.user_cache_dir("fastmcp-aggregator", appauthor=False)


def introduced(method: str, params: Mapping[str, Any]) -> dict[str, bytes] | None:
    return None if params.get("clientInfo") == {"name": "odd", "version": "1"} else {method: b'{"hello":1}'}


@pytest.mark.parametrize("is_late", [False, True])
def test_the_handshake_of_a_client_that_is_not_known_is_answered_once_it_is_told_how(is_late: bool) -> None:
    pipes = Pipes({}, {**LEGACY_PARAMS, "protocolVersion": "another"})
    initialized = line("notifications/initialized")
    if not is_late:
        pipes.front.introduce_by(introduced)
    pipes.write(HELLO, initialized, LIST)
    if is_late:
        pipes.front.has_begun.wait(PATIENCE)
        pipes.front.introduce_by(introduced)
    assert pipes.read() == {"jsonrpc": "2.0", "id": 1, "result": {"hello": 1}}
    assert pipes.front.is_met.wait(PATIENCE)
    state = _kept(pipes, 2)
    assert (state.first, state.lines) == (HELLO, [initialized, LIST])
    assert pipes.written == b""


def test_a_handshake_that_nobody_can_answer_early_is_kept() -> None:
    pipes = Pipes({}, {**LEGACY_PARAMS, "protocolVersion": "another"})
    pipes.front.introduce_by(introduced)
    odd = line("initialize", 1, {**LEGACY_PARAMS, "clientInfo": {"name": "odd", "version": "1"}})
    pipes.write(odd, LIST)
    assert pipes.front.is_met.wait(PATIENCE)
    assert _kept(pipes, 2).lines == [odd, LIST]


# The whole program.


@pytest.mark.process
@pytest.mark.parametrize("version", ["2025-11-25", "2024-11-05", "1999-01-01", "2026-07-28"])
async def test_a_first_handshake_says_what_the_full_front_would_say(
    tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTMCP_AGGREGATOR_NAME", "hub of mine")
    command = program(tmp_path, a={**lean(), "description": "does it"}, b=lean())
    capabilities = {"roots": {"listChanged": True}, "elicitation": {}}
    if version == "2026-07-28":
        meta = {**META, "io.modelcontextprotocol/clientCapabilities": capabilities}
        hello = line("server/discover", 1, {"_meta": meta})
    else:
        hello = line("initialize", 1, {**LEGACY_PARAMS, "protocolVersion": version, "capabilities": capabilities})

    async def first_answer(*environ: tuple[str, str]) -> dict[str, Any]:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), **dict(environ)},
        )
        out, _ = await asyncio.wait_for(process.communicate(hello + b"\n"), PATIENCE)
        (answer,) = map(json.loads, out.splitlines())
        return answer

    early = await first_answer()
    # Pins are read by the full front alone.
    (tmp_path / "pins.json").write_text('{"version": 1, "servers": {}}')
    full = await first_answer(("FASTMCP_AGGREGATOR_PINS", str(tmp_path / "pins.json")))
    assert early == full
    assert early["result"]["instructions"].endswith("- a: does it\n- b")


@pytest.mark.parametrize(
    ("of_group", "of_settings", "is_early"),
    [(None, False, True), (None, True, False), (True, False, False), (False, True, True)],
)
def test_a_first_handshake_is_left_to_the_full_front_where_a_search_stands_for_the_tools(
    of_group: bool | None, of_settings: bool, is_early: bool
) -> None:
    search = {} if of_group is None else {"tool_search": of_group}
    groups = load_groups({"web": {"servers": ["a"], **search}}, ["a"])
    settings = load_settings(tool_search=of_settings)
    introduction = introduction_of(load_config(config(a=lean())), settings, groups, "web", CatalogueStore())
    assert (introduction("initialize", LEGACY_PARAMS) is not None) == is_early


STARTS_NOTHING_BEFORE = """
import os, sys, time
gate = sys.argv.pop(1)
def hold(event, _):
    while event == "subprocess.Popen" and not os.path.exists(gate):
        time.sleep(0.01)
sys.addaudithook(hold)
from fastmcp_aggregator.__main__ import main
sys.exit(main())
"""


@pytest.mark.process
async def test_a_first_handshake_is_answered_before_a_server_is_started(tmp_path: Path) -> None:
    gate = tmp_path / "answered"
    command = program(tmp_path, a=lean())
    command[1:3] = ["-X", "importtime", "-c", STARTS_NOTHING_BEFORE, str(gate)]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdin
    assert process.stdout
    assert process.stderr
    process.stdin.write(HELLO + b"\n")
    assert json.loads(await asyncio.wait_for(process.stdout.readline(), PATIENCE))["id"] == 1
    gate.touch()
    out, err = await asyncio.wait_for(process.communicate(LIST + b"\n"), PATIENCE)
    assert "a:echo" in out.decode()
    assert b" fastmcp" in err


def program(tmp_path: Path, *options: str, **entries: dict[str, Any]) -> list[str]:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config(**entries)))
    return [sys.executable, "-m", "fastmcp_aggregator", str(file), "--no-strict", *options]


async def learn(command: list[str], *, modern: bool, runs: int = 1) -> dict[str, Any]:
    """Let the program learn what this client is told; its introduction, as of the last run."""
    folder = Path(answers.cache_folder()) / "catalogues"
    for _ in range(runs):
        async with running(*command, modern=modern) as server:
            await server.client.result("tools/list")
            await until(lambda: list(folder.glob("*.answers")))
            introduction = server.client.introduction
            await server.end()
    return introduction


@pytest.mark.process
@pytest.mark.parametrize("modern", [False, True])
async def test_across_the_handover_every_request_is_answered_once_and_as_before(
    tmp_path: Path, modern: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTMCP_AGGREGATOR_START", "auto")
    command = program(tmp_path, a=lean(tools=50), b=lean(tools=5))
    before = await learn(command, modern=modern)
    async with running(*command, modern=modern) as server:
        client = server.client
        assert client.introduction == {**before, "capabilities": {"tools": {"listChanged": True}}}
        listed = await client.result("tools/list")
        waiting: dict[int, tuple[str, asyncio.Future[dict[str, Any]]]] = {}
        number = 0
        called = None
        while called is None or not called.done() or number < 200:
            number += 1
            if number % 3:
                id_, future = client.begin("tools/list")
                waiting[id_] = "list", future
            else:
                id_, future = client.begin("tools/call", {"name": "a:echo", "arguments": {"n": number}})
                waiting[id_] = str(number), future
                called = called or future
            await asyncio.sleep(0.003)
        for what, future in waiting.values():
            result = (await asyncio.wait_for(future, PATIENCE))["result"]
            if what == "list":
                assert result == listed
            else:
                assert json.loads(result["content"][0]["text"])["arguments"] == {"n": int(what)}
        answered = [message["id"] for message in client.messages if "id" in message]
        assert len(answered) == len(set(answered))
        assert client.notifications == []
        assert await server.end() == 0


@pytest.mark.process
async def test_what_a_client_asked_before_it_closed_its_end_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTMCP_AGGREGATOR_START", "auto")
    command = program(tmp_path, a=lean())
    await learn(command, modern=False)
    calls = [line("tools/call", n, {"name": "a:echo", "arguments": {"n": n}}) for n in range(10, 20)]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    hello = line("initialize", 1, LEGACY_PARAMS)
    sent = b"\n".join([hello, line("notifications/initialized"), LIST, *calls, b""])
    out, _ = await asyncio.wait_for(process.communicate(sent), PATIENCE)
    answers_ = [json.loads(each) for each in out.splitlines()]
    assert [answer["id"] for answer in answers_[:2]] == [1, 2]
    assert sorted(answer["id"] for answer in answers_) == [1, 2, *range(10, 20)]
    assert all("result" in answer for answer in answers_)


@pytest.mark.process
async def test_a_client_that_was_listed_something_old_is_told_once(tmp_path: Path) -> None:
    offer = tmp_path / "offer"
    offer.write_text("[]")
    script = tmp_path / "server.py"
    script.write_text(
        "import json, runpy, sys\n"
        f"names = json.load(open({str(offer)!r}))\n"
        "sys.argv = [sys.argv[1], json.dumps({'tool_names': names})]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    child = lean()["args"][1]
    command = program(tmp_path, a={"command": sys.executable, "args": [str(script), child]})
    await learn(command, modern=False)
    offer.write_text('["fresh"]')
    async with running(*command) as server:
        names = await server.client.names()
        assert "a:fresh" not in names
        await server.client.heard("notifications/tools/list_changed")
        assert "a:fresh" in await server.client.names()
        assert server.client.notifications == []
        await server.end()


@pytest.mark.process
async def test_a_server_that_never_starts_takes_the_early_answers_from_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTMCP_AGGREGATOR_START", "auto")
    command = program(tmp_path, a=lean(tools=5), broken=lean(exit_at_start=3))
    before = await learn(command, modern=False)
    async with running(*command) as server:
        assert server.client.introduction["serverInfo"] == before["serverInfo"]
        assert "a:tool_0" in await server.client.names()
        await server.end()
