"""The files and variables that first answers depend on, which are kept for the next start."""

from __future__ import annotations

import argparse
import os
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from fastmcp_aggregator import version
from fastmcp_aggregator.catalogue.persisted.fingerprint import files_of
from fastmcp_aggregator.catalogue.persisted.store import CatalogueStore
from fastmcp_aggregator.config import McpConfig, StdioServer
from fastmcp_aggregator.config.documents import MAX_BYTES
from fastmcp_aggregator.early.answers import AnswersFile, variables_in
from fastmcp_aggregator.early.reading import read_bytes
from fastmcp_aggregator.settings.model import AggregatorSettings

if TYPE_CHECKING:
    from fastmcp_aggregator.front.early_answers import Keep


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


def kept_by(catalogues: CatalogueStore, answers: AnswersFile) -> Keep:
    """The function that keeps the answers of a client, written with the catalogues."""
    return lambda signature, results: catalogues.write_soon(answers.path, partial(answers.keep, signature, results))
