"""The restart of one server in all hubs of this user that have it; with a URL, in an instance that serves HTTP."""

from __future__ import annotations

import argparse

from fastmcp_aggregator.attach import greeting
from fastmcp_aggregator.attach.asking import DEFAULT_TIMEOUTS, Timeouts, ask
from fastmcp_aggregator.attach.folder import Unusable
from fastmcp_aggregator.cli.actions.hubs.status import nothing_runs
from fastmcp_aggregator.cli.actions.status import run_restart
from fastmcp_aggregator.cli.parser.command import HERE
from fastmcp_aggregator.cli.running.instance import InstanceError
from fastmcp_aggregator.cli.running.local_hubs import ENDS, NO_HUB, Status, chosen, running_hubs
from fastmcp_aggregator.cli.terminal.console import say
from fastmcp_aggregator.cli.terminal.exits import FAILED, FINE, UsageError
from fastmcp_aggregator.naming.suggestions import closest


def run(options: argparse.Namespace, timeouts: Timeouts = DEFAULT_TIMEOUTS, *, here: str = HERE) -> int:
    """`here` is where an instance is looked for if no hub runs."""
    hubs = [] if options.url is not None else [hub for hub in running_hubs(timeouts) if hub.get("silent") != ENDS]
    if options.hub is not None:
        chosen_one = chosen(options.hub, hubs)
        hubs = [] if chosen_one is None else [chosen_one]
    if not hubs:
        return run_restart(options) if options.url is not None else _without_hub(options, here)
    having = [hub for hub in hubs if hub.get("silent") or options.server in hub["servers"]]
    if not having:
        similar = closest(options.server, [key for hub in hubs for key in hub["servers"]], 1)
        meant = f"; did you mean {similar[0]!r}?" if similar else ""
        raise UsageError(f"no hub has a server {options.server!r}{meant}")
    return max([_restarted(hub, options.server) for hub in having])


def _without_hub(options: argparse.Namespace, here: str) -> int:
    """There may be an instance that serves HTTP here."""
    if options.hub is None:
        options.url = here
        try:
            return run_restart(options)
        except InstanceError as error:
            say(nothing_runs(error))
    else:
        say(NO_HUB)
    return FAILED


def _restarted(hub: Status, server: str) -> int:
    name = hub["name"] or hub["id"]
    if hub.get("silent"):
        say(f"the hub {name}: {hub['silent']}")
        return FAILED
    try:
        answer = ask(hub["id"], greeting.RESTART, server=server)
    except Unusable as why:
        say(str(why))
        return FAILED
    if answer is None or answer.get("problem"):
        say(f"the hub {name}: {'it has ended' if answer is None else answer['problem']}")
        return FAILED
    say(f"{server} is being restarted in the hub {name}; fastmcp-aggregator status shows when it is up")
    return FINE
