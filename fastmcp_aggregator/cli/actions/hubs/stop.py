"""The end of hubs. The bridges of their clients stay, and start one again with their clients' next request."""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from fastmcp_aggregator.attach.asking import DEFAULT_TIMEOUTS, Timeouts, end, kill
from fastmcp_aggregator.attach.folder import Unusable
from fastmcp_aggregator.cli.running.local_hubs import Status, chosen, refuse_url, running_hubs
from fastmcp_aggregator.cli.terminal.console import counted, say
from fastmcp_aggregator.cli.terminal.exits import FAILED, FINE

_MOST_AT_ONCE = 32


def run(options: argparse.Namespace, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> int:
    refuse_url(options.hub, "end its own process, by Ctrl-C or SIGTERM, or what runs it (`systemctl stop`)")
    hubs = running_hubs(timeouts)
    if not options.all and (hub := chosen(options.hub, hubs)) is not None:
        hubs = [hub]
    if not hubs:
        say("no hub runs")
        return FAILED
    with ThreadPoolExecutor(_MOST_AT_ONCE) as threads:
        return max(threads.map(partial(_stopped, timeouts), hubs))


def _stopped(timeouts: Timeouts, hub: Status) -> int:
    name = hub["name"] or hub["id"]
    try:
        end(hub["id"], timeouts)
    except Unusable as why:
        return _killed(name, hub, str(why))
    clients = hub.get("clients")
    more = f"; {counted(len(clients), 'client')} will start it again with the next request" if clients else ""
    say(f"the hub {name} has ended{more}")
    return FINE


def _killed(name: str, hub: Status, why: str) -> int:
    if not hub["pid"]:
        say(f"{why}, and which process it is could not be noted; is the disk full?")
        return FAILED
    say(f"{why}, so its process {hub['pid']} is killed")
    try:
        is_gone = kill(hub["id"], hub["pid"])
    except OSError as error:
        say(f"the process {hub['pid']} cannot be killed: {error.strerror}")
        return FAILED
    say(f"the hub {name} has ended" if is_gone else f"the process {hub['pid']} is still there")
    return FINE if is_gone else FAILED
