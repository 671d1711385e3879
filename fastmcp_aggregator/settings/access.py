"""The settings of a hub for a team: who may come in, how often, and with what tools. All are off until they are set."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings

from fastmcp_aggregator.config.remote import passed_header_fault
from fastmcp_aggregator.settings.options import RemoteAccess

Algorithm = Literal[
    "RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "EdDSA", "Ed25519", "Ed448"
]
"""Signatures that only the identity provider can make; with a shared secret, whoever checks could also sign."""
Text = Annotated[str, Field(min_length=1)]
CallsPerMinute = Annotated[float, Field(ge=0, allow_inf_nan=False)]

GROUP_MARK = "group:"
"""How an entry of `callers` begins that is for everyone who calls through a group."""

DEFAULT_RATE = 100.0
"""Calls a minute of one caller."""


def _web_url(url: str) -> str:
    if not url.startswith(("https://", "http://")):
        raise ValueError("must begin with https:// or http://")
    return url


WebUrl = Annotated[str, AfterValidator(_web_url)]


def _passed(names: tuple[str, ...]) -> tuple[str, ...]:
    for number, name in enumerate(names, 1):
        fault = passed_header_fault(name)
        if fault is not None:
            raise ValueError(f"must be headers that can be passed on; number {number} {fault}")
    return tuple(name.lower() for name in names)


class ServerAccessSettings(BaseModel):
    """See `ServerSettings`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bearer_env: Text | None = Field(
        default=None, description="Environment variable with the server's bearer token (default none)."
    )
    oauth: bool = Field(
        default=False, description="Whether the server is sent the tokens that `login` has got (default false)."
    )
    pass_headers: Annotated[tuple[str, ...], AfterValidator(_passed)] = Field(
        default=(), description="Headers of a caller's own HTTP request that go on to the server (default none)."
    )

    def access(self, oauth_dir: str | None) -> RemoteAccess:
        """How the server is addressed."""
        directory = None if oauth_dir is None else Path(oauth_dir).expanduser()
        return RemoteAccess(self.bearer_env, self.oauth, directory, frozenset(self.pass_headers))

    @model_validator(mode="after")
    def _has_one_token(self) -> Self:
        if self.oauth and self.bearer_env is not None:
            raise ValueError("must have either `oauth` or `bearer_env`, not both")
        return self


class CallerSettings(BaseModel):
    """What is set for one caller, or for each who calls through a group; what is left out is as for every caller."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rate_limit: CallsPerMinute | None = Field(
        default=None, description="Calls a minute, in the long run; 0: any number (default: as for every caller)."
    )
    rate_burst: int | None = Field(default=None, ge=1, description="Calls at once (default: as for every caller).")


_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@*\s]+")


def _origins(origins: tuple[str, ...]) -> tuple[str, ...]:
    for number, origin in enumerate(origins, 1):
        if origin != "*" and not _ORIGIN.fullmatch(origin.lower()):
            raise ValueError(
                f"must be origins such as https://app.example.com, without a path, or `*`; number {number} is none"
            )
    return tuple(origin.lower() for origin in origins)


class AccessSettings(BaseSettings):
    """See `AggregatorSettings`."""

    keys_file: Text | None = Field(
        default=None,
        description="File with the digests of API keys; whoever has a key may call over HTTP (default none).",
    )
    jwt_issuer: WebUrl | None = Field(
        default=None, description="Identity provider whose tokens (JWT) let callers in over HTTP (default none)."
    )
    jwt_audience: Text | None = Field(
        default=None, description="What a token's `aud` must have, that is, this program (default none)."
    )
    jwt_jwks_url: WebUrl | None = Field(
        default=None, description="Where the identity provider publishes its keys (default none)."
    )
    jwt_public_key_file: Text | None = Field(
        default=None, description="PEM file with its public key, instead of jwt_jwks_url (default none)."
    )
    jwt_algorithm: Algorithm = Field(default="RS256", description="How its tokens are signed (default RS256).")
    jwt_groups_claim: Text | None = Field(
        default=None, description="Claim with the groups that a caller may use (default none: all groups)."
    )
    public_url: WebUrl | None = Field(
        default=None,
        description="Origin at which clients reach us, by which they find the identity provider (default none).",
    )
    allowed_hosts: tuple[Text, ...] = Field(
        default=(),
        description="Names by which clients reach us over HTTP, besides addresses of ours and that of public_url "
        "(default none).",
    )
    cors_origins: Annotated[tuple[str, ...], AfterValidator(_origins)] = Field(
        default=(),
        description="Origins of web pages that may call over HTTP; `*`: any, where callers authenticate "
        "(default none).",
    )
    oauth_dir: Text | None = Field(
        default=None,
        description="Directory for the tokens of servers with `oauth` (default `aggregator-oauth` in FastMCP's home).",
    )
    rate_limit: CallsPerMinute | None = Field(
        default=None,
        description="Calls a minute of one caller over HTTP, in the long run; 0: any number "
        "(default 100 where callers authenticate, else 0).",
    )
    rate_burst: int = Field(default=20, ge=1, description="Calls of one caller over HTTP at once (default 20).")
    callers: dict[str, CallerSettings] = Field(
        default_factory=dict,
        description="Settings of single callers, by name, or of a group's, by `group:` and its id (default none).",
    )
    redis_url: SecretStr | None = Field(
        default=None, description="Redis that the replicas of one hub share (default none: in memory)."
    )
    validate_arguments: bool = Field(
        default=False, description="Whether a call's arguments are checked before the server is asked (default false)."
    )
    pins: Text | None = Field(
        default=None, description="File with the tool definitions that have been approved (default none)."
    )
    on_pin_mismatch: Literal["warn", "block"] = Field(
        default="warn", description="What becomes of a tool that is not as pinned: warn or block (default warn)."
    )

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names by which clients reach us."""
        public = None if self.public_url is None else urlsplit(self.public_url).hostname
        return self.allowed_hosts if public is None else (*self.allowed_hosts, public)

    @property
    def has_auth(self) -> bool:
        """Whether they say who may come in over HTTP."""
        return self.keys_file is not None or self.jwt_issuer is not None

    @model_validator(mode="after")
    def _tokens_can_be_checked(self) -> Self:
        sources = [self.jwt_jwks_url, self.jwt_public_key_file]
        if not any((self.jwt_issuer, self.jwt_audience, self.jwt_groups_claim, *sources)):
            return self
        if self.jwt_issuer is None or self.jwt_audience is None:
            raise ValueError(
                "must have both `jwt_issuer` and `jwt_audience`: a token made for another program is not for us"
            )
        if sum(source is not None for source in sources) != 1:
            raise ValueError("must have either `jwt_jwks_url` or `jwt_public_key_file`, to check tokens with")
        return self
