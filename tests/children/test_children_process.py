"""One child process, from its start to the end of everything that it has started."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from pydantic import SecretStr
from support.harness import LEAN_CHILD, PATIENCE, lean, until
from support.processes import is_gone

from fastmcp_aggregator.children.process import process as process_module
from fastmcp_aggregator.children.process.environment import SAFE_VARIABLES
from fastmcp_aggregator.children.process.process import (
    DEFAULT_GRACES,
    ChildProcess,
    kill_recorded_groups,
)
from fastmcp_aggregator.config import StdioServer
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.pipe.lines import RESPONSE_LIMIT
from fastmcp_aggregator.settings.options import EndpointOptions

pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="process groups are POSIX"), pytest.mark.process]

Start = Callable[..., Awaitable[ChildProcess]]


class Output:
    """What came out of a child's stdout."""

    def __init__(self, process: ChildProcess) -> None:
        self.lines: list[bytes] = []
        self.ended = asyncio.Event()
        self.ends = 0
        self._changed = asyncio.Event()
        process.attach(self._take, self._end)

    def _take(self, lines: list[bytes]) -> None:
        self.lines += lines
        self._changed.set()

    def _end(self) -> None:
        self.ends += 1
        self.ended.set()

    async def line(self, number: int = 0) -> bytes:
        async with asyncio.timeout(PATIENCE):
            while len(self.lines) <= number:
                self._changed.clear()
                await self._changed.wait()
        return self.lines[number]

    async def all(self) -> list[bytes]:
        await in_time(self.ended.wait())
        return self.lines


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts children, and ends whatever a failed test leaves of them."""
    started: list[ChildProcess] = []

    async def spawn(command: str, *args: str, **options: Any) -> ChildProcess:
        env = {name: SecretStr(value) for name, value in options.pop("env", {}).items()}
        server = StdioServer(key="files", label=command, command=command, args=args, env=env, **options)
        started.append(await ChildProcess.spawn(server))
        return started[-1]

    yield spawn
    for process in started:
        process.kill_group()
        await process.stop()


async def python(start: Start, code: str) -> ChildProcess:
    return await start(sys.executable, "-c", code)


async def in_time(awaitable: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(awaitable, PATIENCE)


async def stop_within(process: ChildProcess, seconds: float) -> None:
    await asyncio.wait_for(process.stop(), seconds)


# What a child is given.


async def test_a_child_gets_the_safe_variables_and_its_own_and_nothing_else(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "ours")
    monkeypatch.setenv("FASTMCP_AGGREGATOR_NAME", "ours")
    monkeypatch.setenv("LOGNAME", "somebody")
    monkeypatch.delenv("SHELL", raising=False)
    process = await start("/usr/bin/env", env={"API_KEY": "its own", "TERM": "its own too"})
    given = dict(line.decode().split("=", 1) for line in await Output(process).all())
    expected = {name: os.environ[name] for name in SAFE_VARIABLES if name in os.environ}
    assert given == expected | {"API_KEY": "its own", "TERM": "its own too"}
    assert given["LOGNAME"] == "somebody"
    assert "SHELL" not in given


async def test_a_child_has_a_process_group_and_a_session_of_its_own(start: Start) -> None:
    process = await python(start, "import os; print(os.getpid(), os.getpgid(0), os.getsid(0))")
    assert await Output(process).line() == b" ".join([str(process.pid).encode()] * 3)
    assert process.pid != os.getpgid(0)


async def test_a_child_starts_in_its_working_directory(start: Start, tmp_path: Path) -> None:
    process = await start("/bin/pwd", cwd=str(tmp_path))
    assert await Output(process).line() == str(tmp_path.resolve()).encode()


async def test_a_child_starts_in_the_home_of_the_user_when_our_working_directory_is_gone(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of the client that came first may be: `npx` does not start where there is no folder."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "gone").rmdir()
    process = await start("/bin/pwd")
    assert await Output(process).line() == str(tmp_path.resolve()).encode()


async def test_arguments_reach_the_child_without_a_shell(start: Start) -> None:
    awkward = ["a b", "$HOME", "`id`", "*", "", "č"]
    process = await start(sys.executable, "-c", "import json, sys; print(json.dumps(sys.argv[1:]))", *awkward)
    assert json.loads(await Output(process).line()) == awkward


# Its pipes.


async def test_what_is_written_reaches_the_child_and_its_answers_come_back_as_lines(start: Start) -> None:
    process = await start("/bin/cat")
    output = Output(process)
    process.write(b"one\ntwo")
    await process.drained()
    assert await output.line(0) == b"one"
    process.write(b" and a half\n")
    assert await output.line(1) == b"two and a half"


async def test_nothing_that_a_child_writes_before_it_is_attached_is_lost(start: Start) -> None:
    process = await python(
        start,
        "import sys; print('early', flush=True); print('written', file=sys.stderr, flush=True); sys.stdin.read()",
    )
    await until(lambda: process.stderr.tail() == ("written",))
    output = Output(process)
    assert await output.line() == b"early"
    assert not output.ended.is_set()


async def test_a_child_that_writes_much_before_it_is_attached_is_left_waiting(start: Start) -> None:
    process = await python(
        start,
        """
