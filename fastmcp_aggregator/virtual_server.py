"""One MCP server in front of the children: the aggregator itself, or one of its groups, as a FastMCP app."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from itertools import chain
from typing import Any, Self

from fastmcp import FastMCP
from fastmcp.server.auth import AuthProvider
from fastmcp.server.context import reset_transport, set_transport
from fastmcp.utilities.logging import temporary_log_level
from mcp_types import SubscriptionsListenRequestParams
from starlette.applications import Starlette
from starlette.middleware import Middleware

from fastmcp_aggregator.access.listening import listening_socket, url_of
from fastmcp_aggregator.access.loopback import require_safe_bind, require_safe_origins
from fastmcp_aggregator.backend import Backend
from fastmcp_aggregator.callers.pipe_client import PipeClient, pipe_client
from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.errors import AggregatorError, StartupError
from fastmcp_aggregator.front.client_messages import ClientMessages
from fastmcp_aggregator.front.early_answers import EarlyAnswers, Keep
from fastmcp_aggregator.front.extension_requests import ExtensionRequests
from fastmcp_aggregator.front.fast_path.http import FastEndpoint
from fastmcp_aggregator.front.fast_path.path import FastPath
from fastmcp_aggregator.front.fast_path.pipe import PIPE_FRONT, PipeFront
from fastmcp_aggregator.front.fastmcp.local import LocalComponents
from fastmcp_aggregator.front.fastmcp.provider import ChildrenProvider
from fastmcp_aggregator.front.fastmcp.tool_views import ToolViews
from fastmcp_aggregator.front.guard import Guard
from fastmcp_aggregator.front.handshake import Handshakes
from fastmcp_aggregator.front.http.app import Checks, HttpParts, host_guard_of, stack_of, wrap_lifespan
from fastmcp_aggregator.front.http.connection import cancel_on_disconnect
from fastmcp_aggregator.front.http.rest import endpoint_with_slash, json_route
from fastmcp_aggregator.front.http.security import without_head
from fastmcp_aggregator.front.http.server import serve_http
from fastmcp_aggregator.front.http.sse import sse_routes, where_mcp_is
from fastmcp_aggregator.front.pipeline import Pipeline
from fastmcp_aggregator.front.signals import serve_until, stop_on_signals
from fastmcp_aggregator.front.stdio.conversation import Conversation
from fastmcp_aggregator.front.stdio.socket import Say, SocketClient, socket_streams
from fastmcp_aggregator.front.stdio.transport import StdioStreams, stdio_streams
from fastmcp_aggregator.groups import Group
from fastmcp_aggregator.library_internals import SessionEndpoint, route_of, sdk_server_of, session_endpoint_of
from fastmcp_aggregator.naming.rules import NameRule
from fastmcp_aggregator.protocol.methods import LISTEN
from fastmcp_aggregator.relay.live_clients import LiveClients
from fastmcp_aggregator.routing.directory import Directory
from fastmcp_aggregator.routing.table import Naming, RouteTable
from fastmcp_aggregator.runtime import ServedView


class VirtualServer(FastMCP[None]):
    """A FastMCP app that serves what belongs to a group, or, without one, everything.

    Run it (`run()`), mount it in another FastMCP server, give it to a `Client` or to an ASGI server, or enter it with
    `async with`. The children live as long as any of these does: one process or connection each.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        group_id: str,
        name: str,
        group: Group | None = None,
        auth: AuthProvider | None = None,
        tool_search: bool | None = None,
    ) -> None:
        """`tool_search` is whether its clients see a search instead of all tools; None: as the settings say."""
        settings = backend.settings
        if tool_search is not None:
            settings = settings.model_copy(update={"tool_search": tool_search})
        self.settings = settings
        self._group_id = group_id
        self.policies = backend.policies
        self._backend = backend
        self._directory = Directory(
            Naming(settings.separator, settings.prefix),
            strict=settings.strict,
            ready_wait=settings.ready_wait,
            group=group,
            changes=settings.tool_changes,
            withdrawn=backend.withdrawn,
        )
        self._live_clients = LiveClients(backend.fanout)
        self._entered: list[AsyncExitStack] = []
        backend.show_in(ServedView(group_id, self._directory, self._live_clients))
        super().__init__(
            name,
            version=backend.version,
            auth=auth,
            dereference_schemas=False,
            request_state_security=backend.request_states.security(name),
        )
        self.views = ToolViews(self, self._directory, settings, self._live_clients)
        self._pipeline = self._serve_requests()
        self.add_provider(ChildrenProvider(self._directory, self._pipeline.call))

    # Lifespan.

    async def __aenter__(self) -> Self:
        """Start the children and wait until lists can be answered.

        Raises:
            StartupError: strict, and at least one child failed.
        """
        stack = AsyncExitStack()
        await stack.enter_async_context(self._lifespan_manager())
        try:
            await self._directory.ready()
        except BaseException:
            await stack.aclose()
            raise
        self._entered.append(stack)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._entered.pop().aclose()

    @asynccontextmanager
    async def _lifespan_manager(self) -> AsyncIterator[None]:
        """Enter the lifespan, once for each user of the app. FastMCP's own ends with the first of them, the runtime
        with the last one.
        """
        async with self._backend.using():
            self._pipeline.in_flight.open()
            async with super()._lifespan_manager():
                yield

    async def run_stdio_async(
        self,
        show_banner: bool = False,
        log_level: str | None = None,
        stateless: bool = False,
        keep_answers: Keep | None = None,
    ) -> None:
        """Serve on stdin and stdout until the client closes stdin or a signal ends the program.

        `keep_answers` keeps what the client is told first, for the next start.

        Raises:
            StartupError: strict, and at least one child failed.
        """
        if self.settings.audit == "stdout":
            raise AggregatorError("on stdio, stdout is for MCP alone; give the setting `audit` the path of a file")
        token = set_transport("stdio")
        front = PipeFront(self._pipeline.fast_path) if self.settings.fast_path else None
        before = PIPE_FRONT.set(front)
        self._backend.profile.expect_one()
        try:
            with temporary_log_level(log_level), pipe_client(_working_folder()):
                failed = None
                async with self.serving() as stop, stdio_streams(stop.set, front) as streams:
                    try:
                        await self._serve_streams(streams, stop, self._until_ready(streams, front, keep_answers))
                    except StartupError as error:
                        failed = error  # raised out here, because the SDK's streams would wrap it into a group
                if failed is not None:
                    raise failed
        finally:
            PIPE_FRONT.reset(before)
            reset_transport(token)

    async def _serve_streams(
        self, streams: StdioStreams, stop: asyncio.Event, starting: Coroutine[Any, Any, None]
    ) -> None:
        """Serve one client until it has left or `stop` is set, and what it has asked is answered."""
        server = sdk_server_of(self)
        serving = server.run(streams.read, streams.write, server.create_initialization_options())
        finish = partial(streams.finish, self._pipeline.in_flight, self._backend.timings.drain_timeout)
        await serve_until(stop, serving, starting, finish=finish)

    async def _until_ready(self, streams: StdioStreams, front: PipeFront | None, keep: Keep | None) -> None:
        """Wait until lists can be answered; then see to the early answers, the last ones and the next ones."""
        await self._directory.ready()
        if front is None or streams.conversation is None:
            return
        answers = self._early_answers(front, streams.conversation)
        self._live_clients.lists_changed(await answers.stale(streams.listed))
        if keep is not None:
            await answers.keep_up(keep)

    def _early_answers(self, front: PipeFront, conversation: Conversation) -> EarlyAnswers:
        pipeline = self._pipeline
        return EarlyAnswers(
            pipeline.fast_path,
            front,
            self._directory,
            pipeline.handshakes,
            conversation,
            strict=self.settings.strict,
        )

    async def ready(self) -> None:
        """Wait until lists can be answered.

        Raises:
            StartupError: strict, and at least one child failed.
        """
        await self._directory.ready()

    def running(self) -> AbstractAsyncContextManager[None]:
        """While it is used, by whatever uses it: the children live."""
        return self._lifespan_manager()

    async def serve_socket(
        self,
        client: SocketClient,
        stop: asyncio.Event,
        *,
        on_served: Callable[[PipeFront | None, Say], None],
        keep: Keep | None,
    ) -> None:
        """Serve one of many clients until it has left or `stop` is set, and what it has asked is answered.

        To be called in a task of its own, while the app runs. `on_served` is given what knows the client, and writes to
        it what is no message; `keep` keeps what the client is told first, for the next one.
        """
        set_transport("stdio")
        front = PipeFront(self._pipeline.fast_path) if self.settings.fast_path else None
        PIPE_FRONT.set(front)
        with pipe_client(client.working_folder, is_one_of_many=True) as one:
            async with socket_streams(client, stop.set, front) as (streams, say):
                on_served(front, say)
                await self._serve_streams(streams, stop, self._follow_lists(streams, front, keep, one))

    async def _follow_lists(
        self, streams: StdioStreams, front: PipeFront | None, keep: Keep | None, client: PipeClient
    ) -> None:
        """Tell the client if the lists that it has got are others now; then see to the answers for the next one."""
        if front is None or streams.conversation is None:
            return
        with suppress(StartupError):
            answers = self._early_answers(front, streams.conversation)
            stale = await answers.stale(streams.listed)
            if front.caller is not None:
                connection = None if front.caller.is_modern else front.caller.connection
                await self._live_clients.tell(connection, stale, client.holder)
            if keep is not None:
                await answers.keep_up(keep)

    async def run_http_async(  # type: ignore[override]
        self,
        show_banner: bool = False,
        transport: str = "http",
        host: str | None = None,
        port: int | None = None,
        path: str | None = None,
        log_level: str | None = None,
        on_listening: Callable[[str], None] = lambda _: None,
        **app_options: Any,
    ) -> None:
        """Serve streamable HTTP at `path` until a signal ends the program. Defaults come from the settings.

        Host and Origin headers are always checked; `app_options` go to `http_app()`. `on_listening` is told the URL.

        Raises:
            AggregatorError: the address cannot be used, or other machines can reach it and there is no `auth`.
            SharedStateError: what replicas share (`redis_url`) cannot be reached.
            StartupError: strict, and at least one child failed.
        """
        bind = host or self.settings.host
        require_safe_bind(bind, has_auth=self.auth is not None)
        route = path or self.settings.path
        app = self.http_app(path=route, transport=transport, **app_options)
        self._backend.expect_connections()
        listening = listening_socket(bind, self.settings.port if port is None else port)
        with temporary_log_level(log_level), listening as listener:
            url = url_of(listener, bind) + route
            async with self._backend.sharing(), self.serving() as stop:
                serving = serve_http(
                    app,
                    listener,
                    stop,
                    on_listening=lambda: on_listening(url),
                    open_ones=self._backend.admission.connections,
                    unread=self._backend.admission.unread,
                    proxies=self.settings.trusted_proxies,
                    drain_wait=self.settings.drain_wait,
                    drain_timeout=self._backend.timings.drain_timeout,
                )
                await serve_until(stop, serving, self._directory.ready())

    def http_app(self, path: str | None = None, **options: Any) -> Any:  # type: ignore[override]
        """The ASGI app, for any ASGI server; see FastMCP. Host and Origin headers are checked unless told otherwise."""
        return self._make_http_app(path or self.settings.path, options)

    def http_app_behind_checks(self, path: str, options: dict[str, Any]) -> Starlette:
        """The ASGI app, to be served inside of one that checks Host, Origin and credentials."""
        return self._make_http_app(path, options, is_behind_checks=True)

    def _make_http_app(
        self,
        path: str,
        given: dict[str, Any],
        *,
        beside: Callable[[Starlette], Middleware] | None = None,
        is_behind_checks: bool = False,
    ) -> Starlette:
        """The ASGI app with its layers. `beside` adds routes to it, and gives the layer of the apps of other groups."""
        require_safe_origins(self.settings.cors_origins, has_auth=self.auth is not None)
        parts = HttpParts(
            settings=self.settings,
            group_id=self._group_id,
            auth=self.auth,
            path=path,
            admission=self._backend.admission,
            policies=self.policies,
            changes=self._backend.changes,
            timings=self._backend.timings,
            shared=self._backend.shared_sessions,
        )
        options = parts.options(given)
        app: Starlette = super().http_app(path, **{**options, "middleware": None})
        wrap_lifespan(app, self._backend.sharing)
        is_sse = options.get("transport") == "sse"
        app.add_exception_handler(404, where_mcp_is(path, has_sse=not is_sse))
        if is_sse:
            without_head(route_of(app, path))
        else:
            app.router.routes.extend(sse_routes(self, path, self.policies, self._group_id))
        if not path.endswith("/"):
            app.router.routes.append(endpoint_with_slash(self, path))
        app.router.routes.append(json_route(self, self._directory, path))
        groups = [] if beside is None else [beside(app)]
        checks = None if is_behind_checks else Checks(host_guard_of(app), groups)
        endpoint = session_endpoint_of(app, path)
        app.user_middleware = stack_of(parts, options, checks, self._shortcut(endpoint, path), endpoint)
        return app

    def _shortcut(self, endpoint: SessionEndpoint | None, path: str) -> Middleware | None:
        """The layer of the fast path, for an app of streamable HTTP."""
        if endpoint is None or not self.settings.fast_path:
            return None
        return Middleware(
            FastEndpoint,
            path=path,
            fast_path=self._pipeline.fast_path,
            endpoint=endpoint,
            clients=self._live_clients,
            scopes=None if self.auth is None else self.auth.required_scopes,
            keeps_answers=self.settings.resumable == "always",
        )

    @property
    def routes(self) -> RouteTable:
        """The present route table: what is listed, and the child of each name."""
        return self._directory.table

    async def made_routes(self, rule: NameRule) -> RouteTable:
        """The same with all that is listed under a rule, made while others go on."""
        return await self._directory.made(lambda table: chain.from_iterable(table.steps(kind, rule) for kind in Kind))

    async def public_name(self, kind: Kind, name: str) -> str:
        """The public name of what may be named without its server; see `Directory`."""
        return await self._directory.public_name(kind, name)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[asyncio.Event]:
        """Run as a program: follow the files, and set the event on a signal."""
        files = self._backend.files
        with stop_on_signals(files.ask if files else None) as stop:
            async with self._lifespan_manager(), files.following(watch=self.settings.watch_config):
                yield stop

    def _serve_requests(self) -> Pipeline:
        """Join our pipeline to FastMCP's low-level server."""
        server, backend = sdk_server_of(self), self._backend
        own = LocalComponents(self, self.views)
        guard = Guard(self.policies, self._directory, self._group_id)
        extensions = ExtensionRequests(
            self._directory,
            backend.task_ids,
            guard,
            group_id=self._group_id,
            is_own=lambda method: server.get_request_handler(method) is not None,
        )
        messages = ClientMessages(backend, self._directory, self._live_clients, guard, extensions)
        fast_path = FastPath(
            backend,
            self._directory,
            own,
            group_id=self._group_id,
            is_on=self.settings.fast_path,
            server_info=lambda: server.server_info_stamp,
        )
        pipeline = Pipeline(
            backend,
            self._directory,
            Handshakes(self._directory, backend.profile, self._live_clients, own),
            messages,
            group_id=self._group_id,
            server_info=lambda: server.server_info_stamp,
            own=own,
            fast_path=fast_path,
            rewrites_app_pages=self.settings.rewrite_app_pages,
            guard=guard,
            extensions=extensions,
        )
        server.middleware[:0] = [cancel_on_disconnect, pipeline]
        server.get_tool_input_schema = self._directory.header_schema
        server.add_request_handler(LISTEN, SubscriptionsListenRequestParams, messages.listen)
        return pipeline


def _working_folder() -> str | None:
    """The folder of this process, which its client on stdio has started in its own; None: it is gone."""
    try:
        return os.getcwd()
    except OSError:
        return None
