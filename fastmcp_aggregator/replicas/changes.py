"""What replicas tell each other of changes, and what they do about it.

Theory. A remote server may tell only one of its sessions that something has changed, and each replica has a session of
its own. So what one replica hears of a remote server, the others are told. Usually the server tells them, too: so who
has been told by another waits a moment, and does nothing if its own server tells the same meanwhile. What was heard
before does not count, for that may have been an earlier change. Only what a server itself says is told on, never what
another replica has said: nothing goes round in circles. A server that is a process runs in each replica for itself,
and says nothing of the others.

A config that has changed is told by whoever has read it anew, and only if it differs; the others look at their own
files. So that ends, too, when all have read the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.config import RemoteServer
from fastmcp_aggregator.replicas.peers import Message, Peers

_GRACE = 0.5
"""Seconds that the own server has to say itself what another replica has heard."""
_WAITING_LIMIT = 1000
"""News that wait for the own server; of more, each is taken up at once."""
_URI_LIMIT = 2048
"""Characters of an address that is told."""


class Changes:
    """The changes that concern all replicas."""

    def __init__(
        self,
        peers: Peers,
        *,
        children: Callable[[], Mapping[str, Child]],
        updated: Callable[[Child, str], None],
        read_files: Callable[[], None],
    ) -> None:
        """`updated` tells the followers of a child's resource; `read_files` has this replica read its files again."""
        self._peers = peers
        self._children = children
        self._updated = updated
        self._read_files = read_files
        self._waiting: dict[tuple[str, str], asyncio.TimerHandle] = {}
        """What another replica has heard, by server key and address; no address: its lists."""

    # What this replica finds.

    def lists_changed(self, child: Child) -> None:
        """A child says that its lists have changed."""
        if self._is_shared(child):
            self._settle(child.key, "")
            self._peers.tell({"kind": "lists", "server": child.key})

    def updated(self, child: Child, uri: str) -> None:
        """A child says that a resource has changed."""
        if self._is_shared(child) and uri and len(uri) <= _URI_LIMIT:
            self._settle(child.key, uri)
            self._peers.tell({"kind": "updated", "server": child.key, "uri": uri})

    def files_changed(self) -> None:
        """The config or the groups were read anew, and differ."""
        self._peers.tell({"kind": "files"})

    # What it is told.

    def heard(self, notice: Message) -> None:
        """Another replica has found something."""
        match notice:
            case {"kind": "files"}:
                self._read_files()
            case {"kind": "lists", "server": str(key)}:
                self._soon(key, "")
            case {"kind": "updated", "server": str(key), "uri": str(uri)} if uri and len(uri) <= _URI_LIMIT:
                self._soon(key, uri)

    def missed(self) -> None:
        """Other replicas may have found anything."""
        self._read_files()
        for child in self._children().values():
            if self._is_shared(child):
                self._soon(child.key, "")

    def close(self) -> None:
        """Take up nothing any more."""
        for handle in self._waiting.values():
            handle.cancel()
        self._waiting.clear()

    def _is_shared(self, child: Child) -> bool:
        """Whether it is our side of a server that the other replicas have, too, and for all clients."""
        return isinstance(child.server, RemoteServer) and self._children().get(child.key) is child

    def _soon(self, key: str, uri: str) -> None:
        news = key, uri
        if news in self._waiting:
            return
        if len(self._waiting) >= _WAITING_LIMIT:
            self._take_up(news)
            return
        self._waiting[news] = asyncio.get_running_loop().call_later(_GRACE, partial(self._take_up, news))

    def _settle(self, key: str, uri: str) -> None:
        """The own server has said it."""
        handle = self._waiting.pop((key, uri), None)
        if handle is not None:
            handle.cancel()

    def _take_up(self, news: tuple[str, str]) -> None:
        self._waiting.pop(news, None)
        key, uri = news
        child = self._children().get(key)
        if child is None or not self._is_shared(child):
            return
        if uri:
            self._updated(child, uri)
        else:
            child.list_again()
