"""The limits of a service, as values. Times are in seconds; patterns are in the syntax that JavaScript has too."""

from __future__ import annotations

from typing import Literal

SERVER_NAME = r"^[a-z0-9-]+$"
SERVER_NAME_LENGTH = 64
COMPONENT_NAME = r"^[A-Za-z0-9_.-]{1,128}$"
"""https://modelcontextprotocol.io/specification/2026-07-28/server/tools#tool-names"""
VERSION_PATTERN = (
    r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$"
)
"""https://semver.org/#is-there-a-suggested-regular-expression-regex-to-check-a-semver-string"""

TOOL_TIMEOUT = 30
RESOURCE_TIMEOUT = 10
PROMPT_TIMEOUT = 5
LONGEST_TIMEOUT = 300
MOST_ATTEMPTS = 5

MAX_RUNNING = 100
MAX_WAITING = 1000
MAX_RESPONSE_SIZE_MB = 100
MAX_BODY_SIZE = 4 * 1024 * 1024
"""Bytes of a body of the JSON API. The limit of MCP itself is the SDK's."""
RATE_LIMIT_PER_MINUTE = 100
RATE_LIMIT_BURST = 20
DRAIN_TIMEOUT = 30

LOWEST_PORT = 1024
HIGHEST_PORT = 65535

LogLevel = Literal["debug", "info", "warning", "error"]
Transport = Literal["stdio", "http"]
ServiceProfile = Literal["development", "production"]
ServiceState = Literal["initializing", "ready", "shutting_down", "stopped"]
STATES: tuple[ServiceState, ...] = ("initializing", "ready", "shutting_down", "stopped")
"""One after the other; none is skipped."""

PARSE_ERROR = -32700
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
SERVER_ERROR = -32000
"""JSON-RPC: too many requests, or none any more."""
