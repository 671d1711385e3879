"""Calls of many principals with accounts of their own, whose tokens end and are revoked all the time.

    PYTHONPATH=tests python benchmarks/accounts.py [--calls N] [--principals N] [--servers N] [--slice N]

A hub over HTTP has a few servers that ask for logins; ten calls are in flight. Whoever has no token is asked, logs in,
and its call goes on. Says after each slice how far it is. Exits with 1 if a call was made with another's token, or did
not end with its result.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from pathlib import Path

import psutil
from support.account_crowd import crowd


async def main(options: argparse.Namespace) -> int:
    began, process = time.monotonic(), psutil.Process()
    with tempfile.TemporaryDirectory() as folder:
        async with crowd(Path(folder), options.principals, options.servers) as crowded:
            for first in range(0, options.calls, options.slice):
                await crowded.make(min(options.slice, options.calls - first))
                renewed = sum(server.grants["refresh_token"] for server in crowded.place.servers)
                print(
                    f"{time.monotonic() - began:6.0f} s  {dict(crowded.ended)}  renewals {renewed}  "
                    f"{process.memory_info().rss / 2**20:.0f} MiB",
                    flush=True,
                )
    for each in crowded.told[:20]:
        print(each)
    return 0 if crowded.is_clean and crowded.ended["result"] == options.calls else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--principals", type=int, default=50)
    parser.add_argument("--servers", type=int, default=5)
    parser.add_argument("--slice", type=int, default=500)
    logging.disable(logging.CRITICAL)
    sys.exit(asyncio.run(main(parser.parse_args())))
