"""The JSON API against mcp-hub's REST interface."""

from __future__ import annotations

from benchmarks.clients import HttpClient, Request
from benchmarks.programs import Package, Programs
from benchmarks.rounds import Figures, Size, Subject, http_visit, interleaved, memory
from benchmarks.rows.calls import ARGUMENTS

AT_ONCE = 20
HUB = "mcp-hub, REST"


def json_api(programs: Programs, packages: list[Package], size: Size) -> list[Figures]:
    """Calls of the JSON API, and 20 at once, with 10 children, against mcp-hub's REST interface."""
    config = programs.config(10)
    hub = programs.mcp_hub(config)
    subjects = []
    if hub is not None:
        clients = [hub.client(is_mcp=False) for _ in range(AT_ONCE)]
        visit = http_visit([(client, rest_call(client)) for client in clients], hub.pid, size)
        subjects.append(Subject(HUB, visit, at_end=memory(hub.pid)))
    for package in packages:
        server = programs.http_aggregator(package, config)
        server.client().result("tools/list", {})
        clients = [server.client(is_mcp=False) for _ in range(AT_ONCE)]
        visit = http_visit([(client, json_call(client)) for client in clients], server.pid, size)
        about = {"package": package.label, "children": 10}
        subjects.append(Subject(f"{package.label}, JSON API", visit, about, memory(server.pid)))
    figures = interleaved(subjects, [HUB] if hub else [], size.rounds)
    return figures if hub else [{"name": HUB, "absent": "mcp-hub is not installed", "against": {}}, *figures]


def json_call(client: HttpClient) -> Request:
    """A call at the JSON API."""
    body = {"name": "s5:echo", "arguments": ARGUMENTS}
    return client.plain_request("/mcp/tools/call", body, expected=b'"content"')


def rest_call(client: HttpClient) -> Request:
    """The same at mcp-hub."""
    body = {"server_name": "s5", "tool": "echo", "arguments": ARGUMENTS}
    return client.plain_request("/api/servers/tools", body, expected=b'"content"')
