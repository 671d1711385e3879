"""`serve`: what desktop clients and service managers start."""

import json
import os
import pty
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from support.harness import PATIENCE, ServerProcess, config, lean, running, until
from support.processes import are_gone, pids_in
from support.wire import until_answered

from fastmcp_aggregator import Aggregator
from fastmcp_aggregator.access.keys import new_key
from fastmcp_aggregator.access.keys_file import write_keys
from fastmcp_aggregator.cli.actions import serve
from fastmcp_aggregator.cli.actions.serve import _look_at_keys
from fastmcp_aggregator.cli.main import main
from fastmcp_aggregator.cli.output import report
from fastmcp_aggregator.errors import ChildServerError, StartupError
from fastmcp_aggregator.groups import load_groups
from fastmcp_aggregator.settings.model import load_settings

pytestmark = pytest.mark.process

PROGRAM = [sys.executable, "-m", "fastmcp_aggregator"]
MISSING = {"command": "no-such-command-anywhere"}
NOT_FOUND = "command not found: 'no-such-command-anywhere'; install it, or give its full path as `command`"


def write(folder: Path, **servers: dict[str, Any]) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(config(**servers)))
    return str(path)


@asynccontextmanager
async def served(path: str, *options: str, handshake: bool = True) -> AsyncIterator[ServerProcess]:
    async with running(*PROGRAM, path, *options, handshake=handshake) as server:
        yield server


async def test_the_servers_of_a_config_are_served_on_stdio_until_the_client_leaves(tmp_path: Path) -> None:
    record = tmp_path / "pids"
    path = write(tmp_path, files=lean(record=str(record)), git=lean(era="modern"))
    async with served(path) as server:
        assert {name.split(":")[0] for name in await server.client.names()} == {"files", "git"}
        assert (await server.client.call("files:echo", x=1))["arguments"] == {"x": 1}
        assert await server.end() == 0
    await until(lambda: are_gone(record))


async def test_stdout_carries_nothing_but_protocol_and_stderr_is_plain_lines(tmp_path: Path) -> None:
    noisy = lean(stdout=["no message"], stderr=["hello"], resources=[{"uri": "a://b", "name": "b"}])
    async with served(write(tmp_path, noisy=noisy), "--debug") as server:
        await server.client.names()
        await server.said("1 of 1 server running")
        assert await server.end() == 0
        assert all(json.loads(line)["jsonrpc"] == "2.0" for line in server.client.lines)
        said = server.stderr.decode().splitlines()
    assert "[noisy] hello" in said
    assert [
        line for line in said if re.match(r"noisy: running, \d+ tools, 1 resource, 0 prompts \(2025-11-25\)$", line)
    ]
    assert "\x1b" not in server.stderr.decode()


async def test_each_server_is_told_once_when_it_settles_and_then_all_in_one_line(tmp_path: Path) -> None:
    async with served(write(tmp_path, bad=MISSING, good=lean()), "--no-strict") as server:
        await server.client.names()
        await server.said("failed: bad\n")
        said = server.stderr.decode().partition("failed: bad\n")[0].splitlines()
        assert await server.end() == 0
    assert said[-1].startswith("1 of 2 servers running, ")
    assert said[0] == f"bad: failed: {NOT_FOUND}"
    assert said.count(said[0]) == 1
    assert not [line for line in said if line.startswith("warning:")]
    assert len([line for line in said if line.startswith("good: running, ")]) == 1


WITHOUT_VALUE = {"command": "x", "env": {"K": "${TEST_KEY_WITHOUT_VALUE}"}}
NOT_SET = "the environment variable TEST_KEY_WITHOUT_VALUE is not set"


async def test_without_strict_a_variable_without_a_value_is_one_failed_server(tmp_path: Path) -> None:
    async with served(write(tmp_path, good=lean(), bad=WITHOUT_VALUE), "--no-strict") as server:
        assert {name.split(":")[0] for name in await server.client.names()} == {"good"}
        await server.said("failed: bad\n")
        said = server.stderr.decode()
        assert f"bad: failed: {NOT_SET}, which `env.K` of its entry needs: give a value where this is started" in said
        assert await server.end() == 0


def test_with_strict_every_variable_without_a_value_is_told_at_once_and_nothing_starts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "pids"
    path = write(tmp_path, good=lean(record=str(record)), bad=WITHOUT_VALUE, worse=WITHOUT_VALUE)
    assert serve_here("serve", path) == 2
    assert capfd.readouterr().err.count(NOT_SET) == 2
    assert not record.exists()


