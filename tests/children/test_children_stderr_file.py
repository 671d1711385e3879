"""What children say on stderr, kept in files: how much, under which names, and what a bad disk does to nobody."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.harness import LEAN_CHILD, PATIENCE, config, connected, lean, running, until

from fastmcp_aggregator import build_aggregator
from fastmcp_aggregator.children.process import stderr_file
from fastmcp_aggregator.children.process.stderr import ChildStderr
from fastmcp_aggregator.children.process.stderr_file import FILE_SIZE, FILES, StderrFile, file_name, open_stderr_file

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="modes, links and named pipes are POSIX"),
    pytest.mark.process,
]

KEYS = st.text(st.characters(exclude_characters=":"), min_size=1)


def stderr_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("stderr:")]


def caught_up() -> bool:
    """Whether everything that was handed over is in the files."""
    return all(file._given == file._taken for file in stderr_file._files.values())


async def written(file: StderrFile) -> None:
    """Wait until everything that was handed over is in the file."""
    file.close()
    await until(lambda: not stderr_threads())


# What is kept.


async def test_the_lines_that_a_child_says_are_in_its_file_as_they_came(tmp_path: Path) -> None:
    said = b"one\r\n\ncaf\xe9 \x1b[31mred\n" + b"x" * 60_000 + b"\nno newline at the end"
    document = config(files=saying(f"os.write(2, {said!r})"))
    logs = tmp_path / "new" / "logs"
    async with build_aggregator(document, stderr_dir=str(logs)) as app, connected(app) as client:
        assert (await client.call("files:echo"))["tool"] == "echo"
    await until(lambda: not stderr_threads())
    assert (logs / "files.log").read_bytes() == said + b"\n"


def saying(statement: str) -> dict[str, Any]:
    """An entry for a lean child that does something first."""
    program = f"import atexit, os, sys\n{statement}\nsys.argv = ['x', '{{}}']\nexec(open({str(LEAN_CHILD)!r}).read())"
    return {"command": sys.executable, "args": ["-S", "-c", program.replace("$", "$$")]}


async def test_a_server_that_is_started_again_goes_on_in_the_same_file(tmp_path: Path) -> None:
    app = build_aggregator(config(a=lean(stderr=["up"])), stderr_dir=str(tmp_path))
    async with app, connected(app) as client:
        await client.error("tools/call", {"name": "a:leave"})
        await until(lambda: app.health()["a"].restarts and (tmp_path / "a.log").read_text() == "up\nleaving\nup\n")


async def test_processes_of_one_server_share_its_file_and_no_line_is_torn(tmp_path: Path) -> None:
    processes = [ChildStderr("a", tmp_path) for _ in range(3)]
    for number in range(30_000):
        for name, process in zip(b"xyz", processes, strict=True):
            process.feed(bytes([name]) * 10)
            process.feed(b"%06d\n" % number)
        if number % 1000 == 0:
            await until(caught_up)
    for process in processes:
        process.end()
        process.end()
    await until(lambda: not stderr_threads())
    kept = b"".join((tmp_path / name).read_bytes() for name in ("a.log.1", "a.log"))
    lines = kept.split(b"\n")
    assert all(len(line) == 16 and len(set(line[:10])) == 1 for line in lines[:-1])
    assert lines[-4:] == [b"x" * 10 + b"029999", b"y" * 10 + b"029999", b"z" * 10 + b"029999", b""]


async def test_a_secret_of_the_config_is_in_no_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    child = {**saying("os.write(2, os.environ['TOKEN'].encode())"), "env": {"TOKEN": "s3cret-value"}}
    async with build_aggregator(config(a=child), stderr_dir=str(tmp_path)):
        pass
    await until(lambda: not stderr_threads())
    assert (tmp_path / "a.log").read_text() == "***\n"
    assert "s3cret-value" not in capfd.readouterr().err


async def test_nothing_is_kept_unless_a_directory_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with build_aggregator(config(a=lean(stderr=["up"]))):
        assert not stderr_threads()
    assert list(tmp_path.iterdir()) == []


async def test_the_home_directory_may_be_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    async with build_aggregator(config(a=lean(stderr=["up"])), stderr_dir="~/logs"):
        await until((tmp_path / "logs" / "a.log").exists)


async def test_the_last_words_are_written_before_the_program_has_ended(tmp_path: Path) -> None:
    document = tmp_path / "mcp.json"
    document.write_text(json.dumps(config(a=saying("atexit.register(lambda: os.write(2, b'goodbye'))"))))
    env = {**os.environ, "FASTMCP_AGGREGATOR_STDERR_DIR": str(tmp_path / "logs")}
    async with running(sys.executable, "-m", "fastmcp_aggregator", str(document), env=env) as server:
        await server.client.names()
        assert await server.end() == 0
    assert (tmp_path / "logs" / "a.log").read_bytes() == b"goodbye\n"


async def test_a_flood_keeps_its_end_in_few_files_of_limited_size(tmp_path: Path) -> None:
    file = open_stderr_file(tmp_path, "a")
    lines = [b"%07d\n" % number * 8 for number in range(100_000)]
    for start in range(0, len(lines), 1000):
        file.write(b"".join(lines[start : start + 1000]))
        await until(caught_up)
    await written(file)
    names = [f"a.log.{number}" for number in range(FILES - 1, 0, -1)] + ["a.log"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    assert all((tmp_path / name).stat().st_size <= FILE_SIZE for name in names)
    kept = b"".join((tmp_path / name).read_bytes() for name in names)
    assert len(kept) > FILE_SIZE
    assert b"".join(lines).endswith(kept)


async def test_files_are_for_the_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        file = open_stderr_file(tmp_path / "logs", "a")
        for _ in range(12):
            file.write(b"x" * 99_999 + b"\n")
        await written(file)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "logs").stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "logs").iterdir()}
    assert modes == {"a.log": 0o600, "a.log.1": 0o600}


# Names.


@pytest.mark.parametrize("key", ["git", "my-files_2", "server.v2", "0"])
def test_a_plain_key_is_the_name_of_its_file(key: str) -> None:
    assert file_name(key) == f"{key}.log"


@pytest.mark.parametrize(
    "key", ["..", ".", "../../etc/passwd", "a/b", "a\\b", "a\0b", ".hidden", "x" * 500, "茶", "\ud800"]
)
def test_any_other_key_gives_a_name_that_stays_in_the_directory(key: str) -> None:
    name = file_name(key)
    assert Path(name).name == name
    assert name.isascii()
    assert name.isprintable()
    assert "\\" not in name
    assert not name.startswith(".")
    assert len(name) < 100


@given(KEYS, KEYS)
def test_no_two_keys_share_a_file_on_any_file_system(one: str, other: str) -> None:
    for first, second in ((one, other), (one, one.swapcase()), (one, f"{one}.log"), (one, f"{one}.log.1")):
        if first != second:
            assert file_name(first).casefold() != file_name(second).casefold()
            assert file_name(first).casefold() != f"{file_name(second)}.1".casefold()


def test_keys_that_a_file_system_takes_for_one_have_files_of_their_own() -> None:
    alike = ["git", "Git", "GIT", "gi t", "gi/t", "gi_t", file_name("Git").removesuffix(".log")]
    assert len({file_name(key).casefold() for key in alike}) == len(alike)


# A disk that does not play along.


async def flooded(app: Any) -> None:
    """The child writes a lot to stderr, and answers all the same."""
    async with connected(app) as client:
        assert await client.call("a:flood", lines=40_000) == {"flooded": 40_000}
        assert (await client.call("a:echo"))["tool"] == "echo"


async def test_a_directory_that_cannot_be_made_is_reported_once_and_hurts_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    app = build_aggregator(config(a=lean()), stderr_dir=str(tmp_path / "file" / "logs"))
    async with app:
        await flooded(app)
        assert app.children["a"].status().restarts == 0
    path = tmp_path / "file" / "logs" / "a.log"
    reasons = ("Not a directory", "it is written too slowly; some is left out")  # whichever thread is first
    assert caplog.messages in [[f"the stderr of server 'a' cannot be kept in {path}: {why}"] for why in reasons]


def test_a_disk_that_is_full_is_reported_once_and_used_again_when_it_has_room(tmp_path: Path) -> None:
    """A limit on the size of files stands for the end of the disk: writing fails in the same way."""
    code = """
