"""Secrets that are written into the config itself, where everybody who gets the file can read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fastmcp_aggregator.client_configs.secrets import secrets_of
from fastmcp_aggregator.client_configs.variables import variable_name
from fastmcp_aggregator.config import McpConfig
from fastmcp_aggregator.doctor.findings import Finding, Source


def written_secrets(config: McpConfig, source: Source) -> Iterator[Finding]:
    """Values of `env` and `headers`, and URLs, that look like a secret."""
    for key in config.servers:
        entry = source.entry(key)
        for field in ("env", "headers"):
            values = entry.get(field)
            for name, value in values.items() if isinstance(values, Mapping) else ():
                if isinstance(value, str) and secrets_of(name, value):
                    variable = variable_name(name) if field == "env" else variable_name(key, name)
                    yield _finding(source, key, field, name, change=f"${{{variable}}}")
        if isinstance(url := entry.get("url"), str) and secrets_of("", url):
            yield _finding(source, key, "url", change="${VARIABLE} in place of the secret")


def _finding(source: Source, key: str, *steps: str, change: str) -> Finding:
    message = f"{steps[-1]} looks like a secret that is written into the file; put it into a variable"
    return source.finding("note", key, message, *steps, change=change)
