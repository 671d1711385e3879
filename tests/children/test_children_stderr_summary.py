"""The line of a server's stderr that says why it ended, out of what programs really write."""

from __future__ import annotations

import httpx2
import pytest
from support.harness import config, connected, lean, until
from support.wire import ELSEWHERE

from fastmcp_aggregator import ChildState, build_aggregator
from fastmcp_aggregator.children.process.stderr_summary import LONGEST_SUMMARY, summary_of

pytestmark = pytest.mark.process

PYTHON = """
INFO: starting
Traceback (most recent call last):
  File "/srv/server.py", line 12, in <module>
    server.list_resources()
    ^^^^^^^^^^^^^^^^^^^^^
AttributeError: 'Server' object has no attribute 'list_resources'
"""
CHAINED = """
Traceback (most recent call last):
  File "<string>", line 2, in <module>
KeyError: 'x'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "<string>", line 3, in <module>
RuntimeError: there is no x
"""
GROUP = """
  + Exception Group Traceback (most recent call last):
  |   File "<string>", line 6, in <module>
  |     raise me from None
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "<string>", line 3, in a
    | ValueError: bad
    +------------------------------------
"""
PYDANTIC = """
Traceback (most recent call last):
  File "<string>", line 4, in <module>
pydantic_core._pydantic_core.ValidationError: 1 validation error for Settings
api_key
  Field required [type=missing, input_value={}, input_type=dict]
    For further information visit https://errors.pydantic.dev/2.14/v/missing
"""
SYNTAX = """
  File "<string>", line 1
    x ==
        ^
SyntaxError: invalid syntax
sys:1: RuntimeWarning: coroutine 'main' was never awaited
"""
LONG_AGO = """
Traceback (most recent call last):
  File "<string>", line 2, in <module>
KeyError: 'x'
""" + "\n".join([*(f"INFO: request {number}" for number in range(20)), "ERROR: the port is taken"])
ARGUMENTS = """
usage: srv [-h] --repo REPO
srv: error: the following arguments are required: --repo
"""
TYPER = """
Usage: srv [OPTIONS]
Try 'srv --help' for help.
╭─ Error ────────────────────╮
│ Missing option '--repo'.   │
╰────────────────────────────╯
"""
NODE = """
node:internal/modules/cjs/loader:1210
  throw err;
  ^

Error: Cannot find module '/srv/x.js'
Require stack:
- /srv/main.js
    at Module._resolveFilename (node:internal/modules/cjs/loader:1207:15)
    at node:internal/main/run_main_module:28:49 {
  code: 'MODULE_NOT_FOUND',
  requireStack: []
}

Node.js v20.20.2
"""
NODE_EVENT = """
node:events:502
      throw er; // Unhandled 'error' event
      ^

Error: listen EADDRNOTAVAIL: address not available 1.2.3.4:1
    at listenInCluster (node:net:1965:12)
Emitted 'error' event on Server instance at:
    at emitErrorNT (node:net:1944:8)
    at process.processTicksAndRejections (node:internal/process/task_queues:82:21) {
  code: 'EADDRNOTAVAIL',
  port: 1
}

Node.js v20.20.2
"""
ZOD = """
ZodError: [
  {
    "path": ["API_KEY"],
    "message": "Required"
  }
]
    at file:///srv/index.js:3:1

Node.js v20.20.2
"""
NPM = """
npm warn Unknown user config "nodedir". See `npm help npmrc` for supported config options.
npm error code E404
npm error 404 Not Found - GET https://registry.npmjs.org/@x%2fy
npm error 404
npm error 404  The requested resource '@x/y@*' could not be found or you do not have permission to access it.
npm error 404 Note that you can also install from a
npm error 404 tarball, folder, http url, or git url.
npm error A complete log of this run can be found in: /home/me/.npm/_logs/2026-11-22T12_02_02_655Z-debug-0.log
"""
OLD_NPM = """
npm ERR! code ENOENT
npm ERR! syscall open
npm ERR! path /srv/package.json
npm ERR! errno -2
npm ERR! enoent ENOENT: no such file or directory, open '/srv/package.json'
npm ERR! enoent This is related to npm not being able to find a file.
npm ERR! enoent

npm ERR! A complete log of this run can be found in:
npm ERR!     /home/me/.npm/_logs/2023-11-22T12_02_02_655Z-debug-0.log
"""
NPM_RUN = """
Error: DATABASE_URL is not set
    at main (/srv/index.js:3:9)
npm error Lifecycle script `start` failed with error:
npm error code 1
npm error path /srv
npm error command sh -c node index.js
"""
UV = """
Using Python 3.12
  × No solution found when resolving tool dependencies:
  ╰─▶ Because mcp-server-nope was not found in the package registry and you
      require mcp-server-nope, your requirements are unsatisfiable.

      hint: Packages were unavailable because the network was disabled.
"""
UV_SPAWN = """
Installed 3 packages in 5ms
error: Failed to spawn: `foo`
  Caused by: No such file or directory (os error 2)
"""
DOCKER = """
docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?

Run 'docker run --help' for more information
"""
GO = """
panic: runtime error: invalid memory address or nil pointer dereference

goroutine 1 [running]:
main.main()
\t/srv/main.go:5 +0x1d
exit status 2
"""
RUST = """
thread 'main' panicked at src/main.rs:2:5:
there is no token
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace
"""

