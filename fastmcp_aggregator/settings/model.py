"""AggregatorSettings: everything that is ours to set, from the command line, the environment and a file.

A field's description is the meaning that `docs/settings.md` gives, with the unit of its value; its default stands in
the field alone.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from fastmcp_aggregator.concurrency.limiter import share_of
from fastmcp_aggregator.config.documents import Location
from fastmcp_aggregator.errors import ConfigError
from fastmcp_aggregator.naming.rules import SeparatorSetting
from fastmcp_aggregator.pipe.lines import RESPONSE_LIMIT
from fastmcp_aggregator.settings.oauth import OAuthSettings
from fastmcp_aggregator.settings.sections import (
    DEFAULT_RATE,
    Algorithm,
    CallerSettings,
    CallsPerMinute,
    Origins,
    PassedCredentials,
    PassedHeaders,
    ToolChanges,
    ToolSettings,
    WebUrl,
)
from fastmcp_aggregator.settings.sources import ENV_PREFIX, Layers, read_environment, read_file, validated

EraSetting = Literal["auto", "legacy", "modern"]
Switch = Literal["on", "off"]
Start = Literal["auto", "eager", "on_demand"]
IsolationSetting = Literal["auto", "shared", "directory", "session"]
NonEmpty = Annotated[str, Field(min_length=1)]
PositiveInt = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Wait = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Mebibytes = Annotated[float, Field(gt=0, allow_inf_nan=False)]

_SHORTEST_SECRET = 32

_UNASKED = 256
"""Connections on which no request has come yet."""


def _network(text: str) -> str:
    try:
        ip_network(text, strict=False)
    except ValueError:
        raise ValueError("must be an address, or a network such as 10.0.0.0/8") from None
    return text


def _switched(given: Any) -> Any:
    """`true` is to have it with nothing set, `false` not to have it."""
    return ({} if given else None) if isinstance(given, bool) else given


def _rooted(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError("must begin with /")
    return path


def _long(secret: SecretStr) -> SecretStr:
    if len(secret.get_secret_value()) < _SHORTEST_SECRET:
        raise ValueError(f"must have at least {_SHORTEST_SECRET} characters; `openssl rand -base64 32` makes one")
    return secret


class ServerSettings(BaseModel):
    """The settings of one server; what is left out is as for every server."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    startup_timeout: Seconds | None = Field(default=None, description="timeout of its start, in seconds")
    call_timeout: Seconds | None = Field(
        default=None,
        description="timeout of a call, in seconds; `timeout` in the config file comes before the general one",
    )
    read_timeout: Seconds | None = Field(default=None, description="timeout of a resource read, in seconds")
    prompt_timeout: Seconds | None = Field(default=None, description="timeout of a prompt, in seconds")
    max_concurrent_calls: PositiveInt | None = Field(default=None, description="calls to it in flight")
    era: EraSetting = Field(
        default="auto",
        description="protocol era: `auto` (its best), `legacy` (up to 2025-11-25) or `modern` (2026-07-28)",
    )
    isolation: IsolationSetting | None = Field(
        default=None, description="who shares an instance of it: `shared`, `directory`, `session` or `auto`"
    )
    catalogue: Switch | None = Field(default=None, description="whether what it lists is kept on disk: `on` or `off`")
    start: Start | None = Field(default=None, description="when it starts: `eager`, `on_demand` or `auto`")
    idle_timeout: Wait | None = Field(
        default=None, description="seconds without use after which it stops until the next call; 0: never"
    )
    stateful: bool | None = Field(
        default=None,
        description="whether it keeps state that would be lost if it stopped; none: if its name says so",
    )
    watch: tuple[NonEmpty, ...] = Field(
        default=(),
        description="files and folders, relative to its working directory, that restart it when they change",
    )
    bearer_env: NonEmpty | None = Field(
        default=None, description="environment variable with its bearer token; for servers with a `url`"
    )
    oauth: Annotated[OAuthSettings | None, BeforeValidator(_switched)] = Field(
        default=None,
        description="whether it is sent OAuth tokens, which `fastmcp-aggregator login` gets; or how to get them",
    )
    pass_headers: PassedHeaders = Field(
        default=(), description="headers of callers that are passed on with their requests"
    )
    pass_credentials: PassedCredentials = Field(
        default=(),
        description="the same for credentials: `authorization`, `cookie` and the like",
    )
    tools: dict[str, ToolSettings] = Field(
        default_factory=dict,
        description="how single tools are shown: another `name`, `title` or `description`, or `hidden`",
    )

    @model_validator(mode="after")
    def _has_one_token(self) -> Self:
        if self.oauth is not None and self.bearer_env is not None:
            raise ValueError("must have either `oauth` or `bearer_env`, not both")
        return self


