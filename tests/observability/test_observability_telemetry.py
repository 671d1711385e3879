"""Traces: one from the client to the child, and where they go. A process collects once, so none does that here."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.harness import config, connected, lean, until
from support.memory import build_aggregator
from support.wire import text_of

pytestmark = pytest.mark.process

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"
TESTS = Path(__file__).parents[1]
ERAS = ("legacy", "modern")
Way = tuple[bool, str, str | None]
"""Whether the client is modern, the server's era, and the trace that the client is in."""

CALLING = """
import asyncio, json, sys
from support.harness import config, connected, lean
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support.wire import text_of
from fastmcp_aggregator import build_aggregator
spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
async def told(client_is_modern, era, traceparent):
    app = build_aggregator(config(git=lean(era=era)))
    async with app, connected(app, modern=client_is_modern) as client:
        spans.clear()
        params = {"name": "git:params", "_meta": {"traceparent": traceparent} if traceparent else {}}
        received = text_of(await client.result("tools/call", params))
        await client.error("tools/call", {"name": "git:error", "_meta": params["_meta"]})
    finished = [
        {
            "name": span.name,
            "kind": span.kind.name,
            "trace": format(span.context.trace_id, "032x"),
            "id": format(span.context.span_id, "016x"),
            "parent": format(span.parent.span_id, "016x") if span.parent else None,
            "is_error": not span.status.is_ok and not span.status.is_unset,
        }
        for span in spans.get_finished_spans()
        if "tools/call" in span.name
    ]
    return {"spans": finished, "received": received["_meta"]["traceparent"]}
print(json.dumps([asyncio.run(told(*way)) for way in json.loads(sys.argv[1])]))
"""

OVER_HTTP = """
import asyncio, json, sys
from support.harness import config, lean
from support.memory import build_aggregator
from support.serving import browser
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from fastmcp_aggregator.observability.telemetry import untraced
async def main(traceparent):
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    trace.set_tracer_provider(provider)
    app = build_aggregator(config(git=lean()))
    async with browser(app) as http:
        headers = {"traceparent": traceparent}
        for tool in ("git:params", "git:fail", "git:none"):
            await http.post("/mcp/tools/call", json={"name": tool, "arguments": {}}, headers=headers)
        counted = len(spans.get_finished_spans())
        with untraced():
            await app.children["git"].session.probe()
        assert len(spans.get_finished_spans()) == counted
    told = [
        {"name": span.name, "trace": format(span.context.trace_id, "032x"), "about": dict(span.attributes)}
        for span in spans.get_finished_spans()
        if span.kind.name == "SERVER"
    ]
    print(json.dumps(told))

asyncio.run(main(sys.argv[1]))
"""

EXPORTING = """
import sys
from opentelemetry import trace
from fastmcp_aggregator.errors import AggregatorError
from fastmcp_aggregator.observability import telemetry
exec(sys.argv[1])
try:
    with telemetry.exporting_traces("hub", flush_timeout=float(sys.argv[2])):
        with trace.get_tracer("x").start_as_current_span("work"):
            pass
except AggregatorError as error:
    sys.exit(str(error))
"""


