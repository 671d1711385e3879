"""Calls one at a time and 16 at once: over stdio, HTTP, HTTP with all that a hub checks, and to servers over HTTP."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.clients import ERAS, HttpClient, Request
from benchmarks.programs import DIRECT, HttpServer, Package, Programs, has_httptools
from benchmarks.rounds import IN_FLIGHT, Figures, Size, Subject, http_visit, interleaved, memory, stdio_visit

ARGUMENTS = {"x": 1}
DIRECT_CALL = "direct call"
DIRECT_HTTP = "direct call over HTTP"
BARE = {"h11": "bare uvicorn", "httptools": "bare uvicorn, httptools"}


def stdio(programs: Programs, packages: list[Package], size: Size) -> list[Figures]:
    """Calls over stdio, with 10 and with 100 children, against a direct call to such a child."""
    child = programs.stdio(DIRECT)
    request = child.request("tools/call", {"name": "echo", "arguments": ARGUMENTS})
    subjects = [Subject(DIRECT_CALL, stdio_visit(child, request, size))]
    for package in packages:
        for children in (10, 100):
            for era in ERAS:
                client = programs.aggregator(package, programs.config(children), era=era)
                request = client.request("tools/call", {"name": f"s{children // 2}:echo", "arguments": ARGUMENTS})
                about = {"package": package.label, "era": era, "children": children}
                name = f"{package.label}, stdio, {era}, {children} servers"
                visit = stdio_visit(client, request, size)
                subjects.append(Subject(name, visit, about, memory(client.process.pid)))
    return interleaved(subjects, [DIRECT_CALL], size.rounds)


def http(programs: Programs, packages: list[Package], size: Size) -> list[Figures]:
    """Calls over HTTP, 10 children, against bare uvicorn."""
    subjects = bare(programs, size)
    anchors = [subject.name for subject in subjects]
    for package in packages:
        subjects += of_server(programs.http_aggregator(package, programs.config(10)), package, "HTTP", size)
    return interleaved(subjects, anchors, size.rounds)


def team(programs: Programs, packages: list[Package], size: Size) -> list[Figures]:
    """The same with API key, group, audit log, metrics and rate limit."""
    subjects = bare(programs, size)
    anchors = [subject.name for subject in subjects]
    for package in packages:
        subjects += of_server(programs.team_aggregator(package, programs.config(10)), package, "HTTP for a team", size)
    return interleaved(subjects, anchors, size.rounds)


def remote(programs: Programs, packages: list[Package], size: Size) -> list[Figures]:
    """Calls to a server over HTTP, over stdio and HTTP, against a direct call to it."""
    child, config = programs.remote_child()
    clients = [child.client() for _ in range(IN_FLIGHT)]
    requests = [client.request("tools/call", {"name": "echo", "arguments": ARGUMENTS}) for client in clients]
    subjects = [Subject(DIRECT_HTTP, http_visit([*zip(clients, requests, strict=True)], child.pid, size))]
    for package in packages:
        for era in ERAS:
            client = programs.aggregator(package, config, era=era)
            request = client.request("tools/call", {"name": "s5:echo", "arguments": ARGUMENTS})
            about = {"package": package.label, "era": era, "children": 1}
            visit = stdio_visit(client, request, size)
            subjects.append(Subject(f"{package.label}, stdio, {era}", visit, about | {"front": "stdio"}))
        served = of_server(programs.http_aggregator(package, config), package, "HTTP", size)
        subjects += [replace(subject, about={**subject.about, "front": "HTTP", "children": 1}) for subject in served]
    return interleaved(subjects, [DIRECT_HTTP], size.rounds)


def bare(programs: Programs, size: Size) -> list[Subject]:
    """The floor of HTTP, with each parser that is installed."""
    subjects = []
    for parser in ("h11", "httptools") if has_httptools() else ("h11",):
        server = programs.bare_uvicorn(parser)
        clients = [server.client(is_mcp=False) for _ in range(IN_FLIGHT)]
        subjects.append(Subject(BARE[parser], http_visit([(c, echo(c)) for c in clients], server.pid, size)))
    return subjects


def of_server(server: HttpServer, package: Package, front: str, size: Size) -> list[Subject]:
    """An aggregator over HTTP, as a client of each era sees it."""
    subjects = []
    for era in ERAS:
        clients = [server.client(era) for _ in range(IN_FLIGHT)]
        visit = http_visit([(client, echo(client)) for client in clients], server.pid, size)
        about = {"package": package.label, "era": era, "children": 10}
        subjects.append(Subject(f"{package.label}, {front}, {era}", visit, about, memory(server.pid)))
    return subjects


def echo(client: HttpClient) -> Request:
    """A call of one of ten servers."""
    return client.request("tools/call", {"name": "s5:echo", "arguments": ARGUMENTS})
