"""The settings of OAuth at one remote server, `[servers.KEY.oauth]`: which client we are there, and for what."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from fastmcp_aggregator.settings.sections import WebUrl

_SCOPE = re.compile(r"[!#-\[\]-~]+")  # RFC 6749, section 3.3
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PATH = re.compile(r"/[A-Za-z0-9._~/-]*")
NO_RESOURCE = "none"
_BY_OTHER_SETTINGS = ("client_id", "resource", "audience", "scope")
_OURS = {"response_type", "redirect_uri", "state", "code_challenge", "code_challenge_method", *_BY_OTHER_SETTINGS}
"""Parameters that the address of a login has already."""
_NEEDS_ISSUER = ("client_secret_env", "private_key_file")


def _scopes(scopes: tuple[str, ...]) -> tuple[str, ...]:
    for number, scope in enumerate(scopes, 1):
        if not _SCOPE.fullmatch(scope):
            raise ValueError(f"must be scopes, which have no spaces, quotes or backslashes; number {number} is none")
    return scopes


def _variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise ValueError("must be the name of an environment variable, not its value")
    return name


def _document(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme != "https" or parts.path in ("", "/"):
        raise ValueError("must begin with https:// and have a path: it is the client's id")
    return url


def _authorization_query(query: str) -> str:
    try:
        names = {name for name, _ in parse_qsl(query, keep_blank_values=True, strict_parsing=True)}
    except ValueError:
        raise ValueError("must be a query such as access_type=offline&prompt=consent") from None
    if ours := sorted(names & _OURS):
        raise ValueError(f"must leave out what this program sends itself: {', '.join(ours)}")
    return query


def _callback_path(path: str) -> str:
    if not _PATH.fullmatch(path):
        raise ValueError("must be a path such as /callback")
    return path


Scopes = Annotated[tuple[str, ...], AfterValidator(_scopes)]
Variable = Annotated[str, AfterValidator(_variable)]
MetadataUrl = Annotated[str, AfterValidator(_document)]
AuthorizationQuery = Annotated[str, AfterValidator(_authorization_query)]
CallbackPath = Annotated[str, AfterValidator(_callback_path)]


class OAuthSettings(BaseModel):
    """The OAuth settings of one server; what is left out is discovered."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    account: Literal["hub", "caller", "exchange"] = Field(
        default="hub",
        description="whose account calls use: `hub`, one for all; `caller`, each caller's own, after a login; "
        "`exchange`, each caller's own, by exchange of its token",
    )
    lists: Literal["caller", "hub"] = Field(
        default="caller",
        description="whose account lists come from, if calls use callers' accounts: `caller`, each caller's own; "
        "`hub`, the hub's, which should see only what everybody may",
    )
    exchange: Literal["token_exchange", "jwt_bearer"] = Field(
        default="token_exchange",
        description="how a caller's token is exchanged: `token_exchange` (RFC 8693), or `jwt_bearer`, as an assertion "
        "(RFC 7523, the second leg of ID-JAG)",
    )
    grant: Literal["authorization_code", "client_credentials"] = Field(
        default="authorization_code",
        description="how the hub gets its own tokens: `authorization_code`, a person logs in; `client_credentials`, "
        "nobody does",
    )
    client_id: str | None = Field(default=None, min_length=1, description="id of a client that you have registered")
    client_secret_env: Variable | None = Field(default=None, description="environment variable with its secret")
    private_key_file: str | None = Field(
        default=None, min_length=1, description="PEM file with its private key (`private_key_jwt`), instead of a secret"
    )
    client_metadata_url: MetadataUrl | None = Field(
        default=None, description="address of a client metadata document (CIMD), which is the client's id"
    )
    issuer: WebUrl | None = Field(
        default=None,
        description="the only authorization server to use, whatever the server names; required with a secret or a key",
    )
    scopes: Scopes = Field(default=(), description="scopes to request; none: those that the server names")
    resource: WebUrl | Literal["none"] | None = Field(
        default=None,
        description="`resource` to request (RFC 8707), or `none` for providers that reject it; none: the one that the "
        "server names",
    )
    audience: str | None = Field(
        default=None, min_length=1, description="`audience` to request, if the provider wants one"
    )
    authorization_query: AuthorizationQuery | None = Field(
        default=None,
        description="more query parameters for the login, such as `access_type=offline`",
    )
    callback_port: int | None = Field(
        default=None, ge=1, le=65535, description="port to which the browser returns; none: a free one"
    )
    callback_path: CallbackPath = Field(
        default="/callback", description="path to which it returns, followed by the digits of the issuer"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.client_id is None:
            for name in _NEEDS_ISSUER:
                if getattr(self, name) is not None:
                    raise ValueError(f"must have a `client_id` with `{name}`")
        elif self.client_metadata_url is not None:
            raise ValueError("must have either `client_id` or `client_metadata_url`, not both")
        if self.account == "exchange" and self.issuer is None:
            raise ValueError("must have an `issuer` for `exchange`, so that callers' tokens go nowhere else")
        if self.account == "exchange" and self.client_id is None:
            raise ValueError("must have a `client_id` for `exchange`")
        has_proof = [name for name in _NEEDS_ISSUER if getattr(self, name) is not None]
        if len(has_proof) > 1:
            raise ValueError("must have either `client_secret_env` or `private_key_file`, not both")
        if has_proof and self.issuer is None:
            raise ValueError(
                f"must have an `issuer` with `{has_proof[0]}`, so that the server does not decide who gets it; "
                "`fastmcp-aggregator check` tells which it names"
            )
        if self.grant == "client_credentials" and not has_proof:
            raise ValueError(
                "must have a `client_id`, and `client_secret_env` or `private_key_file`, for `client_credentials`"
            )
        return self
