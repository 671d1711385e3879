"""The floor of HTTP: uvicorn, and an app that reads a body and answers with one of JSON.

    python bare_server.py h11|httptools

It prints its port. The answer is as long as that of the call that it is compared with.
"""

from __future__ import annotations

import json
import socket
import sys
from typing import Any

import uvicorn

TEXT = json.dumps({"arguments": {"x": 1}, "server": "lean", "tool": "echo"})
MESSAGE = {"jsonrpc": "2.0", "id": 100_000_000, "result": {"content": [{"type": "text", "text": TEXT}]}}
BODY = json.dumps(MESSAGE).encode()
HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))]


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY})


if __name__ == "__main__":
    # With the protocol named, as uvicorn itself does it: only then does asyncio turn Nagle's algorithm off.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(f"serving on port {listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(
        app, http=sys.argv[1], loop="asyncio", lifespan="off", log_level="warning", access_log=False
    )
    uvicorn.Server(config).run(sockets=[listener])
