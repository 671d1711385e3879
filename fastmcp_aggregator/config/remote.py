"""Validation of a remote server's URL and headers.

Faults are put in words that repeat nothing of a value.
"""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import urlsplit

_SSE_PATH = re.compile(r"/sse(/|\?|&|$)")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, section 5.6.2
_HEADER_VALUE = re.compile(r"([!-~]([\t -~]*[!-~])?)?")  # RFC 9110, section 5.5, of which clients send ASCII

_OF_ONE_CONNECTION = frozenset(
    {"host", "connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "expect", "last-event-id"}
)
_CREDENTIAL = re.compile(
    r"(^|[-_.])(cookie2?|set-cookie|(\w*)(token|jwt|secret|passw(or)?d|api[-_]?key)|authori[sz]ation|authentication|auth|"
    r"credentials?|assertion|bearer|session([-_]?id)?|signature|access[-_]?key)([-_.]|$)|^x-(amzn-oidc|goog-iap)-",
    re.ASCII,
)
_OF_THE_PROTOCOL = ("content-", "accept", "mcp-", "proxy-", "sec-", ":")


def url_fault(url: str) -> str | None:
    """Say what is wrong with the URL; None if nothing is."""
    if any(character.isspace() or not character.isprintable() for character in url):
        return "has a space, a line break or a control character in it; remove it"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "is not a valid URL; check its host and port"
    if parts.scheme not in ("http", "https"):
        return "must begin with http:// or https://"
    return None if host else "has no host; write https://host/path"


def header_fault(name: str, value: str) -> str | None:
    """Say what is wrong with the header; None if nothing is.

    Checked here because an HTTP client puts the value of a header that it refuses into its error.
    """
    if not _HEADER_NAME.fullmatch(name):
        return "is not a header name; use letters, digits and dashes"
    if not _HEADER_VALUE.fullmatch(value):
        return "must be ASCII without line breaks and without a space at either end"
    return None


def passed_header_fault(name: str) -> str | None:
    """Say why a header of a caller's request cannot be passed on to a server; None if it can."""
    if not _HEADER_NAME.fullmatch(name) or "*" in name:
        return "is not the name of a header; each is named by itself"
    if name.lower() in _OF_ONE_CONNECTION or name.lower().startswith(_OF_THE_PROTOCOL):
        return "belongs to the connection that it came by"
    return None


def is_credential(header: str) -> bool:
    """True if the value of a header, by its name, may be a credential."""
    return _CREDENTIAL.search(header.lower()) is not None


def transport_of_url(url: str) -> Literal["http", "sse"]:
    """Infer the transport of a URL that comes without a type, by the same rule as FastMCP."""
    return "sse" if _SSE_PATH.search(urlsplit(url).path) else "http"
