"""`status`: what is told of a running instance, once and again and again."""

from __future__ import annotations

import asyncio
import json
import math
import os
import pty
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import StringIO
from itertools import islice
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any, ClassVar

import httpx2
import pytest
from fastmcp import Client
from fastmcp.server.auth import StaticTokenVerifier
from rich.console import Console
from support.harness import PATIENCE, config, free_port, lean, until
from support.serving import served

from fastmcp_aggregator import Aggregator, build_aggregator
from fastmcp_aggregator.access.keys import new_key
from fastmcp_aggregator.access.keys_file import write_keys
from fastmcp_aggregator.cli.actions.hubs import restart as hubs_restart
from fastmcp_aggregator.cli.actions.hubs import status as hubs_status
from fastmcp_aggregator.cli.actions.hubs.status import _clients, _server
from fastmcp_aggregator.cli.actions.status import rows_of, samples_of, table_of
from fastmcp_aggregator.cli.main import main, parse
from fastmcp_aggregator.cli.running.instance import Instance, InstanceError, Sample, ServerCalls, base_of, calls_of
from fastmcp_aggregator.cli.terminal.console import put_table
from fastmcp_aggregator.cli.terminal.exits import UsageError
from fastmcp_aggregator.errors import ConfigError

pytestmark = pytest.mark.process
_TOTAL, _SECONDS = "fastmcp_aggregator_calls_total", "fastmcp_aggregator_call_duration_seconds_bucket"


@pytest.mark.parametrize(
    ("command", "advice"),
    [("stop", "end its own process, by Ctrl-C or SIGTERM"), ("logs", "its log is the stderr of its own process")],
)
def test_what_is_for_hubs_says_what_to_do_with_an_instance_over_http(
    command: str, advice: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "http://127.0.0.1:8000"]) == 2
    told = f"http://127.0.0.1:8000 serves HTTP, and is not a hub that `attach` has started; {advice}"
    assert told in capfd.readouterr().err


MISSING = {"command": "no-such-command-anywhere"}


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FASTMCP_AGGREGATOR_API_KEY", raising=False)


@asynccontextmanager
async def settled(app: Aggregator) -> AsyncIterator[str]:
    """Serve the app on a real socket, until its servers have started or failed; its URL."""
    async with served(app) as front:
        await until(lambda: all(server.state != "initializing" for server in app.health().values()))
        yield front.origin


async def status(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = await asyncio.to_thread(main, ["status", *arguments])
    return (code, *capfd.readouterr())


def hub(**options: Any) -> Aggregator:
    return build_aggregator(config(files=lean(), bad=MISSING), strict=False, **options)


async def test_the_servers_are_told_with_their_calls_and_times(capfd: pytest.CaptureFixture[str]) -> None:
    async with settled(hub(metrics=True)) as url:
        async with Client(f"{url}/mcp") as client:
            for _ in range(3):
                await client.call_tool("files:echo")
        code, out, err = await status(capfd, f"{url}/mcp")
        head, files, bad = out.splitlines()
        assert code == 0, err
        assert head.split("  ")[0] == "server"
        assert files.split()[:2] == ["files", "running"]
        assert files.split()[5] == "3"
        assert files.count(" ms") == 2
        assert bad.split()[:2] == ["bad", "failed"]
        document = json.loads((await status(capfd, url, "--json"))[1])
    assert (document["url"], document["ready"], document["metrics"]) == (url, True, True)
    assert document["servers"]["files"]["calls"] == 3
    assert 0 < document["servers"]["files"]["p50"] <= document["servers"]["files"]["p99"]
    assert document["servers"]["bad"]["state"] == "failed"


async def test_a_file_that_is_refused_as_it_is_now_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps(config(files=lean())))
    app = build_aggregator(file)
    async with settled(app) as url:
        file.write_text("{")
        with pytest.raises(ConfigError):
            await app.reload()
        code, out, err = await status(capfd, url)
        assert code == 0, err
        last = out.splitlines()[-1]
        document = json.loads((await status(capfd, url, "--json"))[1])
    assert re.fullmatch(r"the config file has been refused for \d+ s, and what it said before stays in use: .*", last)
    assert f"{file}: 1 problem $: is not valid JSON" in last
    assert document["refused_files"].keys() == {"config"}