async def test_a_strict_start_that_fails_ends_with_code_3_and_tells_each_failure_once(tmp_path: Path) -> None:
    record = tmp_path / "pids"
    path = write(tmp_path, good=lean(record=str(record)), bad=MISSING, ill=lean(exit_at_start=4))
    async with served(path, handshake=False) as server:
        assert await server.wait() == 3
        said = server.stderr.decode()
        assert server.client.lines == []
    assert said.count(NOT_FOUND) == 1
    assert said.count("exited with code 4") == 1
    assert "Traceback" not in said
    assert said.endswith(
        "The start has ended, because not every server started: bad, ill.\n"
        "To serve without the failed ones, use --no-strict.\n"
    )
    await until(lambda: are_gone(record))


async def test_a_config_that_comes_back_by_another_does_not_start_the_aggregator_without_end(tmp_path: Path) -> None:
    path, inner = str(tmp_path / "config.json"), tmp_path / "inner"
    inner.mkdir()
    itself = {"command": PROGRAM[0], "args": [*PROGRAM[1:], path, "--no-strict"]}
    other = {"command": PROGRAM[0], "args": [*PROGRAM[1:], write(inner, b=lean(), itself=itself), "--no-strict"]}
    write(tmp_path, a=lean(), other=other)
    async with served(path, "--no-strict") as server:
        await until_answered(server.client.names, {"a:echo", "other:b:echo"}.issubset)
        await server.said("failed: itself\n")
        assert await server.end() == 0
    assert "remove that entry" in server.stderr.decode()


