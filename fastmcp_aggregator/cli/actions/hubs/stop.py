"""The end of a hub. The bridges of its clients stay, and start one again with their clients' next request."""

from __future__ import annotations

import argparse

from fastmcp_aggregator.attach.asking import end, kill
from fastmcp_aggregator.attach.folder import Unusable
from fastmcp_aggregator.cli.running.local_hubs import Status, chosen, running_hubs
from fastmcp_aggregator.cli.terminal.console import say
from fastmcp_aggregator.cli.terminal.exits import FAILED, FINE

_PATIENCE = 60.0
"""Seconds that what is open in a hub may take to be answered, and its servers to end."""


def run(options: argparse.Namespace) -> int:
    hub = chosen(options.hub, running_hubs())
    if hub is None:
        say("no hub runs")
        return FAILED
    name = hub["name"] or hub["id"]
    if hub.get("hangs"):
        return _killed(name, hub, f"the hub {name} does not answer")
    try:
        end(hub["id"], _PATIENCE)
    except Unusable as why:
        return _killed(name, hub, str(why))
    clients = len(hub["clients"])
    more = (
        f"; {clients} client{'s' if clients > 1 else ''} will start it again with the next request" if clients else ""
    )
    say(f"the hub {name} has ended{more}")
    return FINE


def _killed(name: str, hub: Status, why: str) -> int:
    say(f"{why}, so its process {hub['pid']} is killed")
    try:
        is_gone = kill(hub["id"])
    except OSError as error:
        say(f"the process {hub['pid']} cannot be killed: {error.strerror}")
        return FAILED
    say(f"the hub {name} has ended" if is_gone else f"the process {hub['pid']} is still there")
    return FINE if is_gone else FAILED