async def test_keys_that_expire_soon_are_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, soon = tmp_path / "keys.json", datetime.now(UTC) + timedelta(days=2)
    key, own = new_key("ann", None, None, ["observe"])
    write_keys(path, [own, *(new_key(f"bob{n}", None, soon + timedelta(hours=n))[1] for n in range(4))])
    monkeypatch.setenv("FASTMCP_AGGREGATOR_API_KEY", key)
    async with settled(build_aggregator(config(files=lean()), keys_file=str(path))) as url:
        told = (await status(capfd, url))[1].splitlines()
        document = json.loads((await status(capfd, url, "--json"))[1])
    assert [line.partition(" of ")[2] for line in told[-4:-1]] == [
        f"bob{n} expires on {soon + timedelta(hours=n):%Y-%m-%d}" for n in range(3)
    ]
    assert told[-1] == "More keys expire soon: fastmcp-aggregator keys list"
    assert [key["name"] for key in document["expiring_keys"]] == [f"bob{n}" for n in range(4)]


async def test_restart_starts_a_server_anew(capfd: pytest.CaptureFixture[str]) -> None:
    app = hub()
    async with settled(app) as url:
        before = app.health()["files"].pid
        code = await asyncio.to_thread(main, ["restart", "files", url])
        told = capfd.readouterr().err
        assert (code, "files is being restarted" in told) == (0, True)
        assert f"status {url}" in told
        await until(lambda: app.health()["files"].pid not in (None, before))
        assert await asyncio.to_thread(main, ["restart", "other", url]) == 1
        assert "has no server 'other'" in capfd.readouterr().err
        assert await asyncio.to_thread(main, ["restart", "flies", url]) == 1
        assert "did you mean 'files'?" in capfd.readouterr().err


async def test_it_says_which_servers_have_instances_and_in_full_why(capfd: pytest.CaptureFixture[str]) -> None:
    app = build_aggregator(config(files=lean(), shell=lean()), isolation="auto", servers={"shell": {"stateful": True}})
    why = "its setting `stateful` says that it keeps state"
    async with settled(app) as url:
        out = (await status(capfd, url))[1]
        servers = json.loads((await status(capfd, url, "--json"))[1])["servers"]
    assert out.splitlines()[3:] == ["an instance for each client session: shell"]
    assert [server["isolation"] for server in servers.values()] == ["shared", "session"]
    assert servers["shell"]["isolation_reason"] == why


def test_a_table_is_cut_to_the_width_of_a_terminal_and_says_where_it_is_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["server  last error", "files   " + "x" * 100]
    put_table(lines, "status --json")
    assert capsys.readouterr().out.splitlines() == lines
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    put_table(lines, "status --json")
    cut = [lines[0], "files   " + "x" * 31 + "…", "In full: status --json"]
    assert capsys.readouterr().out.splitlines() == cut
    put_table(lines[:1], "status --json")
    assert capsys.readouterr().out.splitlines() == lines[:1]


@pytest.mark.parametrize(
    ("instances", "starting", "told"),
    [
        (0, 0, "a  running, an instance for each client session"),
        (1, 0, "a  running, 1 more instance, an instance for each client session"),
        (1, 1, "a  running, 1 more instance, which is starting, an instance for each client session"),
        (3, 2, "a  running, 3 more instances, 2 of them starting, an instance for each client session"),
    ],
)
def test_instances_that_are_starting_are_told(instances: int, starting: int, told: str) -> None:
    about = {"state": "running", "isolation": "session", "last_error": None}
    assert _server("a", {**about, "instances": instances, "instances_starting": starting}, 1) == told


