"""The bridge between a client on stdio and the hub of this user. Nothing is imported here that is not light."""

from __future__ import annotations

import argparse
import os
import signal
import sys

from fastmcp_aggregator.attach.bridge import Bridge, about_client
from fastmcp_aggregator.attach.folder import Unusable
from fastmcp_aggregator.attach.greeting import say
from fastmcp_aggregator.attach.identity import answers_name, identity_of
from fastmcp_aggregator.attach.probe import DEFAULT_TIMINGS, Timings
from fastmcp_aggregator.attach.starting import connected
from fastmcp_aggregator.early.ancestors import why_recursive
from fastmcp_aggregator.early.reading import read_bytes


def run(options: argparse.Namespace, timings: Timings = DEFAULT_TIMINGS) -> int:
    own = _arguments_of_serve(options, sys.argv[2:])
    if why := why_recursive(options.config):
        say(why)
        return 2
    try:
        identity = identity_of(options, os.environ)
    except Unusable as problem:
        return _serve_alone(str(problem), own)
    if not _is_readable(options.config) and connected(identity.id) is None:
        return _serve_instead(own)  # which says what is wrong
    if os.isatty(0):
        say(f"Waiting for an MCP client on stdin. To see what it is served: fastmcp-aggregator list {options.config}")
    for name in ("SIGTERM", "SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), lambda *_: os._exit(0))
    about = about_client(options.group, options.tool_search)
    answers = answers_name(identity.id, options.group, options.tool_search)
    return Bridge(identity, about, own, answers, timings=timings).run()


def _serve_alone(why: str, arguments: list[str]) -> int:
    say(f"No hub serves this client: {why}. It starts servers of its own.")
    return _serve_instead(arguments)


def _serve_instead(arguments: list[str]) -> int:
    command = [sys.executable, "-P", "-m", "fastmcp_aggregator", "serve", *arguments]
    if sys.platform != "win32":
        os.execv(sys.executable, command)
    import subprocess  # noqa: PLC0415 - for Windows only

    return subprocess.call(command)


def _is_readable(config: str) -> bool:
    """True if the config is a file that can be read, whatever is in it."""
    try:
        read_bytes(os.path.expanduser(config), 1)
    except (OSError, ValueError):
        return False
    return True


def _arguments_of_serve(options: argparse.Namespace, arguments: list[str]) -> list[str]:
    """The same arguments without those that `serve` does not know."""
    if options.hub is None:
        return arguments
    at = next(number for number, argument in enumerate(arguments) if argument in ("--hub", f"--hub={options.hub}"))
    return arguments[:at] + arguments[at + (2 if arguments[at] == "--hub" else 1) :]
