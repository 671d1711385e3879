"""AggregatorSettings: everything that is ours to set, from the command line, the environment and a file."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import SettingsConfigDict, SettingsError

from fastmcp_aggregator.concurrency.fair_share import share_of
from fastmcp_aggregator.config.paths import Place
from fastmcp_aggregator.errors import ConfigError, ConfigProblem
from fastmcp_aggregator.settings.access import CallerSettings
from fastmcp_aggregator.settings.options import EndpointOptions
from fastmcp_aggregator.settings.sources import ENV_PREFIX, Layers, read_environment, read_file, unknown
from fastmcp_aggregator.settings.tools import ServerToolSettings, ToolChanges, ViewSettings

EraSetting = Literal["auto", "legacy", "modern"]
Separator = Literal["auto", ":", "__", ".", "_"]
Profile = Literal["development", "production"]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _rooted(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError("must begin with /")
    return path


class ServerSettings(ServerToolSettings):
    """What is set for one server; what is left out is as for every server."""

    startup_timeout: Seconds | None = Field(
        default=None, description="Seconds the server may take to start (default: as for every server)."
    )
    call_timeout: Seconds | None = Field(
        default=None, description="Seconds a call to the server may take (default: as for every server)."
    )
    read_timeout: Seconds | None = Field(
        default=None, description="Seconds a read may take (default: as for every server)."
    )
    prompt_timeout: Seconds | None = Field(
        default=None, description="Seconds a prompt may take (default: as for every server)."
    )
    max_concurrent_calls: int | None = Field(
        default=None, ge=1, description="Calls to the server in flight at once, at most (default: as for every server)."
    )
    era: EraSetting = Field(
        default="auto", description="Protocol era to speak with the server (default auto: its best)."
    )
    isolation: Literal["shared", "session"] = Field(
        default="shared", description="Whether each client session has an instance of its own (default shared)."
    )


class AggregatorSettings(ViewSettings):
    """The settings of an aggregator: constructor arguments, then the environment, then the defaults.

    `load_settings` adds a settings file, and turns every problem into a ConfigError.
    """

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,
        frozen=True,
        extra="forbid",
    )

    name: str = Field(
        default="fastmcp-aggregator",
        min_length=1,
        description="Server name shown to clients (default fastmcp-aggregator).",
    )
    server_version: str | None = Field(
        default=None, description="Server version shown to clients (default: the version of this package)."
    )
    strict: bool = Field(
        default=True, description="Whether a server that fails to start ends the program (default true)."
    )
    separator: Separator = Field(
        default="auto",
        description="Between server key and name (default auto: `:`, or `__` where it is refused).",
    )
    prefix: bool = Field(default=True, description="Whether public names begin with the server key (default true).")
    watch_config: bool = Field(
        default=True, description="Whether a config file that changes is read again while it is served (default true)."
    )
    startup_timeout: Seconds = Field(default=30.0, description="Seconds a server may take to start (default 30).")
    ready_wait: float = Field(
        default=5.0,
        ge=0,
        allow_inf_nan=False,
        description="Seconds the first list waits for servers that still start (default 5).",
    )
    call_timeout: Seconds = Field(
        default=300.0, description="Seconds a tool call may go on without a sign of life (default 300)."
    )
    read_timeout: Seconds = Field(default=60.0, description="Seconds a resource may take to be read (default 60).")
    prompt_timeout: Seconds = Field(default=60.0, description="Seconds a prompt may take (default 60).")
    max_response_size_mb: float = Field(
        default=100.0, gt=0, allow_inf_nan=False, description="MiB of one message of a server, at most (default 100)."
    )
    max_tools_per_child: int = Field(
        default=1000, ge=1, description="Tools taken from one server, at most; the rest is left out (default 1000)."
    )
    max_concurrent_calls: int | None = Field(
        default=None,
        ge=1,
        description="Calls to one server in flight at once, at most (default half of max_concurrent_requests).",
    )
    max_isolated_sessions: int = Field(
        default=20,
        ge=1,
        description="Client sessions with an instance of their own, of each isolated server, at most (default 20).",
    )
    stderr_dir: str | None = Field(
        default=None, min_length=1, description="Directory for files with the servers' stderr (default none)."
    )
    max_concurrent_requests: int = Field(
        default=100, ge=1, description="HTTP requests that run at once, at most (default 100)."
    )
    max_waiting_requests: int = Field(
        default=1000, ge=0, description="HTTP requests that wait for their turn, at most (default 1000)."
    )
    max_request_bodies_mb: float = Field(
        default=100.0, gt=0, allow_inf_nan=False, description="MiB of all their bodies together, at most (default 100)."
    )
    reconnect_wait: float = Field(
        default=30.0,
        ge=0,
        allow_inf_nan=False,
        description="Seconds an HTTP client whose connection broke may take to come back for its answer (default 30).",
    )
    host: str = Field(default="127.0.0.1", min_length=1, description="Address to serve HTTP on (default 127.0.0.1).")
    port: int = Field(
        default=8000, ge=0, le=65535, description="Port to serve HTTP on (default 8000); 0 takes a free one."
    )
    path: Annotated[str, AfterValidator(_rooted)] = Field(
        default="/mcp", description="URL path of the MCP endpoint (default /mcp)."
    )
    dashboard: bool = Field(
        default=True, description="Whether there is a page for people at / when serving HTTP (default true)."
    )
    profile: Profile = Field(
        default="development",
        description="Whether the log has words for a person, or JSON for programs (default development).",
    )
    audit: str | None = Field(
        default=None, min_length=1, description="File of the audit log, or stdout when serving HTTP (default none)."
    )
    audit_arguments: Literal["digest", "full"] = Field(
        default="digest", description="How the audit log has the arguments of calls: digest or full (default digest)."
    )
    audit_on_failure: Literal["continue", "refuse"] = Field(
        default="continue",
        description="Calls while the audit log cannot be written: continue or refuse them (default continue).",
    )
    audit_max_mb: float = Field(
        default=100.0, gt=0, allow_inf_nan=False, description="MiB of one file of the audit log (default 100)."
    )
    audit_keep: int = Field(default=10, ge=1, description="Older files of the audit log that are kept (default 10).")
    metrics: bool = Field(default=False, description="Whether metrics are kept and served over HTTP (default false).")
    telemetry: bool = Field(
        default=False, description="Whether traces are exported as the OTEL_* variables say (default false)."
    )
    servers: dict[str, ServerSettings] = Field(
        default_factory=dict, description="Settings of single servers, by server key (default none)."
    )

    @property
    def endpoint_options(self) -> EndpointOptions:
        """What is set for the way to every server."""
        stderr_dir = None if self.stderr_dir is None else Path(self.stderr_dir).expanduser()
        return EndpointOptions(
            int(self.max_response_size_mb * 1024**2), stderr_dir, json_stderr=self.profile == "production"
        )

    @property
    def max_connections(self) -> int:
        """HTTP clients that are served or wait, at most, whosever they are."""
        places = self.max_concurrent_requests + self.max_waiting_requests
        return places + share_of(places)

    @property
    def max_waiting_calls(self) -> int:
        """Calls that wait for one server, at most: half of the HTTP requests that may wait, so that others can too."""
        return self.max_waiting_requests // 2

    def endpoint_options_of(self, key: str) -> EndpointOptions:
        """What is set for the way to one server."""
        return replace(self.endpoint_options, access=self._of(key).access(self.oauth_dir))

    @property
    def tool_changes(self) -> ToolChanges:
        """How single tools are shown."""
        return {key: server.tools for key, server in self.servers.items() if server.tools}

    def startup_timeout_of(self, key: str) -> float:
        """Seconds that the server may take to start."""
        own = self._of(key).startup_timeout
        return self.startup_timeout if own is None else own

    def call_timeout_of(self, key: str, configured: float | None) -> float:
        """Seconds that a call to the server may take; `configured` is the `timeout` of the config file."""
        own = self._of(key).call_timeout
        return next(seconds for seconds in (own, configured, self.call_timeout) if seconds is not None)

    def read_timeout_of(self, key: str) -> float:
        """Seconds that a resource of the server may take to be read."""
        own = self._of(key).read_timeout
        return self.read_timeout if own is None else own

    def prompt_timeout_of(self, key: str) -> float:
        """Seconds that a prompt of the server may take."""
        own = self._of(key).prompt_timeout
        return self.prompt_timeout if own is None else own

    def max_concurrent_calls_of(self, key: str) -> int:
        """Calls to the server that may be in flight at once."""
        own = self._of(key).max_concurrent_calls
        limits = (own, self.max_concurrent_calls, max(1, self.max_concurrent_requests // 2))
        return next(limit for limit in limits if limit is not None)

    def era_of(self, key: str) -> EraSetting:
        """The protocol era to speak with the server."""
        return self._of(key).era

    def is_isolated(self, key: str) -> bool:
        """Whether each client session has an instance of the server of its own."""
        return self._of(key).isolation == "session"

    def _of(self, key: str) -> ServerSettings:
        return self.servers.get(key, ServerSettings())


def load_settings(file: str | Path | None = None, **overrides: Any) -> AggregatorSettings:
    """The settings from `overrides` (those that are not None), the environment, `file` and the defaults.

    The file is TOML or JSON, by its suffix.

    Raises: ConfigError, with every problem that was found.
    """
    root = Place()
    layers = Layers(
        file={} if file is None else read_file(Path(file), root),
        environment=read_environment(AggregatorSettings, root),
        overrides={name: value for name, value in overrides.items() if value is not None},
    )
    settings = _validated(layers, root)
    if settings is None or root.problems:
        raise ConfigError("settings" if file is None else str(file), root.problems)
    return settings


def unknown_servers(settings: AggregatorSettings, config_keys: Collection[str]) -> list[str]:
    """The server keys that have settings but are not in the config."""
    return [key for key in settings.servers if key not in config_keys]


def _validated(layers: Layers, root: Place) -> AggregatorSettings | None:
    values = layers.merged()
    for name in values.keys() - AggregatorSettings.model_fields.keys():
        root.at(name).report(unknown(name, AggregatorSettings.model_fields))
        del values[name]
    try:
        return AggregatorSettings(**values)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
    except SettingsError:  # reported when the environment was read
        faults = []
    for fault in faults:
        path = layers.path_of(fault["loc"])
        root.problems.append(ConfigProblem("invalid_schema", path, _message(fault)))
    return None


def _message(fault: ErrorDetails) -> str:
    if fault["type"] == "extra_forbidden":
        model = CallerSettings if fault["loc"][0] == "callers" else ServerSettings
        return unknown(str(fault["loc"][-1]), model.model_fields)
    return re.sub("^(Input should|String should|Value error, must)", "must", fault["msg"])