class AggregatorSettings(BaseSettings):
    """The settings of an aggregator: constructor arguments, then the environment, then the defaults.

    `load_settings` adds a settings file, and turns every problem into a ConfigError.
    """

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_nested_delimiter="__", env_ignore_empty=True, frozen=True, extra="forbid"
    )

    name: NonEmpty = Field(default="fastmcp-aggregator", description="server name shown to clients")
    server_version: str | None = Field(
        default=None, description="server version shown to clients; none: that of this package"
    )
    strict: bool = Field(default=True, description="whether a server that fails to start ends the program")
    separator: SeparatorSetting = Field(
        default="auto",
        description="between server key and name: `:`, `__`, `.` or `_`; `auto` is `:`, or `__` for clients that "
        "refuse it",
    )
    prefix: bool = Field(default=True, description="whether names begin with the server key")
    watch_config: bool = Field(default=True, description="whether a changed config file is read again")
    startup_timeout: Seconds | None = Field(
        default=None,
        description="timeout of a server's start, in seconds; none: 30, or 120 if `npx`, `uvx` or the like run it, "
        "which may have to download it",
    )
    ready_wait: Wait = Field(default=5.0, description="seconds that the first list waits for starting servers")
    catalogue: Switch | None = Field(
        default=None,
        description="whether what servers list is kept on disk, to be listed before they run: `on` or `off`; none: "
        "`on` for the program, `off` in Python",
    )
    start: Start = Field(
        default="auto",
        description="when servers start: `eager`, with the program; `on_demand`, on the first call, once their lists "
        "are known; `auto`, on demand if that loses nothing",
    )
    idle_timeout: Wait = Field(
        default=600.0,
        description="seconds without use after which an on-demand server stops; 0: never",
    )
    isolation: IsolationSetting = Field(
        default="shared",
        description="who shares an instance of a server: `shared`, all clients; `directory`, those with the same "
        "working folder or roots; `session`, one client session; `auto`, all, unless the server turns out "
        "to depend on folder or client",
    )
    hub_idle: Wait = Field(
        default=300.0, description="seconds without clients after which a hub that `attach` has started ends"
    )
    list_grace: Wait = Field(default=15.0, description="seconds for which a failed server stays in the lists")
    max_starting: PositiveInt | None = Field(
        default=None,
        description="processes that start at the same time, and remote servers that connect; none: four times the "
        "processors",
    )
    call_timeout: Seconds = Field(default=300.0, description="timeout of a tool call, in seconds; progress renews it")
    read_timeout: Seconds = Field(default=60.0, description="timeout of a resource read, in seconds")
    prompt_timeout: Seconds = Field(default=60.0, description="timeout of a prompt, in seconds")
    max_response_size_mb: Mebibytes = Field(
        default=RESPONSE_LIMIT / 1024**2,
        description="MiB of a server's largest message; a call with a larger answer fails with `response too large`",
    )
    max_tools_per_child: PositiveInt = Field(
        default=1000, description="tools taken from one server; the others are left out, with a warning"
    )
    max_concurrent_calls: PositiveInt | None = Field(
        default=None,
        description="calls, reads and prompts in flight to one server; none: half of `max_concurrent_requests`",
    )
    max_isolated_sessions: PositiveInt = Field(
        default=20, description="instances of one server for single clients or folders"
    )
    stderr_dir: NonEmpty | None = Field(
        default=None, description="directory for files with the servers' stderr; may begin with `~`"
    )
    max_concurrent_requests: PositiveInt = Field(
        default=100, description="HTTP requests that run at once, without listening streams"
    )
    max_waiting_requests: int = Field(
        default=1000,
        ge=0,
        description="HTTP requests in the queue; further ones get 503 with `Retry-After`",
    )
    max_request_bodies_mb: Mebibytes = Field(default=100.0, description="MiB of all request bodies together")
    max_sessions: PositiveInt = Field(
        default=1000,
        description="HTTP sessions of clients up to 2025-11-25, and as many listening streams; further ones get 503 "
        "with `Retry-After`",
    )
    trusted_proxies: tuple[Annotated[str, AfterValidator(_network)], ...] = Field(
        default=(),
        description="addresses or networks of reverse proxies, whose `X-Forwarded-For` and `X-Forwarded-Proto` are "
        "trusted; limits by address do not apply to them",
    )
    drain_wait: Wait = Field(
        default=0.0,
        description="seconds of serving after the program is told to end, with 503 on `/ready`, so that load "
        "balancers turn to others",
    )
    reconnect_wait: Wait = Field(
        default=30.0,
        description="seconds in which an HTTP client that lost its connection can come back for an answer that is "
        "`resumable`; 0: it cannot",
    )
    resumable: Literal["auto", "always"] = Field(
        default="auto",
        description="`always`: clients of 2025-11-25 can come back for every answer; `auto`: only for answers that "
        "take over a quarter of a second, so that short calls cost a quarter",
    )
    fast_path: bool = Field(
        default=True, description="whether plain requests take the fast path; the answers mean the same without"
    )
    rewrite_app_pages: bool = Field(
        default=True,
        description="whether the pages of apps get a script that lets them use their server's own names",
    )
    host: NonEmpty = Field(default="127.0.0.1", description="address to serve HTTP on")
    port: int = Field(default=8000, ge=0, le=65535, description="port to serve HTTP on; `0` takes a free one")
    path: Annotated[str, AfterValidator(_rooted)] = Field(default="/mcp", description="URL path of the MCP endpoint")
    dashboard: bool = Field(default=True, description="whether the dashboard is served at `/` over HTTP")
    profile: Literal["development", "production"] = Field(
        default="development",
        description="format of the log: `development`, words; `production`, lines of JSON",
    )
    audit: NonEmpty | None = Field(default=None, description="file of the audit log, or `stdout` when serving HTTP")
    audit_arguments: Literal["digest", "full"] = Field(
        default="digest", description="what the audit log has of arguments: `digest` or `full`"
    )
    audit_on_failure: Literal["continue", "refuse"] = Field(
        default="continue", description="what becomes of calls while it cannot be written: `continue` or `refuse`"
    )
    audit_max_mb: Mebibytes = Field(default=100.0, description="MiB after which it is rotated")
    audit_keep: PositiveInt = Field(default=10, description="rotated files to keep")
    metrics: bool = Field(default=False, description="whether metrics are kept and served over HTTP")
    telemetry: bool = Field(
        default=False, description="whether traces are exported, as the `OTEL_…` variables say; needs the extra `otel`"
    )
    groups: NonEmpty | None = Field(
        default=None, description="groups file, with named subsets of servers and tools; may begin with `~`"
    )
    tool_search: bool = Field(default=False, description="whether clients see a search instead of all tools")
    prompts_as_tools: bool = Field(default=False, description="whether prompts are tools, too")
    resources_as_tools: bool = Field(default=False, description="whether resources are tools, too")
    servers: dict[str, ServerSettings] = Field(
        default_factory=dict, description="settings of single servers, see below"
    )
    keys_file: NonEmpty | None = Field(
        default=None, description="file with the digests of API keys for callers over HTTP"
    )
    jwt_issuer: WebUrl | None = Field(
        default=None, description="identity provider whose tokens (JWT) are accepted over HTTP"
    )
    jwt_audience: NonEmpty | None = Field(default=None, description="`aud` of its tokens, required with `jwt_issuer`")
    jwt_jwks_url: WebUrl | None = Field(default=None, description="URL of the provider's public keys")
    jwt_public_key_file: NonEmpty | None = Field(default=None, description="PEM file with its public key, instead")
    jwt_algorithm: Algorithm = Field(
        default="RS256",
        description="signature algorithm: `RS…`, `ES…`, `PS…` (256, 384, 512), `EdDSA`, `Ed25519`, `Ed448`",
    )
    jwt_groups_claim: NonEmpty | None = Field(
        default=None, description="claim with a caller's groups; none: all groups"
    )
    jwt_roles_claim: NonEmpty | None = Field(
        default=None,
        description="claim with a caller's roles: `call`, `metrics`, `observe`, `operate`; none: all have `call`",
    )
    public_url: WebUrl | None = Field(
        default=None, description="origin at which clients reach the hub, by which they find the identity provider"
    )
    allowed_hosts: tuple[NonEmpty, ...] = Field(
        default=(), description="host names at which clients reach the hub, beside that of `public_url`"
    )
    cors_origins: Origins = Field(
        default=(), description="origins of web pages that may call; `*`: any, with authentication"
    )
    oauth_dir: NonEmpty | None = Field(
        default=None,
        description="directory for the tokens of servers with OAuth; may begin with `~`; none: `aggregator-oauth` in "
        "FastMCP's home",
    )
    rate_limit: CallsPerMinute | None = Field(
        default=None,
        description=f"calls a minute for each caller over HTTP; 0: no limit; none: {DEFAULT_RATE:g} with "
        "authentication, else 0",
    )
    rate_burst: PositiveInt = Field(default=20, description="calls that a caller may make at once")
    callers: dict[str, CallerSettings] = Field(
        default_factory=dict,
        description="`rate_limit` and `rate_burst` of single callers, by the name of their key or as the audit log "
        "names them, or of a group's callers, by `group:` and its id",
    )
    redis_url: SecretStr | None = Field(
        default=None,
        description="Redis or Valkey that the replicas share; needs the extra `redis`; none: in memory",
    )
    redis_key: Annotated[SecretStr, AfterValidator(_long)] | None = Field(
        default=None,
        description="secret of at least 32 characters, with which the replicas seal what goes through Redis; none: "
        "Redis is trusted",
    )
    validate_arguments: bool = Field(
        default=False, description="whether arguments are checked before a server is called"
    )
    pins: NonEmpty | None = Field(default=None, description="file with the approved definitions")
    on_pin_mismatch: Literal["warn", "block"] = Field(
        default="warn", description="what becomes of definitions that differ: `warn` or `block`"
    )

    @property
    def max_connections(self) -> int:
        """HTTP clients that are served or wait, at most, whosever they are."""
        requests = self.max_concurrent_requests + self.max_waiting_requests
        return requests + share_of(requests)

    @property
    def most_connections(self) -> int:
        """HTTP connections, at most: of those clients, with open streams, and a few that have not asked yet."""
        return self.max_connections + self.max_sessions + share_of(self.max_sessions) + _UNASKED

    @property
    def groups_file(self) -> Path | None:
        return None if self.groups is None else Path(self.groups).expanduser()

    @property
    def tool_changes(self) -> ToolChanges:
        """How single tools are shown."""
        return {key: server.tools for key, server in self.servers.items() if server.tools}

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names by which clients reach us."""
        public = None if self.public_url is None else urlsplit(self.public_url).hostname
        return self.allowed_hosts if public is None else (*self.allowed_hosts, public)

    @property
    def origins(self) -> tuple[str, ...]:
        """Origins of web pages that may call, beside our own."""
        return self.cors_origins if self.public_url is None else (*self.cors_origins, self.public_url)

    @property
    def has_auth(self) -> bool:
        """True if the settings authenticate callers over HTTP."""
        return self.keys_file is not None or self.jwt_issuer is not None

    @model_validator(mode="after")
    def _tokens_can_be_checked(self) -> Self:
        sources = [self.jwt_jwks_url, self.jwt_public_key_file]
        if not any((self.jwt_issuer, self.jwt_audience, self.jwt_groups_claim, self.jwt_roles_claim, *sources)):
            return self
        if self.jwt_issuer is None or self.jwt_audience is None:
            raise ValueError(
                "must have both `jwt_issuer` and `jwt_audience`: a token made for another program is not for us"
            )
        if sum(source is not None for source in sources) != 1:
            raise ValueError("must have either `jwt_jwks_url` or `jwt_public_key_file`, to check tokens with")
        return self


def load_settings(file: str | Path | None = None, **overrides: Any) -> AggregatorSettings:
    """Read the settings from `overrides` (those that are not None), the environment, `file` and the defaults.

    The file is TOML or JSON, by its suffix.

    Raises:
        ConfigError: with every problem that was found.
    """
    root = Location("settings" if file is None else str(file))
    layers = Layers(
        file={} if file is None else read_file(Path(file), root),
        environment=read_environment(AggregatorSettings, root),
        overrides={name: value for name, value in overrides.items() if value is not None},
    )
    settings = validated(AggregatorSettings, layers, root)
    if settings is None or root.problems:
        raise ConfigError(root.source, root.problems)
    return settings


def defaults_of_hub(settings: AggregatorSettings) -> dict[str, str]:
    isolation = {} if "isolation" in settings.model_fields_set else {"isolation": "auto"}
    return isolation if settings.catalogue is not None else {**isolation, "catalogue": "on"}


def unknown_servers(settings: AggregatorSettings, config_keys: Collection[str]) -> list[str]:
    """Return the server keys that have settings but are not in the config."""
    return [key for key in settings.servers if key not in config_keys]
