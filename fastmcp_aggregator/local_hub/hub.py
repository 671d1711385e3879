"""A local hub: accepts clients of this user on a socket, each a whole client of the aggregator or of one of its groups.

Theory. It lives as long as it has clients, and a while longer. When it ends, for whatever reason, it says so to each
first: their bridges hold new requests back, what is open is answered, and the next request of any of them starts
another hub. Strict, a failed start is told to those who wait, and ends it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fastmcp_aggregator.aggregator import Aggregator
from fastmcp_aggregator.attach import greeting
from fastmcp_aggregator.attach.peer import is_of_this_user, user_of
from fastmcp_aggregator.attach.systems import system
from fastmcp_aggregator.concurrency.limiter import DRAIN_TIMEOUT
from fastmcp_aggregator.errors import AggregatorError, StartupError
from fastmcp_aggregator.front.early_answers import Keep
from fastmcp_aggregator.front.fast_path.pipe import PipeFront
from fastmcp_aggregator.front.stdio.socket import Say, SocketClient
from fastmcp_aggregator.groups import DEFAULT_GROUP
from fastmcp_aggregator.local_hub.clients import HubClient
from fastmcp_aggregator.local_hub.dashboard import HubDashboard
from fastmcp_aggregator.local_hub.report import HubAbout, report_of
from fastmcp_aggregator.version import VERSION
from fastmcp_aggregator.virtual_server import VirtualServer

logger = logging.getLogger(__name__)

MOST_CLIENTS = 500
"""Clients at once; the next ones have servers of their own."""
_GREETING_TIMEOUT = 5.0
_FIRST_CLIENT = 10.0
"""Seconds in which the client comes that a hub was started for, however soon it is to end without clients."""
_ACCEPT_RETRY_PAUSE = 0.1

KeepFor = Callable[[str | None, bool | None], Keep | None]
"""From a group, with tool search or not, to the function that keeps the first answers to its clients."""


class LocalHub:
    """One hub, for one run."""

    def __init__(
        self,
        app: Aggregator,
        listener: system.Listener,
        about: HubAbout,
        *,
        keep_for: KeepFor,
        idle: float,
        on_ending: Callable[[], None] = lambda: None,
        greeting_timeout: float = _GREETING_TIMEOUT,
    ) -> None:
        """`idle` is for how many seconds it goes on without clients; `on_ending` is told when it begins to end."""
        self._app = app
        self._about = about
        self._listener = listener
        self._keep_for = keep_for
        self._idle = idle
        self._on_ending = on_ending
        self._greeting_timeout = greeting_timeout
        self._began = time.monotonic()
        self._ending = asyncio.Event()
        self._why = "a signal has told it to"
        """The reason for its end."""
        self._dashboard = HubDashboard(app, self._ending)
        self._idling: asyncio.TimerHandle | None = None
        self._tasks: dict[asyncio.Task[Any], HubClient | None] = {}
        """The task of each connection, with its client; None: not a client, or not known yet."""
        self._runs: list[asyncio.Task[None]] = []
        """The tasks that run virtual servers."""
        self._last_word = greeting.line(greeting.STOPPING)
        self._running: dict[tuple[str, bool | None], asyncio.Future[VirtualServer]] = {}
        self.clients: list[HubClient] = []

    async def run(self) -> str:
        """Serve until it is told to end, or has had no clients for a while; why it ends.

        Raises:
            StartupError: strict, and at least one server failed.
        """
        async with self._app.serving() as signalled:
            self._look_for_clients(_FIRST_CLIENT)
            accepting = asyncio.create_task(self._accept(), name="hub")
            ready = asyncio.ensure_future(self._app.ready())
            told = [asyncio.ensure_future(event.wait()) for event in (self._ending, signalled)]
            try:
                await asyncio.wait({ready, *told}, return_when=asyncio.FIRST_COMPLETED)
                if ready.done():
                    ready.result()
                await asyncio.wait(told, return_when=asyncio.FIRST_COMPLETED)
            except StartupError as error:
                self._last_word = greeting.failed(error.summary)
                raise
            finally:
                self._on_ending()
                for task in (accepting, ready, *told):
                    task.cancel()
                await asyncio.gather(accepting, ready, *told, return_exceptions=True)
                self._ending.set()
                self._listener.close(self._last_word)
                await self._end_clients()
                await self._dashboard.close()
        return self._why

    def end(self, why: str) -> None:
        """Have it end, once what is open is answered."""
        if not self._ending.is_set():
            self._why = why
        self._ending.set()

    def status(self) -> dict[str, Any]:
        """Its state, as JSON values: its age in seconds, its clients, its servers, its memory."""
        now = time.monotonic()
        clients = [client.status(now) for client in self.clients]
        return {**report_of(self._about, self._app), "since": now - self._began, "clients": clients}

    async def _end_clients(self) -> None:
        for client in self.clients:
            client.say(self._last_word)
            client.stop.set()
        served = [task for task, client in self._tasks.items() if client is not None]
        if served:
            await asyncio.wait(served, timeout=DRAIN_TIMEOUT + 5)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._runs, return_exceptions=True)

    # Its clients.

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                peer = await self._listener.accept(loop)
            except OSError as error:
                logger.warning("clients cannot connect for now; trying again: %s", error.strerror)
                await asyncio.sleep(_ACCEPT_RETRY_PAUSE)
                continue
            if not is_of_this_user(peer):
                who = f"user {user_of(peer)}"
                self._app.policies.authentication_failed(who, self._listener.name, "the hub is another user's")
                peer.close()
            else:
                task = asyncio.create_task(self._meet(peer), name="client of the hub")
                self._tasks[task] = None
                task.add_done_callback(self._tasks.pop)

    async def _meet(self, peer: socket.socket) -> None:
        try:
            async with asyncio.timeout(self._greeting_timeout):
                data, rest = await _first_line(peer)
            what, about = greeting.read(data)
            await self._serve(peer, what, about, rest)
        except (TimeoutError, OSError, greeting.MalformedGreeting) as error:
            logger.debug("closed a connection that sent no valid greeting: %r", error)
        except Exception:
            logger.exception("unhandled exception while a client was served")
        finally:
            peer.close()

    async def _serve(self, peer: socket.socket, what: str, about: Mapping[str, Any], rest: bytes) -> None:
        if what == greeting.STOP:
            self.end("`fastmcp-aggregator stop` has told it to")
            await _say(peer, greeting.line(greeting.STOPPING))
        elif what == greeting.OPEN:
            await _say(peer, greeting.line(greeting.OPEN, url=self._dashboard.open()))
        elif what == greeting.PING:
            await _say(peer, greeting.line(greeting.PING))
        elif what == greeting.RESTART:
            await _say(peer, greeting.line(greeting.RESTART, problem=self._restart(about.get("server"))))
        elif what == greeting.STATUS:
            await _say(peer, greeting.line(greeting.STATUS, **self.status()))
        elif what == greeting.CLIENT:
            if why := self._why_refused(about):
                await _say(peer, greeting.line(greeting.REFUSED, reason=why))
            else:
                await self._serve_client(peer, about, rest)

    def _restart(self, server: object) -> str | None:
        """Restart one server; why that cannot be."""
        try:
            self._app.restart(str(server))
        except AggregatorError as error:
            return str(error)
        return None

    def _why_refused(self, about: Mapping[str, Any]) -> str | None:
        if about.get("version") != VERSION:
            return f"the hub is of another version ({VERSION}); restart this client, to use that one, too"
        if len(self.clients) >= MOST_CLIENTS:
            return f"the hub has {MOST_CLIENTS} clients already"
        group = about.get("group")
        if group is not None and group not in [each.id for each in self._app.groups()]:
            return f"the hub has no group {group!r}"
        return None

    async def _serve_client(self, peer: socket.socket, about: Mapping[str, Any], rest: bytes) -> None:
        group, tool_search = about.get("group"), True if about.get("tool_search") else None
        client = HubClient(about)
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = client
        self.clients.append(client)
        logger.info("%s connected", client.described)
        self._look_for_clients()
        try:
            server = await asyncio.shield(self._server(group or DEFAULT_GROUP, tool_search))
            if self._ending.is_set():
                await _say(peer, self._last_word)
                return
            await _say(peer, greeting.line(greeting.READY, config=self._about.config))
            socket_client = SocketClient(peer, rest, client.folder, client.listed)
            keep = self._keep_for(group, tool_search)
            await server.serve_socket(socket_client, client.stop, on_served=partial(self._served, client), keep=keep)
        finally:
            self.clients.remove(client)
            logger.info("%s disconnected", client.described)
            self._look_for_clients()

    def _served(self, client: HubClient, front: PipeFront | None, say: Say) -> None:
        client.served(front, say)
        if self._ending.is_set():
            client.say(self._last_word)
            client.stop.set()

    def _look_for_clients(self, at_least: float = 0.0) -> None:
        """Begin or cease to wait for the end, for `at_least` some seconds."""
        if self._idling is not None:
            self._idling.cancel()
            self._idling = None
        if not self.clients:
            idle = max(self._idle, at_least)
            self._idling = asyncio.get_running_loop().call_later(idle, self.end, f"it has had no client for {idle:g} s")

    # The virtual servers that clients see.

    def _server(self, group: str, tool_search: bool | None) -> asyncio.Future[VirtualServer]:
        """The server of a group, with tool search or not, once it runs; it does until the hub ends."""
        key = group, tool_search
        if key not in self._running:
            running: asyncio.Future[VirtualServer] = asyncio.get_running_loop().create_future()
            self._running[key] = running
            server = self._app.group(group, tool_search=tool_search)
            self._runs.append(asyncio.create_task(self._run_server(server, running), name="virtual server"))
        return self._running[key]

    async def _run_server(self, server: VirtualServer, running: asyncio.Future[VirtualServer]) -> None:
        try:
            async with server.running():
                running.set_result(server)
                await self._ending.wait()
        except Exception as error:
            if running.done():
                raise
            running.set_exception(error)


async def _first_line(peer: socket.socket) -> tuple[bytes, bytes]:
    """The first line that comes, and what has come of the next.

    Raises:
        OSError: the connection was closed before.
        Malformed: it is too long.
    """
    loop, data = asyncio.get_running_loop(), b""
    while b"\n" not in data:
        more = await loop.sock_recv(peer, greeting.LONGEST)
        if not more:
            raise ConnectionResetError
        data += more
        if len(data) > greeting.LONGEST:
            raise greeting.MalformedGreeting
    line, _, rest = data.partition(b"\n")
    return line, rest


async def _say(peer: socket.socket, line: bytes) -> None:
    async with asyncio.timeout(_GREETING_TIMEOUT):
        await asyncio.get_running_loop().sock_sendall(peer, line)
