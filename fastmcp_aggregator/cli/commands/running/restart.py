"""`restart`: one server of a running instance, started anew."""

from __future__ import annotations

import argparse

from fastmcp_aggregator.cli.parser.command import Command, action, add_instance


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("server", metavar="SERVER", help="its key in the config")
    add_instance(parser)


COMMAND = Command(
    name="restart",
    summary="Restart one server of a running HTTP instance, for example after a change of its code.",
    usage="restart SERVER [URL] [options]",
    examples=("restart notes", "restart notes https://hub.example.com --api-key-file key"),
    add_arguments=_add_arguments,
    run=action("status", "run_restart"),
)