BANNER = """
╭──────────────────────────────────────────────────────────────────────────────╮
│                                FastMCP 4.1.7                                 │
│                     🖥  Server:      dies, 1.0.0                              │
╰──────────────────────────────────────────────────────────────────────────────╯


[11/25/26 19:44:28] INFO     Starting MCP server 'dies' with    transport.py:241
                             transport 'stdio'
"""
ERROR_BEFORE = """
[11/25/26 19:44:28] INFO     Starting MCP server 'dies' with    transport.py:241
                             transport 'stdio'
[11/25/26 19:44:29] ERROR    the token is not valid: ask for a     server.py:12
                             new one
                    INFO     bye                                   server.py:13
"""
TRACEBACK_BEFORE = PYTHON + "2026-11-25 19:44:28,123 - server - INFO - shutting down\n"
NODE_BEFORE = "Error: no token\n    at main (/srv/index.js:3:9)\n[INFO] bye\n"
QUIET = [
    "INFO:root:ready",
    "INFO:     Started server process [12]",
    "2026-11-25 19:44:28,123 - server - INFO - ready",
    "2026-11-25T19:44:28.123Z  INFO server: ready",
    "19:44:28 [debug] ready",
    "[info] ready",
    "info: ready",
    "time=2026-11-25T19:44:28.123Z level=INFO msg=ready",
    '{"level":30,"time":1764099868123,"msg":"ready"}',
    '{"event": "ready", "level": "info"}',
    "2026/11/25 19:44:28 INFO ready",
    "Secure MCP Filesystem Server running on stdio",
    "MCP server started (stdio)",
]
LOUD = [
    "ERROR:root:no token",
    "2026-11-25 19:44:28,123 - server - CRITICAL - no token",
    "INFO must be set",
    "set LOG_LEVEL to INFO",
    "could not get information: info is missing",
    "cannot start on stdio: no token",
    '{"level":50,"msg":"no token"}',
]