async def run(code: str, *arguments: str, **environment: str) -> tuple[int | None, str, str]:
    """The exit code, stdout and stderr of a program of its own."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**ours, "PYTHONPATH": str(TESTS), **environment},
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


class Collector:
    """An OTLP collector on loopback. `answers`: whether it ever does."""

    def __init__(self, answers: bool) -> None:
        self.answers = answers
        self.connections = 0
        self.received: list[ExportTraceServiceRequest] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"POST /v1/traces ")
        length = next(int(line.split(b":")[1]) for line in head.splitlines() if line.lower().startswith(b"content-len"))
        body = await reader.readexactly(length)
        if self.answers:
            self.received.append(ExportTraceServiceRequest.FromString(body))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        else:
            await reader.read()
        writer.close()


@asynccontextmanager
async def collecting(*, answers: bool = True) -> AsyncIterator[Collector]:
    collector = Collector(answers)
    async with await asyncio.start_server(collector.serve, "127.0.0.1", 0, family=socket.AF_INET) as server:
        collector.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield collector


# Spans.

BEGUN: Way = (False, "legacy", None)
"""A call of a client that has no trace."""
GOES_ON: list[Way] = [(client_is_modern, era, TRACEPARENT) for client_is_modern in (False, True) for era in ERAS]


@pytest.fixture(scope="module")
def traced() -> dict[Way, Any]:
    """What was told of a call in each way, in one process that collects."""
    ways = [*GOES_ON, BEGUN]
    code, out, err = asyncio.run(run(CALLING, json.dumps(ways)))
    assert code == 0, err
    return dict(zip(ways, json.loads(out), strict=True))


@pytest.mark.parametrize("way", GOES_ON, ids=lambda way: f"{'modern' if way[0] else 'legacy'} client, {way[1]}")
def test_a_call_is_one_trace_from_the_client_to_the_child(way: Way, traced: dict[Way, Any]) -> None:
    told = traced[way]
    sent, served, sent_again, served_again = told["spans"]
    assert {span["trace"] for span in told["spans"]} == {TRACE}
    assert (served["name"], served["kind"], served["parent"]) == ("tools/call git:params", "SERVER", SPAN)
    assert (sent["name"], sent["kind"], sent["parent"]) == ("MCP send tools/call params", "CLIENT", served["id"])
    assert told["received"] == f"00-{TRACE}-{sent['id']}-01"
    assert not served["is_error"]
    assert (sent_again["parent"], served_again["is_error"]) == (served_again["id"], True)


async def test_a_trace_that_an_http_request_tells_goes_on_and_spans_say_what_came_of_the_call() -> None:
    code, out, err = await run(OVER_HTTP, TRACEPARENT)
    assert code == 0, err
    spans = [span for span in json.loads(out) if "fastmcp_aggregator.server" in span["about"]]
    assert {span["trace"] for span in spans} == {TRACE}
    assert [
        {name.partition(".")[2]: value for name, value in span["about"].items() if name.startswith("fastmcp_agg")}
        for span in spans
    ] == [
        {"server": "git", "tool": tool, "group": "default", "principal": "anonymous", "outcome": outcome}
        for tool, outcome in (("params", "ok"), ("fail", "tool_error"))
    ]


def test_a_client_without_a_trace_begins_one(traced: dict[Way, Any]) -> None:
    told = traced[BEGUN]
    sent, served, *_ = told["spans"]
    assert served["parent"] is None
    assert told["received"].startswith(f"00-{served['trace']}-{sent['id']}-")


@pytest.mark.parametrize("client_is_modern", [False, True], ids=["legacy client", "modern client"])
async def test_while_nobody_collects_spans_the_clients_trace_passes_to_the_child_as_it_is(
    client_is_modern: bool,
) -> None:
    app = build_aggregator(config(git=lean()))
    async with app, connected(app, modern=client_is_modern) as client:
        meta = {"traceparent": TRACEPARENT, "tracestate": "a=1"}
        received: Any = text_of(await client.result("tools/call", {"name": "git:params", "_meta": meta}))
        assert {name: received["_meta"][name] for name in meta} == meta


# Export.


@pytest.mark.parametrize(
    ("environment", "service"),
    [({}, "hub"), ({"OTEL_SERVICE_NAME": "theirs"}, "theirs"), ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=r"}, "r")],
)
async def test_traces_go_where_the_variables_say(environment: dict[str, str], service: str) -> None:
    async with collecting() as collector:
        code, _, err = await run(EXPORTING, "", "2", OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, **environment)
        assert (code, err) == (0, "")
        (request,) = collector.received
        (spans,) = request.resource_spans
        attributes = {each.key: each.value.string_value for each in spans.resource.attributes}
        assert attributes["service.name"] == service
        assert attributes["service.version"]
        assert [span.name for span in spans.scope_spans[0].spans] == ["work"]


async def test_a_collector_that_never_answers_does_not_hold_up_the_end() -> None:
    async with collecting(answers=False) as collector:
        patience = {"OTEL_EXPORTER_OTLP_TIMEOUT": "600"}
        code, _, err = await run(EXPORTING, "", "0.5", OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, **patience)
        assert (code, err) == (0, "")
        await until(lambda: collector.connections == 1)


@pytest.mark.parametrize(
    ("preparation", "environment", "out", "message"),
    [
        pytest.param("", {"OTEL_TRACES_EXPORTER": "console"}, '"name": "work"', "", id="another exporter"),
        pytest.param("", {"OTEL_TRACES_EXPORTER": "none"}, "", "", id="no exporter"),
        pytest.param("", {"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "console"}, "", "", id="disabled"),
        pytest.param(
            "", {"OTEL_TRACES_SAMPLER": "always_off", "OTEL_TRACES_EXPORTER": "console"}, "", "", id="not sampled"
        ),
        pytest.param(
            "",
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "",
            "there is no exporter 'otlp' for traces; install the package that provides it\n",
            id="an exporter that is not installed",
        ),
        pytest.param(
            "sys.modules['opentelemetry.sdk.trace'] = None",
            {},
            "",
            "traces need an extra: pip install 'fastmcp-aggregator[otel]'\n",
            id="without the extra",
        ),
        pytest.param(
            "from opentelemetry.sdk.trace import TracerProvider; trace.set_tracer_provider(TracerProvider())",
            {"OTEL_TRACES_EXPORTER": "console"},
            "",
            "",
            id="the program around has its own export",
        ),
    ],
)
async def test_what_is_exported(preparation: str, environment: dict[str, str], out: str, message: str) -> None:
    code, written, err = await run(EXPORTING, preparation, "2", **environment)
    assert (code, err) == (1 if message else 0, message)
    assert out in written
    assert bool(written) == bool(out)
