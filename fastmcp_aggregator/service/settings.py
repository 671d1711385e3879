"""The settings: `MCP_…` in the environment, before the file of the service, before defaults."""

from __future__ import annotations

import logging
import os
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, ClassVar, Self, TypeVar

from pydantic import BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    JsonConfigSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from fastmcp_aggregator.service import limits
from fastmcp_aggregator.service.errors import ConfigurationError

logger = logging.getLogger(__name__)

_PREFIX = "MCP_"
_LIKE_ENOUGH = 0.8

Seconds = Annotated[float, Field(gt=0, le=limits.LONGEST_TIMEOUT)]
Secret = Annotated[SecretStr, Field(min_length=16)]


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


class ServiceSettings(BaseSettings):
    """The settings of a service, to be subclassed with your own.

    A secret has at least 16 characters; keep it in the environment, not in the file.
    """

    file: ClassVar[str | None] = None
    """`NAME.toml` or `NAME.json` in the working directory is read without being asked for. Clients start a server in
    folders of other projects: the name is to be one that nobody else uses."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, env_ignore_empty=True, extra="forbid", frozen=True)

    server_name: str | None = Field(default=None, pattern=limits.SERVER_NAME, max_length=limits.SERVER_NAME_LENGTH)
    """Without it, the one that the server is made with."""
    log_level: Annotated[limits.LogLevel, BeforeValidator(_lower)] = "info"
    profile: limits.ServiceProfile = "development"
    transport: limits.Transport = "stdio"
    host: str | None = None
    port: int | None = Field(default=None, ge=limits.LOWEST_PORT, le=limits.HIGHEST_PORT)
    auth_token: Secret | None = None
    api_key: Secret | None = None
    tool_timeout: Seconds = limits.TOOL_TIMEOUT
    resource_timeout: Seconds = limits.RESOURCE_TIMEOUT
    prompt_timeout: Seconds = limits.PROMPT_TIMEOUT
    max_response_size_mb: float = Field(default=limits.MAX_RESPONSE_SIZE_MB, gt=0)
    rate_limit_per_minute: int = Field(default=limits.RATE_LIMIT_PER_MINUTE, ge=1)
    rate_limit_burst: int = Field(default=limits.RATE_LIMIT_BURST, ge=1)

    @model_validator(mode="after")
    def _http_is_complete(self) -> Self:
        missing = [name for name in ("host", "port") if getattr(self, name) is None]
        if self.auth_token is None and self.api_key is None:
            missing.append("auth_token or api_key")
        if self.transport == "http" and missing:
            raise ValueError(f"transport http needs {', '.join(missing)}")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        path = _config_file(cls.file)
        if path is None:
            return init_settings, env_settings
        if path.suffix == ".json":
            return init_settings, env_settings, JsonConfigSettingsSource(settings_cls, json_file=path)
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, toml_file=path)


def _config_file(name: str | None) -> Path | None:
    """The file that `MCP_CONFIG` names, or else the one of this name in the working directory."""
    named = os.environ.get("MCP_CONFIG")
    if named and not Path(named).is_file():
        raise ConfigurationError(f"there is no file {named}, which MCP_CONFIG names")
    if named or name is None:
        return Path(named) if named else None
    found = [path for path in (Path(f"{name}.toml"), Path(f"{name}.json")) if path.is_file()]
    if len(found) > 1:
        raise ConfigurationError(f"there are {found[0]} and {found[1]}; keep one of them")
    return found[0] if found else None


AnySettings = TypeVar("AnySettings", bound=ServiceSettings)


def load_settings(settings_type: type[AnySettings]) -> AnySettings:
    """The settings of this process.

    Raises: ConfigurationError, with everything that is wrong.
    """
    _warn_of_misspelt_variables(settings_type)
    try:
        return settings_type()
    except ValidationError as error:
        file = _config_file(settings_type.file)
        lines = [f"  {_told(fault, settings_type, file)}" for fault in error.errors(include_input=False)]
        raise ConfigurationError("\n".join(["the settings cannot be used:", *lines])) from None
    except (SettingsError, ValueError, OSError) as error:
        raise ConfigurationError(
            f"{_config_file(settings_type.file) or 'the environment'} cannot be read: {error}"
        ) from None


def _warn_of_misspelt_variables(settings_type: type[ServiceSettings]) -> None:
    """Say which variables are ignored and nearly a setting's. Others of this prefix may be somebody else's."""
    known = {"config", *settings_type.model_fields}
    given = {name.removeprefix(_PREFIX).lower() for name in map(str.upper, os.environ) if name.startswith(_PREFIX)}
    for name in sorted(given - known):
        if meant := get_close_matches(name, sorted(known - given), 1, _LIKE_ENOUGH):
            message = "%s is not a setting, and is ignored; did you mean %s?"
            logger.warning(message, _variable(name), _variable(meant[0]))


def _told(fault: ErrorDetails, settings_type: type[ServiceSettings], file: Path | None) -> str:
    """The problem with a setting, its source, and the remedy; without its value."""
    if not fault["loc"]:
        return fault["msg"].removeprefix("Value error, ")
    name, *below = map(str, fault["loc"])
    variable = _variable(name)
    if fault["type"] == "missing":
        return f"{variable} is not set" + (f", and `{name}` is not in {file}" if file is not None else "")
    is_variable = any(variable == given.upper() for given, value in os.environ.items() if value)
    source = variable if is_variable or file is None else f"`{name}` in {file}"
    if fault["type"] == "extra_forbidden":
        meant = get_close_matches(name, settings_type.model_fields, 1)
        return f"{source} is not a setting; {f'did you mean `{meant[0]}`?' if meant else 'remove it'}"
    return f"{'.'.join([source, *below])} {_requirement(fault)}"


def _requirement(fault: ErrorDetails) -> str:
    if fault["type"] in ("too_short", "string_too_short"):
        return f"must have at least {fault.get('ctx', {}).get('min_length')} characters"
    words = fault["msg"].removeprefix("Value error, ")
    is_known = words.startswith("Input should ")
    return f"must {words.removeprefix('Input should ')}" if is_known else f"cannot be used: {words}"


def _variable(name: str) -> str:
    return f"{_PREFIX}{name.upper()}"
