"""An entry of a client's file, as an entry of the standard config; with remarks on what did not come along. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from fastmcp_aggregator.client_configs.known import ClientConfig
from fastmcp_aggregator.client_configs.variables import Translator
from fastmcp_aggregator.config.dialects import meant_field, missing_target_message, misspelt_message, transport_of
from fastmcp_aggregator.config.disclosure import DOTS

_LEFT_OUT = {
    "envFile": "its variables are not read here: give the file with --env-file",
    **dict.fromkeys(
        ("startup_timeout_sec", "startup_timeout_ms"), "the setting `startup_timeout` says how long a server may start"
    ),
    **dict.fromkeys(
        ("includeTools", "excludeTools", "enabled_tools", "disabled_tools", "disabledTools", "tools"),
        "which tools are shown is said in a groups file",
    ),
}
_MEANT = {
    "${workspaceFolder}": "the folder that a client works in; for one that has none, as desktop clients, set",
}
"""Remarks on variables, besides that they are to be set."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z_-]{0,31}")
_URLS = ("url", "serverUrl", "httpUrl")
_KNOWN = {
    *_URLS, "command", "args", "env", "cwd", "headers", "type", "transport", "timeout", "description",
    "disabled", "enabled", "source",
}  # fmt: skip
_CODEX = {"bearer_token_env_var", "http_headers", "env_http_headers", "env_vars", "tool_timeout_sec"}
_KINDS: tuple[tuple[str, type, str], ...] = (
    ("bearer_token_env_var", str, "text"),
    ("http_headers", dict, "table"),
    ("env_http_headers", dict, "table"),
    ("env_vars", list, "list"),
)
_QUIET = {"autoApprove", "alwaysAllow", "trust", "gallery", "icon", "version", "settings"}


@dataclass(frozen=True, slots=True)
class Translated:
    """`entry` is None if there is no server that could be served."""

    entry: dict[str, Any] | None
    remarks: tuple[str, ...] = ()


def translated(raw: object, client: ClientConfig, project: Path | None) -> Translated:
    """The entry of this client's file in our terms. `project` is the folder of a file that belongs to one."""
    if not isinstance(raw, Mapping):
        return Translated(None, ("is not an object",))
    fields = {name: value for name, value in _flattened(raw).items() if value is not None}
    translator = Translator(client.variables, None if project is None else str(project))
    entry = with_texts({**_target(fields, client), **_rest(fields, client, project)}, translator.text)
    if "command" not in entry and "url" not in entry:
        return Translated(None, (f"is left out: {missing_target_message(fields)}",))
    entry.update(_codex(fields, entry))
    return Translated(entry, tuple(_remarks(fields, translator)))


def _flattened(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Zed once had the command as an object of its own."""
    command = raw.get("command")
    if not isinstance(command, Mapping):
        return dict(raw)
    return {**raw, "args": command.get("args"), "env": command.get("env"), "command": command.get("path")}


def _target(fields: Mapping[str, Any], client: ClientConfig) -> dict[str, Any]:
    if "command" in fields:
        return {name: fields[name] for name in ("command", "args") if name in fields}
    url_field = next((name for name in reversed(_URLS) if name in fields), None)
    if url_field is None:
        return {}
    entry: dict[str, Any] = {"url": fields[url_field]}
    spelling = fields.get("type", fields.get("transport"))
    if (transport := transport_of(spelling) if isinstance(spelling, str) else None) in ("http", "sse"):
        entry["type"] = transport
    elif url_field == "httpUrl":
        entry["type"] = "http"
    elif url_field == "url" and client.plain_url:
        entry["type"] = client.plain_url
    if "headers" in fields:
        entry["headers"] = fields["headers"]
    return entry


def _rest(fields: Mapping[str, Any], client: ClientConfig, project: Path | None) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    if isinstance(env := fields.get("env"), Mapping) and env and "command" in fields:
        entry["env"] = {name: _as_text(value) for name, value in env.items() if value is not None}
    if isinstance(cwd := fields.get("cwd"), str):
        entry["cwd"] = str(project / cwd) if project is not None and not cwd.startswith(("$", "~")) else cwd
    if _is_time(timeout := fields.get("timeout")):
        entry["timeout"] = timeout * client.timeout_unit
    if isinstance(description := fields.get("description"), str):
        entry["description"] = description
    if fields.get("disabled", False) is not False or fields.get("enabled", True) is not True:
        entry["disabled"] = True
    return entry


def _codex(fields: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """Translate the names of Codex. It names variables where others write references; `env_vars` may be unset."""
    found: dict[str, Any] = {}
    headers = {name: _plain(value) for name, value in _table(fields, "http_headers").items()}
    headers |= {
        name: f"${{{variable}}}"
        for name, variable in _table(fields, "env_http_headers").items()
        if isinstance(variable, str)
    }
    if isinstance(variable := fields.get("bearer_token_env_var"), str) and variable:
        headers["Authorization"] = f"Bearer ${{{variable}}}"
    if headers:
        found["headers"] = {**_table(entry, "headers"), **headers}
    listed = fields.get("env_vars")
    names = (
        [each.get("name") if isinstance(each, Mapping) else each for each in listed] if isinstance(listed, list) else []
    )
    if names := [name for name in names if isinstance(name, str) and name]:
        found["env"] = {**entry.get("env", {}), **{name: f"${{{name}:-}}" for name in names}}
    if _is_time(seconds := fields.get("tool_timeout_sec")):
        found["timeout"] = seconds * 1000
    return found


def _is_time(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _table(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = fields.get(name)
    return value if isinstance(value, Mapping) else {}


def _remarks(fields: Mapping[str, Any], translator: Translator) -> Iterator[str]:
    for name in ("disabled", "enabled"):
        if not isinstance(fields.get(name, False), bool):
            yield f"`{name}` is neither true nor false, so the server is switched off"
    for name, kind, what in _KINDS:
        if not isinstance(fields.get(name, kind()), kind):
            yield f"`{name}` is no {what}, so it is left out"
    if not _is_time(fields.get("tool_timeout_sec", 1)):
        yield "`tool_timeout_sec` is no number above 0, so it is left out"
    for written, variable in translator.unknown.items():
        yield f"{written} has become ${{{variable}}}: {_MEANT.get(written, 'set')} {variable}"
    others = [name for name in fields if name not in _KNOWN | _CODEX | _QUIET]
    for name in others:
        if name in _LEFT_OUT:
            yield f"`{name}` is left out: {_LEFT_OUT[name]}"
    missing = sorted(_KNOWN - fields.keys())
    misspelt = {name: meant for name in others if (meant := meant_field(name, missing))}
    yield from (misspelt_message(name, meant) for name, meant in misspelt.items())
    unused = [name for name in others if name not in _LEFT_OUT and name not in misspelt]
    meaningless = [f"`{name}`" if _NAME.fullmatch(name) else DOTS for name in unused]
    if meaningless:
        yield f"{', '.join(meaningless)} {'is' if len(meaningless) == 1 else 'are'} not used here; left out"


def with_texts(value: Any, change: Callable[[str], Any]) -> Any:
    """The value with what each of its texts becomes; names stay."""
    match value:
        case str():
            return change(value)
        case Mapping():
            return {key: with_texts(item, change) for key, item in value.items()}
        case list():
            return [with_texts(item, change) for item in value]
        case _:
            return value


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _plain(value: object) -> str:
    return _as_text(value).replace("$", "$$")
