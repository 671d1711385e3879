"""The children of an aggregator, and what all faces of it share: the children's life, their config, and the relay.

Theory. A face is one MCP server in front of the children: the aggregator itself, and one for each group. Whoever uses a
face is inside of `using()`; the children live as long as anybody is. Each face has a view of its own: a directory of
what it shows, and the clients to tell when that changes. A change in a child reaches every view that shows the child.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from mcp.server.connection import Connection
from mcp.server.subscriptions import ResourceUpdated

from fastmcp_aggregator.catalogue.snapshot import Catalogue, Kind
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.children.http.credentials import require_credentials
from fastmcp_aggregator.children.instances import Instances
from fastmcp_aggregator.children.listeners import Clients
from fastmcp_aggregator.children.process.process import Launched
from fastmcp_aggregator.children.supervisor import Supervisor
from fastmcp_aggregator.concurrency.shared_context import WhileUsed
from fastmcp_aggregator.config import McpConfig
from fastmcp_aggregator.file_descriptors import require_descriptors
from fastmcp_aggregator.files.followed import FollowedFiles
from fastmcp_aggregator.front.http.app import gate_limits
from fastmcp_aggregator.front.http.gate import Places
from fastmcp_aggregator.front.http.request_state import SharedStates
from fastmcp_aggregator.groups import Group
from fastmcp_aggregator.pinning.pins import pins_from_settings, screened
from fastmcp_aggregator.policies.policies import Policies
from fastmcp_aggregator.relay.list_changed import Audience
from fastmcp_aggregator.relay.logging import Logging
from fastmcp_aggregator.relay.rounds import Forwarder
from fastmcp_aggregator.relay.subscriptions import Subscriptions
from fastmcp_aggregator.replicas import peers_from_settings
from fastmcp_aggregator.replicas.changes import Changes
from fastmcp_aggregator.replicas.peers import Ears
from fastmcp_aggregator.routing.directory import Directory
from fastmcp_aggregator.settings.model import AggregatorSettings
from fastmcp_aggregator.settings.options import ChildOptions, Deadlines
from fastmcp_aggregator.status.server_status import ServerStatus


@dataclass(frozen=True, slots=True)
class View:
    """What one face shows, and to whom."""

    id: str
    directory: Directory
    audience: Audience

    def changed(self, child: Child, kinds: frozenset[Kind]) -> None:
        """A child offers something else, or nothing any more."""
        self.directory.invalidate()
        if child in self.directory.children:
            self.tell(kinds)

    def tell(self, kinds: frozenset[Kind]) -> None:
        """Something else is listed; what changes before the first list is part of it."""
        if self.directory.is_ready:
            self.audience.lists_changed(kinds)


class Fleet:
    """All children of an aggregator."""

    def __init__(
        self,
        config: McpConfig,
        settings: AggregatorSettings,
        *,
        version: str,
        launched: Launched | None,
        files: FollowedFiles,
        has_auth: bool,
    ) -> None:
        self.config = config
        self.files = files
        """What the config and the groups were read from, and are read from again."""
        self.connections = 0
        """HTTP clients that may be connected at once, when it is this program that serves them."""
        self.on_changed: Callable[[], None] = lambda: None
        """Told of each change in what a child offers."""
        self.logging = Logging(self._audiences)
        self.subscriptions = Subscriptions(self._publish_update)
        self.peers = peers_from_settings(settings)
        self.changes = Changes(
            self.peers,
            children=lambda: self.children,
            updated=self.subscriptions.updated,
            read_files=self._read_files,
        )
        self.forwarder = Forwarder(self.instances, self.logging, self.peers)
        self.clients = Clients(self._updated, self._connected, self.changes.lists_changed)
        self.request_states = SharedStates()
        """The seal on what FastMCP gives clients to come back with, to any replica."""
        self.places = Places(gate_limits(settings))
        """The HTTP requests of all faces, run and waiting."""
        self.policies = Policies(
            settings,
            has_auth=has_auth,
            statuses=lambda: {key: child.status() for key, child in self.children.items()},
            http_requests=self.places.counts,
        )
        pins = pins_from_settings(settings)
        self._screen = partial(screened, pins) if pins is not None else _everything
        self._settings = settings
        self._version = version
        self._launched = launched
        self._views: list[View] = []
        self._supervisor: Supervisor | None = None
        self._first: list[Child] = []
        """Those with which the present run began."""
        self._begun = asyncio.Event()
        self._life = WhileUsed(self._run)
        self._sharing = WhileUsed(self._share)

    def show_in(self, view: View) -> None:
        """Keep one more view up to date."""
        self._views.append(view)
        if self._supervisor is not None:
            view.directory.open(list(self.children.values()))

    def using(self) -> AbstractAsyncContextManager[None]:
        """While somebody uses a face. The children start with the first user and end with the last one."""
        return self._life.used()

    def sharing(self) -> AbstractAsyncContextManager[None]:
        """While a face is served over HTTP, and there may be other replicas.

        Raises:
            SharedStateError: what the replicas share cannot be reached.
        """
        return self._sharing.used()

    def exchange(self, config: McpConfig) -> None:
        """Make the children those of a new config, without waiting for any. One whose entry is equal is not touched.

        Raises:
            ConfigError: there are too few descriptors for it; the present config stays as it is.
        """
        if self._supervisor is not None:
            require_descriptors(config, self._settings, self.connections)
        require_credentials(config, self._settings.endpoint_options_of, strict=self._settings.strict)
        self.config = config
        if self._supervisor is not None:
            self._supervisor.exchange(config)

    def regroup(self, groups: Callable[[str], Group]) -> None:
        """Show in each view what belongs there now, by its id."""
        for view in self._views:
            view.tell(view.directory.regroup(groups(view.id), list(self.children.values())))

    async def exchanged(self) -> None:
        """Wait until what a new config ended is closed."""
        if self._supervisor is not None:
            await self._supervisor.exchanged()

    async def settling(self) -> AsyncIterator[ServerStatus]:
        """Wait for the children to start; then the status of each once its first start has succeeded or failed."""
        await self._begun.wait()
        if self._supervisor is not None:
            async for status in self._supervisor.settling():
                yield status

    @property
    def children(self) -> Mapping[str, Child]:
        """The children by server key, in config order; empty while nobody uses a face."""
        return self._supervisor.children if self._supervisor else {}

    @property
    def is_starting(self) -> bool:
        """Whether a child with which the run began has not been up or failed yet."""
        now = set(self.children.values())
        return any(child in now and not child.settled.is_set() for child in self._first)

    def instances(self) -> Instances:
        """The further instances of children of the present run."""
        assert self._supervisor is not None  # whoever asks was sent to a child of the present run
        return self._supervisor.instances

    def children_of(self, connection: Connection) -> list[Child]:
        """The children that are there for one legacy client alone."""
        if self.clients.is_single:
            return list(self.children.values())
        return [child for child, session in self.instances() if session is connection]

    @asynccontextmanager
    async def _share(self) -> AsyncIterator[None]:
        ears = Ears(self.changes.heard, self.changes.missed, self.forwarder.answer)
        try:
            async with self.peers.open(ears):
                self.request_states.share(await self.peers.shared_key())
                yield
        finally:
            self.changes.close()

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        require_descriptors(self.config, self._settings, self.connections)
        require_credentials(self.config, self._settings.endpoint_options_of, strict=self._settings.strict)
        supervisor = Supervisor(
            self.config,
            self._options,
            self._changed,
            self._launched,
            self.clients,
            is_isolated=self._settings.is_isolated,
            max_isolated=self._settings.max_isolated_sessions,
        )
        self._launched = None
        self._supervisor = supervisor
        for view in self._views:
            view.directory.open(list(supervisor.children.values()))
        self._first = list(supervisor.children.values())
        supervisor.start()
        self._begun.set()
        try:
            async with self.policies.open():
                yield
        finally:
            for view in self._views:
                await view.audience.close()
            self.forwarder.close()
            await self.subscriptions.close()
            await supervisor.stop()
            for view in self._views:
                view.directory.close()
            self._supervisor, self._first = None, []
            self._begun.clear()

    def _options(self, key: str) -> ChildOptions:
        settings, server = self._settings, self.config.servers[key]
        return ChildOptions(
            startup_timeout=settings.startup_timeout_of(key),
            deadlines=Deadlines(
                call=settings.call_timeout_of(key, server.timeout),
                read=settings.read_timeout_of(key),
                prompt=settings.prompt_timeout_of(key),
            ),
            era=settings.era_of(key),
            version=self._version,
            endpoint=settings.endpoint_options_of(key),
            max_tools=settings.max_tools_per_child,
            screen=self._screen,
            max_concurrent_calls=settings.max_concurrent_calls_of(key),
            max_waiting_calls=settings.max_waiting_calls,
        )

    def _changed(self, child: Child, kinds: frozenset[Kind]) -> None:
        for view in self._views:
            view.changed(child, kinds)
        self.on_changed()

    def _updated(self, child: Child, uri: str) -> None:
        self.subscriptions.updated(child, uri)
        self.changes.updated(child, uri)

    def _read_files(self) -> None:
        """Another replica has read its files anew; with `watch_config` off, this one does it when it is told to."""
        if self._settings.watch_config:
            self.files.ask()

    def _connected(self, child: Child) -> None:
        self.subscriptions.connected(child)
        self.logging.connected()

    async def _publish_update(self, uri: str) -> None:
        """Each stream is only sent what it follows, and it can follow only what its face shows."""
        for view in self._views:
            await view.audience.bus.publish(ResourceUpdated(uri=uri))

    def _audiences(self) -> Iterator[tuple[Child, Collection[Connection]]]:
        """Each child, and the legacy clients that it is for."""
        everyone = [connection for view in self._views for connection in view.audience.connections]
        yield from ((child, everyone) for child in self.children.values())
        for instance, session in self.instances() if self._supervisor else ():
            if session is None or isinstance(session, Connection):
                yield instance, everyone if session is None else [session]


def _everything(server_key: str, catalogue: Catalogue) -> Catalogue:
    return catalogue
