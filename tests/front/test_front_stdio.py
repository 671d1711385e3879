"""The stdio front as a process: what a desktop client starts."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.harness import PATIENCE, ServerProcess, config, lean, running, until
from support.processes import is_gone, pids_in

pytestmark = pytest.mark.process

PROGRAM = (
    "import json, sys\n"
    "from fastmcp_aggregator import build_aggregator\n"
    "app = build_aggregator(json.loads(sys.argv[1]), **json.loads(sys.argv[2]))\n"
    "{extra}\n"
    "app.run()\n"
)


@asynccontextmanager
async def served(
    document: dict[str, Any], *, extra: str = "", modern: bool = False, handshake: bool = True, **settings: Any
) -> AsyncIterator[ServerProcess]:
    command = [sys.executable, "-c", PROGRAM.replace("{extra}", extra), json.dumps(document), json.dumps(settings)]
    async with running(*command, modern=modern, handshake=handshake) as server:
        yield server


@pytest.mark.parametrize("modern", [False, True], ids=["legacy client", "modern client"])
async def test_a_client_of_either_era_is_served_and_the_end_of_its_stdin_ends_everything(
    modern: bool, tmp_path: Path
) -> None:
    record = tmp_path / "pids"
    async with served(config(a=lean(record=str(record)), b=lean(era="modern")), modern=modern) as server:
        assert {name.split(":")[0] for name in await server.client.names()} == {"a", "b"}
        assert (await server.client.call("b:echo", x="ü"))["arguments"] == {"x": "ü"}
        assert await server.end() == 0
    assert len(pids_in(record)) == 1
    await until(lambda: is_gone(pids_in(record)[0]))


async def test_stdout_carries_nothing_but_protocol() -> None:
    extra = "@app.tool\ndef shout() -> str:\n    print('stray'); import os; os.system('echo stray'); return 'done'"
    async with served(config(a=lean(stderr=["from the child"])), extra=extra) as server:
        result = await server.client.result("tools/call", {"name": "shout"})
        assert result["content"][0]["text"] == "done"
        assert await server.end() == 0
        assert all(json.loads(line)["jsonrpc"] == "2.0" for line in server.client.lines)
        assert server.stderr.count(b"stray") == 2
        assert b"[a] from the child" in server.stderr


async def test_initialize_is_answered_while_a_child_hangs(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with served(config(slow=lean(wait_for_file=str(gate)))) as server:
        assert server.client.introduction["serverInfo"]["name"] == "fastmcp-aggregator"
        _, listing = server.client.begin("tools/list")
        assert await server.client.result("ping") == {}
        assert not listing.done()
        gate.touch()
        assert (await listing)["result"]["tools"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_ends_it_cleanly_with_its_children(number: signal.Signals, tmp_path: Path) -> None:
    record = tmp_path / "pids"
    async with served(config(a=lean(record=str(record)))) as server:
        await server.client.names()
        server.process.send_signal(number)
        assert await server.wait() == 0
        assert b"Traceback" not in server.stderr
    await until(lambda: is_gone(pids_in(record)[0]))


async def test_a_second_signal_ends_it_at_once_and_kills_the_children(tmp_path: Path) -> None:
    record = tmp_path / "pids"
    async with served(config(a=lean(record=str(record), ignore_eof=True))) as server:
        await server.client.names()
        server.process.send_signal(signal.SIGTERM)
        server.process.send_signal(signal.SIGINT)
        assert await server.wait() == 1
    await until(lambda: is_gone(pids_in(record)[0]))


async def test_a_strict_start_that_fails_ends_the_program_with_the_reasons(tmp_path: Path) -> None:
    record = tmp_path / "pids"
    document = config(missing={"command": "no-such-command"}, good=lean(record=str(record)))
    async with served(document, handshake=False) as server:
        assert await server.wait() == 1
        assert b"command not found: 'no-such-command'" in server.stderr
        assert b"--no-strict" in server.stderr
    await until(lambda: all(is_gone(pid) for pid in pids_in(record)))


async def test_what_is_no_json_is_answered_with_a_parse_error_and_the_connection_goes_on() -> None:
    async with served(config(a=lean())) as server:
        assert server.process.stdin is not None
        for junk in (b"nonsense\n", b"\xff\xfe\n", b'{"jsonrpc": "2.0"}\n', b"\n", b"[]\n"):
            server.process.stdin.write(junk)
        assert (await server.client.call("a:echo"))["tool"] == "echo"
        errors = [n["error"] for n in server.client.notifications if "error" in n]
        assert [error["code"] for error in errors] == [-32700] * 4


async def test_messages_larger_than_any_pipe_pass_in_both_directions() -> None:
    async with served(config(a=lean())) as server:
        payload = "x" * 3_000_000
        assert (await server.client.call("a:echo", payload=payload))["arguments"]["payload"] == payload


@pytest.mark.parametrize("fast_path", [True, False])
def test_a_client_that_does_not_read_is_not_read_either_until_it_does(fast_path: bool) -> None:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "deaf", "version": "1"}}
    greeting = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}).encode()
    command = [sys.executable, "-c", PROGRAM.replace("{extra}", ""), json.dumps(config(a=lean()))]
    with subprocess.Popen(
        [*command, json.dumps({"fast_path": fast_path})],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(greeting + b'\n{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
            answers = os.fdopen(os.dup(process.stdout.fileno()), "rb")
            assert b'"result"' in answers.readline()
            for line in (b'{"jsonrpc":"2.0","id":%d,"method":"tools/list"}\n', b"%d is no request\n"):
                sent = 0
                while select.select([], [process.stdin], [], 1)[1]:  # writable: there is room for a page
                    sent += 1
                    process.stdin.write(line % sent)
                    assert sent < 20_000, "it takes all that comes"
                for _ in range(sent):
                    assert answers.readline()
        finally:
            process.kill()


async def test_stdin_from_a_file_is_served_too(tmp_path: Path) -> None:
    requests = tmp_path / "requests"
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "f", "version": "1"}},
    }
    requests.write_text(json.dumps(hello) + "\n")
    command = [sys.executable, "-c", PROGRAM.replace("{extra}", ""), json.dumps(config(a=lean())), "{}"]
    with requests.open() as stdin:
        done = subprocess.run(command, stdin=stdin, capture_output=True, timeout=PATIENCE, check=False)
    assert json.loads(done.stdout.splitlines()[0])["result"]["serverInfo"]["name"] == "fastmcp-aggregator"


@pytest.mark.parametrize("end", ["the client closes stdin", "SIGTERM"])
async def test_a_call_in_flight_is_answered_before_the_end_and_new_ones_are_refused(end: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with served(config(a=lean(), b=lean())) as server:
        _, call = server.client.begin("tools/call", {"name": "a:wait", "arguments": {"file": str(gate)}})
        assert (await server.client.call("b:echo"))["tool"] == "echo"
        if end == "SIGTERM":
            server.process.send_signal(signal.SIGTERM)
            while "error" not in (refused := await server.client.send("tools/call", {"name": "b:echo"})):
                pass
            assert refused["error"]["message"] == "the aggregator is shutting down and takes no new requests"
        else:
            assert server.process.stdin is not None
            server.process.stdin.close()
        gate.touch()
        assert json.loads((await call)["result"]["content"][0]["text"]) == {"waited": True}
        assert await server.wait() == 0


@pytest.mark.parametrize("tail", [b"", b"junk\n", b'{"jsonrpc": "2.0", "method": "notifications/progress"}\n'])
async def test_everything_that_was_asked_before_stdin_closed_is_answered(tail: bytes) -> None:
    async with served(config(a=lean())) as server:
        listing = server.client.begin("tools/list")[1]
        calls = [server.client.begin("tools/call", {"name": "a:echo", "arguments": {"n": n}})[1] for n in range(20)]
        assert server.process.stdin is not None
        server.process.stdin.write(tail)
        server.process.stdin.close()
        assert (await listing)["result"]["tools"]
        answers = [json.loads((await call)["result"]["content"][0]["text"])["arguments"]["n"] for call in calls]
        assert answers == list(range(20))
        assert await server.wait() == 0


async def test_a_listen_stream_and_a_cancelled_call_do_not_hold_up_the_end() -> None:
    async with served(config(a=lean()), modern=True) as server:
        server.client.begin("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        await server.client.heard("notifications/subscriptions/acknowledged")
        request_id, _ = server.client.begin("tools/call", {"name": "a:hold"})
        await server.said("holding")
        server.client.notify("notifications/cancelled", {"requestId": request_id})
        assert await server.end() == 0


async def test_a_strict_start_that_fails_raises_its_own_error_without_pipes_too(tmp_path: Path) -> None:
    program = (
        "from fastmcp_aggregator import StartupError, build_aggregator\n"
        "try: build_aggregator({'mcpServers': {'x': {'command': 'no-such-command'}}}).run()\n"
        "except StartupError: print('StartupError')\n"
    )
    with (tmp_path / "empty").open("w+") as stdin:
        done = subprocess.run(
            [sys.executable, "-c", program], stdin=stdin, capture_output=True, timeout=PATIENCE, check=False, text=True
        )
    assert done.stdout.strip().endswith("StartupError"), done.stderr
