"""Bridges and hubs as processes."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.harness import PATIENCE, ServerProcess, config, lean, running, talking, until
from support.processes import is_gone, pids_in

import fastmcp_aggregator
from fastmcp_aggregator.attach.asking import Timeouts
from fastmcp_aggregator.cli.actions.hubs import stop
from fastmcp_aggregator.version import PROGRAM, VERSION

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("counted_processes")]

HEAVY = {"asyncio", "fastmcp", "mcp", "mcp_types", "pydantic", "rich", "hashlib", "subprocess"}


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of the test's own for sockets; at the end no hub is left."""
    folder = Path(tempfile.mkdtemp(prefix="hub-"))  # a socket's path must be short
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    yield folder
    while left := hubs_of(folder):
        for hub in left:
            with suppress(ProcessLookupError):
                os.kill(hub, signal.SIGKILL)
    shutil.rmtree(folder)


def hubs_of(folder: Path) -> list[int]:
    """The hubs that are noted in the locks of this folder."""
    found = []
    for lock in folder.rglob("*.lock"):
        with suppress(OSError, ValueError, psutil.NoSuchProcess):
            pid = json.loads(lock.read_text())["pid"]
            if f"--id={lock.stem}" in psutil.Process(pid).cmdline():
                found.append(pid)
    return found


def written(tmp_path: Path, **servers: Any) -> str:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps(config(**servers)))
    return str(path)


def bridge(path: str, *arguments: str, **options: Any) -> Any:
    return running(sys.executable, "-P", "-m", "fastmcp_aggregator", "attach", path, *arguments, **options)