import sys
print("begun", file=sys.stderr)
for _ in range(80):
    print("x" * 100_000)
print("done", file=sys.stderr)
""",
    )
    await until(process.stderr.tail)
    child, waits = psutil.Process(process.pid), 0
    while waits < 5 and not process.exited.is_set():
        await asyncio.sleep(0.01)
        waits = waits + 1 if child.status() == psutil.STATUS_SLEEPING else 0
    assert process.stderr.tail() == ("begun",)
    assert len(await Output(process).all()) == 80


async def test_what_a_child_wrote_before_it_crashed_is_read_before_the_end(start: Start) -> None:
    count = 2000
    process = await python(start, f"import os\nfor i in range({count}): print(i, flush=True)\nos.abort()")
    assert await Output(process).all() == [str(number).encode() for number in range(count)]


async def test_a_child_that_has_ended_before_it_is_attached_is_read_all_the_same(start: Start) -> None:
    process = await python(start, "print('Error: no token'); raise SystemExit(3)")
    await in_time(process.exited.wait())
    output = Output(process)
    assert await output.all() == [b"Error: no token"]
    assert output.ends == 1


async def test_the_end_is_told_once_and_after_the_last_line(start: Start) -> None:
    process = await start("/bin/cat")
    output = Output(process)
    process.write(b"last\n")
    await stop_within(process, PATIENCE)
    assert output.lines == [b"last"]
    assert output.ends == 1


async def test_a_child_that_was_stopped_before_it_is_attached_is_reported_as_ended(start: Start) -> None:
    process = await start("/bin/cat")
    await stop_within(process, PATIENCE)
    await in_time(process.closed.wait())
    output = Output(process)
    assert output.ended.is_set()
    assert output.ends == 1


async def test_a_child_whose_reader_has_paused_is_left_in_its_pipe_until_it_resumes(start: Start) -> None:
    process = await python(
        start,
        "import sys\nfor line in sys.stdin: print(line, end='', flush=True); print('written', file=sys.stderr)",
    )
    output = Output(process)
    process.pause_reading()
    process.write(b"while paused\n")
    await until(lambda: process.stderr.tail() == ("written",))
    assert output.lines == []
    process.resume_reading()
    assert await output.line() == b"while paused"


async def test_a_child_that_writes_faster_than_it_is_read_loses_nothing(start: Start) -> None:
    process = await python(start, "for number in range(20_000): print(number, 'x' * 100)")
    output = Output(process)
    await output.line()
    for _ in range(100):
        process.pause_reading()
        await asyncio.sleep(0)
        process.resume_reading()
        await asyncio.sleep(0)
    assert [int(line.split()[0]) for line in await output.all()] == list(range(20_000))


async def test_a_writer_waits_while_the_child_does_not_read(start: Start, tmp_path: Path) -> None:
    go, size = tmp_path / "go", 8 * 1024 * 1024
    code = f"""
import os, sys
while not os.path.exists({str(go)!r}):
    os.sched_yield()
