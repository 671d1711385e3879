"""Ten clients that others wrote, of seven kinds, at once before ten real servers: at one hub, and with a `serve` each.

    REAL_SERVERS=DIR PYTHONPATH=tests:tests/real python -m benchmarks.hubs.kinds [--servers stateless]

`tests/real/install_servers.py` installs the servers and the clients. The last call of each client takes `--hold`
seconds: what runs while all ten are at it is counted. Of the usual servers, eight keep state or belong to a folder or
to roots. None of the stateless ones does, and all of them start with the aggregator.
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
from typing import Any, NamedTuple

from install_servers import apps_folder, node_script, python_bin
from real_programs import INSPECTOR, MODULES, NODE
from real_servers import CLIENTS, FOLDER, Place, make_place, safe_environment, server_entries

from benchmarks.hubs.beside import pss
from benchmarks.hubs.machine import PROGRAM, Machine, machine, until

Call = tuple[str, dict[str, Any]]
Calls = list[Call]
Client = Callable[[Machine, dict[str, Any], Calls], Awaitable[dict[str, Any]]]
"""Starts what is given, makes calls, and tells the names of the tools and the answers."""

PROGRAMS = Path(__file__).parents[2] / "tests" / "real" / "clients"
SEPARATOR = "__"
_VARIES = {
    re.compile(r', "id": "lc_[0-9a-f-]+"'): "",
    re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"): "",
    re.compile(r'(?<="counter": )\d+'): "0",
}
"""What is another with each call: LangChain's mark of each part of an answer, the time, how many calls there were."""
_NO_DICE = "--import data:text/javascript,Math.random=()=>.5"


class Servers(NamedTuple):
    """Ten, with a call of each whose answer is always the same, and one that takes so many seconds."""

    entries: dict[str, dict[str, Any]]
    calls: Calls
    held: Callable[[int], Call]
    start: str
    """The setting of this name."""


async def printed(here: Machine, *command: str | Path) -> Any:
    """What a program prints, as JSON."""
    env = {**environment(here), "OPENAI_AGENTS_DISABLE_TRACING": "1"}
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, env=env, stdin=null, stdout=pipe, stderr=pipe)
    output, errors = await process.communicate()
    if process.returncode:
        raise RuntimeError(errors.decode()[-3000:])
    text = output.decode()
    for varies, instead in _VARIES.items():
        text = varies.sub(instead, text)
    return json.loads(text)


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
    **{f"Inspector CLI, {era}": partial(inspector, era) for era in ("legacy", "modern")},
    "TypeScript SDK 1": partial(program, "typescript_client.mjs", sdk=1, era="legacy"),
    "TypeScript SDK 2, legacy": partial(program, "typescript_client.mjs", sdk=2, era="legacy"),
    "TypeScript SDK 2, modern": partial(program, "typescript_client.mjs", sdk=2, era="auto"),
    "Python SDK, legacy": partial(program, "python_client.py", library="mcp", mode="legacy"),
    "Python SDK, modern": partial(program, "python_client.py", library="mcp", mode="auto"),
    "FastMCP": partial(program, "python_client.py", library="fastmcp", mode="auto"),
    "langchain-mcp-adapters": partial(program, "langchain_client.py"),
    "openai-agents": partial(program, "openai_agents_client.py"),
}
ONE_BY_ONE = [kind for kind in KINDS if kind.startswith("Inspector")]
"""They start what serves them anew for each request, so all but the last are made before the others begin."""


def usual(place: Place, memories: Path) -> Servers:
    entries = server_entries(place, memories)
    file, note = {"path": str(place.files / "hello.txt")}, {"path": str(place.other_files / "hello.txt")}
    repository = {"repo_path": str(place.repository)}
    thought = {"thought": "one", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}
    calls: dict[str, Call] = {
        "everything": ("get-sum", {"a": 1, "b": 2}),
        "time": ("convert_time", _NOON),
        "time-other": ("convert_time", {**_NOON, "time": "13:00"}),
        "git": ("git_log", repository),
        "git-other": ("git_status", repository),
        "filesystem": ("read_text_file", file),
        "filesystem-other": ("read_text_file", note),
        "memory": ("search_nodes", {"query": "nobody"}),
        "memory-other": ("read_graph", {}),
        "sequential-thinking": ("sequentialthinking", thought),
    }
    others = {f"{key}-other": entries[key] for key in ("time", "git")}
    return Servers(
        {**entries, **others},
        _named(calls),
        lambda seconds: _name("everything", "trigger-long-running-operation", {"duration": seconds, "steps": 1}),
        "auto",
    )


