"""A running instance, asked over HTTP how it is. The API key is sent to it alone: redirections are not followed."""

from __future__ import annotations

import http.client
import io
import math
import socket
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NotRequired, Required, TypedDict
from urllib.parse import quote, urlsplit

import msgspec

from fastmcp_aggregator.cli.terminal.exits import UsageError
from fastmcp_aggregator.errors import AggregatorError

_LARGEST = 32 * 1024 * 1024
_MOST_CALLS = 2**53
_CALLS = "fastmcp_aggregator_calls_total"
_SECONDS = "fastmcp_aggregator_call_duration_seconds_bucket"


class InstanceError(AggregatorError):
    """An instance cannot be reached, or what answers is not one."""


class NoInstanceError(InstanceError):
    """Nothing answers there, or what does is no instance."""


@dataclass(frozen=True, slots=True)
class ServerCalls:
    """Calls that have ended, and how many of them took at most so many seconds."""

    calls: float = 0
    within: dict[float, float] = field(default_factory=dict)

    def since(self, before: ServerCalls | None) -> ServerCalls:
        """The calls since then. If the instance was started again in between, those since it was."""
        if before is None or self.calls < before.calls:
            return self
        within = {bound: count - before.within.get(bound, 0) for bound, count in self.within.items()}
        return ServerCalls(self.calls - before.calls, within)

    def quantile(self, share: float) -> float | None:
        """The seconds within which this share of the calls ended, estimated within a bucket as Prometheus does.

        None if there were none. Beyond the last bound it is that bound.
        """
        bounds = sorted(self.within)
        rank = share * self.within[bounds[-1]] if bounds else 0
        if rank <= 0:
            return None
        lower, below = 0.0, 0.0
        for bound in bounds:
            count = self.within[bound]
            if count >= rank:
                if math.isinf(bound):
                    return lower
                return lower + (bound - lower) * (rank - below) / (count - below)
            lower, below = bound, count
        return lower


class ServerState(TypedDict, total=False):
    """The fields read of the state of a server; the other end need not be an aggregator."""

    state: Required[str]
    since: float | None
    restarts: int
    last_error: str | None
    is_cut_off: bool
    dropped_stderr_lines: int
    isolation: str | None
    isolation_reason: str | None


class RefusedFile(TypedDict, total=False):
    """A file that the instance cannot use."""

    problem: str | None
    since: float | None


