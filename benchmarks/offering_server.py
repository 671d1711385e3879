"""An MCP server by hand that offers tools of usual size, and takes as long to start as it is told.

python -S offering_server.py '{"tools": 10, "delay": 3, "log": "FILE"}'

With a log it writes when it began and when it was ready, in monotonic seconds.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any


def tool(number: int) -> dict[str, Any]:
    """One with the size that tools of real servers have in the middle, about 700 bytes."""
    described = {
        f"argument_{i}": {"type": "string", "description": "What it is, in a sentence. " * 2} for i in range(4)
    }
    return {
        "name": f"tool_{number}",
        "description": "What it does, when to call it, and what comes back. " * 4,
        "inputSchema": {"type": "object", "properties": described, "required": ["argument_0"]},
    }


def note(file: str | None, what: str) -> None:
    """Append a line to the log."""
    if file is not None:
        with open(file, "a", encoding="utf-8") as log:
            log.write(f"{what} {time.monotonic()}\n")


def main() -> None:
    """Serve until stdin ends."""
    options = json.loads(sys.argv[1])
    note(options.get("log"), "began")
    time.sleep(options.get("delay", 0))
    tools = [tool(number) for number in range(options["tools"])]
    for line in sys.stdin:
        request = json.loads(line)
        method = request.get("method")
        if method == "initialize":
            about = {"name": "offering", "version": "1"}
            result: Any = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": about}
        elif method == "tools/list":
            note(options.get("log"), "ready")
            result = {"tools": tools}
        elif method == "tools/call":
            result = {"content": [{"type": "text", "text": "called"}]}
        else:
            result = {}
        if "id" in request:
            known = method in ("initialize", "tools/list", "tools/call", "ping")
            rest = {"result": result} if known else {"error": {"code": -32601, "message": "Method not found"}}
            print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **rest}), flush=True)


if __name__ == "__main__":
    main()
