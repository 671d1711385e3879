"""What in a server's entry looks like a secret: to be shown as dots, or to be turned into variables. Pure.

Guesses err on the side of hiding. A reference to a variable is no secret; what it stands for is not in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fastmcp_aggregator.client_configs.variables import variable_name
from fastmcp_aggregator.config.expansion import expand

DOTS = "•••"
_SECRET_NAME = re.compile(
    r"(?i)api[-_]?key|access[-_]?key|private[-_]?key|(^|[-_])key$|token|secret|passw|passphrase|(^|[-_])(pass|pat|pwd)$"
    r"|credential|authorization|auth$|cookie|dsn$|connection[-_]?string|webhook"
)
_NO_SECRET_NAME = re.compile(r"(?i)(file|path|dir|name|url|type|limit|count|enabled|method)$")
_HARMLESS = re.compile(r"(?i)true|false|yes|no|on|off|none|null|[\d.]*|.{0,3}")
_TOKEN = re.compile(
    r"(sk|pk|rk)[-_][\w-]{12,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{12,}|xox[a-z]-[\w-]{8,}|xapp-[\w-]{8,}"
    r"|A(KIA|SIA)[A-Z0-9]{12,}|AIza[\w-]{20,}|eyJ[\w-]{8,}\.[\w.-]{8,}|ya29\.[\w-]{8,}|hf_\w{16,}|npm_\w{16,}|fma_\w{8}_.{16,}"
    r"|lin_api_\w{8,}|ntn_\w{12,}|secret_\w{12,}|tvly-[\w-]{8,}|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
_CREDENTIALS = re.compile(r"(?i)(?:basic|bearer|token|apikey) +(?P<secret>\S.*)", re.DOTALL)
_PASSWORD = re.compile(r"://[^/@\s]*?:(?P<secret>[^/@\s]+)@")
_USER = re.compile(r"://(?P<secret>[^/@\s:]+)@")
_QUERY = re.compile(r"[?&](?P<name>[^=&#\s]+)=(?P<secret>[^&#\s]+)")
_ASSIGNED = re.compile(r"(?:--?)?(?P<name>[A-Za-z][\w-]*) *[=:] *(?P<secret>.+)", re.DOTALL)
_FLAG = re.compile(r"--?(?P<name>[A-Za-z][\w-]*)")


class Secret(NamedTuple):
    """What stands from `start` to `end` in a text; `hint` is a word for what it is."""

    start: int
    end: int
    hint: str


def secrets_of(name: str, text: str) -> list[Secret]:
    """What looks secret in the value of this name, in order; `name` is empty for an argument without a flag."""
    found = [*_in_url(text), *_by_name(name, text)]
    found.sort()
    kept: list[Secret] = []
    for secret in found:
        if (not kept or secret.start >= kept[-1].end) and not _is_reference(text[secret.start : secret.end]):
            kept.append(secret)
    return kept


def masked(name: str, text: str) -> str:
    """The text, for a person to see."""
    for secret in reversed(secrets_of(name, text)):
        text = text[: secret.start] + DOTS + text[secret.end :]
    return text


def masked_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry, for a person to see."""
    return _mapped(entry, masked)


def with_variables(server_key: str, entry: Mapping[str, Any], taken: dict[str, str]) -> dict[str, Any]:
    """The entry with `${NAME}` for each secret. The variables and their values are added to `taken`."""

    def replaced(name: str, text: str) -> str:
        for secret in reversed(secrets_of(name, text)):
            value = expand(text[secret.start : secret.end], {}).value
            variable = _free(server_key, secret.hint, value, taken)
            taken[variable] = value
            text = f"{text[: secret.start]}${{{variable}}}{text[secret.end :]}"
        return text

    return _mapped(entry, replaced)


def _free(server_key: str, hint: str, value: str, taken: Mapping[str, str]) -> str:
    plain, full = variable_name(hint), variable_name(server_key, hint)
    own = [plain] if hint.isupper() else []  # an environment variable keeps its name
    numbered = (f"{full}_{number}" for number in range(2, len(taken) + 3))
    return next(name for name in [*own, full, *numbered] if taken.get(name, value) == value)


def _mapped(entry: Mapping[str, Any], change: Any) -> dict[str, Any]:
    changed = dict(entry)
    for field in ("env", "headers"):
        if isinstance(values := entry.get(field), Mapping):
            changed[field] = {k: change(k, v) if isinstance(v, str) else v for k, v in values.items()}
    if isinstance(arguments := entry.get("args"), list):
        changed["args"] = list(_arguments(arguments, change))
    for field in ("url", "command"):
        if isinstance(text := entry.get(field), str):
            changed[field] = change("", text)
    return changed


def _arguments(arguments: list[Any], change: Any) -> Iterator[Any]:
    flag = ""
    for argument in arguments:
        if not isinstance(argument, str):
            yield argument
            continue
        found = _FLAG.fullmatch(argument)
        yield argument if found else change(flag, argument)
        flag = found["name"] if found else ""


def _in_url(text: str) -> Iterator[Secret]:
    for shape, hint in ((_PASSWORD, "password"), (_USER, "token")):
        for found in shape.finditer(text):
            yield Secret(*found.span("secret"), hint)
    if "://" in text:
        for found in _QUERY.finditer(text):
            if _is_secret_name(found["name"]):
                yield Secret(*found.span("secret"), found["name"])


def _by_name(name: str, text: str) -> Iterator[Secret]:
    assigned = _ASSIGNED.fullmatch(text)
    if _is_secret_name(name) and not _HARMLESS.fullmatch(text):
        yield _whole(text, 0, name)
    elif assigned and _is_secret_name(assigned["name"]) and not _HARMLESS.fullmatch(assigned["secret"]):
        yield _whole(text, assigned.start("secret"), assigned["name"])
    else:
        yield from (Secret(*found.span(), name or "secret") for found in _TOKEN.finditer(text))


def _whole(text: str, start: int, name: str) -> Secret:
    """All from here, but for a word such as `Bearer` before it."""
    credentials = _CREDENTIALS.fullmatch(text, start)
    return Secret(credentials.start("secret") if credentials else start, len(text), name)


def _is_secret_name(name: str) -> bool:
    return bool(_SECRET_NAME.search(name)) and not _NO_SECRET_NAME.search(name)


def _is_reference(text: str) -> bool:
    return expand(text, {}).is_expanded