class _Document(TypedDict):
    ready: bool
    servers: dict[str, ServerState]
    refused_files: NotRequired[dict[str, RefusedFile]]
    expiring_keys: NotRequired[list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of an instance at one time, in seconds of a clock that never jumps. `calls` is None without metrics."""

    at: float
    is_ready: bool
    servers: dict[str, ServerState]
    calls: dict[str, ServerCalls] | None
    refused_files: dict[str, RefusedFile] = field(default_factory=dict)
    expiring_keys: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Instance:
    """The address of an instance, and its key."""

    url: str
    api_key: str | None = field(repr=False, default=None)
    timeout: float = 10.0
    """Seconds to connect, and for a whole answer."""

    def sample(self) -> Sample:
        """Ask it. Raises InstanceError: it does not answer, or is not an aggregator."""
        status = self._get("/status")
        if status is None:
            raise NoInstanceError(
                f"{self.url} is not an aggregator: it has no /status; give the URL where one serves HTTP"
            )
        try:
            document = msgspec.json.decode(status, type=_Document)
        except (msgspec.DecodeError, RecursionError):
            raise NoInstanceError(
                f"{self.url} is not an aggregator: its /status is not that of one; give the URL where one serves HTTP"
            ) from None
        metrics = self._get("/metrics", without=(404, 403))  # which keys of some groups may not see
        calls = None if metrics is None else calls_of(metrics)
        return Sample(
            time.monotonic(),
            document["ready"],
            document["servers"],
            calls,
            document.get("refused_files", {}),
            document.get("expiring_keys", []),
        )

    def wake(self, server: str) -> None:
        """Have it start a server that sleeps. Raises InstanceError: it does not answer, or has no such server."""
        if self._get(f"/wake/{quote(server, safe='')}", method="POST") is None:
            raise InstanceError(f"{self.url} has no server {server!r}, or cannot start single ones")

    def restart(self, server: str) -> None:
        """Have it restart a server.

        Raises:
            InstanceError: it does not answer, has no such server, or does not let this caller.
        """
        answer = self._get(f"/restart/{quote(server, safe='')}", method="POST", without=(403, 404))
        if answer is None:
            raise InstanceError(
                f"{self.url} has no server {server!r}, or does not let you restart it: that takes the role `operate`"
            )

    def _get(self, path: str, method: str = "GET", without: Sequence[int] = (404,)) -> str | None:
        """The body; None if the status is one of these."""
        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        request = urllib.request.Request(self.url + path, headers=headers, method=method)
        try:
            with _OPENER.open(request, timeout=self.timeout) as response:
                data: bytes = response.read(_LARGEST)
        except urllib.error.HTTPError as error:
            if error.code in without:
                return None
            raise InstanceError(self._refusal(error.code)) from None
        except urllib.error.URLError as error:
            raise self._silence(error.reason) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise self._silence(error) from None
        return data.decode("utf-8", "replace")

    def _refusal(self, code: int) -> str:
        if code in (401, 403) and self.api_key:
            return (
                f"{self.url} rejects the API key ({code}): it is unknown, revoked or expired, or the hub cannot use "
                "its keys file\n"
                "Its operator makes one with: fastmcp-aggregator keys create NAME"
            )
        if code == 401:
            return (
                f"{self.url} requires an API key: set FASTMCP_AGGREGATOR_API_KEY, or give --api-key-file FILE\n"
                "Its operator makes one with: fastmcp-aggregator keys create NAME"
            )
        return f"{self.url} answers with the HTTP status {code}; see the log of what runs there"

    def _silence(self, reason: object) -> InstanceError:
        if isinstance(reason, ConnectionRefusedError):
            return NoInstanceError(
                f"connection refused: nothing runs at {self.url}\n"
                "To start it: fastmcp-aggregator CONFIG --transport http --port PORT; or give the URL where it runs"
            )
        words = f"no answer within {self.timeout:g} s" if isinstance(reason, TimeoutError) else str(reason)
        return InstanceError(f"cannot reach {self.url}: {words}")


def base_of(url: str) -> str:
    """The address of the instance, whichever of its URLs is given. Raises UsageError: it is no URL of HTTP."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{url!r} is not the URL of an instance; write http://HOST:PORT")
    if parts.username or parts.password or parts.query:
        raise UsageError("the URL must have neither a password nor a query; give the API key with --api-key-file FILE")
    path = parts.path.rstrip("/").removesuffix("/mcp")
    return f"{parts.scheme}://{parts.netloc}{path}"


def calls_of(metrics: str) -> dict[str, ServerCalls]:
    """The calls of each server key, from metrics in Prometheus' text format; none if it is something else."""
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - it takes a while

    calls: Counter[str] = Counter()
    within: dict[str, Counter[float]] = {}
    try:
        samples = [sample for family in text_string_to_metric_families(metrics) for sample in family.samples]
        for sample in samples:
            server = sample.labels.get("server", "")
            if not 0 <= sample.value < _MOST_CALLS:
                continue
            if sample.name == _CALLS:
                calls[server] += sample.value  # type: ignore[assignment]
            elif sample.name == _SECONDS:
                within.setdefault(server, Counter())[float(sample.labels["le"])] += sample.value  # type: ignore[assignment]
    except (ValueError, KeyError):
        return {}
    return {server: ServerCalls(count, dict(within.get(server, {}))) for server, count in calls.items()}


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class _ReadsUntil(io.RawIOBase):
    """The data of a socket until a deadline: its own timeout is for each read, and a peer that sends a byte at a time
    has many.
    """

    def __init__(self, sock: socket.socket, inner: io.RawIOBase, deadline: float) -> None:
        self._sock = sock
        self._inner = inner
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)
        return self._inner.readinto(buffer)

    def close(self) -> None:
        self._inner.close()
        super().close()


class _Answer(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        deadline = time.monotonic() + (sock.gettimeout() or 0)  # `Instance` has set one
        self.fp = io.BufferedReader(_ReadsUntil(sock, self.fp.detach(), deadline))


class _Connection(http.client.HTTPConnection):
    response_class = _Answer


class _SecureConnection(http.client.HTTPSConnection):
    response_class = _Answer


class _InTime(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Connection, req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_SecureConnection, req)


_OPENER = urllib.request.build_opener(_NoRedirection, _InTime)
