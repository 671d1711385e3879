"""Ten clients that others wrote, of seven kinds, at once before ten real servers: at one hub, and with a `serve` each.

    REAL_SERVERS=DIR PYTHONPATH=tests:tests/real python -m benchmarks.hubs.kinds

`tests/real/install_servers.py` installs the servers and the clients. The last call of each client takes `--hold`
seconds: what runs while all ten are at it is counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from install_servers import python_bin
from real_programs import INSPECTOR, MODULES, NODE
from real_servers import CLIENTS, Place, make_place, safe_environment, server_entries

from benchmarks.hubs.beside import pss
from benchmarks.hubs.machine import PROGRAM, Machine, machine, until

Calls = list[tuple[str, dict[str, Any]]]
Client = Callable[[Machine, dict[str, Any], Calls], Awaitable[dict[str, Any]]]
"""Starts what is given, makes calls, and tells the names of the tools and the answers."""

PROGRAMS = Path(__file__).parents[2] / "tests" / "real" / "clients"
SEPARATOR = "__"
_OWN_ID = re.compile(r', "id": "lc_[0-9a-f-]+"')
"""With which LangChain marks each part of an answer."""
HELD = f"everything{SEPARATOR}trigger-long-running-operation"


async def printed(here: Machine, *command: str | Path) -> Any:
    """What a program prints, as JSON."""
    env = {**environment(here), "OPENAI_AGENTS_DISABLE_TRACING": "1"}
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, env=env, stdin=null, stdout=pipe, stderr=pipe)
    output, errors = await process.communicate()
    if process.returncode:
        raise RuntimeError(errors.decode()[-3000:])
    return json.loads(_OWN_ID.sub("", output.decode()))


async def program(name: str, here: Machine, server: dict[str, Any], calls: Calls, **told: Any) -> dict[str, Any]:
    """One of those under `tests/real/clients`; with the interpreter that has what it needs."""
    if name.endswith(".mjs"):
        interpreter, told = NODE, {**told, "modules": str(MODULES)}
    else:
        interpreter = Path(sys.executable) if name == "python_client.py" else python_bin(CLIENTS) / "python"
    return await printed(here, interpreter, PROGRAMS / name, json.dumps({"server": server, "calls": calls, **told}))


async def inspector(era: str, here: Machine, server: dict[str, Any], calls: Calls) -> dict[str, Any]:
    """The Inspector's command line, once for each request."""

    async def result(method: str, *options: str) -> Any:
        how = ["--protocol-era", era, "--method", method, *options, "--format", "json", "--quiet"]
        target = [server["command"], *server["args"]]
        return (await printed(here, NODE, INSPECTOR, "--cli", *target, *how))["result"]

    answers = []
    for name, arguments in calls:
        given = [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in arguments.items()]
        options = ["--tool-arg", *given] if given else []
        answers.append((await result("tools/call", "--tool-name", name, *options))["content"])
    return {"tools": [tool["name"] for tool in (await result("tools/list"))["tools"]], "answers": answers}


KINDS: dict[str, Client] = {
    "Inspector CLI, legacy": partial(inspector, "legacy"),
    "Inspector CLI, modern": partial(inspector, "modern"),
    "TypeScript SDK 1": partial(program, "typescript_client.mjs", sdk=1, era="legacy"),
    "TypeScript SDK 2, legacy": partial(program, "typescript_client.mjs", sdk=2, era="legacy"),
    "TypeScript SDK 2, modern": partial(program, "typescript_client.mjs", sdk=2, era="auto"),
    "Python SDK, legacy": partial(program, "python_client.py", library="mcp", mode="legacy"),
    "Python SDK, modern": partial(program, "python_client.py", library="mcp", mode="auto"),
    "FastMCP": partial(program, "python_client.py", library="fastmcp", mode="auto"),
    "langchain-mcp-adapters": partial(program, "langchain_client.py"),
    "openai-agents": partial(program, "openai_agents_client.py"),
}


def calls_of(place: Place) -> Calls:
    """One of each of the ten servers, whose answer is always the same."""
    file, note = {"path": str(place.files / "hello.txt")}, {"path": str(place.other_files / "hello.txt")}
    repository = {"repo_path": str(place.repository)}
    noon = {"source_timezone": "Asia/Tokyo", "time": "12:00", "target_timezone": "UTC"}
    thought = {"thought": "one", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}
    calls = {
        "everything": ("get-sum", {"a": 1, "b": 2}),
        "time": ("convert_time", noon),
        "time-other": ("convert_time", {**noon, "time": "13:00"}),
        "git": ("git_log", repository),
        "git-other": ("git_status", repository),
        "filesystem": ("read_text_file", file),
        "filesystem-other": ("read_text_file", note),
        "memory": ("search_nodes", {"query": "nobody"}),
        "memory-other": ("read_graph", {}),
        "sequential-thinking": ("sequentialthinking", thought),
    }
    return [(f"{key}{SEPARATOR}{name}", arguments) for key, (name, arguments) in calls.items()]


