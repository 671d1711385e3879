"""How long clients wait for a hub in the place of one that was killed."""

from __future__ import annotations

import argparse
import os
import signal
import time

from benchmarks.hubs.machine import Client, lean, machine, median


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--clients", type=int, default=10)
    options = parser.parse_args()
    found = []
    with machine() as here:
        config = here.config(**{f"s{number}": lean() for number in range(5)})
        clients = [Client(here, "attach", config, "--no-strict", name=f"c{n}") for n in range(options.clients)]
        for client in clients:
            client.initialize()
            client.request("logging/setLevel", level="error")
            client.request("tools/call", name="s0:echo", arguments={})
        for _ in range(options.runs):
            time.sleep(1.5)
            [hub] = here.hubs()
            began = time.perf_counter()
            os.kill(hub, signal.SIGKILL)
            for client in clients:
                client.request("tools/call", name="s0:echo", arguments={})
            found.append(time.perf_counter() - began)
        for client in clients:
            client.close()
    print(f"{options.clients} clients, all served again: p50 {median(found):.2f} s, max {max(found):.2f} s")


if __name__ == "__main__":
    main()
