"""Ten clients of ten servers, at one hub and beside it with a `serve` each: processes, memory, and the same answers."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from benchmarks.hubs.machine import Client, Machine, lean, machine, until


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--config", help="an `mcpServers` file, and not ten small servers")
    parser.add_argument("--start", default="eager", help="the setting of this name: `auto` is what users have")
    parser.add_argument("--calls", help="a JSON list of [tool, arguments]: what each client calls")
    parser.add_argument("--used", type=int, help="how many of the calls each client makes: not all of them")
    parser.add_argument("--warm", action="store_true", help="what the servers list is known from an earlier run")
    options = parser.parse_args()
    servers = {f"s{number}": lean() for number in range(10)}
    calls = [[f"s{number}:echo", {"number": number}] for number in range(10)]
    if options.config:
        servers = json.loads(Path(options.config).read_text())["mcpServers"]
        calls = json.loads(options.calls)
    of_clients = [_used(calls, number, options.used) for number in range(options.clients)]
    found = {}
    for command in ("serve", "attach"):
        with machine(start=options.start, hub_idle="0.2") as here:
            if options.warm:
                _measured(here, command, servers, [calls])
                until(lambda: not here.processes() and not here.servers(), 60)
            found[command] = _measured(here, command, servers, of_clients)
    for what in ("processes", "MiB"):
        serve, attach = found["serve"][what], found["attach"][what]
        print(f"{what}: serve {serve:.0f}, attach {attach:.0f}, which is {attach / serve:.0%}")
    for what in ("lists", "answers"):
        print(f"{what} are equal: {found['serve'][what] == found['attach'][what]}")


def _used(calls: list[Any], number: int, used: int | None) -> list[Any]:
    """Those that one client makes: its first one is the next of the client before."""
    return [calls[(number + each) % len(calls)] for each in range(len(calls) if used is None else used)]


def _measured(here: Machine, command: str, servers: dict[str, Any], of_clients: list[list[Any]]) -> dict[str, Any]:
    """With what each client calls."""
    config = here.config(**servers)
    connected = [Client(here, command, config, "--no-strict", name=f"c{number}") for number in range(len(of_clients))]
    lists, answers = [], []
    for client, calls in zip(connected, of_clients, strict=True):
        client.initialize()
        results = [client.request("tools/call", name=name, arguments=arguments) for name, arguments in calls]
        answers.append([result.get("result", result.get("error")) for result in results])
    time.sleep(3)
    for client in connected:  # not before: of a server that has just begun to start, `serve` may list nothing yet
        lists.append([tool["name"] for tool in client.request("tools/list")["result"]["tools"]])
    pids = {*here.processes(), *here.servers()}
    memory = sum(pss(pid) for pid in pids) / 1024
    for client in connected:
        client.leave()
    for client in connected:
        client.close()
    return {"processes": len(pids), "MiB": memory, "lists": lists, "answers": answers}


def pss(pid: int) -> int:
    """KiB that the process has, and its share of what it has with others."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return int(rollup.partition("Pss:")[2].split()[0])


if __name__ == "__main__":
    main()