def runs(here: Machine) -> dict[int, bytes]:
    """What runs here but the clients themselves, and their command lines."""
    found = {}
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            is_client = str(PROGRAMS).encode() in command or str(INSPECTOR.parents[2]).encode() in command
            environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if not is_client and f"HOME={here.root}".encode() in environ:
                found[pid] = command
    return found


async def counted(here: Machine, done: asyncio.Event) -> tuple[int, int, float]:
    """The most processes that ran at the same time; those without what servers have started; their MiB."""
    most = 0, 0, 0.0
    while not done.is_set():
        pids = runs(here)
        if len(pids) > most[0]:
            own = [pid for pid, command in pids.items() if not command.startswith(b"git\0")]
            most = len(pids), len(own), sum(map(pss, pids)) / 1024
        with suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), 1)
    return most


def environment(here: Machine) -> dict[str, str]:
    """No more than what the Inspector passes on, or its bridge would look elsewhere for the hub than the others."""
    return {**safe_environment(), "HOME": str(here.root)}


def ended(here: Machine) -> None:
    """Have a hub end, and wait until nothing runs."""
    subprocess.run([PROGRAM, "stop", "kinds"], env=environment(here), capture_output=True, check=False)
    until(lambda: not runs(here), 60)


async def measured(here: Machine, command: str, config: str, place: Place, hold: int) -> dict[str, Any]:
    """What the servers list to each kind is known from an earlier run."""
    env = environment(here)
    arguments = [*([command] if command == "attach" else []), config, "--no-strict", "--separator", SEPARATOR]
    if command == "attach":  # the Inspector gives its servers other variables than it has
        arguments += ["--hub", "kinds"]
    server = {"command": PROGRAM, "args": arguments, "env": env}
    calls = [*calls_of(place), (HELD, {"duration": hold, "steps": 1})]
    for run in KINDS.values():
        with suppress(RuntimeError):  # of a client that calls only what was listed to it
            await run(here, server, calls_of(place))
    await asyncio.to_thread(ended, here)
    done, began = asyncio.Event(), time.monotonic()
    counting = asyncio.create_task(counted(here, done))
    got = await asyncio.gather(*(run(here, server, calls) for run in KINDS.values()), return_exceptions=True)
    done.set()
    processes, own, mib = await counting
    print(
        f"{command}: {time.monotonic() - began:.0f} s; {processes} processes ({own} without git's own), {mib:.0f} MiB"
    )
    for kind, outcome in zip(KINDS, got, strict=True):
        if isinstance(outcome, BaseException):
            print(f"{kind}: {outcome}")
    answered = {kind: each for kind, each in zip(KINDS, got, strict=True) if isinstance(each, dict)}
    return {"processes": processes, "own": own, "MiB": mib, "got": answered}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hold", type=int, default=20)
    options = parser.parse_args()
    found = {}
    for command in ("serve", "attach"):
        with machine() as here:
            place = make_place(here.root / "place")
            entries = server_entries(place, here.root)
            others = {f"{key}-other": entries[key] for key in ("time", "git")}
            config = here.config(**entries, **others)
            found[command] = asyncio.run(measured(here, command, config, place, options.hold))
            ended(here)
    serve, attach = found["serve"], found["attach"]
    for what in ("processes", "own", "MiB"):
        print(f"{what}: serve {serve[what]:.0f}, attach {attach[what]:.0f}, which is {attach[what] / serve[what]:.0%}")
    for kind in KINDS:
        if any(kind not in each["got"] for each in (serve, attach)):
            continue
        tools = [[name for name in each["got"][kind]["tools"] if not _varies(name)] for each in (serve, attach)]
        answers = [each["got"][kind]["answers"] for each in (serve, attach)]
        print(f"{kind}: {len(tools[0])} tools, equal {tools[0] == tools[1]}; answers equal {answers[0] == answers[1]}")
        if answers[0] != answers[1]:
            print(*(f"  {a}\n  {b}" for a, b in zip(*answers, strict=True) if a != b), sep="\n")


def _varies(name: str) -> bool:
    """Whether the tool is of the server that lists by what its client can do."""
    return name.startswith(f"everything{SEPARATOR}")


if __name__ == "__main__":
    main()
