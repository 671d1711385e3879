"""The end of a hub. The bridges of its clients stay, and start one again with their clients' next request."""

from __future__ import annotations

import argparse

from fastmcp_aggregator.attach.asking import end
from fastmcp_aggregator.attach.folder import Unusable
from fastmcp_aggregator.cli.running.local_hubs import chosen, running_hubs
from fastmcp_aggregator.cli.terminal.console import say
from fastmcp_aggregator.cli.terminal.exits import FAILED, FINE

_PATIENCE = 60.0
"""Seconds that what is open in a hub may take to be answered, and its servers to end."""


def run(options: argparse.Namespace) -> int:
    hub = chosen(options.hub, running_hubs())
    if hub is None:
        say("no hub runs")
        return FAILED
    try:
        end(hub["id"], _PATIENCE)
    except Unusable as why:
        say(f"{why}; its process is {hub['pid']}")
        return FAILED
    clients = len(hub["clients"])
    more = (
        f"; {clients} client{'s' if clients > 1 else ''} will start it again with the next request" if clients else ""
    )
    say(f"the hub {hub['name'] or hub['id']} has ended{more}")
    return FINE