import logging, resource, sys, time
from pathlib import Path
from fastmcp_aggregator.children.process.stderr_file import open_stderr_file
logging.basicConfig(format="%(message)s")
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
file = open_stderr_file(Path(sys.argv[1]), "a")
def write(data):
    file.write(data)
    while file._given != file._taken:
        time.sleep(0.001)
for _ in range(5):
    write(b"x" * 799 + b"\\n")
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
write(b"room again\\n")
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, timeout=PATIENCE, check=True
    )
    path = tmp_path / "a.log"
    assert done.stderr.decode() == f"the stderr of server 'a' cannot be kept in {path}: File too large\n"
    assert path.read_bytes() == b"x" * 799 + b"\n" + b"x" * 200 + b"\nroom again\n"


async def test_a_disk_that_hangs_holds_up_neither_the_child_nor_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Writing to a named pipe that nobody reads blocks for ever."""
    pipe = tmp_path / "a.log"
    os.mkfifo(pipe)
    app = build_aggregator(config(a=lean(), b=lean()), stderr_dir=str(tmp_path))
    try:
        async with app, connected(app) as client:
            await flooded(app)
            assert (await client.call("b:echo"))["tool"] == "echo"
            assert stderr_threads() == ["stderr:a"]
        expected = f"the stderr of server 'a' cannot be kept in {pipe}: it is written too slowly; some is left out"
        assert caplog.messages == [expected]
    finally:
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        await until(lambda: not (drain(reader) or stderr_threads()))
        os.close(reader)


def drain(reader: int) -> bytes:
    try:
        return os.read(reader, 65536)
    except BlockingIOError:
        return b""


async def test_a_disk_that_hangs_does_not_hold_up_the_end_of_the_program(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.log")
    document = tmp_path / "mcp.json"
    document.write_text(json.dumps(config(a=lean(stderr=["up"]))))
    env = {**os.environ, "FASTMCP_AGGREGATOR_STDERR_DIR": str(tmp_path)}
    async with running(sys.executable, "-m", "fastmcp_aggregator", str(document), env=env) as server:
        await server.said("[a] up")
        server.process.send_signal(signal.SIGTERM)
        assert await server.wait() == 0


async def test_a_link_that_somebody_has_put_there_is_not_followed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "target").write_text("precious")
    (tmp_path / "a.log").symlink_to(tmp_path / "target")
    file = open_stderr_file(tmp_path, "a")
    file.write(b"x")
    await written(file)
    assert (tmp_path / "target").read_text() == "precious"
    assert len(caplog.messages) == 1


async def test_a_server_that_says_nothing_has_no_file_and_no_thread(tmp_path: Path) -> None:
    async with build_aggregator(config(a=lean()), stderr_dir=str(tmp_path)):
        assert not stderr_threads()
    assert list(tmp_path.iterdir()) == []
