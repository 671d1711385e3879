"""HTTP failures of upstream servers: one value per failed request, from its status or its exception.

No message repeats an address, a header or a body: any of them may carry a secret.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ssl import SSLCertVerificationError, SSLError
from typing import Any

import httpx2

from fastmcp_aggregator.children.session.parts import TOO_MANY_PARTS
from fastmcp_aggregator.children.session.transport_failure import HttpFailed, HttpFailure
from fastmcp_aggregator.file_descriptors import shortage
from fastmcp_aggregator.protocol.methods import CANCELLED

AUTH_PAUSE = 30.0
"""Seconds between two attempts with credentials that were refused."""
_LONGEST_PAUSE = 300.0
"""Seconds that a Retry-After can keep a server out of use."""
_MEDIA_TYPE = re.compile(r"[a-z0-9.+-]{1,40}/[a-z0-9.+-]{1,60}")
_REQUEST = re.compile(rb'\{"jsonrpc":"2\.0","id":(\d+),"method":')
"""The start of a request as the SDK writes it, whose arguments then need not be parsed."""
_STATUS = re.compile(r"[45]\d\d\b")
_CODING = re.compile(r"[a-z0-9-]{1,20}")
_CANCELLED = CANCELLED.encode()
BROKEN = HttpFailure("broken", "the connection broke before it had answered")


def too_large(limit: int) -> HttpFailure:
    size = f"{limit / 1024**2:g} MiB" if limit >= 1024**2 else f"{limit} bytes"
    return HttpFailure("unacceptable", f"response too large: more than {size}; raise `max_response_size_mb` to take it")


def too_much_at_once() -> HttpFailure:
    """An answer for which there is no room beside those that have not come whole."""
    return HttpFailure("unacceptable", "response too large beside others of this server that have not come whole")


def too_many_parts() -> HttpFailure:
    return HttpFailure("unacceptable", TOO_MANY_PARTS)


def compressed(coding: str) -> HttpFailure:
    """An answer that is encoded, though none was asked for."""
    named = f" ({coding.lower()})" if _CODING.fullmatch(coding.lower()) else ""
    return HttpFailure(
        "unacceptable", f"its response is compressed{named}, which was not asked for and could be of any size"
    )


def of_exception(error: Exception) -> HttpFailure:
    """The failure behind an exception of the HTTP client."""
    if isinstance(error, HttpFailed):
        return error.failure
    if lacking := shortage(error):
        return HttpFailure("unreachable", lacking)
    if isinstance(error, httpx2.ConnectTimeout):
        return HttpFailure("unreachable", "connection timed out; check its `url`, and the proxy if there is one")
    if isinstance(error, httpx2.ConnectError | httpx2.ProxyError | httpx2.UnsupportedProtocol):
        return HttpFailure("unreachable", _unconnected(error))
    if isinstance(error, httpx2.TimeoutException):
        return HttpFailure("broken", "it did not answer in time")
    return BROKEN


def _unconnected(error: BaseException) -> str:
    """Why there is no connection, as far as a person can do something about it."""
    if isinstance(error, httpx2.ProxyError):
        status = _STATUS.match(str(error))
        named = f" (HTTP status {status[0]})" if status else ""
        return f"the proxy of the environment (HTTPS_PROXY) does not connect to it{named}"
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, SSLError):
        cause = cause.__cause__ or cause.__context__
    if isinstance(cause, SSLCertVerificationError):
        why = cause.verify_message.partition(",")[0]  # what comes after it names the host
        return f"its certificate is not trusted ({why}); SSL_CERT_FILE may name a file of those that are"
    if cause is not None:
        return "it does not speak TLS as its https:// says"
    return "connection refused or host not found"


def of_status(request: httpx2.Request, response: httpx2.Response, body: bytes) -> HttpFailure | None:
    """The failure that a response is; None if it is an answer, be it the server's own JSON-RPC error."""
    status = response.status_code
    if status < 300:
        return None
    if status < 400:
        return _of_redirect(request, response)
    own = own_error(response, body)
    if status in (400, 404) and "mcp-session-id" in request.headers and _is_expiry(status, own, request):
        return HttpFailure("expired", "its session had expired")
    if status == 401 or (status == 403 and own is None):
        return HttpFailure(
            "auth",
            f"authentication failed (HTTP {status}): check its `headers`, or log in",
            AUTH_PAUSE,
        )
    if own is not None:
        return None
    pause = _pause(response) if status in (429, 503) else 0.0
    return HttpFailure("busy" if status == 429 else "status", f"HTTP status {status}", pause)