@pytest.mark.parametrize(
    ("url", "overrides", "page"),
    [
        ("http://127.0.0.1:8000/mcp", {}, "http://127.0.0.1:8000/"),
        ("http://0.0.0.0:8000/mcp", {}, "http://127.0.0.1:8000/"),
        ("http://[::]:8000/mcp", {}, "http://[::1]:8000/"),
        ("http://0.0.0.0:8000/mcp", {"public_url": "https://hub.example.com/"}, "https://hub.example.com/"),
    ],
)
def test_the_dashboard_is_told_at_an_address_that_a_browser_opens(
    url: str, overrides: dict[str, str], page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(serve, "tell", told.append)
    monkeypatch.setattr(serve, "take_over", lambda _: None)
    serve._say_url(load_settings(**overrides), url, has_page=True)
    assert told == [f"serving on {url}", f"the dashboard is at {page}"]


@pytest.mark.parametrize("command", ["serve", "attach"])
async def test_a_config_in_which_the_aggregator_would_serve_itself_is_refused(command: str, tmp_path: Path) -> None:
    itself = {"command": PROGRAM[0], "args": [*PROGRAM[1:], "attach", str(tmp_path / "config.json"), "--no-strict"]}
    line = [*PROGRAM, command, write(tmp_path, a=lean(), itself=itself), "--no-strict"]
    async with running(*line, handshake=False) as server:
        assert await server.wait() == 2
    assert "with this same file" in server.stderr.decode()
    assert "servers of its own" not in server.stderr.decode()


async def test_an_aggregator_behind_an_aggregator_with_another_config_is_a_server_like_any_other(
    tmp_path: Path,
) -> None:
    (tmp_path / "inner").mkdir()
    inner = {"command": PROGRAM[0], "args": [*PROGRAM[1:], write(tmp_path / "inner", b=lean())]}
    async with served(write(tmp_path, a=lean(), inner=inner)) as server:
        await until_answered(server.client.names, {"a:echo", "inner:b:echo"}.issubset)
        assert await server.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
async def test_a_signal_ends_it_with_code_0_and_no_traceback(number: signal.Signals, tmp_path: Path) -> None:
    record = tmp_path / "pids"
    async with served(write(tmp_path, a=lean(record=str(record)))) as server:
        await server.client.names()
        server.process.send_signal(number)
        assert await server.wait() == 0
        assert "Traceback" not in server.stderr.decode()
    await until(lambda: are_gone(record))


async def test_a_signal_while_a_server_starts_ends_it_with_code_0(tmp_path: Path) -> None:
    record = tmp_path / "pids"
    slow = lean(record=str(record), wait_for_file=str(tmp_path / "never"))
    async with served(write(tmp_path, slow=slow, fast=lean())) as server:
        await server.said("fast: running")
        await until(lambda: record.exists() and pids_in(record))
        server.process.send_signal(signal.SIGTERM)
        assert await server.wait() == 0
        assert "slow: " not in server.stderr.decode()
    await until(lambda: are_gone(record))


async def test_the_options_reach_what_the_client_sees(tmp_path: Path) -> None:
    options = ["--name", "hub", "--server-version", "7", "--separator", "__"]
    async with served(write(tmp_path, a=lean()), *options) as server:
        assert server.client.introduction["serverInfo"]["name"] == "hub"
        assert server.client.introduction["serverInfo"]["version"] == "7"
        assert (await server.client.names())[0] == "a__echo"
        assert await server.end() == 0


async def test_http_is_served_on_a_free_port_that_is_told_on_stderr(tmp_path: Path) -> None:
    record = tmp_path / "pids"
    path = write(tmp_path, a=lean(record=str(record)))
    async with served(path, "--transport", "http", "--port", "0", handshake=False) as server:
        told = await until(lambda: re.search(rb"serving on (http://127\.0\.0\.1:[1-9]\d*/mcp)\n", server.stderr))
        async with Client(told[1].decode(), timeout=PATIENCE) as client:
            assert (await client.list_tools())[0].name == "a:echo"
            assert not (await client.call_tool("a:echo", {"x": 1})).is_error
        server.process.send_signal(signal.SIGTERM)
        assert await server.wait() == 0
        assert server.client.lines == []
        assert "Traceback" not in server.stderr.decode()
    await until(lambda: are_gone(record))


async def test_on_a_terminal_there_is_a_status_line_and_then_a_table(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    os.set_blocking(master, False)
    shown = b""

    def screen() -> bytes:
        nonlocal shown
        with suppress(BlockingIOError):
            shown += os.read(master, 65536)
        return shown

    gate = tmp_path / "gate"
    path = write(tmp_path, slow=lean(wait_for_file=str(gate)), bad=MISSING)
    process = await running_on(slave, path)
    try:
        await until(lambda: b"0 of 2 servers ready, waiting for slow" in screen())
        gate.touch()
        await until(lambda: b"seconds or error" in screen() and b"command not found" in screen())
        assert process.stdin is not None
        process.stdin.close()
        assert process.stdout is not None
        assert await process.stdout.read() == b""
        assert await process.wait() == 0
        assert b"\x1b[?25h" in screen().rpartition(b"\x1b[?25l")[2]  # the cursor is shown again
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        os.close(master)
        os.close(slave)


def interrupted_in_a_terminal(arguments: list[str], when: bytes) -> tuple[int, bytes]:
    """The exit code of a command that Ctrl-C ends once it has shown this, and all that it has shown."""
    process, terminal = pty.fork()
    if process == 0:
        os.execv(sys.executable, [*PROGRAM, *arguments])
    shown = b""
    while when not in shown:
        shown += os.read(terminal, 65536)
    os.write(terminal, b"\x03")
    with suppress(OSError):  # the program has closed the terminal
        while chunk := os.read(terminal, 65536):
            shown += chunk
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), shown


def test_ctrl_c_in_a_terminal_ends_it_with_code_0(tmp_path: Path) -> None:
    record = tmp_path / "pids"
    path = write(tmp_path, a=lean(record=str(record)))
    code, shown = interrupted_in_a_terminal([path], b"seconds")
    assert code == 0
    assert b"Traceback" not in shown
    assert are_gone(record)


def test_ctrl_c_while_a_command_waits_for_servers_leaves_a_clean_terminal(tmp_path: Path) -> None:
    path = write(tmp_path, slow=lean(wait_for_file=str(tmp_path / "never")))
    code, shown = interrupted_in_a_terminal(["list", path], b"waiting for slow")
    assert code == 130
    assert shown.rpartition(b"waiting for slow")[2].endswith(b"\x1b[2K\x1b[?25h")  # without the status line


async def running_on(terminal: int, path: str) -> Any:
    import asyncio

    pipe = asyncio.subprocess.PIPE
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "150"}
    return await asyncio.create_subprocess_exec(
        *PROGRAM, path, "--no-strict", stdin=pipe, stdout=pipe, stderr=terminal, env=environment
    )


# In this process: the same, without its cost.


def serve_here(*arguments: str) -> int:
    """The exit code of `serve` in this process, with a client that says nothing."""
    kept = [os.dup(0), os.dup(1)]
    pipes = [os.pipe(), os.pipe()]
    os.dup2(pipes[0][0], 0)
    os.dup2(pipes[1][1], 1)
    try:
        return main(arguments)
    finally:
        for descriptor, original in enumerate(kept):
            os.dup2(original, descriptor)
        for descriptor in (*kept, *pipes[0], *pipes[1]):
            os.close(descriptor)


def test_a_config_without_servers_is_served_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def hear(text: str) -> None:
        said.append(text)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(report, "tell", hear)
    assert serve_here(write(tmp_path)) == 0
    assert said == ["0 of 0 servers running, 0 tools, 0 resources, 0 prompts"]


