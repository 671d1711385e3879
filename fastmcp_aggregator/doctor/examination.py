"""The examination of a config: every check, in the order of the report. On the network it only tries local ports."""

from __future__ import annotations

import re
import socket
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from fastmcp_aggregator.client_configs.variables import variable_name
from fastmcp_aggregator.config import McpConfig, RemoteServer, UnresolvedServer
from fastmcp_aggregator.config.dialects import misspelt_message
from fastmcp_aggregator.config.disclosure import Field, hidden_in
from fastmcp_aggregator.doctor.findings import Finding, Severity, Source
from fastmcp_aggregator.doctor.keys import keys_problems
from fastmcp_aggregator.doctor.packages import unpinned_packages
from fastmcp_aggregator.doctor.programs import Program, missing_programs, programs_of
from fastmcp_aggregator.files.permissions import weaknesses
from fastmcp_aggregator.settings.model import AggregatorSettings

FROM_CLIENTS = "`fastmcp-aggregator import` shows those that your clients have"
"""Advice for a config without servers."""
_ORDER = ("error", "warning", "note")
_HERE = {"localhost", "127.0.0.1", "::1"}
_TIMEOUT = 1.0
_WRITTEN = "what looks like a secret is written into the file; put it into a variable"
_SECRET_NAME = re.compile(
    r"(?i)api[-_]?key|access[-_]?key|private[-_]?key|(^|[-_])key$|token|secret|passw|passphrase|(^|[-_])(pass|pat|pwd|api)$"
    r"|credential|authorization|auth|cookie|dsn$|connection[-_]?string|webhook|session|sign(ing|ature)"
)
_NO_SECRET_NAME = re.compile(r"(?i)(file|path|dir|name|url|type|limit|count|enabled|method|timeout)$")
_NUMBER_OR_PATH = re.compile(r"[\d.]*|(~|\.{1,2})?/.*|[A-Za-z]:\\.*")
_LONG = re.compile(r"[\w+/=.-]{20,}")


@dataclass(frozen=True, slots=True)
class Examination:
    """The programs that the config needs, and what was found, the gravest first."""

    programs: list[Program]
    findings: list[Finding]


def examined(
    config: McpConfig,
    settings: AggregatorSettings,
    files: Iterable[str | None] = (),
    groups: Container[str] = frozenset(),
) -> Examination:
    """Look at everything. Takes as long as the slowest program takes to say its version; starts no server.

    `files` are those that are read besides the config, the pins and the keys; `groups` are those that keys can be for.
    """
    source = Source(config.source)
    findings = [
        *no_servers(config),
        *unusable_entries(config, source),
        *misspelt_fields(config, source),
        *weak_files([config.source, *files, settings.pins]),
        *keys_problems(settings, groups),
        *missing_programs(config, source),
        *unpinned_packages(config, source),
        *silent_servers(config, source),
        *taken_port(settings.host, settings.port),
        *written_secrets(config, source),
        *unexpanded_homes(config, source),
    ]
    findings.sort(key=lambda finding: _ORDER.index(finding.severity))
    return Examination(programs_of(config), findings)


def no_servers(config: McpConfig) -> Iterator[Finding]:
    """A config that serves nothing."""
    if not config.servers:
        yield Finding("warning", None, f"there is no server to serve; {FROM_CLIENTS}")


def weak_files(files: Iterable[str | None]) -> Iterator[Finding]:
    """Files that others on this machine could change."""
    for file in files:
        for weakness in weaknesses(Path(file).expanduser()) if file is not None else ():
            yield Finding("warning", None, f"{file} {weakness}")


def unusable_entries(config: McpConfig, source: Source) -> Iterator[Finding]:
    """Entries with variables that have no value, or that are wrong otherwise, and the location of each."""
    unresolved = (server for server in config.servers.values() if isinstance(server, UnresolvedServer))
    for server in unresolved:
        for problem in server.problems:
            yield Finding("error", server.key, server.told(problem), problem.path, source.line(problem.path))


def misspelt_fields(config: McpConfig, source: Source) -> Iterator[Finding]:
    """Fields that are misspelt, and so without effect. Without its `args`, a server may do more than it should."""
    for server in config.servers.values():
        for name, meant in server.misspelt.items():
            severity: Severity = "warning" if meant == "description" else "error"
            yield source.finding(severity, server.key, misspelt_message(name, meant), name)


def silent_servers(config: McpConfig, source: Source) -> Iterator[Finding]:
    """Servers of a URL on this machine where nothing listens."""
    for server in config.known:
        if not isinstance(server, RemoteServer):
            continue
        parts = urlsplit(server.url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        if parts.hostname in _HERE and not _listens(parts.hostname, port):
            message = f"nothing listens at port {port} of this machine; start the server, or change the URL"
            yield source.finding("warning", server.key, message, "url")


def taken_port(host: str, port: int) -> Iterator[Finding]:
    """The port to serve HTTP on, if somebody else has it."""
    if host in _HERE and port and _listens(host, port):
        message = f"port {port} is taken: to serve HTTP, give another with --port, or end what listens there"
        yield Finding("note", None, message)


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), _TIMEOUT).close()
    except OSError:
        return False
    return True


def written_secrets(config: McpConfig, source: Source) -> Iterator[Finding]:
    """Values of `env` and `headers`, and URLs, that look like a secret."""
    for key in config.servers:
        entry = source.entry(key)
        for field in ("env", "headers"):
            values = entry.get(field)
            for name, value in values.items() if isinstance(values, Mapping) else ():
                if isinstance(value, str) and looks_secret("value", name, value):
                    variable = variable_name(name) if field == "env" else variable_name(key, name)
                    yield _finding(source, key, field, name, change=f"${{{variable}}}")
        if isinstance(url := entry.get("url"), str) and looks_secret("url", "", url):
            yield _finding(source, key, "url", change="${VARIABLE} in place of the secret")


def unexpanded_homes(config: McpConfig, source: Source) -> Iterator[Finding]:
    """Arguments and folders that begin with `~`, which shells replace, and this program does not."""
    for key in config.servers:
        entry = source.entry(key)
        args = entry.get("args")
        written = [("args", index, word) for index, word in enumerate(args)] if isinstance(args, list) else []
        for field, *steps, word in [*written, ("cwd", entry.get("cwd"))]:
            if isinstance(word, str) and word.startswith(("~/", "~\\")):
                message = f"`~` in `{field}` is not replaced, as a shell would; write ${{HOME}}"
                yield source.finding("note", key, message, field, *steps)


def _finding(source: Source, key: str, *steps: str, change: str) -> Finding:
    message = f"{steps[-1]} looks like a secret that is written into the file; put it into a variable"
    return source.finding("note", key, message, *steps, change=change, common=_WRITTEN)


def looks_secret(field: Field, name: str, text: str) -> bool:
    """True if a person should look at it: by its name, or as a long text of letters and digits."""
    hidden = [text[part.start : part.end] for part in hidden_in(field, text, name)]
    if field == "url":
        return bool(hidden)
    is_named = bool(_SECRET_NAME.search(name)) and not _NO_SECRET_NAME.search(name)
    return any(not _NUMBER_OR_PATH.fullmatch(part) and (is_named or _is_random(part)) for part in hidden)


def _is_random(text: str) -> bool:
    return any(re.search(r"\d", word) and re.search("[A-Za-z]", word) for word in _LONG.findall(text)) or "@" in text
