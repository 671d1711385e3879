"""The sections of the settings, for a single caller and a single tool, and the types of settings about access."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from fastmcp_aggregator.config.remote import is_credential, passed_header_fault

Algorithm = Literal[
    "RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "EdDSA", "Ed25519", "Ed448"
]
"""Signatures that only the identity provider can make; with a shared secret, the verifier could also sign."""
Name = Annotated[str, Field(min_length=1, max_length=128)]
CallsPerMinute = Annotated[float, Field(ge=0, allow_inf_nan=False)]

GROUP_MARK = "group:"
"""The prefix of an entry of `callers` that is for everyone who calls through a group."""

DEFAULT_RATE = 100.0
"""Calls a minute of one caller, where callers authenticate."""

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@*\s]+")


def _web_url(url: str) -> str:
    if not url.startswith(("https://", "http://")):
        raise ValueError("must begin with https:// or http://")
    return url


def _passed(names: tuple[str, ...]) -> tuple[str, ...]:
    for number, name in enumerate(names, 1):
        fault = passed_header_fault(name)
        if fault is not None:
            raise ValueError(f"must be headers that can be passed on; number {number} {fault}")
    return tuple(name.lower() for name in names)


def _harmless(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if is_credential(name):
            raise ValueError(
                f"must have no credentials such as {name!r}: with them the server can act as the caller wherever they "
                "are good. If that is meant, name it in `pass_credentials`"
            )
    return names


def _origins(origins: tuple[str, ...]) -> tuple[str, ...]:
    for number, origin in enumerate(origins, 1):
        if origin != "*" and not _ORIGIN.fullmatch(origin.lower()):
            raise ValueError(
                f"must be origins such as https://app.example.com, without a path, or `*`; number {number} is none"
            )
    return tuple(origin.lower() for origin in origins)


WebUrl = Annotated[str, AfterValidator(_web_url)]
PassedHeaders = Annotated[tuple[str, ...], AfterValidator(_passed), AfterValidator(_harmless)]
PassedCredentials = Annotated[tuple[str, ...], AfterValidator(_passed)]
Origins = Annotated[tuple[str, ...], AfterValidator(_origins)]


class CallerSettings(BaseModel):
    """The settings of one caller, or of each who calls through a group; what is left out is as for every caller."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rate_limit: CallsPerMinute | None = Field(
        default=None, description="calls a minute, in the long run; 0: any number"
    )
    rate_burst: int | None = Field(default=None, ge=1, description="calls at once")


class ToolSettings(BaseModel):
    """The settings of one tool; what is left out is as the server says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name | None = Field(default=None, description="the tool's own name, instead of the server's")
    title: str | None = Field(default=None, description="its title")
    description: str | None = Field(default=None, description="its description")
    hidden: bool = Field(default=False, description="whether it is neither listed nor callable")

    def applied(self, tool: Mapping[str, Any]) -> dict[str, Any]:
        """Return the tool, as listed by its server, the way it is to be shown."""
        texts = {"name": self.name, "title": self.title, "description": self.description}
        return {**tool, **{field: text for field, text in texts.items() if text is not None}}


ToolChanges = Mapping[str, Mapping[str, ToolSettings]]
"""Tool settings by server key and original name."""
