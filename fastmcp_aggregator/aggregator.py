"""The aggregator: a FastMCP app in front of the children, and one more for each group of them."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastmcp.server.auth import AuthProvider
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult

from fastmcp_aggregator.auth.verifiers import keys_of
from fastmcp_aggregator.backend import Backend
from fastmcp_aggregator.catalogue.persisted.store import CatalogueStore
from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.children.process.process import Launched
from fastmcp_aggregator.concurrency.limiter import Usage
from fastmcp_aggregator.config import McpConfig, changes_between, load_config
from fastmcp_aggregator.config.servers import warn_of_misspelt_fields
from fastmcp_aggregator.errors import AggregatorError, ConfigError
from fastmcp_aggregator.files.followed import FollowedFiles, RefusedFile
from fastmcp_aggregator.groups import DEFAULT_GROUP, Group, Groups, load_groups
from fastmcp_aggregator.groups.missing_tools import MissingTools
from fastmcp_aggregator.libraries import OF_SERVING, require_parts
from fastmcp_aggregator.settings.model import AggregatorSettings, load_settings
from fastmcp_aggregator.status.server_status import ChildState, ServerStatus
from fastmcp_aggregator.version import VERSION
from fastmcp_aggregator.virtual_server import VirtualServer
from fastmcp_aggregator.web.routes import add_hub

logger = logging.getLogger(__name__)

ConfigSource = str | Path | Mapping[str, Any] | McpConfig
GroupsSource = str | Path | Mapping[str, Any] | Groups | None


def build_aggregator(
    config: ConfigSource,
    *,
    groups: GroupsSource = None,
    settings: AggregatorSettings | None = None,
    auth: AuthProvider | None = None,
    **overrides: Any,
) -> Aggregator:
    """Make one MCP server out of the servers in an `mcpServers` config.

    Reads the config and the files that the settings name, and nothing else: no process is started and no connection
    opened before the app runs.

    Args:
        config: path of the file, its content as a dict, or the model that `load_config` returns.
        groups: named subsets of the servers and their tools: path of a groups file, or its content as a dict; by
            default the file that the settings name.
        settings: see `AggregatorSettings`; by default from `FASTMCP_AGGREGATOR_*` environment variables.
        auth: a FastMCP auth provider for the HTTP front; by default what the settings name, API keys or tokens.
        overrides: single settings by name, such as `strict=False` or `separator="__"`; they win over `settings`.

    Raises:
        ConfigError: with every problem of the config (or of the groups, or of the settings) at once.
        DependencyError: the installed FastMCP is none with which this works.
    """
    if settings is None:
        chosen = load_settings(**overrides)
    else:
        chosen = load_settings(**{**settings.model_dump(), **overrides}) if overrides else settings
    loaded = load_config(config, strict=chosen.strict)
    named = chosen.groups_file if groups is None else groups
    if auth is None and chosen.has_auth:
        from fastmcp_aggregator.auth.verifiers import auth_from_settings  # noqa: PLC0415 - it loads what few need

        auth = auth_from_settings(chosen)
    return Aggregator(loaded, chosen, auth=auth, catalogues=CatalogueStore(), groups=named)


class Aggregator(VirtualServer):
    """A FastMCP app that serves the components of all children, or those of the group `default` where there is one.

    Run it (`run()`), mount it in another FastMCP server, give it to a `Client` or to an ASGI server, or enter it with
    `async with`. The children live as long as any of these does: one process or connection each.
    """

    def __init__(
        self,
        config: McpConfig,
        settings: AggregatorSettings,
        *,
        auth: AuthProvider | None = None,
        launched: Launched | None = None,
        catalogues: CatalogueStore | None = None,
        groups: GroupsSource = None,
        only: str | None = None,
    ) -> None:
        """Prefer `build_aggregator`. `launched` hands over processes that were started early, by server key;
        `catalogues` is where catalogues are kept, if the settings have them kept; `only` is the one group that will be
        used: servers that are not in it are not started.
        """
        require_parts(OF_SERVING)
        self._whole = config
        self._keys = {*config.servers, *config.disabled}
        """Keys of all servers so far, disabled or not."""
        self._groups = load_groups(groups, config.servers, config.disabled)
        self._groups_source = self._groups.path or groups
        self._only = only
        self._virtual_servers: dict[tuple[str, bool | None], VirtualServer] = {}
        self._reloads = asyncio.Lock()
        self._missing_tools = MissingTools()
        self._refused: dict[str, RefusedFile] = {}
        files = [path for path in (config.path, self._groups.path) if path is not None and path.is_file()]
        followed = FollowedFiles(files, self._read_again)
        needed = self._needed(config)
        warn_of_misspelt_fields(needed.servers, {})
        backend = Backend(
            needed,
            settings,
            version=settings.server_version or VERSION,
            launched=launched,
            files=followed,
            has_auth=auth is not None,
            catalogues=catalogues,
            on_changed=self._look_for_missing_tools,
        )
        super().__init__(
            backend, group_id=DEFAULT_GROUP, name=settings.name, group=self._restriction(DEFAULT_GROUP), auth=auth
        )

    @property
    def backend(self) -> Backend:
        """The state that all virtual servers share."""
        return self._backend

    @property
    def config(self) -> McpConfig:
        """The config in use."""
        return self._backend.config

    def expect_no_client(self, *, has_roots: bool = False) -> None:
        """Say that no client will come: servers that ask for roots would ask in vain. With `has_roots` they are
        offered, and are none, which shows who asks for them.
        """
        self._backend.profile.expect_none(has_roots=has_roots)

    async def reload(self, config: ConfigSource | None = None) -> None:
        """Take up a new config, or read the file of the present one again; the groups file is read again too.

        Returns when what it ended is closed. Servers whose entry is the same go on undisturbed; the others are stopped,
        started, or both. One that does not start ends nothing, with `strict` too: see `settling()` and `health()`.

        Raises:
            ConfigError: with every problem of the new config or groups; what is in use stays as it is.
        """
        async with self._reloads:
            source = self._whole.path or self._whole if config is None else config
            try:
                strict = self.settings.strict
                self._take_up(*await asyncio.to_thread(_read, source, self._groups_source, strict, self._keys))
            except ConfigError as error:
                self._refuse({self._what(error): error})
                raise
            self._refuse({})
        await self._backend.exchanged()

    def restart(self, server_key: str) -> None:
        """Restart a server, without waiting for it. Calls that it is answering fail; what it listed stays listed.

        Raises:
            AggregatorError: there is no such server, or the app is not running.
        """
        self._backend.restart(server_key)

    def stop(self, server_key: str) -> None:
        """Stop a server until it is restarted or its entry is another, without waiting for it. Its calls fail, and what
        it offers leaves the lists.

        Raises:
            AggregatorError: there is no such server, or the app is not running.
        """
        self._backend.stop(server_key)

    def withdraw(self, server_key: str, tool: str, *, is_out: bool = True) -> None:
        """Take a tool out of service, by its server's own name, or put it back; until the program ends."""
        self._backend.withdraw(server_key, tool, is_out=is_out)

    def approve(self, server_key: str, looked_at: str | None = None) -> None:
        """Pin what a server offers now, in the file too; if that has the digest of what was looked at.

        Raises:
            AggregatorError: there is no pins file, the server has not been listed, offers something else by now, or the
                file cannot be written.
        """
        self._backend.approve(server_key, looked_at)

    async def _read_again(self) -> None:
        """Take up both files, or one where the other cannot be used: what takes access away is not held up."""
        errors: list[ConfigError] = []
        async with self._reloads:
            for config, groups in self._readings():
                try:
                    self._take_up(*await asyncio.to_thread(_read, config, groups, self.settings.strict, self._keys))
                except ConfigError as error:
                    errors.append(error)
                else:
                    break
            else:
                self._refuse({self._what(error): error for error in reversed(errors)})
                raise _combined(errors)
            is_old = isinstance(config, McpConfig)
            self._refuse({"config" if is_old else "groups": errors[0]} if errors else {})
        if errors:
            kept, taken = (self._whole.source, groups) if is_old else (self._groups.source, config)
            text = "%s is refused as it is now, so what it said before stays in use; %s has been taken up. %s"
            logger.warning(text, kept, taken, errors[0])
        await self._backend.exchanged()

    def _readings(self) -> list[tuple[ConfigSource, GroupsSource]]:
        """Readings in the order of preference: of each file, now, or its last usable content."""
        config, groups = self._whole.path, self._groups.path
        if config is None or groups is None:
            return [(config or self._whole, self._groups_source)]
        return [(config, groups), (self._whole, groups), (config, self._groups)]

    def _what(self, error: ConfigError) -> str:
        """The file that cannot be used: `groups` or `config`."""
        return "groups" if error.source == self._groups.source else "config"

    def _refuse(self, problems: Mapping[str, ConfigError]) -> None:
        """Keep which files are not in use as they are now, and since when."""
        before = self._refused
        self._refused = {
            what: before[what].with_problem(problem) if what in before else RefusedFile(problem)
            for what, problem in problems.items()
        }

    def _take_up(self, config: McpConfig, groups: Groups) -> None:
        before, self._groups = self._groups, groups
        try:
            needed = self._needed(config)
            is_other = (needed, groups) != (self.config, before)
            former = self.config.servers
            self._backend.exchange(needed)
        except ConfigError:
            self._groups = before
            raise
        warn_of_misspelt_fields(needed.servers, former)
        changes = changes_between(self._whole, config)
        self._whole = config
        self._keys.update(config.servers, config.disabled)
        if (gone := groups.absent - config.disabled) and groups != before:
            text = "%s names %s, which %s no longer has; take it out before the next start, which would fail"
            logger.warning(text, groups.source, ", ".join(map(repr, sorted(gone))), config.source)
        if groups.path is not None and groups != before:
            changes.append("groups changed")
        if changes:
            counted = "1 server" if len(config.servers) == 1 else f"{len(config.servers)} servers"
            logger.info("config read again: %s; %s", counted, "; ".join(changes))
        self._backend.regroup(self._restriction)
        self._look_for_missing_tools()
        if is_other:
            self._backend.changes.files_changed()

    # Status and metrics.

    def health(self) -> dict[str, ServerStatus]:
        """The state of every child, by server key, in config order; empty while the app is not running."""
        runtime = self._backend.runtime
        instances = [] if runtime is None else [instance for instance, _ in runtime.instances]
        further = Counter(each.key for each in instances)
        starting = Counter(each.key for each in instances if each.state is ChildState.INITIALIZING)
        return {
            key: replace(child.status(), instances=further[key], instances_starting=starting[key])
            for key, child in self.children.items()
        }

    def refused_files(self) -> dict[str, RefusedFile | None]:
        """The files of config, groups and keys that are refused as they are now, and why. Instead of a config or
        groups, the last usable content is in use; instead of keys, none.
        """
        keys = keys_of(self.auth)
        paths = {"config": self._whole.path, "groups": self._groups.path}
        told: dict[str, RefusedFile | None] = {what: self._refused.get(what) for what, path in paths.items() if path}
        return told if keys is None else {**told, "keys": keys.refused()}

    @property
    def is_starting(self) -> bool:
        """True while some server is in its first start. One that comes later, or again, does not count."""
        return self._backend.runtime is not None and self._backend.runtime.is_starting

    async def settling(self) -> AsyncIterator[ServerStatus]:
        """Wait for the app to run; then the status of each child once its first start has succeeded or failed."""
        await self._backend.begun.wait()
        if self._backend.runtime is not None:
            async for status in self._backend.runtime.supervisor.settling():
                yield status

    @property
    def children(self) -> Mapping[str, Child]:
        """The children by server key, in config order; empty while the app is not running."""
        return self._backend.children

    # Its groups.

    def groups(self) -> list[Group]:
        """All groups, in the file's order."""
        return list(self._groups)

    def has_group(self, group_id: str) -> bool:
        return group_id in self._groups

    def group_info(self, group_id: str) -> Group:
        """The definition of a group.

        Raises:
            AggregatorError: there is no such group.
        """
        if group_id not in self._groups:
            known = ", ".join(group.id for group in self._groups)
            raise AggregatorError(f"there is no group {group_id!r}; there are: {known}")
        return self._groups[group_id]

    def group(self, group_id: str, *, tool_search: bool | None = None) -> VirtualServer:
        """A group as an MCP server of its own: run it, mount it, test it like the aggregator itself.

        `tool_search` is whether its clients see a search instead of all tools; None: as the settings say.

        Raises:
            AggregatorError: there is no such group.
        """
        self.group_info(group_id)
        if group_id == DEFAULT_GROUP and tool_search is None:
            return self
        key = group_id, tool_search
        if key not in self._virtual_servers:
            name = self.settings.name
            self._virtual_servers[key] = VirtualServer(
                self._backend,
                group_id=group_id,
                name=name if group_id == DEFAULT_GROUP else f"{name}/{group_id}",
                group=self._restriction(group_id),
                auth=self.auth,
                tool_search=tool_search,
            )
        return self._virtual_servers[key]

    async def list_tools(self, *, run_middleware: bool = True, group: str | None = None) -> Sequence[Tool]:
        """The tools of a group, by default of this app itself, as FastMCP lists them."""
        if group in (None, DEFAULT_GROUP):
            return await super().list_tools(run_middleware=run_middleware)
        return await self.group(group).list_tools(run_middleware=run_middleware)

    async def call_tool(
        self, name: str, arguments: dict[str, Any] | None = None, *, group: str | None = None, **options: Any
    ) -> ToolResult:
        """Call a tool of a group, by default of this app itself, as FastMCP does.

        The tool may be named without its server, if only one in the group has that name.

        Raises:
            AggregatorError: there is no such group.
            MCPError: several servers have a tool of this name.
        """
        server = self.group(DEFAULT_GROUP if group is None else group)
        public = await server.public_name(Kind.TOOL, name)
        if server is self:
            return await super().call_tool(public, arguments, **options)
        return await server.call_tool(public, arguments, **options)

    def http_app(self, path: str | None = None, **options: Any) -> Any:  # type: ignore[override]
        """The ASGI app: the MCP endpoint, and what a hub serves beside it; see `web/routes.py`."""
        path = path or self.settings.path

        def make_app(group_id: str) -> Any:
            return self.group(group_id).http_app_behind_checks(path, options)

        return self._make_http_app(
            path, options, beside=lambda app: add_hub(app, self, path, make_app, self._backend.admission.refused)
        )

    async def rendered_metrics(self) -> tuple[bytes, str] | None:
        """The metrics as text, and its content type; None: they are off."""
        requests, paths = self._backend.admission.counts(), self._backend.path_counts
        files, keys = self.refused_files(), keys_of(self.auth)
        return await self.policies.rendered_metrics(self.health(), requests, paths, self.shares(), files, keys)

    def shares(self) -> dict[str, Usage]:
        """The limiters that callers share, by name, and how much of each is taken."""
        runtime = self._backend.runtime
        instances = runtime.instances.usage() if runtime is not None else {}
        of_servers = {f"instances of {key}": usage for key, usage in instances.items()}
        return {**self._backend.admission.usage(), **of_servers}

    def _look_for_missing_tools(self) -> None:
        """Warn of tools that groups name and no server offers, as far as servers have been listed."""
        listed = {key: child.catalogue for key, child in self.children.items() if child.catalogue is not None}
        offered = {key: [tool["name"] for tool in catalogue.of(Kind.TOOL)] for key, catalogue in listed.items()}
        down = [key for key, child in self.children.items() if child.catalogue is None and child.settled.is_set()]
        self._missing_tools.look(self._groups, offered, down)

    def _needed(self, config: McpConfig) -> McpConfig:
        """The config without the servers that will not be used."""
        return config if self._only is None else config.only(self.group_info(self._only).servers)

    def _restriction(self, group_id: str) -> Group:
        """Return what a virtual server shows: nothing, if its group is gone from the file."""
        return self._groups[group_id] if group_id in self._groups else Group(group_id)


def _read(
    config: ConfigSource, groups: GroupsSource, strict: bool, former: Collection[str]
) -> tuple[McpConfig, Groups]:
    """Groups may name servers that were there before: who takes a server away is not made to wait for the groups."""
    checked = load_config(config, strict=strict)
    return checked, load_groups(groups, checked.servers, checked.disabled.union(former))


def _combined(errors: Sequence[ConfigError]) -> ConfigError:
    """The first error, with that of another file, if there is one."""
    first = errors[0]
    other = next((error for error in errors if error.source != first.source), None)
    return first if other is None else first.and_also(other)
