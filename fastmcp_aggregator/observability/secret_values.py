"""Discovery of secrets: which values of the config and the settings are to be redacted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, SecretStr

from fastmcp_aggregator.config.disclosure import Field, fields_of, hidden_in
from fastmcp_aggregator.config.models import RemoteServer, StdioServer

_WORD = re.compile(
    r"[A-Za-z_.-]{1,20}\d{0,2}|\d{0,7}"
    r"|(?:~|\.{1,2}|[A-Za-z]:)?(?:[/\\][A-Za-z_. @-]{0,32}+\d{0,3}+[A-Za-z_. @-]{0,32}+)++"
)
"""Words, numbers and paths of words. They are not shown either, but are no secret wherever else they stand."""


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
                yield from (form for part in _hidden("url", value.url) for form in (part, unquote(part)))
            if isinstance(value, StdioServer):
                yield from _in_arguments(value)
            for field in fields(value):
                yield from secrets_in(getattr(value, field.name))


def new_secrets_in(current: Callable[[], Any]) -> Callable[[], Iterable[str]]:
    """A function that reads a value that may be exchanged, and finds the secrets in it once for each."""
    seen: list[Any] = [None]

    def found() -> Iterable[str]:
        value = current()
        if value is seen[0]:
            return ()
        seen[0] = value
        return list(secrets_in(value))

    return found


def _in_arguments(server: StdioServer) -> Iterator[str]:
    for field, argument in zip(fields_of(server.command, server.args), server.args, strict=True):
        yield from _hidden(field, argument)


def _hidden(field: Field, text: str) -> Iterator[str]:
    """The secret parts of a value; its words stay, as a person needs them to understand a failure, and its `$` are
    plain.
    """
    for part in hidden_in(field, text.replace("$", "S")):
        piece = text[part.start : part.end]
        may_be_word = field != "url" or part.hint in ("user", "path")
        if not (may_be_word and _WORD.fullmatch(piece)):
            yield piece


def _credentials_in(text: str) -> Iterator[str]:
    """The password, or a user name that stands alone, if the text is a URL: those of databases have them."""
    with suppress(ValueError):
        parts = urlsplit(text)
        if secret := parts.password or parts.username:
            yield unquote(secret)
