"""Health over HTTP: liveness, readiness, and the status of each server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Protocol

from starlette.responses import JSONResponse, Response

from fastmcp_aggregator.settings.model import AggregatorSettings
from fastmcp_aggregator.status.server_status import ServerStatus


class Reporting(Protocol):
    """What is reported on; see `Aggregator`."""

    @property
    def settings(self) -> AggregatorSettings: ...

    @property
    def is_starting(self) -> bool: ...

    def health(self) -> dict[str, ServerStatus]: ...


def alive() -> Response:
    """The program answers."""
    return JSONResponse({"status": "alive"})


def ready(hub: Reporting, *, is_ending: bool) -> Response:
    """200 while requests are welcome; 503 while servers start, while the program ends, or when a strict one failed."""
    reason = "ending" if is_ending else _why_not_ready(hub)
    if reason is None:
        return JSONResponse({"status": "ready"})
    return JSONResponse({"status": "not ready", "reason": reason}, status_code=503, headers={"Retry-After": "5"})


def table(hub: Reporting, may_see: Callable[[str], bool] = lambda _: True, *, is_local: bool = False) -> Response:
    """The state of every server that the caller may see, by server key; in full for those on this machine."""
    servers = {key: _fields(status, is_local=is_local) for key, status in hub.health().items() if may_see(key)}
    return JSONResponse({"ready": _why_not_ready(hub) is None, "servers": servers})


def _why_not_ready(hub: Reporting) -> str | None:
    if hub.is_starting:
        return "starting"
    is_one_down = any(status.last_error is not None for status in hub.health().values())
    return "a server has failed" if hub.settings.strict and is_one_down else None


def _fields(status: ServerStatus, *, is_local: bool) -> dict[str, Any]:
    fields = asdict(status)
    del fields["server_key"]
    public_error = fields.pop("public_error")
    return fields if is_local else {**fields, "last_error": public_error}
