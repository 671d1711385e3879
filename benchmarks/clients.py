"""The clients that measure: blocking, raw JSON, nothing between the clock and the pipe or socket."""

from __future__ import annotations

import http.client
import json
import subprocess
import time
from typing import Any

LEGACY = "2025-11-25"
MODERN = "2026-07-28"
CLIENT = {"name": "benchmark", "version": "1"}
HANDSHAKE = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": CLIENT}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}


class StdioClient:
    """A server as a child process, spoken to in the legacy era."""

    def __init__(self, command: list[str]) -> None:
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._next_id = 0
        self.request("initialize", HANDSHAKE)
        self._write({"method": "notifications/initialized"})

    def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and wait for its result."""
        self._next_id += 1
        self._write({"id": self._next_id, "method": method, "params": params or {}})
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            message = json.loads(line)
            if message.get("id") == self._next_id:
                result: dict[str, Any] = message["result"]
                return result
        raise RuntimeError(f"the server ended with code {self.process.wait()}")

    def close(self) -> None:
        """Close its stdin and wait for its end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)

    def _write(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()


class HttpClient:
    """One kept-alive connection to a streamable HTTP server, in either era."""

    def __init__(self, port: int, *, modern: bool) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._modern = modern
        self._next_id = 0
        self._headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if modern:
            self._headers["MCP-Protocol-Version"] = MODERN
            return
        self.request("initialize", HANDSHAKE)
        self._headers |= {"Mcp-Session-Id": self._session, "MCP-Protocol-Version": LEGACY}
        self._post({"jsonrpc": "2.0", "method": "notifications/initialized"}, {})

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its result."""
        self._next_id += 1
        headers: dict[str, str] = {}
        if self._modern:
            params = {**params, "_meta": ENVELOPE}
            headers["Mcp-Method"] = method
            if "name" in params:
                headers["Mcp-Name"] = params["name"]
        body = self._post({"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params}, headers)
        if body.startswith((b"event:", b"id:", b"data:", b":")):
            datas = [line[5:] for line in body.splitlines() if line.startswith(b"data:") and line[5:].strip()]
            body = datas[-1]
        result: dict[str, Any] = json.loads(body)["result"]
        return result

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _post(self, message: dict[str, Any], headers: dict[str, str]) -> bytes:
        self._connection.request("POST", "/mcp", json.dumps(message), {**self._headers, **headers})
        response = self._connection.getresponse()
        body = response.read()
        if response.status >= 400:
            raise RuntimeError(f"HTTP {response.status}: {body[:200]!r}")
        self._session = response.headers.get("Mcp-Session-Id") or getattr(self, "_session", "")
        return body
