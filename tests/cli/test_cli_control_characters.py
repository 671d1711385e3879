"""A server whose every word has control characters: none of them reaches a terminal or a line of the log."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest
from support.command_line import run_main
from support.harness import PATIENCE
from support.machines import put

pytestmark = pytest.mark.process

EVIL = "\x1b]0;PWNED\x07\x1b[2J\r\x08\x00\x9b31m\x85\u2028\u2029\u202e\u2066\u200f\x7f\nERROR: forged\n"
"""A title, an erased screen, an overwritten line, C1, line separators, directions, and a line of its own."""
FORBIDDEN = [*EVIL.replace("ERROR: forged", "").replace("]0;PWNED", "").replace("[2J", "").replace("31m", "")]
SERVER = """
import json, sys
EVIL = json.loads(sys.argv[1])
mode = sys.argv[2]
print("stderr " + EVIL, file=sys.stderr, flush=True)
sys.stderr.buffer.write(("raw " + EVIL).encode() + b"\\xff\\x9b\\n"); sys.stderr.flush()
if mode == "dies":
    sys.exit(1)
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answer = {"result": {}}
    match asked["method"]:
        case "initialize":
            if mode == "refuses":
                answer = {"error": {"code": -32000, "message": "no " + EVIL, "data": EVIL}}
            else:
                capabilities = {"tools": {}, "resources": {}, "prompts": {}}
                info = {"name": "n" + EVIL, "version": "v" + EVIL}
                answer = {"result": {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info,
                                     "instructions": "i" + EVIL}}
        case "tools/list":
            schema = {"type": "object", "properties": {"p" + EVIL: {"type": "string"}}}
            tool = {"name": "t" + EVIL, "description": "d" + EVIL, "title": "x" + EVIL, "inputSchema": schema}
            answer = {"result": {"tools": [tool, {"name": "say", "inputSchema": {"type": "object"}},
                                           {"name": "fail", "inputSchema": {"type": "object"}}]}}
        case "resources/list":
            answer = {"result": {"resources": [{"uri": "x://a/" + EVIL, "name": "r" + EVIL}]}}
        case "resources/templates/list":
            answer = {"result": {"resourceTemplates": [{"uriTemplate": "x://{a}/" + EVIL, "name": "r" + EVIL}]}}
        case "prompts/list":
            answer = {"result": {"prompts": [{"name": "q" + EVIL, "description": "d" + EVIL}]}}
        case "tools/call" if asked["params"]["name"] == "say":
            said = {"method": "notifications/message", "params": {"level": "error", "logger": EVIL, "data": EVIL}}
            print(json.dumps({"jsonrpc": "2.0", **said}), flush=True)
            answer = {"result": {"content": [{"type": "text", "text": "c" + EVIL},
                                             {"type": "resource_link", "uri": "y://" + EVIL, "name": EVIL}]}}
        case "tools/call":
            answer = {"error": {"code": -32603, "message": "e" + EVIL}}
        case "server/discover":
            answer = {"error": {"code": -32601, "message": "unknown " + EVIL}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""

COMMANDS = [
    ["list"],
    ["list", "--json"],
    ["check", "--connect"],
    ["check", "--connect", "--json"],
    ["check", "--connect", "--debug"],
    ["pin", "--file", "pins.json"],
    ["call", "up:say"],
    ["call", "up:say", "--json"],
    ["call", "up:fail"],
    ["call", "up:nothing" + EVIL.replace("\x00", "")],
]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "server.py", SERVER)
    modes = {"up": "up", "refusing": "refuses", "dying": "dies"}
    servers = {
        key + (EVIL if key != "up" else "").replace(":", ""): {
            "command": sys.executable,
            "args": [str(tmp_path / "server.py"), json.dumps(EVIL), mode],
        }
        for key, mode in modes.items()
    }
    return str(put(tmp_path / "mcp.json", json.dumps({"mcpServers": servers})))


def line_of(config: str, command: list[str]) -> list[str]:
    name, *rest = command
    return [name, config, *rest, *([] if name == "pin" else ["--no-strict"])]


def assert_harmless(text: str) -> None:
    assert "PWNED" in text
    assert [c for c in FORBIDDEN if c != "\n" and c in text] == []
    assert [line for line in text.splitlines() if line.startswith("ERROR: forged")] == []


@pytest.mark.parametrize("profile", ["development", "production"])
@pytest.mark.parametrize(
    "command", COMMANDS, ids=lambda command: " ".join(command)[:24].encode("unicode_escape").decode()
)
def test_no_command_lets_them_through(
    command: list[str], profile: str, config: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FASTMCP_AGGREGATOR_PROFILE", profile)
    ended = run_main(capfd, line_of(config, command))
    said_as_it_is = command == ["call", "up:say"]  # a program may read it
    assert_harmless(ended.err if said_as_it_is else ended.out + ended.err)
    if profile == "production" and command[0] != "pin":  # which says in words what it has found
        assert all(json.loads(line) for line in ended.err.splitlines())


@pytest.mark.parametrize("command", [["call", "up:say"], ["list"], ["check", "--connect"]], ids=" ".join)
def test_a_terminal_gets_none_of_them(command: list[str], config: str) -> None:
    said = on_terminal([sys.executable, "-m", "fastmcp_aggregator", *line_of(config, command)])
    assert "PWNED" in said
    for sequence in ("\x1b]", "\x07", "\x9b", "\x85", "\u2028", "\u202e", "\u2066", "\x7f", "\x1b[2J\r"):
        assert sequence not in said


def on_terminal(line: list[str]) -> str:
    """All that a program writes to its terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(line, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    said = b""
    while select.select([ours], [], [], PATIENCE)[0]:
        try:
            said += os.read(ours, 65536)
        except OSError:
            break
    os.close(ours)
    process.wait(PATIENCE)
    return said.decode(errors="replace")