def of_content_type(response: httpx2.Response, wanted: str = "JSON") -> HttpFailure | None:
    """The failure of a successful response that cannot be what was asked for, such as a login page."""
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_json = media_type == "application/json" or response.status_code == 202
    if media_type == "text/event-stream" or (is_json and wanted == "JSON"):
        return None
    named = media_type if _MEDIA_TYPE.fullmatch(media_type) else "something else"
    return HttpFailure("status", f"it answered with {named} instead of {wanted}")


def own_error(response: httpx2.Response, body: bytes) -> dict[str, Any] | None:
    """The JSON-RPC error in the body of a response."""
    if not response.headers.get("content-type", "").lower().startswith("application/json"):
        return None
    with suppress(ValueError, RecursionError):
        message = json.loads(body)
        if isinstance(message, dict) and message.get("jsonrpc") == "2.0" and isinstance(message.get("error"), dict):
            return message
    return None


def is_within_origin(sent: httpx2.URL, url: httpx2.URL) -> bool:
    """True if `url` is on the origin of `sent`, or is its https upgrade on the default ports."""
    if (sent.scheme, sent.host, sent.port) == (url.scheme, url.host, url.port):
        return True
    upgrade = (sent.scheme, url.scheme) == ("http", "https") and sent.port is None and url.port is None
    return upgrade and sent.host == url.host


def _of_redirect(request: httpx2.Request, response: httpx2.Response) -> HttpFailure | None:
    try:
        location = request.url.join(response.headers.get("location", ""))
    except (httpx2.InvalidURL, ValueError):
        return HttpFailure("status", f"HTTP status {response.status_code}, to an address that is not valid")
    if is_within_origin(request.url, location):
        return None  # the SDK follows it, or says why not
    return HttpFailure("status", "it redirects to another origin, which is not followed; check its `url`")


def _is_expiry(status: int, own: dict[str, Any] | None, request: httpx2.Request) -> bool:
    """True if the server has forgotten the session (2025-11-25, transports: session management; 404).

    Some servers answer 404 to what they don't offer, with an error for that very request; and many answer 400 to a
    session that they have forgotten, with an error that names no request.
    """
    if own is None:
        return status == 404
    error = own["error"]
    about_session = "session" in str(error.get("message", "")).lower()
    return about_session or (status == 404 and own.get("id") != request_id(request.content))


def request_id(content: bytes) -> int | str | None:
    """The id of the JSON-RPC request in a body; None if it is none."""
    if quick := _REQUEST.match(content):
        return int(quick[1])
    message = json.loads(content)
    found = message.get("id") if "method" in message else None
    return found if isinstance(found, int | str) else None


def cancelled_id(content: bytes) -> int | str | None:
    """The id of the request that the JSON-RPC message in a body cancels; None if it is another message."""
    if _CANCELLED not in content:
        return None
    found = (json.loads(content).get("params") or {}).get("requestId")
    return found if isinstance(found, int | str) else None


def _pause(response: httpx2.Response) -> float:
    """The seconds of a Retry-After header (RFC 9110, section 10.2.3)."""
    value = response.headers.get("retry-after", "").strip()
    seconds = 0.0
    if value.isascii() and value.isdigit():
        seconds = float(value[:9])
    elif value:
        with suppress(ValueError, TypeError):
            seconds = (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()
    return min(max(seconds, 0.0), _LONGEST_PAUSE)
