"""The options of one child and of its endpoint, resolved from the settings that hold for its server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fastmcp_aggregator.catalogue.snapshot import Catalogue
from fastmcp_aggregator.config import ServerConfig, StdioServer, UnresolvedServer
from fastmcp_aggregator.pipe.lines import RESPONSE_LIMIT
from fastmcp_aggregator.protocol.methods import METHODS
from fastmcp_aggregator.settings.model import AggregatorSettings, ServerSettings
from fastmcp_aggregator.settings.oauth import OAuthSettings
from fastmcp_aggregator.version import VERSION

_MIB = 1024**2
_STARTUP, _STARTUP_WITH_DOWNLOAD = 30.0, 120.0
"""Seconds that a start may take if nothing is set."""
AS_EVERY_SERVER = ServerSettings()
_GENERAL_TOO = set(ServerSettings.model_fields.keys() & AggregatorSettings.model_fields.keys())
"""The settings of one server that there are for every server as well."""

CatalogueFilter = Callable[[str, Catalogue], Catalogue]
"""From the offer of a child, by its server key, to the part that is used."""


def unfiltered(server_key: str, catalogue: Catalogue) -> Catalogue:
    """Use all that the child offers."""
    return catalogue


@dataclass(frozen=True, slots=True)
class RemoteAccess:
    """The headers sent to a remote child besides those of its entry. Names of headers are in lower case."""

    bearer_env: str | None = None
    """The environment variable with its bearer token."""
    oauth: OAuthSettings | None = None
    """The settings of OAuth; None: no tokens of it are sent."""
    principal: str | None = None
    """The principal whose tokens are used; None: the hub's."""
    pass_headers: frozenset[str] = frozenset()
    """The headers of a caller's own HTTP request that go with the request made for it."""

    @property
    def is_per_caller(self) -> bool:
        """True if each caller has an account of its own there."""
        return self.oauth is not None and self.oauth.account != "hub"

    @property
    def lists_per_caller(self) -> bool:
        """True if each caller sees the lists of its own account, and the hub's is not used at all."""
        return self.is_per_caller and self.oauth is not None and self.oauth.lists == "caller"


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """`line_limit` is in bytes. What a process writes to stderr is also kept in a file in `stderr_dir`, if given, and
    passed on as lines of JSON, if `json_stderr`. With a fast path, requests may be sent beside the session.
    """

    line_limit: int = RESPONSE_LIMIT
    stderr_dir: Path | None = None
    json_stderr: bool = False
    access: RemoteAccess = RemoteAccess()
    has_fast_path: bool = True

    @classmethod
    def from_settings(cls, settings: AggregatorSettings, own: ServerSettings = AS_EVERY_SERVER) -> EndpointOptions:
        """Resolve the options of the way to a server that has these settings of its own."""
        access = RemoteAccess(
            own.bearer_env,
            own.oauth,
            pass_headers=frozenset((*own.pass_headers, *own.pass_credentials)),
        )
        line_limit, is_json = int(settings.max_response_size_mb * _MIB), settings.profile == "production"
        return cls(
            line_limit,
            _directory(settings.stderr_dir),
            json_stderr=is_json,
            access=access,
            has_fast_path=settings.fast_path,
        )


DEFAULT_OPTIONS = EndpointOptions()


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Request timeouts in seconds, by kind of request. Progress renews them."""

    call: float
    read: float
    prompt: float

    @property
    def by_method(self) -> Mapping[str, float]:
        """The deadlines that differ from `call`."""
        return {name: getattr(self, row.deadline) for name, row in METHODS.items() if row.deadline != "call"}


@dataclass(frozen=True, slots=True)
class ChildOptions:
    """The options of one child. A setting that is used as it stands is read from `settings` or `own`; the rest is
    worked out of several.
    """

    settings: AggregatorSettings
    """The settings for every server, with the child's own of the same name laid over them."""
    own: ServerSettings
    """Its own alone, for what cannot be set for every server."""
    era: str
    """The era to speak: its own, but for an instance that is there for another one."""
    startup_timeout: float
    deadlines: Deadlines
    endpoint: EndpointOptions
    max_concurrent_calls: int
    max_waiting_calls: int
    """Calls that wait for the child, at most: half of the HTTP requests that may wait, so that others can too."""
    version: str = VERSION
    """Our version, as the child is told."""
    catalogue_filter: CatalogueFilter = unfiltered

    @classmethod
    def from_settings(
        cls,
        settings: AggregatorSettings,
        server: ServerConfig,
        *,
        version: str = VERSION,
        catalogue_filter: CatalogueFilter = unfiltered,
    ) -> ChildOptions:
        """Resolve what holds for one server: its own settings, then its entry in the config, then the general ones."""
        own = settings.servers.get(server.key, AS_EVERY_SERVER)
        held = settings.model_copy(update=own.model_dump(include=_GENERAL_TOO, exclude_none=True))
        configured = server.timeout if own.call_timeout is None else None
        return cls(
            settings=held,
            own=own,
            era=own.era,
            startup_timeout=held.startup_timeout or _startup_timeout(server),
            deadlines=Deadlines(
                call=held.call_timeout if configured is None else configured,
                read=held.read_timeout,
                prompt=held.prompt_timeout,
            ),
            endpoint=EndpointOptions.from_settings(held, own),
            max_concurrent_calls=held.max_concurrent_calls or max(1, held.max_concurrent_requests // 2),
            max_waiting_calls=held.max_waiting_requests // 2,
            version=version,
            catalogue_filter=catalogue_filter,
        )


def _startup_timeout(server: ServerConfig) -> float:
    known = server.known if isinstance(server, UnresolvedServer) else server
    return _STARTUP_WITH_DOWNLOAD if isinstance(known, StdioServer) and known.runner is not None else _STARTUP


def _directory(path: str | None) -> Path | None:
    return None if path is None else Path(path).expanduser()
