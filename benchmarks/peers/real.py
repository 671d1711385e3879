"""Real servers behind each peer: those that the project's own tests install."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from real.install_servers import SERVERS, default_folder, find_npm, install_pinned, node_script, python_bin

from benchmarks.clients import StdioClient
from benchmarks.peers.bench import Bench, all_listed, called, names_listed
from benchmarks.peers.costs import exchanges, memory
from benchmarks.peers.table import Entries, Peer
from benchmarks.peers.turns import taking_turns
from benchmarks.programs import clean_environment
from benchmarks.rounds import Figures, Subject

EACH_HAS = {
    "time": "get_current_time",
    "everything": "echo",
    "files": "list_directory",
    "memory": "read_graph",
    "thinking": "sequentialthinking",
}
"""A tool of each server, by which it is seen that it is listed."""
CALLED, ARGUMENTS = ("everything", "echo"), {"message": "hello"}
DIRECTLY = "directly"
LISTED_SECONDS = 30.0
_VISIT_SECONDS = 60.0


def real(bench: Bench) -> list[Figures]:
    """Five real servers, in Python and in TypeScript: first list, tools, a call."""
    entries = installed_servers(default_folder(), bench.folder)
    subjects = [Subject(DIRECTLY, lambda: directly(bench, entries)), *(behind(bench, p, entries) for p in bench.peers)]
    return taking_turns(subjects, "", bench.size.rounds, _VISIT_SECONDS)


def installed_servers(folder: Path, files: Path) -> Entries:
    """Install them, if they are not there; their entries."""
    install_pinned(folder, SERVERS, find_npm())
    scripts = {"everything": [], "filesystem": [str(files)], "memory": [], "sequential-thinking": []}
    keys = {"filesystem": "files", "sequential-thinking": "thinking"}
    return {
        "time": {"command": str(python_bin(folder) / "python"), "args": ["-m", "mcp_server_time"]},
        **{
            keys.get(name, name): {
                "command": "node",
                "args": [str(node_script(folder, f"@modelcontextprotocol/server-{name}")), *arguments],
            }
            for name, arguments in scripts.items()
        },
    }


def directly(bench: Bench, entries: Entries) -> Figures:
    """What they have and take without anything between: the tools of all, and a call of one."""
    with ExitStack() as stack:
        clients = {name: started(bench, entry, stack) for name, entry in entries.items()}
        tools = sum(len(names_listed(client)) for client in clients.values())
        key, tool = CALLED
        request = clients[key].request("tools/call", {"name": tool, "arguments": ARGUMENTS})
        times = exchanges(lambda: clients[key].exchange(request), bench.size.calls)
        return {"tools": tools, "p50_ms": median(times) * 1000}


def started(bench: Bench, entry: Mapping[str, object], stack: ExitStack) -> StdioClient:
    """One of them, alone."""
    command = [str(entry["command"]), *map(str, entry["args"])]  # type: ignore[call-overload]
    client = StdioClient(command, cwd=bench.folder, env=clean_environment())
    stack.callback(client.close)
    return client


def behind(bench: Bench, peer: Peer, entries: Entries) -> Subject:
    """A peer that is started in front of them in each visit."""
    wanted = [peer.tool(server, tool) for server, tool in EACH_HAS.items()]
    name = peer.tool(*CALLED)

    def visit() -> Figures:
        with ExitStack() as stack:
            served = bench.serving(peer, entries, stack)
            client = served.client()
            all_listed(client, wanted, LISTED_SECONDS)
            figures = {"first_list_s": served.age(), "tools": len(names_listed(client))}
            called(client, name, ARGUMENTS)
            request = client.request("tools/call", {"name": name, "arguments": ARGUMENTS})
            times = exchanges(lambda: client.exchange(request), bench.size.calls)
            return {**figures, "p50_ms": median(times) * 1000, **memory(served)}

    return Subject(peer.label, visit, {"peer": peer.name, "front": peer.front})
