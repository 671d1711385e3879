"""Tool calls over HTTP in raw requests, each on a connection of its own that can be dropped."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit

MODERN = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "faults", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


async def call(url: str, tool: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Call a tool as a modern client, without a session; the connection on which the answer will come."""
    address = urlsplit(url)
    params = {"name": tool, "arguments": {}, "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    headers: dict[str, Any] = {
        "Host": address.netloc,
        "Content-Type": "application/json",
        "Content-Length": len(body),
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": MODERN,
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }
    lines = [f"POST {address.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    return reader, writer


async def head_of(url: str, tool: str) -> bytes:
    """Call a tool; the head of the response, and nothing more."""
    reader, writer = await call(url, tool)
    head = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    return head


def is_refused(head: bytes) -> bool:
    """Whether the response is 503 and says when to come back."""
    return b" 503 " in head and b"retry-after: 5" in head.lower()
