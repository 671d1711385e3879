"""The hub of this user that `attach` starts: with its socket, its lock, and its log as stderr."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import threading
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastmcp_aggregator.attach import greeting
from fastmcp_aggregator.attach.folder import lock_of, log_of, socket_of
from fastmcp_aggregator.attach.identity import answers_name
from fastmcp_aggregator.attach.starting import note_serving
from fastmcp_aggregator.attach.systems import system
from fastmcp_aggregator.catalogue.persisted.store import CatalogueStore
from fastmcp_aggregator.children.process.process import kill_recorded_groups
from fastmcp_aggregator.cli.output.report import Lines, follow
from fastmcp_aggregator.cli.running.first_answers import kept_by, what_answers_depend_on
from fastmcp_aggregator.cli.running.given_files import FollowedVariables
from fastmcp_aggregator.cli.running.introduction import Introduction, introduction_of
from fastmcp_aggregator.cli.running.starting import built_early, load, load_named_groups, run_to_end
from fastmcp_aggregator.cli.terminal.exits import FAILED, FINE, UsageError
from fastmcp_aggregator.cli.terminal.logs import leave_out, tell
from fastmcp_aggregator.cli.terminal.signals import end_on_signals
from fastmcp_aggregator.concurrency.waits import meanwhile
from fastmcp_aggregator.config import McpConfig
from fastmcp_aggregator.early.answers import AnswersFile
from fastmcp_aggregator.errors import AggregatorError
from fastmcp_aggregator.files.followed import FollowedFiles
from fastmcp_aggregator.groups import Groups
from fastmcp_aggregator.local_hub.introductions import IntroduceTo, introducing
from fastmcp_aggregator.local_hub.log_file import DatedLines, rotated_log
from fastmcp_aggregator.settings.model import AggregatorSettings, defaults_of_hub

if TYPE_CHECKING:
    from fastmcp_aggregator.aggregator import Aggregator
    from fastmcp_aggregator.front.early_answers import Keep

_MOST_TO_END = 60.0
"""Seconds that the end may take: what is open is answered, servers end, files are written."""


def run(options: argparse.Namespace) -> int:
    sys.stderr = DatedLines(sys.stderr.buffer)
    _go_to(os.path.dirname(options.config))
    try:
        listener = system.Listener.inherited(socket_of(options.id), lock_of(options.id))
    except OSError:
        raise UsageError("a hub is started by `attach`") from None
    try:
        return _run(options, listener)
    except BaseException as error:
        listener.close(greeting.failed(str(error) if isinstance(error, AggregatorError) else ""))
        raise
    finally:
        listener.finish()


def _go_to(folder: str) -> None:
    """Work where the config is, not where the first client does: that may be somebody's repository, and the servers
    that all clients share start here. `npx`, for one, takes its settings from where it starts.
    """
    try:
        os.chdir(folder)
    except OSError:
        with suppress(OSError):
            os.chdir(os.path.expanduser("~"))


def _run(options: argparse.Namespace, listener: system.Listener) -> int:
    environ = dict(os.environ)  # without what is read from a file
    config, settings = load(options, serves=True)
    settings = settings.model_copy(update=defaults_of_hub(settings))
    if settings.audit == "stdout":
        raise UsageError("the hub has no stdout; give the setting `audit` the path of a file")
    groups = load_named_groups(options, config, settings)
    if not options.debug:
        logging.getLogger("fastmcp_aggregator").setLevel(logging.INFO)
    serving = _serve(config, settings, groups, options, listener, environ)
    return run_to_end(serving, exit_code_on_signal=FINE)


def _introductions(
    config: McpConfig, settings: AggregatorSettings, groups: Groups, catalogues: CatalogueStore
) -> IntroduceTo:
    def introduce_to(about: Mapping[str, Any]) -> Introduction | None:
        group, has_search = about.get("group"), settings.tool_search or bool(about.get("tool_search"))
        if group is not None and group not in groups:
            return None
        return introduction_of(
            config, settings.model_copy(update={"tool_search": has_search}), groups, group, catalogues
        )

    return introduce_to


def _require_end(timeout: float = _MOST_TO_END) -> None:
    """End the process even if something hangs from now on, so that there can be another hub."""
    timer = threading.Timer(timeout, _end_anyhow, [timeout])
    timer.daemon = True
    timer.start()


def _end_anyhow(timeout: float) -> None:
    tell(f"the hub did not stop within {timeout:g} s, and is killed", logging.ERROR)
    kill_recorded_groups()
    os._exit(FAILED)


def _followed_variables(file: str | None, environ: Mapping[str, str], app: Aggregator) -> FollowedFiles:
    """The file of variables: when it changes, the config is read again with what it says then."""
    if file is None:
        return FollowedFiles([], app.reload)
    variables = FollowedVariables(file, environ)

    async def read_again() -> None:
        try:
            is_other = await asyncio.to_thread(variables.take)
        except UsageError as error:
            tell(f"its variables are kept: {error}", logging.WARNING)
            return
        if is_other:
            tell(f"{file} has changed: the config is read again with its variables")
            await app.reload()

    return FollowedFiles([Path(file).expanduser()], read_again)


async def _serve(
    config: McpConfig,
    settings: AggregatorSettings,
    groups: Groups,
    options: argparse.Namespace,
    listener: system.Listener,
    environ: Mapping[str, str],
) -> int:
    catalogues = CatalogueStore(is_of_hub=True)
    depends_on = what_answers_depend_on(options, config, settings)
    kept: dict[str, AnswersFile] = {}

    def keep_for(group: str | None, tool_search: bool | None) -> Keep | None:
        if settings.catalogue != "on":
            return None
        name = answers_name(options.id, group, tool_search)
        if name not in kept or not kept[name].is_current():
            kept[name] = AnswersFile(name, *depends_on, environ)
        return kept_by(catalogues, kept[name])

    report = Lines()
    end_on_signals(FINE, kill_recorded_groups)
    leave_out(report.tells)
    async with AsyncExitStack() as stack:
        with introducing(listener, _introductions(config, settings, groups, catalogues)):
            app = await stack.enter_async_context(built_early(config, settings, groups=groups, catalogues=catalogues))
            from fastmcp_aggregator.local_hub.hub import LocalHub  # noqa: PLC0415 - it needs FastMCP
            from fastmcp_aggregator.local_hub.report import HubAbout  # noqa: PLC0415 - as above

        variables = _followed_variables(options.env_file, environ, app)
        async with (
            meanwhile(asyncio.create_task(follow(app, report))),
            rotated_log(log_of(options.id)),
            variables.following(watch=settings.watch_config),
        ):
            name = options.hub or options.id
            tell(f"the hub {name} begins, as process {os.getpid()}, and serves {options.config}")
            about = HubAbout(options.id, options.hub, options.config)
            note_serving(listener)
            hub = LocalHub(app, listener, about, keep_for=keep_for, idle=settings.hub_idle, on_ending=_require_end)
            why = await hub.run()
            tell(f"the hub {name} ends: {why}")
    return FINE
