"""Looks at `/ready` of a server 20 times a second: `python -m benchmarks.ready PORT SECONDS`.

It prints the seconds that each look took. It is a process of its own, so that the clients that are measured do not keep
it from its look.
"""

from __future__ import annotations

import json
import sys
import time

from benchmarks.clients import HttpClient

PAUSE = 0.05


def main() -> None:
    """Look, and print."""
    client = HttpClient(int(sys.argv[1]))
    request = client.plain_request("/ready", expected=b" 200 ")
    until = time.perf_counter() + float(sys.argv[2])
    took = []
    while (began := time.perf_counter()) < until:
        client.exchange(request)
        took.append(time.perf_counter() - began)
        time.sleep(PAUSE)
    print(json.dumps(took))


if __name__ == "__main__":
    main()