@pytest.mark.parametrize(
    ("said", "summary"),
    [
        (ERROR_BEFORE, "[11/25/26 19:44:29] ERROR the token is not valid: ask for a server.py:12 new one"),
        (TRACEBACK_BEFORE, "AttributeError: 'Server' object has no attribute 'list_resources'"),
        (NODE_BEFORE, "Error: no token"),
        *((f"{quiet}\n{loud}\n", loud) for quiet, loud in zip(QUIET, LOUD, strict=False)),
        *((f"ValueError: no token\n{quiet}\n", "ValueError: no token") for quiet in QUIET),
        (PYTHON, "AttributeError: 'Server' object has no attribute 'list_resources'"),
        (CHAINED, "RuntimeError: there is no x"),
        (GROUP, "ValueError: bad"),
        (
            PYDANTIC,
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for Settings api_key "
            "Field required [type=missing, input_value={}, input_type=dict] "
            "For further information visit https://errors.pydantic.dev/2.14/v/missing",
        ),
        (SYNTAX, "SyntaxError: invalid syntax"),
        (LONG_AGO, "ERROR: the port is taken"),
        (ARGUMENTS, "srv: error: the following arguments are required: --repo"),
        (TYPER, "Error Missing option '--repo'."),
        (NODE, "Error: Cannot find module '/srv/x.js'"),
        (NODE_EVENT, "Error: listen EADDRNOTAVAIL: address not available 1.2.3.4:1"),
        (ZOD, 'ZodError: [ { "path": ["API_KEY"], "message": "Required"'),
        (NPM, "npm error 404 Not Found - GET https://registry.npmjs.org/@x%2fy"),
        (OLD_NPM, "npm ERR! enoent ENOENT: no such file or directory, open '/srv/package.json'"),
        (NPM_RUN, "Error: DATABASE_URL is not set"),
        (
            UV,
            "× No solution found when resolving tool dependencies: Because mcp-server-nope was not found in the "
            "package registry and you require mcp-server-nope, your requirements are unsatisfiable.",
        ),
        (UV_SPAWN, "error: Failed to spawn: `foo` Caused by: No such file or directory (os error 2)"),
        (
            DOCKER,
            "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
        ),
        (GO, "panic: runtime error: invalid memory address or nil pointer dereference"),
        (RUST, "there is no token"),
        ("no token\n\n   \n", "no token"),
        ("\x1b[31mError: \x1b[1mno token\x1b[0m\x07\u202e\n", "Error: no token\\x07\\u202e"),
    ],
)
def test_the_line_that_tells_is_found(said: str, summary: str) -> None:
    assert summary_of(said.splitlines()) == summary


@pytest.mark.parametrize(
    "said", ["", "\n \n", "npm warn deprecated x@1\n", "/x.py:1: DeprecationWarning: old\n", BANNER, *QUIET]
)
def test_nothing_is_said_where_nothing_tells(said: str) -> None:
    assert summary_of(said.splitlines()) is None


def test_a_summary_is_bounded() -> None:
    summary = summary_of(["x" * 100_000] * 5)
    assert summary is not None
    assert len(summary) == LONGEST_SUMMARY
    assert summary.endswith("…")


@pytest.mark.parametrize(
    "line",
    [
        " " * 65_000 + "x",
        "+-" * 30_000,
        "| " * 30_000,
        "a:" * 30_000 + "Warning",
        "{" * 65_000,
        "1:" * 30_000,
        "running " * 8_000,
        "[a] - " * 10_000,
        '{"level"' * 8_000,
    ],
)
def test_no_line_takes_long(line: str) -> None:
    summary_of([line] * 100)


# Where it is told.


async def test_a_server_whose_stderr_has_no_error_is_said_to_have_none() -> None:
    document = config(bad=lean(exit_at_start=7, stderr=["INFO: starting"]), mute=lean(exit_at_start=7))
    async with build_aggregator(document, strict=False) as app, connected(app):
        await until(lambda: all(status.state is ChildState.FAILED for status in app.health().values()))
        told = {key: status.last_error for key, status in app.health().items()}
    assert told == {"bad": "it exited with code 7 (no error on its stderr)", "mute": "it exited with code 7"}


async def test_those_on_this_machine_are_told_what_a_server_said_last_and_others_are_not() -> None:
    said = ["Traceback (most recent call last):", '  File "/srv/x.py", line 1', "KeyError: 'hunter2-secret'"]
    entry = lean(exit_at_start=3, stderr=said)
    document = config(bad={**entry, "env": {"TOKEN": "hunter2-secret"}}, good=lean())
    told = "it exited with code 3 (stderr: KeyError: '***')"
    async with build_aggregator(document, strict=False) as app, connected(app) as client:
        await until(lambda: app.health()["bad"].state is ChildState.FAILED)
        status = app.health()["bad"]
        assert (status.last_error, status.public_error) == (told, "it exited with code 3")
        error = await client.error("tools/call", {"name": "bad:echo"})
        assert f"it is unavailable ({told})" in error["message"]
        transport = httpx2.ASGITransport(app.http_app())
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            request = {"name": "bad:echo", "arguments": {}}
            here = [await http.post("/mcp/tools/call", json=request), await http.get("/status")]
            http.headers.update(ELSEWHERE)
            there = [await http.post("/mcp/tools/call", json=request), await http.get("/status")]
    assert all(told in answer.text for answer in here)
    seen = "".join(answer.text for answer in there)
    assert "it exited with code 3" in seen
    assert "KeyError" not in seen
    assert "hunter2" not in seen