def test_clients_of_one_folder_are_counted_in_one_line() -> None:
    def client(name: str | None, folder: str | None, pid: int, group: str | None = None) -> dict[str, Any]:
        return {"name": name, "folder": folder, "group": group, "pid": pid, "since": 5.0}

    two = [client("cursor", "/a", 1), client("cursor", "/a", 2), client(None, "/a", 3)]
    lines = [*_clients([*two, client("zed", "/b", 4), client("zed", "/a", 5, "web"), client("zed", "/a", 6, "web")])]
    assert lines == [
        "3 in /a: 2 cursor, yet unknown",
        "zed, in /b, process 4, for 5 s",
        "2 in /a, group web: 2 zed",
    ]


async def test_a_server_that_floods_stderr_is_said_also_of_what_it_wrote_before_it_crashed(
    capfd: pytest.CaptureFixture[str],
) -> None:
    app = build_aggregator(config(files=lean(), loud=lean(stderr=["x"] * 1200)), metrics=True)
    async with settled(app) as url:
        out = (await status(capfd, url))[1]
        pid = app.health()["loud"].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await until(lambda: app.health()["loud"].dropped_stderr_lines == 400)
        async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE) as http:
            metrics = (await http.get(f"{url}/metrics")).text
    assert out.splitlines()[3:] == ["loud floods stderr: 200 lines left out of the log"]
    assert 'fastmcp_aggregator_server_dropped_stderr_lines_total{server="loud"} 400.0' in metrics.splitlines()


async def test_without_metrics_it_says_how_to_have_them(capfd: pytest.CaptureFixture[str]) -> None:
    async with settled(hub()) as url:
        code, out, err = await status(capfd, url)
    assert code == 0
    assert "running" in out
    assert "FASTMCP_AGGREGATOR_METRICS=true" in err


