"""Change notices between replicas: list_changed, resource updates, reloaded files and sessions that their clients have
ended are published to all of them.

Theory. A remote server may notify only one of its sessions of a change, and each replica has a session of its own. So
a replica publishes what a remote server notifies it of. Usually the server notifies the other replicas' sessions too:
a replica that receives a notice waits a moment, and drops it if its own session is notified of the same meanwhile. A
notification from before the notice does not count; it may have been of an earlier change. Only what a server itself
says is published, never what another replica has: nothing goes round in circles. A stdio server runs in each replica
for itself, and its changes concern no other.

A reloaded config is published by the replica that has read it, and only if it differs; the others read their own
files. That ends when all have read the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.config import RemoteServer
from fastmcp_aggregator.naming.uris import LONGEST_WATCHED
from fastmcp_aggregator.replicas.peers import Message, Peers

_GRACE = 0.5
"""Seconds that this replica's own session has to be notified of what another replica has published."""
_WAITING_LIMIT = 1000
"""Notices that wait for that; beyond them, each is handled at once."""


class Changes:
    """Publishes the changes that concern all replicas, and handles the notices of the others."""

    def __init__(
        self,
        peers: Peers,
        *,
        children: Callable[[], Mapping[str, Child]],
        updated: Callable[[Child, str], None],
        read_files: Callable[[], None],
        grace: float = _GRACE,
    ) -> None:
        """`updated` notifies the subscribers of a child's resource; `read_files` reloads this replica's files."""
        self._peers = peers
        self._children = children
        self._updated = updated
        self._read_files = read_files
        self._grace = grace
        self._end_session: dict[str, Callable[[str], None]] = {}
        """Ends a session of this replica, by group."""
        self._waiting: dict[tuple[str, str], asyncio.TimerHandle] = {}
        """Timers of the notices that wait, by server key and URI; the URI is empty for the lists."""

    # Publish.

    def lists_changed(self, child: Child) -> None:
        if self._is_shared(child):
            self._settle(child.key, "")
            self._peers.publish({"kind": "lists", "server": child.key})

    def updated(self, child: Child, uri: str) -> None:
        if self._is_shared(child) and uri and len(uri) <= LONGEST_WATCHED:
            self._settle(child.key, uri)
            self._peers.publish({"kind": "updated", "server": child.key, "uri": uri})

    def files_changed(self) -> None:
        """Publish that the config or the groups were reloaded, and differ."""
        self._peers.publish({"kind": "files"})

    def session_ended(self, group_id: str, session_id: str) -> None:
        self._peers.publish({"kind": "session", "group": group_id, "id": session_id})

    # Subscribe.

    def end_sessions_with(self, group_id: str, end: Callable[[str], None]) -> None:
        """Call this with the id of each session of a group that its client has ended at another replica."""
        self._end_session[group_id] = end

    def on_notice(self, notice: Message) -> None:
        """Handle what another replica has published. An unknown notice is ignored: a newer replica may send more."""
        match notice:
            case {"kind": "files"}:
                self._read_files()
            case {"kind": "lists", "server": str(key)}:
                self._soon(key, "")
            case {"kind": "updated", "server": str(key), "uri": str(uri)} if uri and len(uri) <= LONGEST_WATCHED:
                self._soon(key, uri)
            case {"kind": "session", "group": str(group_id), "id": str(session_id)} if group_id in self._end_session:
                self._end_session[group_id](session_id)

    def on_missed(self) -> None:
        """Refresh everything: notices may have been lost."""
        self._read_files()
        for child in self._children().values():
            if self._is_shared(child):
                self._soon(child.key, "")

    def close(self) -> None:
        """Drop the notices that wait."""
        for handle in self._waiting.values():
            handle.cancel()
        self._waiting.clear()

    def _is_shared(self, child: Child) -> bool:
        """True if it is this replica's session with a remote server, which the other replicas have too; no instance."""
        return isinstance(child.server, RemoteServer) and self._children().get(child.key) is child

    def _soon(self, key: str, uri: str) -> None:
        change = key, uri
        if change in self._waiting:
            return
        if len(self._waiting) >= _WAITING_LIMIT:
            self._handle(change)
            return
        self._waiting[change] = asyncio.get_running_loop().call_later(self._grace, partial(self._handle, change))

    def _settle(self, key: str, uri: str) -> None:
        """Drop the notice that waits: the server has notified this replica itself."""
        handle = self._waiting.pop((key, uri), None)
        if handle is not None:
            handle.cancel()

    def _handle(self, change: tuple[str, str]) -> None:
        self._waiting.pop(change, None)
        key, uri = change
        child = self._children().get(key)
        if child is None or not self._is_shared(child):
            return
        if uri:
            self._updated(child, uri)
        else:
            child.list_again()
