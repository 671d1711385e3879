"""The backend: what all virtual servers of one aggregator share: the config, the policies, the runtime while it runs.

Theory. A virtual server is one MCP server in front of the children: the aggregator itself, and one for each group.
Each use of one is inside of `using()`; the runtime lives from the first use to the end of the last. Each virtual
server has a view of its own: a directory of what it shows, and the clients to tell when that changes. A change in a
child reaches every view that shows the child.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

from fastmcp_aggregator.access.principal import Principal
from fastmcp_aggregator.callers.fanout import Fanout
from fastmcp_aggregator.catalogue.persisted.store import CatalogueStore
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.children.client_profile import ClientProfile
from fastmcp_aggregator.children.endpoint import NewEndpoint, endpoint_for
from fastmcp_aggregator.children.http.credentials import require_credentials
from fastmcp_aggregator.children.process.process import Launched
from fastmcp_aggregator.children.supervisor import Supervisor
from fastmcp_aggregator.children.timings import DEFAULT_TIMINGS
from fastmcp_aggregator.concurrency.shared_context import SharedContext
from fastmcp_aggregator.config import McpConfig
from fastmcp_aggregator.errors import AggregatorError
from fastmcp_aggregator.file_descriptors import connections_within, require_descriptors
from fastmcp_aggregator.files.followed import FollowedFiles
from fastmcp_aggregator.files.watched import watching
from fastmcp_aggregator.front.http.app import gate_limits
from fastmcp_aggregator.front.http.gate import AdmissionQueue
from fastmcp_aggregator.front.http.request_state import SharedStates
from fastmcp_aggregator.groups import Group
from fastmcp_aggregator.oauth.accounts import Accounts
from fastmcp_aggregator.oauth.logins import Logins
from fastmcp_aggregator.pinning.pins import pins_from_settings
from fastmcp_aggregator.policies.stack import Policies
from fastmcp_aggregator.relay.pending_calls import call_is_over
from fastmcp_aggregator.relay.task_ids import TaskIds
from fastmcp_aggregator.replicas import peers_from_settings, sessions_from_settings, vault_from_settings
from fastmcp_aggregator.replicas.changes import Changes
from fastmcp_aggregator.replicas.peers import Message, OnMessage, PeerEvents
from fastmcp_aggregator.runtime import Runtime, ServedView
from fastmcp_aggregator.settings.model import AggregatorSettings
from fastmcp_aggregator.settings.options import ChildOptions, unfiltered
from fastmcp_aggregator.status.path_counts import PathCounts


class Backend:
    """The servers behind all virtual servers of one aggregator."""

    def __init__(
        self,
        config: McpConfig,
        settings: AggregatorSettings,
        *,
        version: str,
        launched: Launched | None,
        files: FollowedFiles,
        has_auth: bool,
        catalogues: CatalogueStore | None,
        on_changed: Callable[[], None],
    ) -> None:
        """`on_changed` is told of each change in what a child offers."""
        self.config = config
        self.files = files
        """The files of the config and the groups, followed for changes."""
        self.connections = 0
        """HTTP clients that may be connected at once, when it is this program that serves them."""
        self.runtime: Runtime | None = None
        self.profile = ClientProfile()
        self.accounts = Accounts(partial(vault_from_settings, settings))
        self.logins = Logins(self.accounts, settings.public_url or "")
        self.new_endpoint: NewEndpoint = partial(endpoint_for, accounts=self.accounts)
        self.timings = DEFAULT_TIMINGS
        self.peers = peers_from_settings(settings)
        self.shared_sessions = sessions_from_settings(settings)
        """The store of sessions for other replicas; None: there is none."""
        self.changes = Changes(
            self.peers,
            children=lambda: self.children,
            updated=self._updated_elsewhere,
            read_files=self._read_files,
        )
        self.request_states = SharedStates()
        """The seal on what clients are given to come back with, to any replica."""
        self.task_ids = TaskIds(self.request_states)
        self.fanout = Fanout()
        """Notifications to the clients of all virtual servers."""
        self.admission = AdmissionQueue(gate_limits(settings))
        """The HTTP requests of all virtual servers, run and waiting."""
        self.path_counts = PathCounts()
        """Counts of requests by path, of all virtual servers."""
        self.policies = Policies(settings, has_auth=has_auth)
        self.policies.stack.on_rejected = self.admission.refused.refused
        self.pins = pins_from_settings(settings)
        self.withdrawn: dict[str, set[str]] = {}
        """Tools that are out of service, by server key and own name."""
        self._options = partial(
            ChildOptions.from_settings,
            settings,
            version=version,
            catalogue_filter=unfiltered if self.pins is None else self.pins.filtered,
        )
        self.settings = settings
        self.version = version
        self._on_changed = on_changed
        self._launched = launched
        self._catalogues = catalogues
        self._views: list[ServedView] = []
        self.begun = asyncio.Event()
        """Set while there is a run."""
        self._life = SharedContext(self._run)
        self._sharing = SharedContext(self._share)

    def show_in(self, view: ServedView) -> None:
        """Keep one more view up to date."""
        self._views.append(view)
        if self.runtime is not None:
            view.directory.open(list(self.children.values()), self.runtime.catalogues)

    def using(self) -> AbstractAsyncContextManager[None]:
        """While somebody uses a virtual server. The runtime begins with the first user and ends with the last one."""
        return self._life.used()

    def sharing(self) -> AbstractAsyncContextManager[None]:
        """While a virtual server is served over HTTP, and there may be other replicas.

        Raises:
            SharedStateError: what the replicas share cannot be reached.
        """
        return self._sharing.used()

    def expect_connections(self) -> None:
        """Bound the HTTP connections of this program, within its file descriptors."""
        self.connections = self.settings.max_connections
        wanted = self.settings.most_connections
        self.admission.connections.total = connections_within(wanted, self.config, self.settings)

    def exchange(self, config: McpConfig) -> None:
        """Make the children those of a new config, without waiting for any. One whose entry is equal is not touched.

        Raises:
            ConfigError: there are too few descriptors for it; the present config stays as it is.
        """
        if self.runtime is not None:
            require_descriptors(config, self.settings, self.connections)
        require_credentials(config, self.settings)
        self.config = config
        if self.runtime is not None:
            self.runtime.supervisor.exchange(config)

    def regroup(self, groups: Callable[[str], Group]) -> None:
        """Show in each view what belongs there now, by its id."""
        for view in self._views:
            view.tell(view.directory.regroup(groups(view.id), list(self.children.values())))
        if self.runtime is not None:
            self.runtime.regrouped()

    def restart(self, key: str) -> None:
        self._supervisor_of(key).restart(key)
        self._show_again()

    def stop(self, key: str) -> None:
        self._supervisor_of(key).halt(key)

    def _supervisor_of(self, key: str) -> Supervisor:
        if self.runtime is None or key not in self.children:
            raise AggregatorError(f"there is no server {key!r}; there are: {', '.join(self.children)}")
        return self.runtime.supervisor

    def withdraw(self, key: str, tool: str, *, is_out: bool) -> None:
        names = self.withdrawn.setdefault(key, set())
        (names.add if is_out else names.discard)(tool)
        self._show_again()

    def approve(self, key: str, looked_at: str | None) -> None:
        """Pin what a server offers now, if it is what was looked at.

        Raises:
            AggregatorError: nothing is pinned, it has not been listed yet, offers something else by now, or the pins
                cannot be written.
        """
        if self.pins is None:
            raise AggregatorError("there is no pins file: set `pins`")
        self.pins.approve(key, looked_at)
        if key in self.children:
            self.children[key].list_again()

    def _show_again(self) -> None:
        for view in self._views:
            view.tell(view.directory.exchange(list(self.children.values())))

    async def exchanged(self) -> None:
        if self.runtime is not None:
            await self.runtime.supervisor.exchanged()

    @property
    def children(self) -> Mapping[str, Child]:
        return self.runtime.children if self.runtime is not None else {}

    @asynccontextmanager
    async def _share(self) -> AsyncIterator[None]:
        events = PeerEvents(self.changes.on_notice, self.changes.on_missed, self._answer)
        try:
            async with self.peers.open(events):
                self.request_states.share(await self.peers.shared_key())
                yield
        finally:
            self.changes.close()
            if self.shared_sessions is not None:
                await self.shared_sessions.aclose()

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        require_descriptors(self.config, self.settings, self.connections)
        require_credentials(self.config, self.settings)
        launched, self._launched = self._launched, None
        runtime = Runtime(
            self,
            self.config,
            self.settings,
            self._options,
            profile=self.profile,
            new_endpoint=self.new_endpoint,
            timings=self.timings,
            launched=launched,
            views=self._views,
            peers=self.peers,
            changes=self.changes,
            catalogues=self._catalogues,
            task_ids=self.task_ids,
            accounts=self.accounts,
            logins=self.logins,
            fanout=self.fanout,
        )
        self.runtime = runtime
        try:
            async with runtime.open(), watching(self._watched(), self._files_changed):
                self.begun.set()
                async with self.policies.open():
                    yield
        finally:
            self.runtime = None
            self.begun.clear()
            await self.accounts.settled()

    # Events of the run.

    def offers_changed(self) -> None:
        self._on_changed()

    def gave_way(self, server: str, principal: Principal, taker: Principal) -> None:
        self.policies.gave_way(server, principal, taker)

    def question_refused(self, server: str, method: str) -> None:
        self.policies.question_refused(server, method)

    def _watched(self) -> dict[str, list[Path]]:
        """The files and folders of each server that is restarted when they change."""
        return {
            key: [
                Path(getattr(self.config.servers.get(key), "cwd", None) or ".") / Path(path).expanduser()
                for path in own.watch
            ]
            for key, own in self.settings.servers.items()
            if own.watch
        }

    def _files_changed(self, key: str) -> None:
        if key in self.children:  # it may have left the config
            self.restart(key)

    async def _answer(self, question: Message, say: OnMessage) -> Message:
        """The round of a pending call, or what is asked of a task, for another replica."""
        if self.runtime is None:
            raise call_is_over()
        if "tasks" in question:
            return await self.runtime.tasks.answer(question, say)
        return await self.runtime.rounds.answer(question, say)

    def _updated_elsewhere(self, child: Child, uri: str) -> None:
        if self.runtime is not None:
            self.runtime.subscriptions.updated(child, uri)

    def _read_files(self) -> None:
        """Another replica has read its files anew; with `watch_config` off, this one does it when it is told to."""
        if self.settings.watch_config:
            self.files.ask()
