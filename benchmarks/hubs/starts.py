"""Many clients that start at once, cold: there is one hub each time, each client is served, and nothing is left.

Clients come in waves of one round, so that memory bounds how many bridges there are at once, and not how many attach.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time

from benchmarks.hubs.machine import Client, Machine, lean, machine, until


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=500.0, help="no further round after these")
    options = parser.parse_args()
    began, done, most_hubs, left = time.monotonic(), 0, 0, 0
    slowest = 0.0
    with machine(hub_idle="0.2") as here:
        config = here.config(lean=lean())
        while done < options.rounds and time.monotonic() - began < options.seconds:
            seconds, hubs, remaining = _round(here, config, options.clients, crash=done % 5 == 4)
            done, slowest = done + 1, max(slowest, seconds)
            print(f"round {done}: {seconds:.1f} s", file=sys.stderr, flush=True)
            most_hubs, left = max(most_hubs, hubs), left + remaining
    print(f"{done} rounds of {options.clients} simultaneous cold starts: at most {most_hubs} hub in each, {left} left")
    print(f"slowest round until all were served: {slowest:.1f} s")


def _round(here: Machine, config: str, count: int, *, crash: bool) -> tuple[float, int, int]:
    """Seconds until all were served, hubs at that time, and processes and files that were left.

    `crash`: the hub of the round before has not ended, but was killed, and its socket and lock file are still there.
    """
    barrier, gate = os.pipe()
    clients = [Client(here, "attach", config, "--no-strict", name=f"c{n}", barrier=barrier) for n in range(count)]
    pids = set()
    for client in clients:
        client.send(id=0, method="initialize", params=_HELLO)
        client.send(method="notifications/initialized")
        client.send(id=1, method="tools/call", params={"name": "lean:pid", "arguments": {}})
    began = time.monotonic()
    os.close(gate)
    os.close(barrier)
    for client in clients:
        answers = {}
        while 1 not in answers:
            message = client.read()
            answers[message.get("id")] = message
        pids.add(answers[1]["result"]["content"][0]["text"])
    seconds = time.monotonic() - began
    hubs = here.hubs()
    assert len(pids) == 1, f"{len(pids)} servers"
    if crash:
        os.kill(hubs[0], signal.SIGKILL)
    for client in clients:
        if crash:
            client.process.kill()
        client.leave()
    for client in clients:
        client.close()
    until(lambda: not here.processes() and not here.servers(), 60)
    files = [] if crash else [*here.root.rglob("*.sock"), *here.root.rglob("*.lock")]
    return seconds, len(hubs), len(here.processes()) + len(here.servers()) + len(files)


_HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


if __name__ == "__main__":
    main()
