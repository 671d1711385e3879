"""From the options to a running app: config and settings, processes first, FastMCP second; and the way out.

A config that contains the aggregator that serves it is rejected: each aggregator tells the processes that it starts
which configs are served above them, in an environment variable.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import fastmcp_aggregator as package
from fastmcp_aggregator.catalogue.persisted.store import CatalogueStore
from fastmcp_aggregator.children.process.child_watcher import watched_by_descriptor
from fastmcp_aggregator.children.process.on_demand import starts_asleep
from fastmcp_aggregator.children.process.process import ChildProcess, kill_recorded_groups, launch_early
from fastmcp_aggregator.cli.output.report import Lines, Report, follow
from fastmcp_aggregator.cli.running.given_files import add_variables_of
from fastmcp_aggregator.cli.running.short_collections import short_collections
from fastmcp_aggregator.cli.terminal.console import show_cursor
from fastmcp_aggregator.cli.terminal.exits import UsageError
from fastmcp_aggregator.cli.terminal.logs import hide, leave_out, set_up_logging, take_over
from fastmcp_aggregator.cli.terminal.signals import code_of, end_at_once, end_on_signals, ending_signals
from fastmcp_aggregator.concurrency.waits import meanwhile
from fastmcp_aggregator.config import McpConfig, StdioServer, load_config
from fastmcp_aggregator.config.loader import require_right_entries
from fastmcp_aggregator.early.ancestors import CONFIGS_ABOVE, configs_above, real_path_of, why_recursive
from fastmcp_aggregator.early.deferred_imports import deferred
from fastmcp_aggregator.errors import ChildServerError, ConfigError
from fastmcp_aggregator.file_descriptors import require_descriptors
from fastmcp_aggregator.files.permissions import warn_of, weaknesses
from fastmcp_aggregator.groups import Groups, load_groups
from fastmcp_aggregator.observability.secret_values import new_secrets_in, secrets_in
from fastmcp_aggregator.settings.model import AggregatorSettings, load_settings, unknown_servers
from fastmcp_aggregator.settings.options import ChildOptions, EndpointOptions

logger = logging.getLogger(__name__)
_GRACE = 0.5
"""Seconds in which a command that is interrupted ends its calls and its servers; what is left is killed."""


def load(
    options: argparse.Namespace, *, serves: bool = False, examines: bool = False
) -> tuple[McpConfig, AggregatorSettings]:
    """The config and the settings that the options name. From now on the log is as they say.

    A server with a variable that has no value is one that fails, unless the config is to be served and strict; one
    whose entry is wrong only if not strict, or if the config is examined.

    Raises:
        ConfigError: with the problems of both.
        UsageError: the file of environment variables cannot be read, or this config is being served above us.
    """
    overrides = {name: value for name, value in vars(options).items() if name in AggregatorSettings.model_fields}
    if options.env_file is not None:
        add_variables_of(options.env_file)
    try:
        settings = load_settings(options.settings, **overrides)
    except ConfigError as error:
        raise _with_problems_of_config(error, options.config) from None
    config = load_config(options.config, strict=serves and settings.strict)
    if settings.strict and not examines:
        require_right_entries(config)
    if why := why_recursive(options.config):
        raise UsageError(why)
    set_up_logging(debug=options.debug, profile=settings.profile)
    secrets = list(_secrets_of(config, settings))
    hide(lambda: secrets)
    for file in [options.settings, options.env_file, settings.pins, *([] if serves else [options.config])]:
        for weakness in weaknesses(Path(file).expanduser()) if file is not None else ():
            warn_of(Path(file), weakness)
    for key in unknown_servers(settings, config.servers):
        logger.warning("there are settings for the server %r, which is not in %s", key, config.source)
    return config, settings


def _secrets_of(config: McpConfig, settings: AggregatorSettings) -> Iterator[str]:
    yield from secrets_in(config)
    yield from secrets_in(settings)
    for server in settings.servers.values():
        if server.bearer_env is not None:
            yield os.environ.get(server.bearer_env, "")


def _with_problems_of_config(error: ConfigError, config: str) -> ConfigError:
    try:
        load_config(config)
    except ConfigError as other:
        return other.and_also(error)
    return error


def load_named_groups(options: argparse.Namespace, config: McpConfig, settings: AggregatorSettings) -> Groups:
    """The groups of the file that the settings name, the options among them.

    Raises:
        ConfigError: with all problems of the groups file.
        UsageError: there is no group of the id that was asked for.
    """
    groups = load_groups(settings.groups_file, config.servers, config.disabled)
    wanted = getattr(options, "group", None)
    if wanted is not None and wanted not in groups:
        raise UsageError(f"there is no group {wanted!r}; there are: {', '.join(group.id for group in groups)}")
    return groups


def run_to_end(work: Coroutine[Any, Any, int], *, exit_code_on_signal: int | None) -> int:
    """Run the event loop; whatever happens, no process that was started is left behind."""

    async def watched() -> int:
        try:
            return await work
        finally:
            end_on_signals(exit_code_on_signal, kill_recorded_groups)  # a front has put back the defaults

    end_on_signals(exit_code_on_signal, kill_recorded_groups)
    try:
        with watched_by_descriptor():
            return asyncio.run(watched())
    finally:
        kill_recorded_groups()


def new_report(keys: Iterable[str], *, is_full: bool) -> Report:
    """In full, for serving, what came of each child is told; else, where a result tells it, there is a status line."""
    if sys.stderr is None or not sys.stderr.isatty():  # no person reads it
        return Lines() if is_full else Report()
    from fastmcp_aggregator.cli.output.display import Display  # noqa: PLC0415 - rich is for terminals only

    return Display(keys, with_table=is_full)


@asynccontextmanager
async def built_early(
    config: McpConfig,
    settings: AggregatorSettings,
    *,
    groups: Groups | None = None,
    only: str | None = None,
    has_callers: bool = False,
    catalogues: CatalogueStore | None = None,
) -> AsyncIterator[package.Aggregator]:
    """An app whose processes have been started already; those that it has not taken over are ended at the end.

    `has_callers` says that it will be reached over HTTP: then it authenticates as the settings say.

    With `only`, the id of a group, the other servers are left out; with `catalogues`, servers of which it is known what
    they offer may not be started.

    Raises:
        ConfigError: there are not enough file descriptors for the servers and the HTTP connections.
    """
    needed = config.only(groups[only].servers) if groups is not None and only is not None else config
    require_descriptors(needed, settings, settings.max_connections if has_callers else 0)

    def is_awaited(server: StdioServer) -> bool:
        if catalogues is None:
            return True
        options = ChildOptions.from_settings(settings, server)
        known = catalogues.known(server, options).by_kind or {}
        return not starts_asleep(server, options, (each.catalogue for each in known.values()))

    with as_ancestor(config.source):
        launched = launch_early(needed, EndpointOptions.from_settings(settings), is_awaited)
        try:
            if launched:
                await asyncio.wait(launched.values())
            # Only now, by its first use here, is FastMCP imported. That takes a second, in which the children start.
            with _without_collections(), deferred():
                aggregator_type = package.Aggregator
            auth = None
            if has_callers and settings.has_auth:
                from fastmcp_aggregator.auth.verifiers import auth_from_settings  # noqa: PLC0415 - it needs FastMCP

                auth = auth_from_settings(settings)
            app = aggregator_type(
                config, settings, auth=auth, launched=launched, catalogues=catalogues, groups=groups, only=only
            )
            take_over("fastmcp")
            hide(new_secrets_in(lambda: app.config))  # which changes with its file
            async with short_collections():
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
async def started(
    config: McpConfig, settings: AggregatorSettings, *, offers_roots: bool = False
) -> AsyncIterator[tuple[package.Aggregator, Report]]:
    """The app, once the first start of each of its children has succeeded or failed, and the report of what it does.

    Raises:
        StartupError: strict, and something failed.
    """
    leave_out(lambda _: True)  # the code that waits for the start says what has failed
    with closing(new_report(config.servers, is_full=False)) as report:
        async with built_early(config, settings) as app:
            app.expect_no_client(has_roots=offers_roots)
            following = asyncio.create_task(follow(app, report, once=True))
            async with meanwhile(following), app:
                await following
                yield app, report


def run_command(work: Coroutine[Any, Any, int]) -> int:
    """Run the work of a command; a signal interrupts it."""
    return run_to_end(interruptible(work), exit_code_on_signal=None)


def tolerant(settings: AggregatorSettings) -> AggregatorSettings:
    """The same settings, under which servers that fail end nothing."""
    return settings.model_copy(update={"strict": False, "ready_wait": 0.0})


async def interruptible(work: Coroutine[Any, Any, int]) -> int:
    """Do the work. When the program is told to end, close what it has opened, for `_GRACE` seconds at most."""
    with interruption(_GRACE, kill_recorded_groups, show_cursor) as told:
        working = asyncio.create_task(work)
        await asyncio.wait({working, told}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        return told.result()


@contextmanager
def interruption(grace: float, *last_steps: Callable[[], None]) -> Iterator[asyncio.Future[int]]:
    """A future that gets the exit code when a signal ends the program. The body then has `grace` seconds to finish.

    After that, or at the next signal, the last steps are taken and the program ends at once, even if the event loop is
    blocked.
    """
    loop = asyncio.get_running_loop()
    told: asyncio.Future[int] = loop.create_future()
    if threading.current_thread() is not threading.main_thread():
        yield told
        return
    timers: list[threading.Timer] = []

    def interrupt(number: int, _frame: FrameType | None) -> None:
        code = code_of(number)
        if timers:
            end_at_once(last_steps, code)
        timers.append(threading.Timer(grace, end_at_once, [last_steps, code]))
        timers[0].daemon = True
        timers[0].start()
        loop.call_soon_threadsafe(_tell, told, code)

    before = {number: signal.signal(number, interrupt) for number in ending_signals()}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for timer in timers:
            timer.cancel()


def _tell(told: asyncio.Future[int], code: int) -> None:
    if not told.done():
        told.set_result(code)


@contextmanager
def as_ancestor(config: str) -> Iterator[None]:
    """Tell the processes that are started meanwhile that this file is served above them."""
    before = os.environ.get(CONFIGS_ABOVE)
    os.environ[CONFIGS_ABOVE] = os.pathsep.join([*configs_above(), real_path_of(config)])
    try:
        yield
    finally:
        if before is None:
            del os.environ[CONFIGS_ABOVE]
        else:
            os.environ[CONFIGS_ABOVE] = before
