"""Serving over stdio or HTTP, until the client or the user ends it."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from fastmcp_aggregator.access.listening import listening_socket
from fastmcp_aggregator.access.loopback import require_safe_bind, require_safe_origins
from fastmcp_aggregator.catalogue.persisted.store import CatalogueStore
from fastmcp_aggregator.children.process.process import kill_recorded_groups
from fastmcp_aggregator.cli.output.report import follow
from fastmcp_aggregator.cli.running.first_answers import kept_by, what_answers_depend_on
from fastmcp_aggregator.cli.running.introduction import introduction_of
from fastmcp_aggregator.cli.running.starting import built_early, load, load_named_groups, new_report, run_to_end
from fastmcp_aggregator.cli.terminal.exits import FINE, SERVER_FAILED, UsageError
from fastmcp_aggregator.cli.terminal.logs import leave_out, take_over, tell
from fastmcp_aggregator.cli.terminal.signals import end_on_signals
from fastmcp_aggregator.concurrency.waits import meanwhile
from fastmcp_aggregator.config import McpConfig
from fastmcp_aggregator.doctor.keys import warnings_of_keys
from fastmcp_aggregator.early.answers import AnswersFile, name_of
from fastmcp_aggregator.early.front import introduce_by
from fastmcp_aggregator.errors import AggregatorError, ChildServerError, NameConflictError, StartupError
from fastmcp_aggregator.groups import DEFAULT_GROUP, Groups
from fastmcp_aggregator.settings.model import AggregatorSettings

if TYPE_CHECKING:
    from fastmcp_aggregator.aggregator import Aggregator
    from fastmcp_aggregator.front.early_answers import Keep

logger = logging.getLogger(__name__)


def run(options: argparse.Namespace) -> int:
    environ = dict(os.environ)  # without what is read from a file
    config, settings = load(options, serves=True)
    if settings.catalogue is None:
        settings = settings.model_copy(update={"catalogue": "on"})
    groups = load_named_groups(options, config, settings)
    if options.transport == "http":
        _check_address(settings)
        _look_at_keys(settings, groups)
    elif settings.audit == "stdout":
        raise UsageError("on stdio, stdout is for MCP and nothing else; give the setting `audit` the path of a file")
    catalogues = CatalogueStore()
    if options.transport != "http":
        introduce_by(introduction_of(config, settings, groups, options.group, catalogues))
    answers = AnswersFile(name_of(sys.argv[1:]), *what_answers_depend_on(options, config, settings), environ)
    serving = _serve(config, settings, groups, options, catalogues, answers)
    return run_to_end(serving, exit_code_on_signal=FINE)


def _check_address(settings: AggregatorSettings) -> None:
    """Refuse an address that is unsafe or taken before anything is started."""
    try:
        require_safe_bind(settings.host, has_auth=settings.has_auth)
        require_safe_origins(settings.cors_origins, has_auth=settings.has_auth)
    except AggregatorError as error:
        raise UsageError(str(error)) from None
    listening_socket(settings.host, settings.port).close()


def _look_at_keys(settings: AggregatorSettings, groups: Groups) -> None:
    """Warn of keys and limits that are for nobody or for groups that are not there, and of keys that expire soon.

    Raises:
        ConfigError: the keys file cannot be used.
    """
    for finding in warnings_of_keys(settings, groups):
        logger.warning("%s", finding.message)


async def _serve(
    config: McpConfig,
    settings: AggregatorSettings,
    groups: Groups,
    options: argparse.Namespace,
    catalogues: CatalogueStore,
    answers: AnswersFile,
) -> int:
    group, is_http = options.group, options.transport == "http"
    keep = kept_by(catalogues, answers) if settings.catalogue == "on" else None
    report = new_report(config.servers if group is None else groups[group].servers, is_full=True)
    end_on_signals(FINE, kill_recorded_groups, report.close)
    leave_out(report.tells)
    with closing(report):
        async with built_early(
            config, settings, groups=groups, only=group, has_callers=is_http, catalogues=catalogues
        ) as app:
            following = asyncio.create_task(follow(app, report))
            failed: StartupError | None = None
            async with meanwhile(following):
                try:
                    await _run_front(app, group, is_http=is_http, keep=keep)
                except* StartupError as errors:  # the SDK's stdio transport puts it into a group
                    failed = _first(errors)
                    await following
            if failed is not None:
                tell(_why_it_ended(failed), logging.ERROR)
                return SERVER_FAILED
    return FINE


async def _run_front(hub: Aggregator, group: str | None, *, is_http: bool, keep: Keep | None) -> None:
    app = hub.group(group or DEFAULT_GROUP)
    if not is_http:
        await app.run_stdio_async(keep_answers=keep)
    else:
        await app.run_http_async(on_listening=partial(_say_url, app.settings, has_page=app is hub))


def _say_url(settings: AggregatorSettings, url: str, *, has_page: bool) -> None:
    take_over("uvicorn")
    tell(f"serving on {url}")
    if has_page and settings.dashboard and settings.path != "/":
        tell(f"the dashboard is at {_reachable(url.removesuffix(settings.path), settings.public_url)}/")


def _reachable(origin: str, public_url: str | None) -> str:
    """The address for a browser: none goes to the address that stands for all of a machine's."""
    here = origin.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
    return here if public_url is None else public_url.rstrip("/")


def _first(group: ExceptionGroup[StartupError]) -> StartupError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, ExceptionGroup) else error


def _why_it_ended(error: StartupError) -> str:
    """The reason for the end that the report has not told yet."""
    conflicts = [str(failure) for failure in error.failures if isinstance(failure, NameConflictError)]
    failed = [failure.server_key for failure in error.failures if isinstance(failure, ChildServerError)]
    if failed:
        conflicts.append(
            f"The start has ended, because not every server started: {', '.join(failed)}.\n"
            "To serve without the failed ones, use --no-strict."
        )
    return "\n".join(conflicts)
