"""The front of the first answers: reads stdin and answers what it knows, until the full front takes over.

Theory. A thread reads whole lines. A handshake of a client that it knows, then lists and pings, it answers; every other
line it keeps, in order. `take_over` ends it between two lines, or within the writing of an answer, and hands over what
it has read and not answered, and what it has not written yet. The first request that was answered is handed over, too:
the full front serves it once more, for what it has to know of the client, and leaves out the answer.
"""

from __future__ import annotations

import os
import select
import stat
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from fastmcp_aggregator.early.answers import Entries, name_of, read
from fastmcp_aggregator.early.known_client import Introduce, KnownClient

_PIECE = min(4096, select.PIPE_BUF) if hasattr(select, "PIPE_BUF") else 512
"""Bytes that a pipe that is ready takes without blocking."""
_MOST_KEPT = 32 * 1024**2
"""Bytes that are kept; then reading waits for the full front."""
_FIRST_WAIT = 0.1
"""Seconds that the imports, which would slow the first answers down, wait for the client's first list."""
_SWITCH_INTERVAL = 0.0005


@dataclass(slots=True)
class Handover:
    """The state from which the full front goes on."""

    first: bytes | None = None
    """The line of the first request, if it was answered."""
    lines: list[bytes] = field(default_factory=list)
    """Lines read and not answered."""
    rest: bytes = b""
    """The beginning of the next line."""
    unwritten: bytes = b""
    """The end of an answer."""
    answered: dict[str, bytes] = field(default_factory=dict)
    """The lists that the client has got, by method."""


class EarlyFront:
    """Answers a client on two descriptors, in a thread."""

    def __init__(self, entries: Entries, stdin: int = 0, stdout: int = 1, introduce: Introduce | None = None) -> None:
        self._client = KnownClient(entries, introduce)
        self._stdin = stdin
        self._stdout = stdout
        self._state = Handover()
        self._kept = 0
        self._woken, self._wake = os.pipe()
        self._nudged, self._nudge = os.pipe()
        self._introduce: Introduce | None = None
        self.is_met = threading.Event()
        """Set when the handshake was answered, or is not to be answered early."""
        self.has_begun = threading.Event()
        """Set when a list was answered, or when there is nothing to be answered early."""
        self._thread = threading.Thread(target=self._run, name="early front", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def introduce_by(self, introduce: Introduce) -> None:
        """Answer the handshake of a client that was not known, too, even if it is there already."""
        self._introduce = introduce
        os.write(self._nudge, b"x")

    def take_over(self) -> Handover:
        """End it; what was not done."""
        os.write(self._wake, b"x")
        self._thread.join()
        for descriptor in (self._wake, self._woken, self._nudge, self._nudged):
            os.close(descriptor)
        return self._state

    def _run(self) -> None:
        try:
            self._serve()
        finally:
            self.is_met.set()
            self.has_begun.set()

    def _serve(self) -> None:
        state = self._state
        while True:
            wanted = [self._woken, self._nudged]
            ready, _, _ = select.select(wanted if self._kept > _MOST_KEPT else [*wanted, self._stdin], [], [])
            if self._woken in ready:
                return
            if self._nudged in ready and not self._process_received():
                return
            if self._stdin not in ready:
                continue
            data = os.read(self._stdin, 65536)
            if not data:  # the full front sees the end, too
                return
            *lines, state.rest = (state.rest + data).split(b"\n")
            if not self._take(lines):
                return

    def _process_received(self) -> bool:
        """Look once more at what is kept, with what has been learned; False: it is to end."""
        os.read(self._nudged, 1)
        if self._introduce is not None:
            self._client.introduce_by(self._introduce)
        lines, self._state.lines, self._kept = self._state.lines, [], 0
        return self._take(lines)

    def _take(self, lines: Sequence[bytes]) -> bool:
        """Answer or keep each; False: it is to end within an answer."""
        state = self._state
        for number, line in enumerate(lines):
            if not self._answer(line):
                state.lines.append(line)
                self._kept += len(line)
            elif state.unwritten:
                state.lines += lines[number + 1 :]
                return False
        if self._client.is_passive:
            self.has_begun.set()
        if self._client.first is not None or (self._client.is_passive and self._introduce is not None):
            self.is_met.set()
        return True

    def _answer(self, line: bytes) -> bool:
        """Answer a line, as far as it can be written; whether it is answered."""
        response = self._client.answer(line)
        if response is None:
            return False
        self._state.first, self._state.answered = self._client.first, self._client.answered
        self._write(response)
        if self._client.answered:
            self.has_begun.set()
        return True

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            ready, _, _ = select.select([self._woken], [self._stdout], [])
            if ready:
                break
            try:
                written = os.write(self._stdout, view[:_PIECE])
            except BlockingIOError:
                continue
            except OSError:  # nobody reads: the full front finds out
                break
            view = view[written:]
        self._state.unwritten = bytes(view)


current: EarlyFront | None = None
"""The early front of this process, until it is taken over."""


def begin(arguments: Sequence[str]) -> None:
    """Answer the client of this command line early, if it was served before and nothing has changed."""
    if _is_on_pipes() and (entries := read(name_of(arguments))):
        _start(EarlyFront(entries)).has_begun.wait(_FIRST_WAIT)


def introduce_by(introduce: Introduce) -> None:
    """Answer the client's handshake, if that has not been done yet, and give it a moment to come."""
    if current is not None:
        current.introduce_by(introduce)
    elif _is_on_pipes():
        _start(EarlyFront({}, introduce=introduce))
    if current is not None:
        current.is_met.wait(_FIRST_WAIT)


def _is_on_pipes() -> bool:
    return sys.platform != "win32" and is_pipe(0) and is_pipe(1)


def _start(front: EarlyFront) -> EarlyFront:
    global current  # noqa: PLW0603 - the two descriptors are the process's, too
    current = front
    sys.setswitchinterval(_SWITCH_INTERVAL)
    front.start()
    return front


def take_over() -> Handover:
    """The state for the full front of this process."""
    global current
    front, current = current, None
    if front is None:
        return Handover()
    sys.setswitchinterval(0.005)
    return front.take_over()


def is_pipe(descriptor: int) -> bool:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