def test_a_conflict_of_names_ends_a_strict_start_with_code_3(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert serve_here(write(tmp_path, a=lean(), b=lean()), "--no-prefix") == 3
    said = capfd.readouterr().err
    assert "2 of 2 servers running" in said
    assert said.count("servers 'a' and 'b' both offer 'echo'") == 1
    assert "not every server started" not in said


def test_a_failure_ends_a_strict_start_with_code_3(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert serve_here("serve", write(tmp_path, bad=MISSING)) == 3
    assert capfd.readouterr().err == (
        f"bad: failed: {NOT_FOUND}\n"
        "0 of 1 server running, 0 tools, 0 resources, 0 prompts; failed: bad\n"
        "The start has ended, because not every server started: bad.\n"
        "To serve without the failed ones, use --no-strict.\n"
    )


def test_a_failure_is_told_the_same_when_stdin_is_a_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK's transport, which serves these, wraps every error into groups."""

    async def fail(_: object, **__: object) -> None:
        error = StartupError([ChildServerError("bad", "startup", "x")])
        raise ExceptionGroup("outer", [ExceptionGroup("inner", [error])])

    monkeypatch.setattr(Aggregator, "run_stdio_async", fail)
    monkeypatch.setattr(Aggregator, "settling", lambda _: no_more())
    assert serve_here(write(tmp_path, bad=MISSING)) == 3
    assert "The start has ended, because not every server started: bad.\n" in capfd.readouterr().err


async def no_more() -> AsyncIterator[None]:
    for nothing in ():
        yield nothing


def test_http_ends_with_code_0_when_the_program_is_told_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def hear(text: str) -> None:
        said.append(re.sub(r":\d+/", ":PORT/", text))
        if "dashboard" in text:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(serve, "tell", hear)
    assert serve_here(write(tmp_path), "--transport", "http", "--port", "0") == 0
    assert said == ["serving on http://127.0.0.1:PORT/mcp", "the dashboard is at http://127.0.0.1:PORT/"]


def test_a_key_for_a_group_that_is_not_there_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_keys(tmp_path / "keys.json", [new_key("ann", ["web", "wbe"], None)[1], new_key("bob", None, None)[1]])
    groups = load_groups({"web": {"servers": []}}, ())
    _look_at_keys(load_settings(keys_file=str(tmp_path / "keys.json")), groups)
    (told,) = caplog.messages
    assert "'ann' is for the group 'wbe', which is not there" in told


def test_an_address_that_others_can_reach_is_refused_before_anything_starts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "pids"
    path = write(tmp_path, a=lean(record=str(record)))
    assert serve_here(path, "--transport", "http", "--host", "0.0.0.0") == 2
    assert capfd.readouterr().err.startswith("refusing to listen on 0.0.0.0: ")
    assert not record.exists()


def test_a_port_that_is_taken_ends_with_code_1_before_anything_starts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    import socket

    record = tmp_path / "pids"
    path = write(tmp_path, a=lean(record=str(record)))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert serve_here(path, "--transport", "http", "--port", port) == 1
    advice = "give another port (--port), or end what listens there"
    assert capfd.readouterr().err == f"cannot listen on 127.0.0.1, port {port}: Address already in use; {advice}\n"
    assert not record.exists()


def test_on_stdio_the_audit_log_cannot_go_where_the_messages_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FASTMCP_AGGREGATOR_AUDIT", "stdout")
    assert main([write(tmp_path)]) == 2
    assert capfd.readouterr() == (
        "",
        "on stdio, stdout is for MCP and nothing else; give the setting `audit` the path of a file\n",
    )


async def test_in_production_every_line_on_stderr_is_json_and_none_has_a_secret(tmp_path: Path) -> None:
    noisy = {**lean(stderr=["the token is s3cret-value"]), "env": {"TOKEN": "s3cret-value"}}
    path = write(tmp_path, noisy=noisy, missing=MISSING)
    settings = tmp_path / "settings.toml"
    settings.write_text('profile = "production"\nstrict = false\n')
    async with served(path, "--settings", str(settings)) as server:
        await server.said("1 of 2 servers running")
        await server.client.error("tools/call", {"name": "noisy:leave"})
        await server.said("failed during runtime")
        assert await server.end() == 0
    entries = [json.loads(line) for line in server.stderr.decode().splitlines()]
    assert all({"timestamp", "level", "logger", "event"} <= entry.keys() for entry in entries)
    events = [(entry["level"], entry["event"]) for entry in entries]
    assert ("info", "the token is ***") in events
    assert ("error", f"missing: failed: {NOT_FOUND}") in events
    assert b"s3cret-value" not in server.stderr


async def test_in_production_a_start_that_fails_is_told_as_json(tmp_path: Path) -> None:
    path = write(tmp_path, missing=MISSING)
    environment = {**os.environ, "FASTMCP_AGGREGATOR_PROFILE": "production"}
    async with running(*PROGRAM, path, handshake=False, env=environment) as server:
        assert await server.wait() == 3
    entries = [json.loads(line) for line in server.stderr.decode().splitlines()]
    assert entries[-1]["level"] == "error"
    assert entries[-1]["event"].startswith("The start has ended")
