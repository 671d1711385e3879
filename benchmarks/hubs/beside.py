"""Ten clients of ten servers, at one hub and beside it with a `serve` each: processes, memory, and the same answers."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from benchmarks.hubs.machine import Client, Machine, lean, machine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--config", help="an `mcpServers` file, and not ten small servers")
    parser.add_argument("--start", default="eager", help="the setting of this name: `auto` is what users have")
    parser.add_argument("--calls", help="a JSON list of [tool, arguments]: what each client calls")
    options = parser.parse_args()
    servers = {f"s{number}": lean() for number in range(10)}
    calls = [[f"s{number}:echo", {"number": number}] for number in range(10)]
    if options.config:
        servers = json.loads(Path(options.config).read_text())["mcpServers"]
        calls = json.loads(options.calls)
    found = {}
    for command in ("serve", "attach"):
        with machine(start=options.start) as here:
            found[command] = _measured(here, command, servers, calls, options.clients)
    for what in ("processes", "MiB"):
        serve, attach = found["serve"][what], found["attach"][what]
        print(f"{what}: serve {serve:.0f}, attach {attach:.0f}, which is {attach / serve:.0%}")
    for what in ("lists", "answers"):
        print(f"{what} are equal: {found['serve'][what] == found['attach'][what]}")


def _measured(here: Machine, command: str, servers: dict[str, Any], calls: list[Any], clients: int) -> dict[str, Any]:
    config = here.config(**servers)
    connected = [Client(here, command, config, "--no-strict", name=f"c{number}") for number in range(clients)]
    lists, answers = [], []
    for client in connected:
        client.initialize()
        results = [client.request("tools/call", name=name, arguments=arguments) for name, arguments in calls]
        answers.append([result.get("result", result.get("error")) for result in results])
    time.sleep(3)
    for client in connected:  # not before: of a server that has just begun to start, `serve` may list nothing yet
        lists.append([tool["name"] for tool in client.request("tools/list")["result"]["tools"]])
    pids = {*here.processes(), *here.servers()}
    memory = sum(_pss(pid) for pid in pids) / 1024
    for client in connected:
        client.leave()
    for client in connected:
        client.close()
    return {"processes": len(pids), "MiB": memory, "lists": lists, "answers": answers}


def _pss(pid: int) -> int:
    """KiB that the process has, and its share of what it has with others."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return int(rollup.partition("Pss:")[2].split()[0])


if __name__ == "__main__":
    main()
