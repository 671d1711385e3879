"""The files and variables that first answers depend on, which are kept for the next start."""

from __future__ import annotations

import argparse
import os
from contextlib import suppress

from fastmcp_aggregator import version
from fastmcp_aggregator.catalogue.persisted.fingerprint import files_of
from fastmcp_aggregator.config import McpConfig, StdioServer
from fastmcp_aggregator.config.documents import MAX_BYTES
from fastmcp_aggregator.early.answers import variables_in
from fastmcp_aggregator.early.reading import read_bytes
from fastmcp_aggregator.settings.model import AggregatorSettings


def what_answers_depend_on(
    options: argparse.Namespace, config: McpConfig, settings: AggregatorSettings
) -> tuple[list[str], list[str]]:
    """The files and the environment variables that decide what clients are told first."""
    named = (options.config, options.settings, options.env_file, settings.groups, settings.pins, version.__file__)
    files = [os.path.expanduser(file) for file in named if file]
    variables = [own.bearer_env for own in settings.servers.values() if own.bearer_env]
    with suppress(OSError, ValueError):
        variables += variables_in(read_bytes(options.config, MAX_BYTES).decode())
    for server in config.servers.values():
        if isinstance(server, StdioServer):
            files += [path for path, _, _ in files_of(server)]
    return files, variables
