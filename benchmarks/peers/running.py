"""Starts peers, each with a home of its own, and ends them with all that they have started."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.clients import LEGACY, HttpClient, StdioClient
from benchmarks.peers.bounds import descendants
from benchmarks.peers.event_stream import SseClient
from benchmarks.peers.table import SSE, STDIO, Entries, Peer, Place
from benchmarks.programs import ROOT, Usage, clean_environment, end

_PAUSE = 0.02
_numbers = itertools.count()

PeerClient = StdioClient | HttpClient


class Served:
    """A peer that runs, or on stdio is started by its client."""

    def __init__(self, peer: Peer, place: Place) -> None:
        self.peer = peer
        self._place = place
        self._output = place.home / "output"
        self._environment = environment(peer, place.home)
        self._process: subprocess.Popen[bytes] | None = None
        self._clients: list[PeerClient] = []
        self._began = time.perf_counter()
        if peer.front != STDIO:
            with self._output.open("wb") as file:
                command, home = peer.command(place), place.home
                nothing = subprocess.DEVNULL
                self._process = subprocess.Popen(
                    command, cwd=home, env=self._environment, stdin=nothing, stdout=file, stderr=file
                )

    @property
    def usage(self) -> Usage:
        """What its process has used."""
        assert self._process is not None
        return Usage(self._process.pid)

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    @property
    def port(self) -> int:
        """Where it listens, if it does."""
        return self._place.port

    def again(self) -> Served:
        """Another start of the same, in the same home."""
        return Served(self.peer, self._place)

    def age(self) -> float:
        """Seconds since its start."""
        return time.perf_counter() - self._began

    def client(self, era: str = LEGACY, **options: Any) -> PeerClient:
        """A client that has done its handshake; on stdio there is one alone. It waits until the peer listens."""
        client = self._on_stdio(era, options) if self.peer.front == STDIO else self._when_it_listens(era, options)
        self._clients.append(client)
        return client

    def _on_stdio(self, era: str, options: dict[str, Any]) -> StdioClient:
        home, environment = self._place.home, self._environment
        client = StdioClient(
            self.peer.command(self._place), era=era, cwd=home, env=environment, stderr=self._output, **options
        )
        self._process = client.process
        return client

    def _when_it_listens(self, era: str, options: dict[str, Any]) -> HttpClient:
        assert self._process is not None
        while True:
            if self._process.poll() is not None:
                raise RuntimeError(f"it ended with code {self._process.returncode}: {self.said()}")
            # One that is not ready yet does not listen, or says so with a status.
            with suppress(ConnectionRefusedError, RuntimeError):
                return self._over_http(era, options)
            time.sleep(_PAUSE)

    def _over_http(self, era: str, options: dict[str, Any]) -> HttpClient:
        kind = SseClient if self.peer.front == SSE else HttpClient
        client = kind(self._place.port, self.peer.path, era=era, **options)
        client.start()
        return client

    def said(self) -> str:
        """The last line that it has printed."""
        with suppress(OSError):
            lines = self._output.read_text(errors="replace").strip().splitlines()
            return lines[-1] if lines else ""
        return ""

    def end(self) -> None:
        """End it, and what it leaves behind."""
        if self._process is None:
            return
        started = descendants(self._process.pid)
        for client in self._clients:
            if not isinstance(client, StdioClient):
                client.close()
        if self._process.stdin is not None:
            self._process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
        end(self._process)
        for pid in started:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextmanager
def serving(peer: Peer, entries: Entries, folder: Path, installed: Path) -> Iterator[Served]:
    """A peer in front of these servers, until the end."""
    with started(Served(peer, prepared(peer, entries, folder, installed))) as served:
        yield served


@contextmanager
def started(served: Served) -> Iterator[Served]:
    """A peer that is ended at the end."""
    try:
        yield served
    finally:
        served.end()


def prepared(peer: Peer, entries: Entries, folder: Path, installed: Path) -> Place:
    """A new home with the peer's config."""
    home = folder / f"{next(_numbers)}-{peer.slug}"
    config = home / peer.config_file
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps(peer.config(entries)))
    return Place(installed / peer.slug, home, config, free_port())


def free_port() -> int:
    """A port of which nobody listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def environment(peer: Peer, home: Path) -> dict[str, str]:
    """An environment in which nothing is known from before."""
    kept = {name: value for name, value in clean_environment().items() if not name.startswith("XDG_")}
    own = {"HOME": home, "XDG_CACHE_HOME": home / ".cache", "XDG_STATE_HOME": home / ".state"}
    if peer.is_ours:
        own["PYTHONPATH"] = ROOT
    return kept | {name: str(path) for name, path in own.items()} | {"NO_COLOR": "1"}
