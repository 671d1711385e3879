"""Hubs that tell nothing of themselves: those that start, end, or hang."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from threading import Barrier, Thread
from types import SimpleNamespace
from typing import Any

import pytest
from support.harness import PATIENCE

from fastmcp_aggregator.attach import greeting
from fastmcp_aggregator.attach.asking import Timeouts, end, kill
from fastmcp_aggregator.attach.folder import lock_of
from fastmcp_aggregator.cli.actions.hubs import hub as hub_action
from fastmcp_aggregator.cli.actions.hubs import logs, restart, stop
from fastmcp_aggregator.cli.running.local_hubs import ENDS, HANGS, STARTS, chosen, running_hubs
from fastmcp_aggregator.cli.terminal.exits import FAILED, FINE, UsageError

Hub = Callable[..., socket.socket | None]
IMPATIENT = Timeouts(status=0.05, end=0.05)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Makes what a hub has: a lock with a note in it and, if it listens, a socket."""
    runtime = Path(tempfile.mkdtemp(prefix="hub-"))  # a socket's path must be short
    folder = runtime / "fastmcp-aggregator"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    locks, listeners = [], []

    def made(hub_id: str, *, listens: bool = True, pid: int = 0, **noted: Any) -> socket.socket | None:
        lock = os.open(folder / f"{hub_id}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.write(lock, json.dumps({"pid": pid or os.getpid(), "name": None, "config": "/c", **noted}).encode())
        locks.append(lock)
        if not listens:
            return None
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(folder / f"{hub_id}.sock"))
        listener.listen()
        listeners.append(listener)
        return listener

    yield made
    for lock in locks:
        os.close(lock)
    for listener in listeners:
        listener.close()
    shutil.rmtree(runtime)


def test_a_hub_that_starts_ends_or_hangs_is_told_from_its_lock(hub: Hub) -> None:
    hub("a", serves=True)
    hub("b")
    hub("c", serves=True, listens=False)
    assert [found["silent"] for found in running_hubs(IMPATIENT)] == [HANGS, STARTS, ENDS]


def test_a_log_is_followed_from_before_it_is_there_and_into_the_one_that_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "hub.log"

    def replace() -> None:
        path.rename(tmp_path / "hub.log.1")
        path.write_text("three\n")

    steps = [replace, lambda: path.write_text("one\ntwo\n"), lambda: path.write_text("one\ntw")]
    monkeypatch.setattr(logs, "_path_of", lambda word: path)
    monkeypatch.setattr(logs, "end_on_signals", lambda *_: None)
    monkeypatch.setattr(logs, "time", SimpleNamespace(sleep=lambda _: steps.pop()()))
    with pytest.raises(IndexError):  # there are no further steps
        logs.run(argparse.Namespace(hub=None, follow=True))
    assert capfd.readouterr().out == "one\ntwo\nthree\n"


def test_hubs_of_one_name_are_told_apart_by_their_ids() -> None:
    hubs = [{"id": name, "name": "work", "config": "/c", "clients": []} for name in ("aa", "bb")]
    hubs[1]["clients"] = [{"name": "Zed"}, {"name": None}]
    others = [{"id": "cc", "name": None, "config": "/d"}]
    with pytest.raises(
        UsageError, match=r"say which hub:\naa \(work\) serves /c\nbb \(work\) serves /c for Zed, a client$"
    ):
        chosen("work", [*hubs, *others])
    assert chosen("bb", [*hubs, *others]) is hubs[1]


def test_a_hub_that_could_note_nothing_is_not_taken_for_one_that_has_ended(
    hub: Hub, capfd: pytest.CaptureFixture[str]
) -> None:
    """As on a full disk."""
    hub("a", listens=False)
    Path(lock_of("a")).write_bytes(b"")
    assert running_hubs(IMPATIENT) == [{"id": "a", "silent": STARTS, "name": None, "config": None, "pid": None}]
    assert stop.run(argparse.Namespace(hub="a", all=False), IMPATIENT) == FAILED
    assert "the hub a did not stop within 0.05 s, and which process it is could not be noted" in capfd.readouterr().err


