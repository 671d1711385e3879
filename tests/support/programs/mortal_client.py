"""A client that starts a server on stdio, by its arguments, calls the tool `a:hold` of it, and waits to be killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

server = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
assert server.stdin is not None
assert server.stdout is not None


def send(**message: Any) -> None:
    server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    server.stdin.flush()


hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "mortal", "version": "1"}}
send(id=1, method="initialize", params=hello)
server.stdout.readline()
send(method="notifications/initialized")
send(id=2, method="tools/call", params={"name": "a:hold"})
signal.pause()
