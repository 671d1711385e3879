"""The front of the first answers: reads stdin and answers what it knows, until the full front takes over.

Theory. A thread reads whole lines. A handshake of a client that it knows, then lists and pings, it answers; every other
line it keeps, in order. `take_over` ends it between two lines, or within the writing of an answer, and hands over what
it has read and not answered, and what it has not written yet. The first request that was answered is handed over, too:
the full front serves it once more, for what it has to know of the client, and leaves out the answer.

A client that it does not know is none of its business: then it keeps everything.
"""

from __future__ import annotations

import json
import os
import select
import stat
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastmcp_aggregator.early.answers import Entries, read, signature_of

_META = "io.modelcontextprotocol/"
_PIECE = min(4096, select.PIPE_BUF) if hasattr(select, "PIPE_BUF") else 512
"""Bytes that a pipe that is ready takes without blocking."""
_MOST_KEPT = 32 * 1024**2
"""Bytes that are kept; then reading waits for the full front."""
_LONGEST = 1024**2
"""Bytes of a line that is looked at."""
_FIRST_WAIT = 0.1
"""Seconds that the imports, which would slow the first answers down, wait for the client's first list."""
_SWITCH_INTERVAL = 0.0005
LISTS = frozenset({"tools/list", "resources/list", "resources/templates/list", "prompts/list"})


@dataclass(slots=True)
class Handover:
    """What the full front goes on from."""

    first: bytes | None = None
    """The line of the first request, if it was answered."""
    lines: list[bytes] = field(default_factory=list)
    """What was read and not answered."""
    rest: bytes = b""
    """The beginning of the next line."""
    unwritten: bytes = b""
    """The end of an answer."""
    answered: dict[str, bytes] = field(default_factory=dict)
    """The lists that the client has got, by method."""


class EarlyFront:
    """Answers on two descriptors."""

    def __init__(self, entries: Entries, stdin: int = 0, stdout: int = 1) -> None:
        self._entries = entries
        self._stdin = stdin
        self._stdout = stdout
        self._state = Handover()
        self._known: Mapping[str, bytes] | None = None
        self._signature: str | None = None
        """Of a modern client, which says who it is with each request."""
        self._is_passive = False
        self._kept = 0
        self._woken, self._wake = os.pipe()
        self.has_begun = threading.Event()
        """Set when a list was answered, or when there is nothing to be answered early."""
        self._thread = threading.Thread(target=self._run, name="early front", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def take_over(self) -> Handover:
        """End it; what was not done."""
        os.write(self._wake, b"x")
        self._thread.join()
        os.close(self._wake)
        os.close(self._woken)
        return self._state

    def _run(self) -> None:
        try:
            self._serve()
        finally:
            self.has_begun.set()

    def _serve(self) -> None:
        state = self._state
        while True:
            wanted = [self._woken] if self._kept > _MOST_KEPT else [self._woken, self._stdin]
            ready, _, _ = select.select(wanted, [], [])
            if self._woken in ready:
                return
            data = os.read(self._stdin, 65536)
            if not data:  # the full front sees the end, too
                return
            *lines, state.rest = (state.rest + data).split(b"\n")
            for number, line in enumerate(lines):
                if not self._answer(line):
                    state.lines.append(line)
                    self._kept += len(line)
                elif state.unwritten:
                    state.lines += lines[number + 1 :]
                    return
            if self._is_passive:
                self.has_begun.set()

    def _answer(self, line: bytes) -> bool:
        """Answer a line, as far as it can be written; whether it is answered."""
        if self._is_passive or not line or len(line) > _LONGEST:
            return False
        try:
            request = json.loads(line)
            result = self._result_of(request) if _is_request(request) else None
        except (ValueError, RecursionError):
            return False
        if result is None:
            return False
        if self._state.first is None:
            self._state.first = line
        if request["method"] in LISTS:
            self._state.answered[request["method"]] = result
        identity = json.dumps(request["id"]).encode()
        self._write(b'{"jsonrpc":"2.0","id":' + identity + b',"result":' + result + b"}\n")
        if request["method"] in LISTS:
            self.has_begun.set()
        return True

    def _result_of(self, request: Mapping[str, Any]) -> bytes | None:
        method, params = request["method"], request.get("params", {})
        if not isinstance(params, dict):
            return None
        meta = params.get("_meta", {})
        is_modern = isinstance(meta, dict) and f"{_META}protocolVersion" in meta
        if self._known is None:
            self._meet(method, params, meta if is_modern else None)
        if self._known is None or self._is_passive:
            return None
        if is_modern != (self._signature is not None) or (is_modern and _modern_signature(meta) != self._signature):
            return None
        if method == "ping" and not params and not is_modern:
            return b"{}"
        is_first = self._state.first is None
        if method in LISTS or method == "server/discover":
            return self._known.get(method) if params.keys() <= {"_meta"} else None
        return self._known.get(method) if is_first and method == "initialize" else None

    def _meet(self, method: str, params: Mapping[str, Any], meta: Mapping[str, Any] | None) -> None:
        """The first request tells who the client is."""
        if meta is not None:
            signature = self._signature = _modern_signature(meta)
        else:
            signature = _legacy_signature(params) if method == "initialize" else None
        self._known = None if signature is None else self._entries.get(signature)
        if self._known is None or method not in self._known:
            self._is_passive = True

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
"""That of this process, until it is taken over."""


def begin(arguments: Sequence[str]) -> None:
    """Answer the client of this command line early, if it was served before and nothing has changed."""
    global current  # noqa: PLW0603 - the two descriptors are the process's, too
    if sys.platform == "win32" or not (_is_pipe(0) and _is_pipe(1)) or not (entries := read(arguments)):
        return
    current = EarlyFront(entries)
    sys.setswitchinterval(_SWITCH_INTERVAL)
    current.start()
    current.has_begun.wait(_FIRST_WAIT)


def take_over() -> Handover:
    """What the full front of this process goes on from."""
    global current
    front, current = current, None
    if front is None:
        return Handover()
    sys.setswitchinterval(0.005)
    return front.take_over()


def _is_request(message: object) -> bool:
    return (
        isinstance(message, dict)
        and message.keys() <= {"jsonrpc", "id", "method", "params"}
        and message.get("jsonrpc") == "2.0"
        and isinstance(message.get("method"), str)
        and type(message.get("id")) in (int, str)
    )


def _legacy_signature(params: Mapping[str, Any]) -> str | None:
    info, capabilities = params.get("clientInfo"), params.get("capabilities")
    is_usual = params.keys() == {"protocolVersion", "capabilities", "clientInfo"} and isinstance(capabilities, dict)
    if not is_usual or not isinstance(info, dict) or not isinstance(info.get("version"), str):
        return None
    return signature_of(params["protocolVersion"], capabilities, info)


def _modern_signature(meta: Mapping[str, Any]) -> str | None:
    info = meta.get(f"{_META}clientInfo")
    if not isinstance(info, dict) or not isinstance(info.get("version"), str):
        return None
    return signature_of(meta[f"{_META}protocolVersion"], meta.get(f"{_META}clientCapabilities"), info)


def signature_in(method: str, params: Mapping[str, Any]) -> str | None:
    """The signature of the client that sends such a request as its first."""
    meta = params.get("_meta")
    if isinstance(meta, dict) and f"{_META}protocolVersion" in meta:
        return _modern_signature(meta)
    return _legacy_signature(params) if method == "initialize" else None


def _is_pipe(descriptor: int) -> bool:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
