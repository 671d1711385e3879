"""The aggregator: a FastMCP app in front of the children. Wires the rooms together; each does its own work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Self

import anyio
from fastmcp import FastMCP
from fastmcp.server.auth import AuthProvider
from fastmcp.server.context import reset_transport, set_transport
from fastmcp.utilities.logging import temporary_log_level
from mcp_types import SubscriptionsListenRequestParams
from starlette.middleware import Middleware

from fastmcp_aggregator.catalogue.directory import Directory
from fastmcp_aggregator.catalogue.provider import ChildrenProvider
from fastmcp_aggregator.catalogue.routes import Naming, RouteTable
from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.children.calls import Deadlines
from fastmcp_aggregator.children.child import Child, ChildOptions
from fastmcp_aggregator.children.launching import Launched
from fastmcp_aggregator.children.status import ServerStatus
from fastmcp_aggregator.children.supervisor import Supervisor
from fastmcp_aggregator.config import McpConfig, load_config
from fastmcp_aggregator.errors import StartupError
from fastmcp_aggregator.front.gate import Gate, GateLimits
from fastmcp_aggregator.front.http import listening_socket, require_safe_bind, serve_http, url_of
from fastmcp_aggregator.front.instructions import instructions
from fastmcp_aggregator.front.own import OwnParts
from fastmcp_aggregator.front.requests import ComponentRequests
from fastmcp_aggregator.front.serving import serve_until
from fastmcp_aggregator.front.signals import stop_on_signals
from fastmcp_aggregator.front.stdio import stdio_streams
from fastmcp_aggregator.relay.list_changed import Audience
from fastmcp_aggregator.reload import FollowedFile
from fastmcp_aggregator.settings import AggregatorSettings, load_settings
from fastmcp_aggregator.version import VERSION


def build_aggregator(
    config: str | Path | Mapping[str, Any] | McpConfig,
    *,
    settings: AggregatorSettings | None = None,
    auth: AuthProvider | None = None,
    **overrides: Any,
) -> Aggregator:
    """Make one MCP server out of the servers in an `mcpServers` config.

    Reads the config and nothing else: no process is started and no connection opened before the app runs.

    Args:
        config: path of the file, its content as a dict, or the model that `load_config` returns.
        settings: see `AggregatorSettings`; by default from `FASTMCP_AGGREGATOR_*` environment variables.
        auth: a FastMCP auth provider for the HTTP front.
        overrides: single settings by name, such as `strict=False` or `separator="__"`; they win over `settings`.

    Raises:
        ConfigError: with every problem of the config (or of the settings) at once.
    """
    checked = load_config(config)
    if settings is None:
        chosen = load_settings(**overrides)
    else:
        chosen = load_settings(**{**settings.model_dump(), **overrides}) if overrides else settings
    return Aggregator(checked, chosen, auth=auth)


class Aggregator(FastMCP[None]):
    """A FastMCP app that serves the components of all children.

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
    ) -> None:
        """Prefer `build_aggregator`. `launched` hands over processes that were started early, by server key."""
        self.config = config
        self.settings = settings
        self._launched = launched
        self._version = settings.server_version or VERSION
        self._directory = Directory(
            Naming(settings.separator, settings.prefix), strict=settings.strict, ready_wait=settings.ready_wait
        )
        self._audience = Audience()
        self._supervisor: Supervisor | None = None
        self._begun = asyncio.Event()
        self._entered: list[AsyncExitStack] = []
        self._users = 0
        self._life = AsyncExitStack()
        self._life_changes = asyncio.Lock()
        self._reloads = asyncio.Lock()
        super().__init__(
            settings.name,
            version=self._version,
            auth=auth,
            dereference_schemas=False,
        )
        self.add_provider(ChildrenProvider(self._directory))
        self._serve_requests()

    # Its life.

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
        """Whoever uses the app is inside of this. FastMCP's own ends when the first user leaves, the children's life
        when the last one does.
        """
        async with self._life_changes:
            if self._users == 0:
                await self._life.enter_async_context(self._run_children())
            self._users += 1
        try:
            async with super()._lifespan_manager():
                yield
        finally:
            with anyio.CancelScope(shield=True):
                async with self._life_changes:
                    self._users -= 1
                    if self._users == 0:
                        await self._life.aclose()

    @asynccontextmanager
    async def _run_children(self) -> AsyncIterator[None]:
        supervisor = Supervisor(self.config, self._options, self._child_changed, self._launched)
        self._launched = None
        self._supervisor = supervisor
        self._requests.in_flight.open()
        self._directory.open(list(supervisor.children.values()))
        supervisor.start()
        self._begun.set()
        try:
            yield
        finally:
            await self._audience.close()
            await supervisor.stop()
            self._directory.close()
            self._supervisor = None
            self._begun.clear()

    async def run_stdio_async(
        self, show_banner: bool = False, log_level: str | None = None, stateless: bool = False
    ) -> None:
        """Serve on stdin and stdout until the client closes stdin or the program is told to end.

        Raises:
            StartupError: strict, and at least one child failed.
        """
        token = set_transport("stdio")
        try:
            with temporary_log_level(log_level):
                failed = None
                async with self._serving() as stop, stdio_streams(stop.set) as streams:
                    options = self._mcp_server.create_initialization_options()
                    serving = self._mcp_server.run(streams.read, streams.write, options)
                    finish = partial(streams.finish, self._requests.in_flight)
                    try:
                        await serve_until(stop, serving, self._directory.ready(), finish=finish)
                    except StartupError as error:
                        failed = error  # raised out here, because the SDK's streams would wrap it into a group
                if failed is not None:
                    raise failed
        finally:
            reset_transport(token)

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
        """Serve streamable HTTP at `path` until the program is told to end. Defaults come from the settings.

        Host and Origin headers are always checked; `app_options` go to `http_app()`. `on_listening` is told the URL.

        Raises:
            AggregatorError: the address cannot be used, or other machines can reach it and there is no `auth`.
            StartupError: strict, and at least one child failed.
        """
        bind = host or self.settings.host
        require_safe_bind(bind, has_auth=self.auth is not None)
        route = path or self.settings.path
        app = self.http_app(path=route, transport=transport, **app_options)
        listening = listening_socket(bind, self.settings.port if port is None else port)
        with temporary_log_level(log_level), listening as listener:
            url = url_of(listener, bind) + route
            async with self._serving() as stop:
                serving = serve_http(app, listener, stop, on_listening=lambda: on_listening(url))
                await serve_until(stop, serving, self._directory.ready())

    def http_app(self, *args: Any, **options: Any) -> Any:
        """The ASGI app, for any ASGI server; see FastMCP. Host and Origin headers are checked unless told otherwise."""
        options.setdefault("host_origin_protection", True)
        limits = GateLimits(
            running=self.settings.max_concurrent_requests,
            waiting=self.settings.max_waiting_requests,
            body_bytes=int(self.settings.max_request_bodies_mb * 1024**2),
        )
        gate = Middleware(Gate, limits=limits, has_auth=self.auth is not None)
        options["middleware"] = [gate, *(options.get("middleware") or [])]
        if not args:
            options["path"] = options.get("path") or self.settings.path
        return super().http_app(*args, **options)

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[asyncio.Event]:
        """The life of a program of ours: until a signal sets the event, and after its config file if it has one."""
        path = self.config.path
        file = FollowedFile(path, self.reload) if path is not None and path.is_file() else None
        following = file.following(watch=self.settings.watch_config) if file else nullcontext()
        with stop_on_signals(file.ask if file else None) as stop:
            async with self._lifespan_manager(), following:
                yield stop

    async def reload(self, config: str | Path | Mapping[str, Any] | McpConfig | None = None) -> None:
        """Take up a new config, or read the file of the present one again; returns when what it ended is closed.

        Servers whose entry is the same go on undisturbed; the others are stopped, started, or both. One that does not
        start ends nothing, with `strict` too: see `settling()` and `health()` for what came of each.

        Raises:
            ConfigError: with every problem of the new config; the present one stays as it is.
        """
        async with self._reloads:
            source = self.config.path or self.config if config is None else config
            self.config = await asyncio.to_thread(load_config, source)
            if self._supervisor is not None:
                self._supervisor.exchange(self.config)
                self._lists_changed(self._directory.exchange(list(self.children.values())))
        if self._supervisor is not None:
            await self._supervisor.exchanged()

    # What it tells.

    def health(self) -> dict[str, ServerStatus]:
        """The state of every child, by server key, in config order; empty while the app is not running."""
        return {key: child.status() for key, child in self.children.items()}

    async def settling(self) -> AsyncIterator[ServerStatus]:
        """Wait for the app to run; then the status of each child once its first start has succeeded or failed."""
        await self._begun.wait()
        if self._supervisor is not None:
            async for status in self._supervisor.settling():
                yield status

    @property
    def children(self) -> Mapping[str, Child]:
        """The children by server key, in config order; empty while the app is not running."""
        return self._supervisor.children if self._supervisor else {}

    @property
    def routes(self) -> RouteTable:
        """What is listed now, and to whom each name belongs."""
        return self._directory.table

    def _instructions(self) -> str:
        return instructions(list(self.children.values()))

    # How the rooms are joined.

    def _options(self, key: str) -> ChildOptions:
        server = self.config.servers[key]
        return ChildOptions(
            startup_timeout=self.settings.startup_timeout_of(key),
            deadlines=Deadlines(
                call=self.settings.call_timeout_of(key, server.timeout),
                read=self.settings.read_timeout_of(key),
                prompt=self.settings.prompt_timeout_of(key),
            ),
            era=self.settings.era_of(key),
            version=self._version,
            line_limit=self.settings.max_response_bytes,
            max_tools=self.settings.max_tools_per_child,
        )

    def _child_changed(self, _: Child, kinds: frozenset[Kind]) -> None:
        self._directory.invalidate()
        self._lists_changed(kinds)

    def _lists_changed(self, kinds: frozenset[Kind]) -> None:
        if self._directory.is_ready:
            self._audience.lists_changed(kinds)

    def _serve_requests(self) -> None:
        """Join our request path to FastMCP's low-level server, whose attribute is private."""
        server = self._mcp_server
        self._requests = ComponentRequests(
            self._directory,
            self._audience,
            server_info=lambda: server.server_info_stamp,
            instructions=self._instructions,
            own=OwnParts(self),
        )
        server.middleware.insert(0, self._requests)
        server.get_tool_input_schema = self._directory.input_schema
        server.add_request_handler(
            "subscriptions/listen", SubscriptionsListenRequestParams, self._audience.listen_handler
        )
