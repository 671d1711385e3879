"""Many clients that start at once, cold: there is one hub each time, each client is served, and nothing is left.

So many begin at the same moment, with what a killed hub has left in every fifth round. The clients of a round that
are more begin in groups, each when the one before is served, so that a machine that does other things bears it.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from functools import partial

from benchmarks.hubs.machine import Client, Machine, lean, machine, until


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=500.0, help="no further round after these")
    options = parser.parse_args()
    began, done, most_hubs, apart, left = time.monotonic(), 0, 0, 0, 0
    slowest = 0.0
    with machine(hub_idle="0.2") as here:
        config = here.config(lean=lean())
        while done < options.rounds and time.monotonic() - began < options.seconds:
            seconds, hubs, others, remaining = _round(
                here, config, options.clients, options.at_once, crash=done % 5 == 4
            )
            done, slowest = done + 1, max(slowest, seconds)
            print(f"round {done}: {seconds:.1f} s", *others, sep="\n  ", file=sys.stderr, flush=True)
            most_hubs, apart, left = max(most_hubs, hubs), apart + len(others), left + remaining
    print(
        f"{done} rounds of {options.clients} cold starts, {min(options.clients, options.at_once)} at the same moment:"
    )
    print(f"at most {most_hubs} hub in each, {apart} clients not served by it, {left} left")
    print(f"slowest round until all were served: {slowest:.1f} s")


def _round(here: Machine, config: str, count: int, at_once: int, *, crash: bool) -> tuple[float, int, list[str], int]:
    """Seconds until all were served, hubs at that time, what became of each client that another server process has
    served than the others, and processes and files that were left.

    `crash`: the hub of the round before has not ended, but was killed, and its socket and lock file are still there.
    """
    groups = [_Group(here, config, min(at_once, count - first)) for first in range(0, count, at_once)]
    began = time.monotonic()
    served = [each for group in groups for each in group.begin()]
    seconds = time.monotonic() - began
    hubs = here.hubs()
    answers = [answer for _, answer in served]
    usual = max(answers, key=answers.count)
    others = [f"{answer}: {client.said()}" for client, answer in served if answer != usual]
    if crash:
        os.kill(hubs[0], signal.SIGKILL)
    clients = [client for group in groups for client in group.clients]
    for client in clients:
        if crash:
            client.process.kill()
        client.leave()
    for client in clients:
        client.close()
    until(lambda: not here.processes() and not here.servers(), 60)
    files = [] if crash else [*here.root.rglob("*.sock"), *here.root.rglob("*.lock")]
    return seconds, len(hubs), others, len(here.processes()) + len(here.servers()) + len(files)


class _Group:
    """Clients that begin at the same moment, once they may."""

    def __init__(self, here: Machine, config: str, count: int) -> None:
        barrier, self._gate = os.pipe()
        attach = partial(Client, here, "attach", config, "--no-strict", barrier=barrier)
        self.clients = [attach() for _ in range(count)]
        os.close(barrier)
        for client in self.clients:
            client.send(id=0, method="initialize", params=_HELLO)
            client.send(method="notifications/initialized")
            client.send(id=1, method="tools/call", params={"name": "lean:pid", "arguments": {}})

    def begin(self) -> list[tuple[Client, str]]:
        """Have them begin, and wait until all are served; of each, the process of its server, or the error."""
        os.close(self._gate)
        served = []
        for client in self.clients:
            while (message := client.read()).get("id") != 1:
                pass
            is_served = "result" in message
            served.append((client, message["result"]["content"][0]["text"] if is_served else str(message["error"])))
        return served


_HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


if __name__ == "__main__":
    main()