async def test_a_key_for_some_groups_is_told_of_their_servers_and_that_it_may_not_read_the_metrics(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    key, kept = new_key("alice", ["web"], None)
    write_keys(tmp_path / "keys.json", [kept])
    (tmp_path / "key").write_text(key)
    options = {"groups": {"web": {"servers": ["files"]}}, "keys_file": str(tmp_path / "keys.json"), "metrics": True}
    app = build_aggregator(config(files=lean(), private=lean()), **options)
    async with settled(app) as url:
        code, out, err = await status(capfd, url, "--api-key-file", str(tmp_path / "key"))
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["server", "files"]
    assert "use a key with the role `metrics`" in err


async def test_the_api_key_comes_from_the_environment_or_a_file_and_is_never_shown(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    auth = StaticTokenVerifier({"the-secret-key": {"client_id": "me", "scopes": []}})
    (tmp_path / "key").write_text("the-secret-key\n")
    async with settled(hub(auth=auth)) as url:
        code, _, err = await status(capfd, url)
        assert code == 1
        assert "requires an API key: set FASTMCP_AGGREGATOR_API_KEY" in err
        assert (await status(capfd, url, "--api-key-file", str(tmp_path / "key")))[0] == 0
        monkeypatch.setenv("FASTMCP_AGGREGATOR_API_KEY", "the-secret-key")
        code, out, err = await status(capfd, url)
        assert (code, "the-secret-key" in out + err) == (0, False)
        monkeypatch.setenv("FASTMCP_AGGREGATOR_API_KEY", "a-wrong-key")
        code, _, err = await status(capfd, url)
        assert code == 1
        why = "it is unknown, revoked or expired, or the hub cannot use its keys file"
        assert f"{url} rejects the API key (401): {why}\n" in err
    assert (await status(capfd, url, "--api-key-file", "none"))[0] == 2


async def test_watch_goes_on_until_it_is_told_to_end() -> None:
    async with settled(hub(metrics=True)) as url, Client(f"{url}/mcp") as client:
        line = [sys.executable, "-m", "fastmcp_aggregator", "status", url, "--watch", "--every", "0.1", "--json"]
        process = await asyncio.create_subprocess_exec(*line, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        while True:
            await client.call_tool("files:echo")
            told = json.loads(await asyncio.wait_for(process.stdout.readline(), PATIENCE))
            if told["servers"]["files"]["calls_per_second"]:
                break
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), PATIENCE) == 0


async def test_on_a_terminal_watch_is_a_live_table() -> None:
    main_end, other_end = pty.openpty()
    async with settled(hub()) as url:
        line = [sys.executable, "-m", "fastmcp_aggregator", "status", url, "--watch", "--every", "0.1"]
        environ = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
        process = await asyncio.create_subprocess_exec(*line, stdout=other_end, stderr=other_end, env=environ)
        os.close(other_end)
        seen = b""
        while seen.count(b"files") < 2 or (b"Ctrl-C" not in seen and b"keeps no metrics" not in seen):
            seen += await asyncio.to_thread(os.read, main_end, 65536)
        process.send_signal(signal.SIGINT)
        with contextmanager(_read_on)(main_end):
            assert await asyncio.wait_for(process.wait(), PATIENCE) == 0


def _read_on(descriptor: int) -> Iterator[None]:
    """Take what is written meanwhile, so that nobody waits for room."""

    def read() -> None:
        try:
            while os.read(descriptor, 65536):
                pass
        except OSError:
            return

    reader = Thread(target=read, daemon=True)
    reader.start()
    yield
    reader.join(PATIENCE)
    os.close(descriptor)


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (hubs_status, hubs_restart):
        monkeypatch.setattr(module, "running_hubs", lambda *_: [])


def run_with(here: str, *line: str) -> int:
    """Run a command that finds no hub, and looks for an instance here."""
    options = parse(line)
    return (hubs_status if options.command == "status" else hubs_restart).run(options, here=here)


@pytest.mark.usefixtures("no_hub")
@pytest.mark.parametrize("line", [["status"], ["restart", "a"]])
def test_without_a_hub_and_an_instance_one_line_says_so(line: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert run_with(f"http://127.0.0.1:{free_port()}", *line) == 1
    told = "no hub runs, and no aggregator serves HTTP at http://127.0.0.1:8000; the next request of a client that"
    assert capfd.readouterr() == ("", f"{told} attaches starts a hub\n")


@pytest.mark.usefixtures("no_hub")
def test_a_hub_that_is_named_is_not_looked_for_over_http(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["restart", "a", "--hub", "work"]) == 1
    assert capfd.readouterr().err == "no hub runs; the next request of a client that attaches starts it\n"
    assert main(["status", "--hub", "work"]) == 1
    assert capfd.readouterr().err == "no hub 'work' runs\n"


@pytest.mark.usefixtures("no_hub")
def test_no_hub_is_told_as_json(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_with(f"http://127.0.0.1:{free_port()}", "status", "--json") == 1
    assert json.loads(capfd.readouterr().out) == {"hubs": []}


@pytest.mark.usefixtures("no_hub")
@pytest.mark.parametrize("code", [401, 500])
def test_another_program_that_serves_http_here_does_not_hide_that_no_hub_runs(
    code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    told = "no hub runs; the next request of a client that attaches starts it; http://127.0.0.1"
    with site(status=(code, b"")) as url:
        assert run_with(url, "status", "--json") == 1
        out, err = capfd.readouterr()
        assert json.loads(out) == {"hubs": []}
        assert err.startswith(told)
        assert run_with(url, "restart", "a") == 1
        assert capfd.readouterr().err.startswith(told)


@pytest.mark.usefixtures("no_hub")
async def test_an_instance_here_is_shown_and_watched_if_no_hub_runs(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hubs_status.of_instance, "_watch", lambda instance, *_, **__: print(instance.url) or 0)
    async with settled(hub()) as url:
        assert await asyncio.to_thread(run_with, url, "status") == 0
        assert "files" in capfd.readouterr().out
        assert await asyncio.to_thread(run_with, url, "status", "--watch") == 0
        assert capfd.readouterr() == (f"{url}\n", "")


async def test_watch_waits_for_an_instance_that_is_not_there_yet() -> None:
    line = [sys.executable, "-m", "fastmcp_aggregator", "status", f"http://127.0.0.1:{free_port()}", "--watch"]
    process = await asyncio.create_subprocess_exec(*line, "--every", "0.1", stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    for _ in range(2):
        assert b"nothing runs at" in await asyncio.wait_for(process.stderr.readline(), PATIENCE)
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), PATIENCE) == 0


def sample(at: float, calls: float | None, **server: Any) -> Sample:
    known = None if calls is None else {"a": ServerCalls(calls, {0.1: calls, math.inf: calls})}
    return Sample(at, True, {"a": {"state": "running", "since": 5, "restarts": 1, **server}}, known)


def test_rates_and_times_are_those_between_the_samples() -> None:
    (row,) = rows_of([sample(10, 100), sample(20, 150)])
    assert (row.calls, row.calls_per_second, row.p50) == (150, 5.0, pytest.approx(0.05))
    (row,) = rows_of([sample(10, 100), sample(20, 100)])
    assert (row.calls_per_second, row.p50, row.p99) == (0.0, None, None)
    (row,) = rows_of([sample(10, None), sample(20, None)])
    assert (row.calls, row.calls_per_second, row.p50) == (None, None, None)
    assert rows_of([]) == []


def test_nothing_that_an_instance_says_of_keys_reaches_the_terminal_as_it_is() -> None:
    key = {"id": "\x1b]0;id\x07", "name": "ann\x1b[2J", "expires": "\x1b[31m2027"}
    console = Console(width=160, file=StringIO(), color_system=None)
    console.print(table_of(Instance("http://h"), [replace(sample(10, 1), expiring_keys=[key])], None))
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    assert "\x1b" not in text
    assert "the key \\x1b]0;id\\x07 of ann\\x1b[2J expires on \\x1b[31m2027" in text


@pytest.mark.parametrize(("since", "shown"), [(None, ""), (59, "59 s"), (120, "2 min"), (7200, "2 h"), (200000, "2 d")])
def test_a_table_for_a_terminal_has_the_same_and_the_trouble_of_the_moment(since: float | None, shown: str) -> None:
    samples = [sample(10, 1), sample(20, 5000, since=since, last_error="it \x1b[31mleft\nand more")]
    console = Console(width=160, record=True, file=StringIO())
    console.print(table_of(Instance("http://h"), samples, "nothing runs at http://h"))
    text = console.export_text()
    assert "it \\x1b[31mleft" in text
    assert "499.9" in text
    assert "nothing runs at http://h" in text
    assert f"running  {shown}".rstrip() in text


def test_who_watches_is_told_of_each_look_and_only_the_last_minute_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [sample(0, 1), sample(50, 2), InstanceError("gone\nand more"), sample(115, 3), sample(130, 4)]
    clock = iter([0.0, 0.0, 50.0, 50.0, 60.0, 60.0, 115.0, 115.0, 130.0, 130.0])
    monkeypatch.setattr(Instance, "sample", lambda _: _answer(answers.pop(0)))
    monkeypatch.setattr(
        "fastmcp_aggregator.cli.actions.status.time", SimpleNamespace(monotonic=lambda: next(clock), sleep=id)
    )
    looks = [([one.at for one in samples], error) for samples, error in islice(samples_of(Instance("http://h"), 1), 5)]
    assert looks == [([0], None), ([0, 50], None), ([0, 50], "gone"), ([50, 115], None), ([50, 115, 130], None)]


def _answer(answer: Sample | InstanceError) -> Sample:
    if isinstance(answer, InstanceError):
        raise answer
    return answer


# What is no instance


class Page(BaseHTTPRequestHandler):
    answers: ClassVar[dict[str, tuple[int, bytes]]] = {}

    def do_GET(self) -> None:
        code, body = self.answers.get(self.path, (404, b""))
        self.send_response(code)
        if code == 302:
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def site(**answers: tuple[int, bytes]) -> Iterator[str]:
    handler = type("Site", (Page,), {"answers": {f"/{name}": answer for name, answer in answers.items()}})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({}, "is not an aggregator: it has no /status"),
        ({"status": (200, b"hello")}, "is not an aggregator: its /status is not that of one"),
        ({"status": (200, b'{"servers": 5, "ready": true}')}, "is not an aggregator: its /status is not that of one"),
        ({"status": (200, b'{"servers": {"a": 5}, "ready": true}')}, "its /status is not that of one"),
        (
            {"status": (200, b'{"servers": {}, "ready": true, "refused_files": {"keys": "x"}}')},
            "its /status is not that of one",
        ),
        (
            {"status": (200, b'{"servers": {}, "ready": true, "expiring_keys": ["ann"]}')},
            "its /status is not that of one",
        ),
        ({"status": (302, b"")}, "answers with the HTTP status 302"),
        ({"status": (403, b"")}, "answers with the HTTP status 403"),
    ],
)
async def test_what_answers_otherwise_is_said(
    answers: dict[str, tuple[int, bytes]], words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with site(**answers) as url:
        code, out, err = await status(capfd, url)
    assert (code, out) == (1, "")
    assert words in err


@pytest.mark.parametrize(
    "server",
    [
        *(
            b'"restarts": "x"',
            b'"restarts": NaN',
            b'"restarts": [1]',
            b'"since": "x"',
            b'"since": {}',
            b'"since": 1e999',
        ),
        *(
            b'"last_error": 5',
            b'"last_error": []',
            b'"dropped_stderr_lines": "x"',
            b'"isolation": 1',
            b'"x": ' + b"[" * 50_000,
        ),
    ],
    ids=lambda server: server[:30].decode(),
)
async def test_fields_of_another_type_are_not_those_of_an_aggregator(
    server: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with site(status=(200, b'{"ready": true, "servers": {"a": {"state": "running", %b}}}' % server)) as url:
        code, out, err = await status(capfd, url)
    assert (code, out) == (1, "")
    assert "its /status is not that of one" in err


@pytest.mark.parametrize(
    ("metrics", "count"),
    [
        *((f'{_TOTAL}{{server="a"}} {value}\n', 0) for value in ("NaN", "+Inf", "1e400", "1e300", "-1")),
        (f'{_TOTAL}{{server="a"}} 3\n{_SECONDS}{{server="a"}} 1\n', 0),
        (f'{_TOTAL}{{server="a"}} 3\n{_SECONDS}{{server="a",le="x"}} 1\n', 0),
        (f'{_TOTAL}{{server="a"}} 3\n{_SECONDS}{{server="a",le="0.1"}} NaN\n', 3),
    ],
)
def test_no_metrics_are_an_accident(metrics: str, count: int) -> None:
    known = calls_of(metrics).get("a", ServerCalls())
    assert known.calls == count
    assert known.quantile(0.5) is None


async def test_who_may_see_no_metrics_sees_the_rest(capfd: pytest.CaptureFixture[str]) -> None:
    with site(status=(200, b'{"ready": true, "servers": {"a": {"state": "running"}}}'), metrics=(403, b"")) as url:
        code, out, err = await status(capfd, url)
    assert code == 0
    assert out.splitlines()[1].split()[:2] == ["a", "running"]
    assert "keeps no metrics" in err


async def test_metrics_that_are_none_are_passed_over(capfd: pytest.CaptureFixture[str]) -> None:
    about = b'{"ready": false, "servers": {"a": {"state": "initializing", "since": 90000, "is_cut_off": true}}}'
    with site(status=(200, about), metrics=(200, b"{{{")) as url:
        code, out, _ = await status(capfd, url)
    assert code == 1
    assert out.splitlines()[1].split() == ["a", "cut", "off", "1", "d", "0", "0"]


async def test_who_hangs_up_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def hang_up(answer: bytes) -> None:
            connection, _ = listener.accept()
            connection.recv(1000)
            connection.sendall(answer)
            connection.close()

        for answer in (b"", b"nonsense\r\n\r\n"):
            thread = Thread(target=hang_up, args=(answer,), daemon=True)
            thread.start()
            code, _, err = await status(capfd, f"http://127.0.0.1:{listener.getsockname()[1]}")
            thread.join(PATIENCE)
            assert (code, "cannot reach" in err) == (1, True)


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\n\r\n"])
async def test_who_answers_byte_by_byte_has_as_long_as_others(head: bytes) -> None:
    is_told = Event()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def drip() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                connection.recv(1000)
                connection.sendall(head)
                while not is_told.wait(0.01):
                    connection.sendall(b" ")

        thread = Thread(target=drip, daemon=True)
        thread.start()
        try:
            asked = Instance(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=0.3)
            with pytest.raises(InstanceError, match=r"no answer within 0\.3 s"):
                await asyncio.wait_for(asyncio.to_thread(asked.sample), PATIENCE)
        finally:
            is_told.set()
            thread.join(PATIENCE)


async def test_nothing_there_is_said_with_what_to_do(capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = await status(capfd, f"http://127.0.0.1:{free_port()}")
    assert code == 1
    assert "To start it: fastmcp-aggregator CONFIG --transport http" in err


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://h:1/mcp", "http://h:1"),
        ("http://h:1/", "http://h:1"),
        ("https://h/hub/mcp/", "https://h/hub"),
    ],
)
def test_any_url_of_an_instance_will_do(url: str, base: str) -> None:
    assert base_of(url) == base


@pytest.mark.parametrize("url", ["h:1", "ftp://h", "http://", "http://me:pw@h", "http://h?key=1"])
def test_what_is_no_url_of_an_instance_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        base_of(url)


def test_how_often_to_look_is_bounded(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["status", "--every", "0"])


# Quantiles


BOUNDS = {0.1: 50.0, 1.0: 90.0, math.inf: 100.0}


@pytest.mark.parametrize(("share", "seconds"), [(0.5, 0.1), (0.25, 0.05), (0.7, 0.55), (0.9, 1.0), (0.99, 1.0)])
def test_a_quantile_is_interpolated_within_its_bucket(share: float, seconds: float) -> None:
    assert ServerCalls(100, BOUNDS).quantile(share) == pytest.approx(seconds)


def test_there_is_no_quantile_without_calls() -> None:
    assert ServerCalls().quantile(0.5) is None
    assert ServerCalls(100, BOUNDS).since(ServerCalls(100, BOUNDS)).quantile(0.5) is None


def test_calls_are_counted_since_a_sample_or_since_the_instance_was_started_again() -> None:
    now = ServerCalls(10, {1.0: 10.0})
    assert now.since(ServerCalls(4, {1.0: 3.0})) == ServerCalls(6, {1.0: 7.0})
    assert now.since(ServerCalls(11, {1.0: 11.0})) is now
    assert now.since(None) is now


def test_the_tools_of_a_server_are_counted_together() -> None:
    metrics = """\
# TYPE fastmcp_aggregator_calls counter
fastmcp_aggregator_calls_total{server="a",method="tools/call",tool="x",outcome="ok"} 2
fastmcp_aggregator_calls_total{server="a",method="tools/call",tool="y",outcome="error"} 3
# TYPE fastmcp_aggregator_call_duration_seconds histogram
fastmcp_aggregator_call_duration_seconds_bucket{server="a",tool="x",le="0.1"} 2
fastmcp_aggregator_call_duration_seconds_bucket{server="a",tool="y",le="0.1"} 1
fastmcp_aggregator_call_duration_seconds_bucket{server="a",tool="y",le="+Inf"} 3
"""
    assert calls_of(metrics) == {"a": ServerCalls(5, {0.1: 3, math.inf: 3})}