def test_all_hubs_are_asked_before_any_has_answered(hub: Hub) -> None:
    asked = Barrier(3)

    def answer(listener: socket.socket, hub_id: str) -> None:
        peer, _ = listener.accept()
        with peer:
            peer.recv(greeting.LONGEST)
            asked.wait(PATIENCE)
            peer.sendall(greeting.line(greeting.STATUS, id=hub_id))

    threads = []
    for hub_id in ("a", "b", "c"):
        listener = hub(hub_id, serves=True)
        assert listener is not None
        threads.append(Thread(target=answer, args=(listener, hub_id)))
        threads[-1].start()
    assert [found["id"] for found in running_hubs()] == ["a", "b", "c"]
    for thread in threads:
        thread.join()


def test_a_hub_that_does_not_answer_is_not_taken_for_none_when_a_server_is_to_be_restarted(
    hub: Hub, capfd: pytest.CaptureFixture[str]
) -> None:
    hub("a", serves=True)
    assert restart.run(argparse.Namespace(server="s", url=None, hub=None), IMPATIENT) == FAILED
    assert capfd.readouterr().err == "the hub a: it does not answer\n"


def end_for_the_next_one(listener: socket.socket) -> None:
    """Be the hub `a`, which is told to end, and whose clients start the next one at once."""
    while True:
        peer, _ = listener.accept()
        with peer:
            if greeting.read(peer.recv(greeting.LONGEST))[0] != greeting.STOP:
                continue
            Path(lock_of("a")).write_text(json.dumps({"pid": os.getppid(), "name": None, "config": "/c"}))
            peer.sendall(greeting.line(greeting.STOPPING))
            break


def test_a_hub_has_ended_once_its_clients_have_started_another_in_its_place(hub: Hub) -> None:
    listener = hub("a", serves=True)
    assert listener is not None
    ending = Thread(target=end_for_the_next_one, args=[listener])
    ending.start()
    assert end("a")
    ending.join()


@pytest.mark.process
def test_a_hub_that_is_slow_to_tell_how_it_is_ends_as_it_is_told_and_is_not_killed(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        listener = hub("a", serves=True, pid=process.pid)
        assert listener is not None
        ending = Thread(target=end_for_the_next_one, args=[listener], daemon=True)
        monkeypatch.setattr(stop, "running_hubs", lambda timeouts: [running_hubs(timeouts), ending.start()][0])
        assert stop.run(argparse.Namespace(hub="a", all=False), Timeouts(status=0.05)) == FINE
        process.communicate(b"\n", PATIENCE)
        assert process.returncode == 0
    assert capfd.readouterr().err == "the hub a has ended\n"


@pytest.mark.process
def test_a_hub_is_not_killed_in_the_place_of_the_one_before_it(hub: Hub) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        hub("a", pid=other.pid)
        assert kill("a", os.getpid())
        other.communicate(b"\n", PATIENCE)
        assert other.returncode == 0


@pytest.mark.process
@pytest.mark.usefixtures("hub")
def test_a_hub_that_hangs_while_it_ends_is_killed(capfd: pytest.CaptureFixture[str]) -> None:
    code = "import fcntl, os, sys, time; fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)\nfcntl.flock(fd, 2)\n"
    code += 'os.write(fd, b\'{"pid": %d, "name": null, "config": "/c", "serves": true}\' % os.getpid())\n'
    code += "print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code, lock_of("b")], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        options = argparse.Namespace(hub="b", all=False)
        assert stop.run(options, IMPATIENT) == 0
        assert process.wait(PATIENCE) != 0
    assert f"did not stop within 0.05 s, so its process {process.pid} is killed" in capfd.readouterr().err


def test_a_hub_that_hangs_while_it_ends_ends_itself_and_its_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    done: Queue[object] = Queue()
    monkeypatch.setattr(hub_action, "kill_recorded_groups", lambda: done.put("servers"))
    monkeypatch.setattr(hub_action, "os", SimpleNamespace(_exit=done.put))
    hub_action._require_end(0.0)
    assert [done.get(timeout=PATIENCE), done.get(timeout=PATIENCE)] == ["servers", FAILED]
