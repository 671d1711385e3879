"""AggregatorSettings: everything that is ours to set, from the command line, the environment and a file."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from fastmcp_aggregator.config.files import parse_json, read_text
from fastmcp_aggregator.config.paths import Place, path_step
from fastmcp_aggregator.errors import ConfigError, ConfigProblem

ENV_PREFIX = "FASTMCP_AGGREGATOR_"

Era = Literal["auto", "legacy", "modern"]
Separator = Literal["auto", ":", "__", ".", "_"]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _rooted(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError("must begin with /")
    return path


class ServerSettings(BaseModel):
    """What is set for one server; what is left out is as for every server."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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
    era: Era = Field(default="auto", description="Protocol era to speak with the server (default auto: its best).")


class AggregatorSettings(BaseSettings):
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
    max_concurrent_requests: int = Field(
        default=100, ge=1, description="HTTP requests that run at once, at most (default 100)."
    )
    max_waiting_requests: int = Field(
        default=1000, ge=0, description="HTTP requests that wait for their turn, at most (default 1000)."
    )
    max_request_bodies_mb: float = Field(
        default=100.0, gt=0, allow_inf_nan=False, description="MiB of all their bodies together, at most (default 100)."
    )
    host: str = Field(default="127.0.0.1", min_length=1, description="Address to serve HTTP on (default 127.0.0.1).")
    port: int = Field(
        default=8000, ge=0, le=65535, description="Port to serve HTTP on (default 8000); 0 takes a free one."
    )
    path: Annotated[str, AfterValidator(_rooted)] = Field(
        default="/mcp", description="URL path of the MCP endpoint (default /mcp)."
    )
    servers: dict[str, ServerSettings] = Field(
        default_factory=dict, description="Settings of single servers, by server key (default none)."
    )

    @property
    def max_response_bytes(self) -> int:
        """`max_response_size_mb` in bytes."""
        return int(self.max_response_size_mb * 1024**2)

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

    def era_of(self, key: str) -> Era:
        """The protocol era to speak with the server."""
        return self._of(key).era

    def _of(self, key: str) -> ServerSettings:
        return self.servers.get(key, ServerSettings())


def load_settings(file: str | Path | None = None, **overrides: Any) -> AggregatorSettings:
    """The settings from `overrides` (those that are not None), the environment, `file` and the defaults.

    The file is TOML or JSON, by its suffix.

    Raises: ConfigError, with every problem that was found.
    """
    root = Place()
    layers = _Layers(
        file={} if file is None else _read_file(Path(file), root),
        environment=_read_environment(root),
        overrides={name: value for name, value in overrides.items() if value is not None},
    )
    settings = _validated(layers, root)
    if settings is None or root.problems:
        raise ConfigError("settings" if file is None else str(file), root.problems)
    return settings


def unknown_servers(settings: AggregatorSettings, config_keys: Collection[str]) -> list[str]:
    """The server keys that have settings but are not in the config."""
    return [key for key in settings.servers if key not in config_keys]


@dataclass(frozen=True, slots=True)
class _Layers:
    """Where the settings come from, the weakest first."""

    file: Mapping[str, Any]
    environment: Mapping[str, Any]
    overrides: Mapping[str, Any]

    def merged(self) -> dict[str, Any]:
        return _overlaid(_overlaid(self.file, self.environment), self.overrides)

    def path_of(self, location: tuple[int | str, ...]) -> str:
        """Where the value in force was given: the variable's name, or a JSON path."""
        if _has(self.environment, location) and not _has(self.overrides, location):
            return _variable_of(location)
        return "$" + "".join(path_step(step) for step in location)


def _overlaid(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for name, value in over.items():
        below = merged.get(name)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            merged[name] = _overlaid(below, value)
        else:
            merged[name] = value
    return merged


def _has(values: Any, location: tuple[int | str, ...]) -> bool:
    for step in location:
        if not isinstance(values, Mapping) or step not in values:
            return False
        values = values[step]
    return True


def _read_file(path: Path, root: Place) -> Mapping[str, Any]:
    if path.suffix not in (".toml", ".json"):
        root.report("must be a TOML or JSON file, with a name that ends in .toml or .json")
        return {}
    text = read_text(path, root)
    if text is None:
        return {}
    values = _parse_toml(text, root) if path.suffix == ".toml" else parse_json(text, root)
    if isinstance(values, dict):
        return values
    if not root.problems:
        root.report("must be an object with settings in it")
    return {}


def _parse_toml(text: str, root: Place) -> Any:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        root.report(f"is not valid TOML: {error}", code="invalid_json")
    except (ValueError, RecursionError):
        root.report("cannot be read as TOML: it is nested too deeply or has an endless number", "invalid_json")
    return None


def _read_environment(root: Place) -> Mapping[str, Any]:
    for name, value in os.environ.items():
        if value and name.upper().startswith(ENV_PREFIX) and not _sets_something(name):
            setting = name[len(ENV_PREFIX) :].lower()
            message = _unknown(setting, AggregatorSettings.model_fields, _variable_name)
            root.problems.append(ConfigProblem("invalid_schema", name, message))
    try:
        return EnvSettingsSource(AggregatorSettings)()
    except SettingsError:
        # Of all settings only `servers` is an object, so only its variable can be JSON that is not valid.
        name = _variable_of(("servers",))
        root.problems.append(ConfigProblem("invalid_json", name, "is not valid JSON; write one object"))
    return {}


def _sets_something(variable: str) -> bool:
    setting, _, rest = variable[len(ENV_PREFIX) :].lower().partition("__")
    return setting in AggregatorSettings.model_fields and (not rest or setting == "servers")


def _variable_name(*location: int | str) -> str:
    return ENV_PREFIX + "__".join(map(str, location)).upper()


def _variable_of(location: tuple[int | str, ...]) -> str:
    """The environment variable that holds the location or what is around it."""
    names = {name.upper(): name for name in os.environ}
    wanted = [_variable_name(*location[:end]) for end in range(len(location), 0, -1)]
    return next((names[name] for name in wanted if name in names), wanted[-1])


def _validated(layers: _Layers, root: Place) -> AggregatorSettings | None:
    values = layers.merged()
    for name in values.keys() - AggregatorSettings.model_fields.keys():
        root.at(name).report(_unknown(name, AggregatorSettings.model_fields))
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
        return _unknown(str(fault["loc"][-1]), ServerSettings.model_fields)
    return re.sub("^(Input should|String should|Value error, must)", "must", fault["msg"])


def _unknown(name: str, known: Iterable[str], spelled: Callable[[str], str] = str) -> str:
    similar = get_close_matches(name, list(known), n=1)
    return f"is not a setting; did you mean `{spelled(similar[0])}`?" if similar else "is not a setting; remove it"
