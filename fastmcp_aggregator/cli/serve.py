"""`serve`: be one MCP server in front of all, over stdio or HTTP, until the client or the user ends it."""

from __future__ import annotations

import argparse
import asyncio

import fastmcp_aggregator as package
from fastmcp_aggregator.children.process import kill_recorded_groups
from fastmcp_aggregator.cli.exits import FINE, SERVER_FAILED, UsageError
from fastmcp_aggregator.cli.logs import leave_out, take_over
from fastmcp_aggregator.cli.output import say
from fastmcp_aggregator.cli.progress import follow, full_report
from fastmcp_aggregator.cli.signals import end_on_signals
from fastmcp_aggregator.cli.starting import built_early, load, run_to_end
from fastmcp_aggregator.config import McpConfig
from fastmcp_aggregator.errors import AggregatorError, ChildServerError, NameConflictError, StartupError
from fastmcp_aggregator.settings import AggregatorSettings


def run(options: argparse.Namespace) -> int:
    """Run the command; the exit code."""
    config, settings = load(options)
    if options.transport == "http":
        _check_address(settings.host)
    return run_to_end(_serve(config, settings, options.transport), code_when_told_to_end=FINE)


def _check_address(host: str) -> None:
    """Refuse an unsafe address before anything is started."""
    from fastmcp_aggregator.front.http import require_safe_bind  # noqa: PLC0415 - uvicorn is for HTTP only

    try:
        require_safe_bind(host, has_auth=False)
    except AggregatorError as error:
        raise UsageError(str(error)) from None


async def _serve(config: McpConfig, settings: AggregatorSettings, transport: str) -> int:
    report = full_report(config.servers)
    end_on_signals(FINE, kill_recorded_groups, report.close)
    leave_out(report.tells)
    try:
        async with built_early(config, settings) as app:
            following = asyncio.create_task(follow(app, report))
            failed: StartupError | None = None
            try:
                await _run_front(app, transport)
            except* StartupError as group:  # the SDK's stdio transport puts it into a group
                failed = _first(group)
                await following
            finally:
                following.cancel()
            if failed is not None:
                say(_why_it_ended(failed))
                return SERVER_FAILED
    finally:
        report.close()
    return FINE


async def _run_front(app: package.Aggregator, transport: str) -> None:
    if transport == "stdio":
        await app.run_stdio_async()
    else:
        await app.run_http_async(on_listening=_say_url)


def _say_url(url: str) -> None:
    take_over("uvicorn")
    say(f"serving on {url}")


def _first(group: ExceptionGroup[StartupError]) -> StartupError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, ExceptionGroup) else error


def _why_it_ended(error: StartupError) -> str:
    """What the report has not told yet."""
    conflicts = [str(failure) for failure in error.failures if isinstance(failure, NameConflictError)]
    failed = [failure.server_key for failure in error.failures if isinstance(failure, ChildServerError)]
    if failed:
        conflicts.append(
            f"The start has ended, because not every server started: {', '.join(failed)}.\n"
            "To serve without the failed ones, use --no-strict."
        )
    return "\n".join(conflicts)