print(len(sys.stdin.buffer.read({size})), flush=True)
"""
    process = await python(start, code)
    output = Output(process)
    process.write(b"x" * size)
    drained = asyncio.create_task(process.drained())
    await asyncio.sleep(0)
    assert not drained.done()
    go.touch()
    await in_time(drained)
    assert await output.line() == str(size).encode()


async def test_a_line_over_the_limit_is_dropped_with_a_warning_and_the_next_one_comes_through(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    code = f"""
import sys
for _ in range({RESPONSE_LIMIT} // 1048576 + 1):
    sys.stdout.write("x" * 1048576)
print("\\nnext", flush=True)
"""
    process = await python(start, code)
    assert await Output(process).all() == [b"next"]
    assert caplog.messages == ["server 'files' wrote a line of more than 9.5 MiB to its stdout; dropped"]


async def test_the_limit_can_be_set_and_the_head_of_a_line_over_it_is_handed_over() -> None:
    code = "input(); print('x' * 3000); print('short'); print('y' * 1001); print('z' * 1000)"
    server = StdioServer(key="files", label="python", command=sys.executable, args=("-c", code))
    process = await ChildProcess.spawn(server, EndpointOptions(line_limit=1000))
    lines: list[bytes] = []
    heads: list[bytes] = []
    ended = asyncio.Event()
    process.attach(lines.extend, ended.set, lambda head, _: heads.append(head))
    process.write(b"\n")
    await in_time(ended.wait())
    await process.stop()
    assert lines == [b"short", b"z" * 1000]
    assert [head[:1] for head in heads] == [b"x", b"y"]


async def test_writing_after_the_process_is_gone_raises_an_os_error(start: Start) -> None:
    process = await python(start, "pass")
    await in_time(process.exited.wait())
    with pytest.raises(OSError):  # noqa: PT011 - which of its subclasses is the system's choice
        process.write(b"anybody?\n")
    with pytest.raises(OSError):  # noqa: PT011
        await process.drained()


async def test_a_writer_that_waits_for_room_is_told_when_the_process_goes(start: Start) -> None:
    process = await python(start, "import signal; signal.pause()")
    assert process.has_room
    process.write(b"x" * 8 * 1024 * 1024)
    assert not process.has_room
    drained = asyncio.create_task(process.drained())
    await asyncio.sleep(0)
    assert not drained.done()
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(OSError):  # noqa: PT011
        await in_time(drained)
    assert process.has_room  # for an error


async def test_a_process_that_reads_again_has_room_again(start: Start) -> None:
    process = await python(start, "import sys; sys.stdin.read()")
    process.write(b"x" * 8 * 1024 * 1024)
    assert not process.has_room
    await in_time(process.drained())
    assert process.has_room


# Its end, when we ask for it.


async def test_a_child_that_exits_when_its_stdin_is_closed_gets_no_signal(start: Start) -> None:
    process = await python(start, "import sys; print('ready', flush=True); sys.stdin.read(); print('goodbye')")
    output = Output(process)
    await output.line()
    await stop_within(process, PATIENCE)
    assert process.returncode == 0
    assert output.lines == [b"ready", b"goodbye"]


async def test_a_child_that_ignores_eof_is_asked_by_signal_to_end_and_may_clean_up(start: Start) -> None:
    code = """
import signal, sys
def leave(*_):
    print("cleaned up", flush=True)
    sys.exit(4)
signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
while True:
    signal.pause()
"""
    process = await python(start, code)
    output = Output(process)
    await output.line()
    await stop_within(process, DEFAULT_GRACES.total)
    assert process.returncode == 4
    assert output.lines == [b"ready", b"cleaned up"]


async def test_a_child_that_ignores_eof_and_sigterm_is_killed_within_the_bound(start: Start) -> None:
    code = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
while True:
    signal.pause()
"""
    process = await python(start, code)
    await Output(process).line()
    await stop_within(process, DEFAULT_GRACES.total)
    assert process.returncode == -signal.SIGKILL
    assert is_gone(process.pid)


async def test_a_stopped_process_can_be_ended_too(start: Start) -> None:
    process = await python(start, "print('ready', flush=True); import sys; sys.stdin.read()")
    await Output(process).line()
    os.kill(process.pid, signal.SIGSTOP)
    await stop_within(process, DEFAULT_GRACES.total)
    assert is_gone(process.pid)


async def test_stopping_a_child_twice_or_after_its_end_is_harmless(start: Start) -> None:
    process = await python(start, "pass")
    await in_time(process.exited.wait())
    await stop_within(process, PATIENCE)
    await stop_within(process, PATIENCE)
    assert process.returncode == 0


async def test_a_stop_that_is_cancelled_kills_the_child_all_the_same(start: Start) -> None:
    process = await python(start, "import signal; print('ready', flush=True); signal.pause()")
    await Output(process).line()
    stopping = asyncio.create_task(process.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    await asyncio.gather(stopping, return_exceptions=True)
    await in_time(process.exited.wait())
    assert stopping.cancelled()
    assert process.returncode == -signal.SIGKILL


async def test_the_exit_code_is_known_whoever_asks_the_system_for_it_first(start: Start) -> None:
    """asyncio knows 255 when it comes second, as it may if its transport is closed at that moment."""
    for _ in range(10):
        process = await start("sleep", "60")
        os.kill(process.pid, signal.SIGKILL)
        while process._transport.get_extra_info("subprocess").poll() is None:
            pass
        await in_time(process.exited.wait())
        assert process.returncode == -signal.SIGKILL


# What it has started.


async def grandchild_of(start: Start, record: Path, **options: Any) -> tuple[ChildProcess, int]:
    process = await start(sys.executable, str(LEAN_CHILD), json.dumps({"grandchild": str(record), **options}))
    Output(process)
    await until(lambda: record.exists() and record.read_text().endswith("\n"))
    pid = int(record.read_text())
    assert not is_gone(pid)
    return process, pid


async def test_grandchildren_are_gone_after_a_polite_stop(start: Start, tmp_path: Path) -> None:
    process, grandchild = await grandchild_of(start, tmp_path / "pids")
    await stop_within(process, PATIENCE)
    assert process.returncode == 0
    await until(lambda: is_gone(grandchild))


async def test_grandchildren_are_gone_after_a_stop_by_force(start: Start, tmp_path: Path) -> None:
    process, grandchild = await grandchild_of(start, tmp_path / "pids", ignore_eof=True)
    await stop_within(process, PATIENCE)
    assert process.returncode == -signal.SIGKILL
    await until(lambda: is_gone(grandchild))


async def test_grandchildren_are_gone_after_a_crash_without_any_stop(start: Start, tmp_path: Path) -> None:
    process, grandchild = await grandchild_of(start, tmp_path / "pids")
    os.kill(process.pid, signal.SIGKILL)
    await until(lambda: is_gone(grandchild))
    await in_time(process.closed.wait())


async def test_a_grandchild_that_holds_the_pipe_does_not_hide_the_end_of_the_child(start: Start) -> None:
    """A process that made a session of its own is out of our reach, and so is its end of the pipe."""
    code = """
import subprocess, sys
held = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(held.pid, flush=True)
"""
    process = await python(start, code)
    output = Output(process)
    escaped = int(await output.line())
    try:
        await output.all()
        assert process.returncode == 0
    finally:
        os.kill(escaped, signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process when its parent dies")
@pytest.mark.parametrize("way", ["setpriv", "preexec_fn"])
async def test_a_child_does_not_outlive_us_even_when_we_are_killed(tmp_path: Path, way: str) -> None:
    """The child ignores the end of its stdin, which is how others would know."""
    record = tmp_path / "pid"
    code = f"""
import asyncio
from fastmcp_aggregator.children.process.process import ChildProcess
from fastmcp_aggregator.children.process_groups import parent_death
from fastmcp_aggregator.config import StdioServer
if {way == "preexec_fn"}:
    parent_death._setpriv = lambda: None
async def main():
    args = {lean(record=str(record), ignore_eof=True)["args"]!r}
    process = await ChildProcess.spawn(StdioServer(key="x", label="x", command={sys.executable!r}, args=args))
    await process.exited.wait()
asyncio.run(main())
"""
    ours = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    await until(lambda: record.exists() and record.read_text().endswith("\n"))
    pid = int(record.read_text())
    assert not is_gone(pid)
    try:
        ours.kill()
        await ours.wait()
        await until(lambda: is_gone(pid))
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


# What is recorded.


async def test_kill_recorded_groups_kills_every_child_and_grandchild_at_once(start: Start, tmp_path: Path) -> None:
    first, one = await grandchild_of(start, tmp_path / "one", ignore_eof=True)
    second, two = await grandchild_of(start, tmp_path / "two")
    kill_recorded_groups()
    for process in (first, second):
        await in_time(process.exited.wait())
        assert process.returncode == -signal.SIGKILL
    await until(lambda: is_gone(one) and is_gone(two))


@pytest.mark.parametrize("code", ["import sys; sys.stdin.read()", "pass", "import signal; signal.pause()"])
async def test_a_child_is_recorded_while_it_may_live_and_not_after_its_stop(start: Start, code: str) -> None:
    before = set(process_module._recorded)
    process = await python(start, code)
    assert process_module._recorded == before | {process}
    await stop_within(process, PATIENCE)
    assert process_module._recorded == before


@pytest.mark.parametrize("turns", [0, 1, 2, 5, 20, 100])
async def test_a_start_that_is_cancelled_at_any_moment_leaves_no_process(tmp_path: Path, turns: int) -> None:
    before, record = set(process_module._recorded), tmp_path / "pids"
    entry = lean(record=str(record), ignore_eof=True)
    server = StdioServer(key="x", label="x", command=entry["command"], args=tuple(entry["args"]))
    starting = asyncio.create_task(ChildProcess.spawn(server))
    for _ in range(turns):
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait([starting], timeout=PATIENCE)
    if not starting.cancelled():
        await starting.result().stop()
    assert process_module._recorded == before
    assert all(is_gone(int(pid)) for pid in (record.read_text() if record.exists() else "").split())


async def test_a_child_that_cannot_be_started_leaves_nothing_recorded(start: Start) -> None:
    before = set(process_module._recorded)
    with pytest.raises(ChildServerError):
        await start("no-such-command-anywhere")
    assert process_module._recorded == before


# What is said about it.


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise SystemExit(0)", "it exited with code 0"),
        ("raise SystemExit(3)", "it exited with code 3"),
        ("import os; os.kill(os.getpid(), 9)", "it was ended by signal SIGKILL"),
        ("import os; os.abort()", "it was ended by signal SIGABRT"),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGRTMIN + 5)",
            f"it was ended by signal {signal.SIGRTMIN + 5}",
        ),
    ],
)
async def test_an_end_is_described_by_exit_code_or_signal(start: Start, code: str, words: str) -> None:
    process = await python(start, code)
    await in_time(process.exited.wait())
    assert process.describe_exit() == words


