"""A raw MCP client over a process's pipes: it sends and returns JSON as it is, in the era it is told to speak.

No SDK and no models, so that what two servers answer can be compared field for field. It shows no capabilities, as the
aggregator does to its children.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

LEGACY = "2025-11-25"
MODERN = "2026-07-28"
WAIT = 60.0
"""Seconds after which a test has waited long enough for anything."""

_META = "io.modelcontextprotocol/"
_CLIENT = {"name": "wire-client", "version": "1"}
_ENVELOPE = ("resultType", "ttlMs", "cacheScope")
_SERVER_STAMP = f"{_META}serverInfo"

Message = dict[str, Any]


class WireClient:
    """One client of one process. `version` is the protocol version spoken, from the first request on."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], version: str | None = None) -> None:
        """Without a `version` it is the server's own best, as `connect` finds it."""
        self.version = version
        self.process = subprocess.Popen(list(command), env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.notifications: SimpleQueue[Message] = SimpleQueue()
        self.transcript: list[Message] = []
        """Everything the server has sent, in its order."""
        self._ids = itertools.count(1)
        self._waiting: dict[Any, Future[Message]] = {}
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def connect(self) -> None:
        """Find a version, if none was given, and shake hands where it has a handshake."""
        if self.version is None:
            self.version = MODERN
            if "error" in self.answer("server/discover"):
                self.version = LEGACY
        if self.version != MODERN:
            offer = {"protocolVersion": self.version, "capabilities": {}, "clientInfo": _CLIENT}
            assert self.result("initialize", offer)["protocolVersion"] == self.version
            self._write({"method": "notifications/initialized"})

    def send(self, method: str, params: Mapping[str, Any] | None = None) -> Future[Message]:
        """Send a request; the future is its answer, the whole JSON-RPC message."""
        request_id = next(self._ids)
        answer = self._waiting[request_id] = Future()
        self._write({"id": request_id, "method": method, "params": self._with_meta(params or {})})
        return answer

    def answer(self, method: str, params: Mapping[str, Any] | None = None) -> Message:
        """What the server answers: `{"result": ...}` or `{"error": ...}`."""
        return outcome(self.send(method, params).result(WAIT))

    def result(self, method: str, params: Mapping[str, Any] | None = None) -> Message:
        """The result of a request that must succeed."""
        answer = self.answer(method, params)
        assert "error" not in answer, answer
        return answer["result"]

    def list_all(self, method: str, list_key: str) -> list[Message]:
        """All pages of a list; empty where the server does not have it."""
        listed: list[Message] = []
        params: dict[str, Any] = {}
        while True:
            answer = self.answer(method, params)
            if answer.get("error", {}).get("code") == -32601:
                return listed
            listed += answer["result"][list_key]
            if (cursor := answer["result"].get("nextCursor")) is None:
                return listed
            params = {"cursor": cursor}

    def wait_for(self, method: str) -> Message:
        """The next notification of this method; others before it are dropped."""
        while True:
            notification = self.notifications.get(timeout=WAIT)
            if notification["method"] == method:
                return notification

    def close(self) -> int:
        """Close the server's stdin and wait for its end: its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.wait()

    def wait(self) -> int:
        """Wait for the server's end: its exit code."""
        try:
            return self.process.wait(WAIT)
        finally:
            self.process.kill()
            self._reading.join(WAIT)
            assert self.process.stdout is not None
            self.process.stdout.close()

    def _with_meta(self, params: Mapping[str, Any]) -> Message:
        if self.version != MODERN:
            return dict(params)
        envelope = {
            f"{_META}protocolVersion": MODERN,
            f"{_META}clientInfo": _CLIENT,
            f"{_META}clientCapabilities": {},
        }
        return {**params, "_meta": {**params.get("_meta", {}), **envelope}}

    def _write(self, message: Message) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def _read(self) -> None:
        for message in self._messages():
            self.transcript.append(message)
            if "method" not in message:
                self._waiting.pop(message["id"]).set_result(message)
            elif "id" not in message:
                self.notifications.put(message)
        for answer in self._waiting.values():
            answer.set_exception(EOFError("the server has closed its stdout"))

    def _messages(self) -> Iterator[Message]:
        assert self.process.stdout is not None
        yield from map(json.loads, self.process.stdout)


@dataclass(frozen=True)
class Both:
    """A client of an aggregator, and a client of each of its servers, which are processes of their own.

    The servers behind the aggregator and the direct ones are sent the same requests, so that their states agree.
    """

    front: WireClient
    direct: dict[str, WireClient]


def outcome(answer: Message) -> Message:
    """An answer without its JSON-RPC frame."""
    return {key: value for key, value in answer.items() if key not in ("jsonrpc", "id")}


def is_enveloped(result: Message) -> bool:
    """Whether a result has anything that only 2026-07-28 has around it."""
    return any(key in result for key in _ENVELOPE) or _SERVER_STAMP in result.get("_meta", {})


def unenveloped(answer: Message) -> Message:
    """An answer without what its protocol era puts around a result."""
    if "result" not in answer:
        return answer
    result = {key: value for key, value in answer["result"].items() if key not in (*_ENVELOPE, "_meta")}
    meta = {key: value for key, value in answer["result"].get("_meta", {}).items() if key != _SERVER_STAMP}
    return {"result": {**result, "_meta": meta} if meta else result}


def canonical(value: Any, change: Callable[[str], str] = str) -> str:
    """JSON text that is equal exactly when two values are; `change` is applied to every string in it."""
    return json.dumps(_changed(value, change), sort_keys=True, indent=1, ensure_ascii=False)


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_changed(item, change) for item in value]
    if isinstance(value, dict):
        return {key: _changed(item, change) for key, item in value.items()}
    return value
