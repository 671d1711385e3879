"""The runtime: everything that lives for one run of an aggregator. It exists only while it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from mcp.server.connection import Connection
from mcp.server.subscriptions import ResourceUpdated

from fastmcp_aggregator.access.principal import Principal
from fastmcp_aggregator.callers.fanout import Fanout
from fastmcp_aggregator.catalogue.persisted.store import CatalogueStore
from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.children.child import Child, ChildContext
from fastmcp_aggregator.children.client_profile import ClientProfile
from fastmcp_aggregator.children.endpoint import NewEndpoint
from fastmcp_aggregator.children.process.process import Launched
from fastmcp_aggregator.children.process.start_slots import StartSlots
from fastmcp_aggregator.children.supervisor import Supervisor
from fastmcp_aggregator.children.timings import Timings
from fastmcp_aggregator.config import McpConfig, ServerConfig
from fastmcp_aggregator.oauth.accounts import Accounts
from fastmcp_aggregator.oauth.logins import Logins
from fastmcp_aggregator.relay.account_calls import AccountCalls
from fastmcp_aggregator.relay.child_log_levels import ChildLogLevels
from fastmcp_aggregator.relay.instances.caller_catalogues import CallerCatalogues
from fastmcp_aggregator.relay.instances.instances import Instances, name_of
from fastmcp_aggregator.relay.live_clients import LiveClients
from fastmcp_aggregator.relay.remote_tasks import RemoteTasks
from fastmcp_aggregator.relay.rounds import Rounds
from fastmcp_aggregator.relay.subscriptions import Subscriptions
from fastmcp_aggregator.relay.task_ids import TaskIds
from fastmcp_aggregator.relay.tasks import Tasks
from fastmcp_aggregator.replicas.changes import Changes
from fastmcp_aggregator.replicas.peers import Peers
from fastmcp_aggregator.routing.directory import Directory
from fastmcp_aggregator.settings.model import AggregatorSettings
from fastmcp_aggregator.settings.options import ChildOptions


@dataclass(frozen=True, slots=True)
class ServedView:
    """The part of the run that one virtual server shows, and its clients."""

    id: str
    directory: Directory
    live_clients: LiveClients

    def changed(self, child: Child, kinds: frozenset[Kind]) -> None:
        """A child offers something else, or nothing any more."""
        self.directory.child_changed(kinds)
        if child in self.directory.children:
            self.tell(kinds)

    def changed_for(self, principal: Hashable, child: Child, kinds: frozenset[Kind]) -> None:
        """A child lists something else to one principal alone."""
        self.directory.forget_tables(principal)
        if self.directory.is_ready and any(child.key == each.key for each in self.directory.children):
            self.live_clients.lists_changed(kinds, principal)

    def tell(self, kinds: frozenset[Kind]) -> None:
        """Something else is listed; what changes before the first list is part of it."""
        if self.directory.is_ready:
            self.live_clients.lists_changed(kinds)


class RunEvents(Protocol):
    """The events that a run reports. Never blocks."""

    def offers_changed(self) -> None:
        """A child offers something else, or can be used again, or no longer."""

    def gave_way(self, server: str, principal: Principal, taker: Principal) -> None:
        """An instance of a server was closed, whose it was, and who needed one."""

    def question_refused(self, server: str, method: str) -> None:
        """A question of a server was refused, because its caller is unknown."""


class Runtime:
    """One run: the children, their instances, rounds, log levels and subscriptions; hears what they report."""

    def __init__(
        self,
        events: RunEvents,
        config: McpConfig,
        settings: AggregatorSettings,
        options: Callable[[ServerConfig], ChildOptions],
        *,
        profile: ClientProfile,
        new_endpoint: NewEndpoint,
        timings: Timings,
        launched: Launched | None,
        views: Sequence[ServedView],
        peers: Peers,
        changes: Changes,
        catalogues: CatalogueStore | None,
        task_ids: TaskIds,
        accounts: Accounts,
        logins: Logins,
        fanout: Fanout,
    ) -> None:
        self._profile = profile
        self._views = views
        self._changes = changes
        self._events = events
        self._fanout = fanout
        self.log_levels = ChildLogLevels(self._clients)
        self.subscriptions = Subscriptions(self._publish_update, fanout)
        at_once = settings.max_starting or timings.starts_at_once
        starts = StartSlots(at_once, timings.start_slot_timeout)
        connects = StartSlots(at_once, timings.connect_slot_timeout)
        context = ChildContext(self, profile, new_endpoint, timings, starts, connects, catalogues)
        self.supervisor = Supervisor(config, options, context, launched)
        limit = settings.max_isolated_sessions
        self.instances = Instances(self.supervisor, self, limit=limit)
        self.rounds = Rounds(self.log_levels, self.instances, peers, timings)
        self.tasks = Tasks(self.supervisor, self.instances, self.rounds, task_ids, RemoteTasks(peers))
        self.catalogues = CallerCatalogues(accounts, self.instances, self, limit=limit)
        self.account_calls = AccountCalls(accounts, logins, self.instances, self.tasks, self.catalogues)
        self._first = frozenset(self.children.values())

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Start the children; at the end close the clients' streams first, then the children, then the views."""
        for view in self._views:
            view.directory.open(list(self.children.values()), self.catalogues)
        self.supervisor.start()
        try:
            yield
        finally:
            for view in self._views:
                await view.live_clients.close()
            await self._fanout.close()
            await self.tasks.close()
            self.rounds.close()
            await self.subscriptions.close()
            await self.supervisor.stop()
            for view in self._views:
                view.directory.close()

    @property
    def children(self) -> Mapping[str, Child]:
        return self.supervisor.children

    @property
    def is_starting(self) -> bool:
        """True while a child with which the run began has not been up or failed yet."""
        return any(child in self._first and not child.settled.is_set() for child in self.children.values())

    def children_of(self, connection: Connection) -> list[Child]:
        """The children that are there for one legacy client alone."""
        if self._profile.is_single:
            return list(self.children.values())
        alone = (instance for instance, _ in self.instances if instance.context.profile.is_single)
        return [instance for instance in alone if name_of(instance) is connection]

    def regrouped(self) -> None:
        """Groups have changed: end the instances of servers that their sessions' groups do not have any more."""
        for instance, _ in list(self.instances):
            if not self.is_shown(instance, name_of(instance)):
                self.instances.end(instance)

    def is_shown(self, child: Child, session: Hashable) -> bool:
        views = [view for view in self._views if session in view.live_clients.connections]
        return not views or any(each.key == child.key for view in views for each in view.directory.children)

    # What children report.

    def connected(self, child: Child) -> None:
        """It has a new session, which knows nothing of subscriptions and log levels."""
        self.subscriptions.connected(child)
        self.log_levels.connected()

    def changed(self, child: Child, kinds: frozenset[Kind]) -> None:
        """It offers something else, or can be used again, or no longer. Additional instances are not listed."""
        if child.instance_id != child.key:
            if child.options.endpoint.access.lists_per_caller:
                self.catalogues.changed(child)
            return
        for view in self._views:
            view.changed(child, kinds)
        self._events.offers_changed()

    def retired(self, child: Child) -> None:
        """End the instances of a child that is gone from the config."""
        self.instances.drop(child)

    def lists_changed(self, child: Child) -> None:
        """Notify other replicas that a child's lists have changed."""
        self._changes.lists_changed(child)

    def resource_updated(self, child: Child, uri: str) -> None:
        """A resource has changed: its subscribers here are told, and other replicas."""
        self.subscriptions.updated(child, uri)
        self._changes.updated(child, uri)

    def question_refused(self, child: Child, method: str) -> None:
        """Record a question that was refused, because its caller is unknown."""
        self._events.question_refused(child.key, method)

    def is_needed(self, child: Child) -> bool:
        """True if somebody has subscribed to a resource of it, or it has instances beside which it is called, or open
        tasks.
        """
        has_instances = child.evidence.is_shared and self.instances.has_any(child)
        is_subscribed = bool(self.subscriptions.resources.get(child.instance_id))
        return has_instances or is_subscribed or self.instances.tasks.held_for(child) > 0

    # What instances report.

    def client_joined(self) -> None:
        """Set the log levels of instances, each of which depends on who its clients are."""
        self.log_levels.connected()

    def is_subscribed(self, instance: Child) -> bool:
        return self.subscriptions.has_subscribers(instance)

    def instance_gave_way(self, instance: Child, principal: Principal, taker: Principal) -> None:
        """Tell its subscribers, who hear of no more changes."""
        self.subscriptions.interrupted(instance)
        self._events.gave_way(instance.key, principal, taker)

    def listed_to(self, child: Child, principal: Hashable, kinds: frozenset[Kind]) -> None:
        for view in self._views:
            view.changed_for(principal, child, kinds)

    async def _publish_update(self, uri: str, streams: Collection[Hashable]) -> None:
        """Each stream is only sent what it has subscribed to, and that is only what its virtual server shows."""
        for view in self._views:
            await view.live_clients.publish(ResourceUpdated(uri=uri), streams)

    def _clients(self) -> Iterator[tuple[Child, Collection[Connection]]]:
        of_child: dict[str, list[Connection]] = {key: [] for key in self.children}
        for view in self._views:
            for child in view.directory.children:
                of_child.setdefault(child.key, []).extend(view.live_clients.connections)
        yield from ((child, of_child[key]) for key, child in self.children.items())
        for instance, sessions in self.instances:
            of_era = of_child.get(instance.key, [])
            yield instance, of_era if sessions is None else [each for each in sessions if isinstance(each, Connection)]