@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
async def test_two_clients_share_one_hub_and_one_server_and_nothing_is_left_after_the_last(
    modern: bool, tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTMCP_AGGREGATOR_HUB_IDLE", "0.2")
    record = tmp_path / "pids"
    path = written(tmp_path, a=lean(record=str(record)))
    async with bridge(path, modern=modern) as one, bridge(path) as other:
        for server in (one, other):
            assert (await server.client.call("a:echo", x="ü"))["arguments"] == {"x": "ü"}
        assert len(hubs_of(runtime)) == 1
        assert len(pids_in(record)) == 1
        payload = "x" * 3_000_000
        assert (await one.client.call("a:echo", payload=payload))["arguments"]["payload"] == payload
        assert await one.end() == 0
        assert (await other.client.call("a:echo", x=1))["arguments"] == {"x": 1}
    await until(lambda: list(runtime.rglob("*.*")) == [])
    await until(lambda: is_gone(pids_in(record)[0]))


async def test_a_hub_answers_handshakes_before_it_has_imported_fastmcp(
    tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It imports one that waits for a line; the second client comes meanwhile."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    (tmp_path / "fastmcp.py").write_text(f"open({str(gate)!r}).read()")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    path = written(tmp_path, a=lean())
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    for _ in range(2):
        async with bridge(path, handshake=False) as server:
            answer = await server.client.begin("initialize", hello)[1]
            assert answer["result"]["serverInfo"]["name"] == "fastmcp-aggregator"
    await until(lambda: has_been_opened(gate))


def has_been_opened(gate: Path) -> bool:
    """Whether a process reads a named pipe; it reads its end then, and the pipe is gone."""
    try:
        descriptor = os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    gate.unlink()
    os.close(descriptor)
    return True


async def test_a_killed_hub_is_replaced_and_what_was_lost_is_told(tmp_path: Path, runtime: Path) -> None:
    path = written(tmp_path, a=lean())
    async with bridge(path) as one, bridge(path) as other:
        servers: list[ServerProcess] = [one, other]
        for server in servers:
            await server.client.names()
        [hub] = hubs_of(runtime)
        pending = [server.client.begin("tools/call", {"name": "a:hold", "arguments": {}})[1] for server in servers]
        await until(lambda: psutil.Process(hub).is_running())
        for server in servers:
            await server.client.call("a:pid")
        os.kill(hub, signal.SIGKILL)
        for answer in pending:
            assert "the hub ended" in (await answer)["error"]["message"]
        for server in servers:
            assert (await server.client.call("a:echo", x=1))["arguments"] == {"x": 1}
        [another] = hubs_of(runtime)
        assert another != hub
        assert [n for server in servers for n in server.client.notifications if "list_changed" in str(n)] == []


async def test_a_strict_start_that_fails_ends_the_bridge_with_the_reasons(tmp_path: Path, runtime: Path) -> None:
    path = written(tmp_path, missing={"command": "no-such-command"})
    async with bridge(path, handshake=False) as server:
        assert await server.wait() == 3
        assert b"command not found: 'no-such-command'" in server.stderr
        assert b"hub" not in server.stderr


def test_a_config_that_is_not_there_ends_the_bridge_as_it_ends_serve(tmp_path: Path) -> None:
    path = str(tmp_path / "none.json")
    ended = [
        subprocess.run(
            [sys.executable, "-P", "-m", "fastmcp_aggregator", command, path],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
        for command in ("attach", "serve")
    ]
    assert ended[0].returncode == ended[1].returncode == 2
    assert ended[0].stderr == ended[1].stderr
    assert b"none.json" in ended[0].stderr


async def test_a_client_of_another_path_is_told_why_it_has_another_hub(
    tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, a=lean())
    async with bridge(path) as one:
        await one.client.call("a:echo", x=1)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        async with bridge(path) as other:
            await other.client.call("a:echo", x=1)
            assert b"differs from that of this client in PATH." in other.stderr
            told = r"differs  in PATH from the hub [0-9a-f]{16}, which also serves it for test\n"
            assert len(re.findall(told, (await command("status")).stdout)) == 2
        async with bridge(path, "--hub", "work") as named:
            await named.client.call("a:echo", x=1)
            assert named.stderr == b""  # it has a hub of its own because it is to have one


async def test_a_server_is_restarted_in_the_hub(tmp_path: Path, runtime: Path) -> None:
    assert "no hub runs" in (await command("status")).stderr
    async with bridge(written(tmp_path, files=lean())) as server:
        before = await server.client.call("files:pid")
        assert "files is being restarted in the hub" in (await command("restart", "files")).stderr
        assert "did you mean 'files'?" in (await command("restart", "flies")).stderr
        assert await server.client.call("files:pid") != before


@pytest.mark.parametrize("as_json", [False, True])
async def test_hubs_are_watched_while_they_end_and_start(as_json: bool, tmp_path: Path, runtime: Path) -> None:
    line = [sys.executable, "-P", "-m", "fastmcp_aggregator", "status", "--watch", "--every", "0.1"]
    async with bridge(written(tmp_path, a=lean())) as server:
        await server.client.call("a:echo", x=1)
        watching = await asyncio.create_subprocess_exec(
            *line, *(["--json"] if as_json else []), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        assert watching.stdout is not None

        async def shown(text: bytes) -> None:
            async with asyncio.timeout(PATIENCE):
                while text not in await watching.stdout.readline():
                    pass

        running_, none = (
            (b'"state": "running"', b'{"hubs": []}') if as_json else (b"servers  a  running", b"no hub runs")
        )
        await shown(running_)
        await command("stop")
        await shown(none)
        await server.client.call("a:echo", x=2)
        await shown(running_)
        watching.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(watching.wait(), PATIENCE) == 0


async def test_hubs_are_watched_in_one_place_of_a_terminal(tmp_path: Path, runtime: Path) -> None:
    main_end, other_end = pty.openpty()
    line = [sys.executable, "-P", "-m", "fastmcp_aggregator", "status", "--watch", "--every", "0.1"]
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "60", "LINES": "24"}
    async with bridge(written(tmp_path, a=lean())) as server:
        await server.client.call("a:echo", x=1)
        watching = await asyncio.create_subprocess_exec(*line, stdout=other_end, stderr=other_end, env=environ)
        os.close(other_end)
        seen = b""
        while seen.count(b"servers  a  running") < 2:
            seen += await asyncio.to_thread(os.read, main_end, 65536)
        watching.send_signal(signal.SIGINT)
        with suppress(OSError):  # it has ended
            while await asyncio.to_thread(os.read, main_end, 65536):
                pass
        os.close(main_end)
        assert await asyncio.wait_for(watching.wait(), PATIENCE) == 0
        assert b"\x1b[2K" in seen  # over what stood there before


async def test_a_hub_is_chosen_by_its_config_and_several_are_stopped_at_once(tmp_path: Path, runtime: Path) -> None:
    paths = []
    for key in ("one", "other"):
        (tmp_path / key).mkdir()
        paths.append(written(tmp_path / key, **{key: lean()}))
    async with bridge(paths[0]) as one, bridge(paths[1]) as other:
        for server in (one, other):
            await server.client.names()
        shown = (await command("status", "--hub", paths[0])).stdout
        assert (f"serves {paths[0]}" in shown, f"serves {paths[1]}" in shown) == (True, False)
        assert "say which hub" in (await command("logs")).stderr
        assert f"and serves {paths[1]}" in (await command("logs", paths[1])).stdout
        assert "no hub has a server" in (await command("restart", "one", "--hub", paths[1])).stderr
        assert (await command("stop", paths[0])).returncode == 0
        [left] = json.loads((await command("status", "--json")).stdout)["hubs"]
        assert left["config"] == paths[1]
        assert (await one.client.names()) != []
        assert len(hubs_of(runtime)) == 2
        assert (await command("stop", "--all")).stderr.count("has ended") == 2
        assert hubs_of(runtime) == []
        assert f"and serves {paths[0]}" in (await command("logs", paths[0])).stdout


async def test_a_config_that_breaks_is_shown_until_it_is_mended(tmp_path: Path, runtime: Path) -> None:
    path = written(tmp_path, a=lean())
    async with bridge(path) as server:
        await server.client.names()
        Path(path).write_text("{")
        while "as it was before" not in (shown := (await command("status")).stdout):
            await asyncio.sleep(0.1)
        assert f"cannot be used: {path}: 1 problem $: is not valid JSON" in shown
        written(tmp_path, b=lean())
        while "as it was before" in (await command("status")).stdout:
            await asyncio.sleep(0.1)
        assert "config read again: 1 server; added: b; removed: a" in (await command("logs")).stdout


async def test_a_client_whose_hub_cannot_start_again_is_told_why_and_served_once_it_can(
    tmp_path: Path, runtime: Path
) -> None:
    path = written(tmp_path, a=lean())
    async with bridge(path) as server:
        await server.client.names()
        Path(path).write_text('{"mcpServers": {"a": {"comand": "x"}}}')
        [hub] = hubs_of(runtime)
        os.kill(hub, signal.SIGKILL)
        await server.said("the next request tries again")  # of the hub that is started unasked
        for method in ("tools/list", "tools/call"):
            _, answer = server.client.begin(method, {"name": "a:echo", "arguments": {}} if "call" in method else {})
            assert "did you mean `command`?" in (await answer)["error"]["message"]
        written(tmp_path, a=lean())
        assert (await server.client.call("a:echo", x=1))["arguments"] == {"x": 1}
        assert await server.end() == 0


async def test_an_instance_for_clients_of_the_other_era_is_shown_with_its_reason(tmp_path: Path, runtime: Path) -> None:
    async with bridge(written(tmp_path, a=talking(era="both")), capabilities={"roots": {}}) as server:
        await server.client.call("a:echo", x=1)
        assert "a  running, 1 more instance for clients of the other protocol era\n" in (await command("status")).stdout


async def test_a_hub_that_hangs_is_shown_and_killed(
    tmp_path: Path, runtime: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with bridge(written(tmp_path, a=lean())) as server:
        await server.client.call("a:echo", x=1)
        [hub] = hubs_of(runtime)
        os.kill(hub, signal.SIGSTOP)
        shown = await command("status")
        assert f"process {hub}, it does not answer" in shown.stdout
        stopping = argparse.Namespace(hub=None, all=False)
        assert await asyncio.to_thread(stop.run, stopping, Timeouts(status=0.5, answer=0.5)) == 0
        assert f"its process {hub} is killed" in capfd.readouterr().err
        await until(lambda: is_gone(hub))
        assert (await server.client.call("a:echo", x=2))["arguments"] == {"x": 2}


async def test_a_hub_that_is_stopped_while_a_client_calls_has_ended_though_the_next_one_runs(
    tmp_path: Path, runtime: Path
) -> None:
    async with bridge(written(tmp_path, a=lean())) as server:
        await server.client.call("a:echo", x=1)
        [hub] = hubs_of(runtime)
        stopping = asyncio.create_task(command("stop"))
        while not stopping.done():
            await server.client.call("a:echo", x=2)
        assert stopping.result().returncode == 0, stopping.result().stderr
        await until(lambda: is_gone(hub))
        assert (await server.client.call("a:echo", x=3))["arguments"] == {"x": 3}


async def test_a_client_whose_working_folder_is_gone_is_served(tmp_path: Path, runtime: Path) -> None:
    path, folder = written(tmp_path, a=lean()), tmp_path / "gone"
    folder.mkdir()
    code = f'cd {folder} && rmdir {folder} && exec "$0" -P -m fastmcp_aggregator attach {path}'
    async with running("/bin/sh", "-c", code, sys.executable) as server:
        assert (await server.client.call("a:echo", x=1))["arguments"] == {"x": 1}
        assert await server.end() == 0
        assert server.stderr == b""


async def test_without_a_folder_for_hubs_a_client_has_servers_of_its_own(tmp_path: Path, runtime: Path) -> None:
    (runtime / "fastmcp-aggregator").mkdir(mode=0o777)
    (runtime / "fastmcp-aggregator").chmod(0o777)
    async with bridge(written(tmp_path, a=lean())) as server:
        assert (await server.client.call("a:echo", x=1))["arguments"] == {"x": 1}
        assert await server.end() == 0
        assert b"is not for this user alone" in server.stderr


def test_a_bridge_loads_nothing_that_is_heavy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
    code = (
        "import sys\n"
        "from fastmcp_aggregator.cli.commands.hubs.attach import COMMAND\n"
        "import fastmcp_aggregator.cli.actions.hubs.attach, fastmcp_aggregator.attach.bridge\n"
        "COMMAND.parsed(['x'])\n"
        f"print(*sorted(sys.modules.keys() & {HEAVY!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []


async def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return await ended(sys.executable, "-P", "-m", "fastmcp_aggregator", *arguments)


async def ended(*program: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(subprocess.run, program, capture_output=True, text=True, timeout=60, check=False)


def attach(config: str, **timings: float) -> list[str]:
    """A bridge that waits as long as these say."""
    code = (
        "import sys\n"
        "from fastmcp_aggregator.attach.probe import Timings\n"
        "from fastmcp_aggregator.cli.actions.hubs.attach import run\n"
        "from fastmcp_aggregator.cli.commands.hubs.attach import COMMAND\n"
        f"sys.argv = ['x', 'attach', {config!r}]\n"
        f"sys.exit(run(COMMAND.parsed(sys.argv[2:]), Timings(**{timings!r})))"
    )
    return [sys.executable, "-c", code]


async def test_a_hub_is_shown_and_stopped_and_started_again_by_its_clients(tmp_path: Path, runtime: Path) -> None:
    async with bridge(written(tmp_path, a=lean()), "--hub", "work") as server:
        await server.client.call("a:echo", x=1)
        [hub] = json.loads((await command("status", "--json")).stdout)["hubs"]
        assert (hub["name"], hub["pid"], hub["servers"]["a"]["state"]) == ("work", hubs_of(runtime)[0], "running")
        [client] = hub["clients"]
        assert (client["name"], client["pid"], client["folder"]) == ("test", os.getpid(), os.getcwd())
        shown = (await command("status")).stdout
        assert "hub work" in shown
        assert f"in {os.getcwd()}" in shown
        assert "1 client will start it again" in (await command("stop", "work")).stderr
        assert hubs_of(runtime) == []
        assert (await server.client.call("a:echo", x=2))["arguments"] == {"x": 2}
        [another] = hubs_of(runtime)
        assert another != hub["pid"]
        logged = (await command("logs")).stdout
        assert f"as process {hub['pid']}" in logged
        assert f"as process {another}" in logged
        assert f"there is no hub 'home', but:\n{hub['id']} (work) serves " in (await command("stop", "home")).stderr
        assert f"the client 'test' of process {os.getpid()} in {os.getcwd()} disconnected" in logged
        assert "the hub work ends: `fastmcp-aggregator stop` has told it to" in logged
        assert all(re.match(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ ", line) for line in logged.splitlines())
        other = tmp_path / "other.json"
        other.write_text("{}")
        async with bridge(str(other), "--hub", "work") as guest:
            assert "a:echo" in await guest.client.names()
            await guest.said(f"The hub work serves {tmp_path / 'mcp.json'}.")


async def test_a_hub_that_hangs_is_left_by_new_clients(tmp_path: Path, runtime: Path) -> None:
    path = written(tmp_path, a=lean())
    async with bridge(path) as one:
        await one.client.call("a:echo", x=1)
        [hub] = hubs_of(runtime)
        os.kill(hub, signal.SIGSTOP)
        try:
            async with running(*attach(path, greeting_timeout=0.5)) as other:
                assert (await other.client.call("a:echo", x=1))["arguments"] == {"x": 1}
                assert await other.end() == 0
                assert b"the hub has not answered" in other.stderr
        finally:
            os.kill(hub, signal.SIGCONT)
        assert (await one.client.call("a:echo", x=2))["arguments"] == {"x": 2}


async def test_a_hub_that_hangs_is_left_by_those_that_it_serves_and_what_was_lost_is_told(
    tmp_path: Path, runtime: Path
) -> None:
    path = written(tmp_path, a=lean())
    async with running(*attach(path, silence=0.1, probe_timeout=2.0)) as server:
        await server.client.call("a:echo", x=1)
        [hub] = hubs_of(runtime)
        _, pending = server.client.begin("tools/call", {"name": "a:hold", "arguments": {}})
        await server.client.call("a:pid")
        os.kill(hub, signal.SIGSTOP)
        assert "the hub does not answer" in (await pending)["error"]["message"]
        assert (await server.client.call("a:echo", x=2))["arguments"] == {"x": 2}
        assert await server.end() == 0
        assert b"the hub has not answered" in server.stderr


async def test_a_hub_whose_server_is_slow_is_not_left(tmp_path: Path, runtime: Path) -> None:
    path = written(tmp_path, a=lean())
    async with running(*attach(path, silence=0.05)) as server:
        await server.client.call("a:echo")  # a hub answers the handshake before it serves
        _, pending = server.client.begin("tools/call", {"name": "a:hold", "arguments": {}})
        await asyncio.sleep(0.5)  # as long as several probes take
        while not (await server.client.call("a:release"))["released"]:
            pass  # it has come before the other
        assert "error" not in await pending
        assert b"hub" not in server.stderr


SAID_TO_HUBS = [b"", b"half a line", b"x" * 200_000, b"null\n", b'{"hub":"client","version":"0"}\n', b'{"hub":1}\n']


async def test_whatever_connects_to_a_hub_disturbs_nobody(tmp_path: Path, runtime: Path) -> None:
    async with bridge(written(tmp_path, a=lean())) as server:
        await server.client.call("a:echo", x=1)
        [path] = runtime.rglob("*.sock")
        for said in SAID_TO_HUBS:
            peers = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(20)]
            for peer in peers:
                peer.connect(str(path))
                peer.setblocking(False)
                with suppress(OSError):
                    peer.sendall(said)
            assert (await server.client.call("a:echo", x=2))["arguments"] == {"x": 2}, said
            for peer in peers:
                peer.close()
            assert (await server.client.call("a:echo", x=3))["arguments"] == {"x": 3}, said


async def test_what_all_clients_share_starts_where_the_config_is_and_not_where_a_client_works(
    tmp_path: Path, runtime: Path
) -> None:
    """A client's folder may be somebody's repository, with settings for `npx` and modules in it."""
    path = written(tmp_path, a=lean())
    repository = tmp_path / "repository"
    repository.mkdir()
    async with bridge(path, cwd=repository) as server:
        pid = (await server.client.call("a:pid"))["pid"]
        assert os.readlink(f"/proc/{pid}/cwd") == os.path.realpath(tmp_path)


async def test_another_version_has_a_hub_of_its_own_and_disturbs_nobody(tmp_path: Path, runtime: Path) -> None:
    package = Path(fastmcp_aggregator.__file__).parent
    copied = tmp_path / "other" / package.name
    shutil.copytree(package, copied, ignore=shutil.ignore_patterns("__pycache__"))
    (copied / "version.py").write_text(f'PROGRAM = "{PROGRAM}"\nVERSION = "99.0"\n')
    path = written(tmp_path, a=lean())
    async with (
        bridge(path) as old,
        bridge(path, env={**os.environ, "PYTHONPATH": str(copied.parent)}) as new,
        bridge(path) as another,
    ):
        for server in (old, new, another):
            assert (await server.client.call("a:echo", x=1))["arguments"] == {"x": 1}
        versions = [new.client.introduction["serverInfo"]["version"], old.client.introduction["serverInfo"]["version"]]
        assert versions == ["99.0", VERSION]
        assert len(hubs_of(runtime)) == 2
        assert old.stderr == b""
        said = f"differs from that of this client in its version (99.0 here, {VERSION} there), where its program is ("
        assert said.encode() in new.stderr
        assert b"To share one, restart the clients of the older version." in new.stderr
        status = (await command("status")).stdout
        assert f"its version ({VERSION} here, 99.0 there)" in status
        assert status.count("to share one, restart the clients of the older version") == 2


async def test_a_value_that_is_filled_into_the_file_of_variables_reaches_the_hub(tmp_path: Path, runtime: Path) -> None:
    variables = tmp_path / "x.env"
    variables.write_text("TOKEN_OF_MINE=\n")
    path = written(tmp_path, a=lean(), b=lean() | {"env": {"TOKEN": "${TOKEN_OF_MINE}"}})
    async with bridge(path, "--no-strict", "--env-file", str(variables)) as server:
        await server.client.call("a:echo", x=1)
        [hub] = hubs_of(runtime)
        variables.write_text("TOKEN_OF_MINE=1\n")

        async def has_b() -> bool:
            [status] = json.loads((await command("status", "--json")).stdout)["hubs"]
            return bool(status["servers"]["b"]["state"] in ("running", "sleeping"))

        while not await has_b():
            await asyncio.sleep(0.1)
        assert (await server.client.call("b:echo", x=2))["arguments"] == {"x": 2}
        assert hubs_of(runtime) == [hub]
