"""OpenTelemetry: export of traces, as the standard OTEL_* environment variables say.

Spans are made by the MCP SDK through OpenTelemetry's API; here is only where they go. Needs the extra `otel`.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import entry_points
from threading import Thread
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.context import attach, detach

from fastmcp_aggregator.errors import AggregatorError
from fastmcp_aggregator.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

_PROTOCOLS = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}


def is_tracing() -> bool:
    """True if anybody collects spans. It reads the environment."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


@contextmanager
def untraced() -> Iterator[None]:
    """Keep messages that are sent meanwhile out of any trace."""
    if not is_tracing():
        yield
        return
    nowhere = trace.SpanContext(secrets.randbits(128) or 1, secrets.randbits(64) or 1, is_remote=False)
    token = attach(trace.set_span_in_context(trace.NonRecordingSpan(nowhere)))
    try:
        yield
    finally:
        detach(token)


@contextmanager
def exporting_traces(service_name: str, *, flush_timeout: float = 2.0) -> Iterator[None]:
    """Export the traces of this process. The end waits `flush_timeout` seconds for the last spans to be exported: a
    collector may be gone.

    Where they go is told by OTEL_TRACES_EXPORTER (`otlp`, `console`, `none`, or what another package provides; several
    with commas), OTEL_EXPORTER_OTLP_* and OTEL_BSP_*; which ones and as whose by OTEL_TRACES_SAMPLER,
    OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME (default `service_name`). Does nothing if the program around has set
    up its own export already.

    Raises:
        AggregatorError: the extra is not installed, or an exporter is not.
    """
    provider = _provider(service_name)
    try:
        yield
    finally:
        if provider is not None:
            flushing = Thread(target=provider.force_flush, name="last spans", daemon=True)
            flushing.start()
            flushing.join(flush_timeout)


@cache
def _provider(service_name: str) -> TracerProvider | None:
    """The tracer provider; None if the process has one already, which it keeps until it ends."""
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    try:
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError:
        raise AggregatorError("traces need an extra: pip install 'fastmcp-aggregator[otel]'") from None
    ours = Resource.create({"service.name": service_name, "service.version": VERSION})
    provider = TracerProvider(resource=ours.merge(OTELResourceDetector().detect()), shutdown_on_exit=False)
    for exporter in _exporters():
        provider.add_span_processor(BatchSpanProcessor(exporter()))
    trace.set_tracer_provider(provider)
    return provider


def _exporters() -> Iterator[Any]:
    """The classes that OTEL_TRACES_EXPORTER names."""
    names = os.environ.get("OTEL_TRACES_EXPORTER") or "otlp"
    for name in map(str.strip, names.split(",")):
        if name == "none":
            continue
        found = entry_points(group="opentelemetry_traces_exporter", name=_entry_point(name))
        if not found:
            raise AggregatorError(f"there is no exporter {name!r} for traces; install the package that provides it")
        yield next(iter(found)).load()


def _entry_point(name: str) -> str:
    """The name that an exporter is registered by."""
    if name != "otlp":
        return name
    variables = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = next((value for variable in variables if (value := os.environ.get(variable))), "http/protobuf")
    return _PROTOCOLS.get(protocol, protocol)
