"""Discovery of secrets: which values of the config and the settings are to be redacted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import BaseModel, SecretStr

from fastmcp_aggregator.config.models import RemoteServer


def secrets_in(value: Any) -> Iterator[str]:
    """Every `SecretStr` in a model, a dataclass or a collection, and what is secret in the URLs of remote servers."""
    match value:
        case SecretStr():
            secret = value.get_secret_value()
            yield secret
            yield from _credentials_in(secret)
        case Mapping():
            for item in value.values():
                yield from secrets_in(item)
        case list() | tuple() | set() | frozenset():
            for item in value:
                yield from secrets_in(item)
        case BaseModel():
            for name in type(value).model_fields:
                yield from secrets_in(getattr(value, name))
        case _ if is_dataclass(value):
            if isinstance(value, RemoteServer):
                yield from _credentials_in(value.url)
                yield from (text for _, text in parse_qsl(urlsplit(value.url).query))
            for field in fields(value):
                yield from secrets_in(getattr(value, field.name))


def _credentials_in(text: str) -> Iterator[str]:
    """The password, or a user name that stands alone, if the text is a URL: those of databases have them."""
    with suppress(ValueError):
        parts = urlsplit(text)
        if secret := parts.password or parts.username:
            yield unquote(secret)