def stateless(place: Place, memories: Path) -> Servers:
    """The official time server, and those of MCP Apps: they take no folder, ask for no roots, and have what they show
    in their code. (`debug` counts its calls.) `time` alone speaks both eras.
    """
    calls: dict[str, Call] = {
        "time": ("convert_time", _NOON),
        "budget-allocator": ("get-budget-data", {}),
        "cohort-heatmap": ("get-cohort-data", {}),
        "customer-segmentation": ("get-customer-data", {"segment": "Startup"}),
        "scenario-modeler": ("get-scenario-data", {}),
        "system-monitor": ("get-system-info", {}),
        "basic-react": ("get-time", {}),
        "basic-vue": ("get-time", {}),
        "basic-vanillajs": ("get-time", {}),
        "debug": ("debug-tool", {"includeMeta": False}),
    }
    entries = {key: _app(key) for key in calls if key != "time"}
    return Servers(
        {"time": server_entries(place, memories)["time"], **entries},
        _named(calls),
        lambda seconds: _name("debug", "debug-tool", {"includeMeta": False, "delayMs": 1000 * seconds}),
        "eager",
    )


SERVERS = {"usual": usual, "stateless": stateless}
_NOON = {"source_timezone": "Asia/Tokyo", "time": "12:00", "target_timezone": "UTC"}


def _app(key: str) -> dict[str, Any]:
    script = node_script(apps_folder(FOLDER), f"@modelcontextprotocol/server-{key}")
    return {"command": "node", "args": [str(script), "--stdio"], "env": {"NODE_OPTIONS": _NO_DICE}}


def _name(key: str, tool: str, arguments: dict[str, Any]) -> Call:
    return f"{key}{SEPARATOR}{tool}", arguments


def _named(calls: dict[str, Call]) -> Calls:
    return [_name(key, *call) for key, call in calls.items()]


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


async def measured(here: Machine, command: str, servers: Servers, hold: int) -> dict[str, Any]:
    """What servers list that start on demand is known from an earlier run. Lists wait for those that are slow, for the
    Inspector calls no tool that it was not listed.
    """
    env = environment(here)
    settings = here.root / "settings.toml"
    settings.write_text(f'start = "{servers.start}"\nseparator = "{SEPARATOR}"\nready_wait = 60\n')
    arguments = [command, here.config(**servers.entries), "--no-strict", "--settings", str(settings)]
    if command == "attach":  # the Inspector gives its servers other variables than it has
        arguments += ["--hub", "kinds"]
    server = {"command": PROGRAM, "args": arguments, "env": env}
    if servers.start == "auto":
        for run in KINDS.values():
            with suppress(RuntimeError):
                await run(here, server, servers.calls)
        await asyncio.to_thread(ended, here)
    earlier = await _made(here, server, dict.fromkeys(ONE_BY_ONE, servers.calls))
    done, began = asyncio.Event(), time.monotonic()
    counting = asyncio.create_task(counted(here, done))
    held = servers.held(hold)
    got = await _made(here, server, {kind: [held] if kind in earlier else [*servers.calls, held] for kind in KINDS})
    done.set()
    processes, own, mib = await counting
    print(
        f"{command}: {time.monotonic() - began:.0f} s; {processes} processes ({own} without git's own), {mib:.0f} MiB"
    )
    for kind, each in earlier.items():
        if kind in got:
            got[kind]["answers"] = each["answers"] + got[kind]["answers"]
    return {"processes": processes, "own": own, "MiB": mib, "got": got}


async def _made(here: Machine, server: dict[str, Any], calls: dict[str, Calls]) -> dict[str, dict[str, Any]]:
    """What clients of these kinds get, at once; that of those that fail is printed."""
    outcomes = await asyncio.gather(
        *(KINDS[kind](here, server, each) for kind, each in calls.items()), return_exceptions=True
    )
    got = {}
    for kind, outcome in zip(calls, outcomes, strict=True):
        if isinstance(outcome, BaseException):
            print(f"{kind}: {outcome}")
        else:
            got[kind] = outcome
    return got


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", choices=SERVERS, default="usual")
    parser.add_argument("--hold", type=int, default=20)
    options = parser.parse_args()
    found = {}
    for command in ("serve", "attach"):
        with machine() as here:
            place = make_place(here.root / "place")
            servers = SERVERS[options.servers](place, here.root)
            found[command] = asyncio.run(measured(here, command, servers, options.hold))
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
