"""From the options to a running app: config and settings, processes first, FastMCP second; and the way out."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from typing import Any

import fastmcp_aggregator as package
from fastmcp_aggregator.children.launching import launch_early
from fastmcp_aggregator.children.process import ChildProcess, kill_recorded_groups
from fastmcp_aggregator.cli.exits import FAILED
from fastmcp_aggregator.cli.logs import leave_out, take_over
from fastmcp_aggregator.cli.progress import Report, follow
from fastmcp_aggregator.cli.signals import end_on_signals
from fastmcp_aggregator.config import McpConfig, load_config
from fastmcp_aggregator.errors import ChildServerError, ConfigError
from fastmcp_aggregator.front.signals import stop_on_signals
from fastmcp_aggregator.settings import AggregatorSettings, load_settings, unknown_servers

logger = logging.getLogger(__name__)

_SETTINGS = ("name", "server_version", "separator", "prefix", "strict", "host", "port")


def load(options: argparse.Namespace) -> tuple[McpConfig, AggregatorSettings]:
    """The config and the settings that the options name.

    Raises:
        ConfigError: with the problems of both.
    """
    overrides = {name: getattr(options, name, None) for name in _SETTINGS}
    try:
        config = load_config(options.config)
    except ConfigError as error:
        raise _with_problems_of_settings(error, options.settings, overrides) from None
    settings = load_settings(options.settings, **overrides)
    for key in unknown_servers(settings, config.servers):
        logger.warning("there are settings for the server %r, which is not in %s", key, config.source)
    return config, settings


def _with_problems_of_settings(error: ConfigError, settings_file: str | None, overrides: dict[str, Any]) -> ConfigError:
    try:
        load_settings(settings_file, **overrides)
    except ConfigError as other:
        both = [replace(d, path=f"{e.source} {d.path}") for e in (error, other) for d in e.details]
        return ConfigError(f"{error.source} and {other.source}", both)
    return error


def run_to_end(work: Coroutine[Any, Any, int], *, code_when_told_to_end: int) -> int:
    """Run the event loop; whatever happens, no process that was started is left behind."""

    async def watched() -> int:
        try:
            return await work
        finally:
            end_on_signals(code_when_told_to_end, kill_recorded_groups)  # a front has put back the defaults

    end_on_signals(code_when_told_to_end, kill_recorded_groups)
    try:
        return asyncio.run(watched())
    finally:
        kill_recorded_groups()


@asynccontextmanager
async def built_early(config: McpConfig, settings: AggregatorSettings) -> AsyncIterator[package.Aggregator]:
    """An app whose processes have been started already; those that it has not taken over are ended at the end."""
    launched = launch_early(config, settings.max_response_bytes)
    try:
        if launched:
            await asyncio.wait(launched.values())
        # Only now, and by its first use here, is FastMCP imported. That takes a second, in which the children start.
        with _without_collections():
            aggregator_type = package.Aggregator
        app = aggregator_type(config, settings, launched=launched)
        take_over("fastmcp")
        yield app
    finally:
        await asyncio.gather(*map(_end, launched.values()))


@contextmanager
def _without_collections() -> Iterator[None]:
    """Import without garbage collections: they find nothing to free, and take a sixth of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


async def _end(launched: asyncio.Task[ChildProcess]) -> None:
    with suppress(ChildServerError):  # it could not be started
        process = await launched
        if not process.exited.is_set():
            await process.stop()


@asynccontextmanager
async def started(config: McpConfig, settings: AggregatorSettings, report: Report) -> AsyncIterator[package.Aggregator]:
    """The app, once the first start of each of its children has succeeded or failed.

    Raises:
        StartupError: strict, and something failed.
    """
    leave_out(lambda _: True)  # whoever waits for the start says what has failed
    following: asyncio.Task[None] | None = None
    try:
        async with built_early(config, settings) as app:
            following = asyncio.create_task(follow(app, report))
            async with app:
                await following
                yield app
    finally:
        if following is not None:
            following.cancel()
        report.close()


def tolerant(settings: AggregatorSettings) -> AggregatorSettings:
    """The same settings, under which servers that fail end nothing."""
    return settings.model_copy(update={"strict": False, "ready_wait": 0.0})


async def interruptible(work: Coroutine[Any, Any, int]) -> int:
    """Do the work, or close what it has opened and give up when the program is told to end."""
    with stop_on_signals() as stop:
        working = asyncio.create_task(work)
        told = asyncio.create_task(stop.wait())
        await asyncio.wait({working, told}, return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        if working.done():
            return working.result()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        return FAILED