async def test_a_child_that_closes_its_stdout_and_lives_on_is_described_as_such(start: Start) -> None:
    process = await python(start, "import os, sys; os.close(1); sys.stdin.read()")
    await Output(process).all()
    assert process.returncode is None
    assert process.describe_exit() == "it closed its stdout"


async def failure_of(start: Start, command: str, **options: Any) -> ChildServerError:
    with pytest.raises(ChildServerError) as raised:
        await start(command, **options)
    assert raised.value.server_key == "files"
    assert raised.value.phase == "startup"
    assert isinstance(raised.value.cause, OSError | ValueError)
    return raised.value


async def test_a_command_that_does_not_exist_is_named(start: Start) -> None:
    error = await failure_of(start, "no-such-command-anywhere")
    assert error.reason == (
        "command not found: 'no-such-command-anywhere'; install it, or give its full path as `command`"
    )


async def test_a_project_without_its_environment_is_to_be_synced(start: Start, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    error = await failure_of(start, str(tmp_path / ".venv" / "bin" / "server"))
    assert error.reason.endswith("; run `uv sync` in its project")


async def test_a_file_that_is_not_executable_is_named(start: Start, tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text("print()")
    error = await failure_of(start, str(script))
    assert error.reason == (
        f"command is not executable: {str(script)!r}; make it executable, or name the program that runs it"
    )


async def test_a_working_directory_that_does_not_exist_is_blamed_and_not_the_command(
    start: Start, tmp_path: Path
) -> None:
    error = await failure_of(start, sys.executable, cwd=str(tmp_path / "missing"))
    assert error.reason == "its working directory (`cwd`) does not exist; create it or correct the path"


async def test_a_file_that_no_system_can_run_is_named_with_the_kind_of_error(start: Start, tmp_path: Path) -> None:
    nonsense = tmp_path / "nonsense"
    nonsense.write_bytes(b"\x7fnothing")
    nonsense.chmod(0o755)
    error = await failure_of(start, str(nonsense))
    assert error.reason == f"cannot start {str(nonsense)!r}: OSError"


async def test_a_failure_to_start_shows_the_label_and_never_a_value_that_was_filled_in() -> None:
    server = StdioServer(
        key="files",
        label="${HOME_OF_SECRETS}/run",
        command="/hunter2/run",
        args=("--token=hunter2", "nul\0byte"),
        env={"TOKEN": SecretStr("hunter2")},
    )
    with pytest.raises(ChildServerError) as raised:
        await ChildProcess.spawn(server)
    assert "${HOME_OF_SECRETS}/run" in raised.value.reason
    assert "hunter2" not in str(raised.value)


async def test_of_a_process_that_floods_stderr_all_is_read_by_and_by_and_its_end_is_noticed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    paused, later = list[float](), ChildProcess._read_stderr_later

    def read_later(process: ChildProcess, seconds: float) -> None:
        paused.append(seconds)
        later(process, seconds / 10)

    monkeypatch.setattr(ChildProcess, "_read_stderr_later", read_later)
    code = "import os; os.write(2, b'\\n' * 300_000 + b'last\\n')"
    process = await ChildProcess.spawn(StdioServer(key="x", label="x", command=sys.executable, args=("-c", code)))
    await until(lambda: process.stderr.tail() and process.stderr.tail()[-1] == "last")
    await process.stop()
    assert process.stderr.dropped_lines == 300_001 - 1000
    assert len(paused) > 3
