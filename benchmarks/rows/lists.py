"""Lists, and how long the first one takes; memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from benchmarks.clients import ERAS, HttpClient, StdioClient
from benchmarks.programs import BASE_TOOLS, DIRECT, Package, Programs
from benchmarks.rounds import (
    IN_FLIGHT,
    Figures,
    Size,
    Subject,
    Usage,
    http_visit,
    interleaved,
    memory,
    one_at_a_time,
    stdio_visit,
)
from benchmarks.rows.calls import ARGUMENTS, DIRECT_CALL, echo

FASTMCP_PROXY = (
    "import json, sys; from fastmcp.server import create_proxy; "
    "create_proxy(json.load(open(sys.argv[1]))).run(show_banner=False)"
)
MOST_STARTS = 5


def lists(programs: Programs, packages: list[Package], size: Size) -> list[Figures]:
    """A repeated list of 1000 tools, over stdio and HTTP."""
    config = programs.config(10, tools_each=100)
    subjects = []
    for package in packages:
        server = programs.http_aggregator(package, config)
        for era in ERAS:
            on_stdio = programs.aggregator(package, config, era=era)
            fronts = (("stdio", on_stdio, on_stdio.process.pid), ("HTTP", server.client(era), server.pid))
            for front, client, pid in fronts:
                about = {"package": package.label, "era": era, "front": front}
                subjects.append(
                    Subject(f"{package.label}, {front}, {era}", listing(client, pid, size), about, memory(pid))
                )
    return interleaved(subjects, [], size.rounds)


def listing(client: StdioClient | HttpClient, pid: int, size: Size) -> Callable[[], Figures]:
    """Visit it with lists.

    Raises:
        RuntimeError: not all tools are listed.
    """
    if (count := len(client.result("tools/list", {})["tools"])) != 1000:
        raise RuntimeError(f"{count} tools are listed")
    request = client.request("tools/list", {})
    return lambda: one_at_a_time(client, lambda: client.exchange(request), size.calls, Usage(pid))


def memories(programs: Programs, packages: list[Package], size: Size) -> list[Figures]:
    """Memory with 10 children, after a list and calls, over stdio and HTTP."""
    config = programs.config(10)
    subjects = []
    for package in packages:
        for era in ERAS:
            client = programs.aggregator(package, config, era=era)
            request = client.request("tools/call", {"name": "s5:echo", "arguments": ARGUMENTS})
            about = {"package": package.label, "era": era, "front": "stdio"}
            visit, pid = stdio_visit(client, request, size), client.process.pid
            subjects.append(Subject(f"{package.label}, stdio, {era}", visit, about, memory(pid)))
            server = programs.http_aggregator(package, config)
            server.client(era).result("tools/list", {})
            clients = [server.client(era) for _ in range(IN_FLIGHT)]
            visit = http_visit([(client, echo(client)) for client in clients], server.pid, size)
            subjects.append(
                Subject(f"{package.label}, HTTP, {era}", visit, {**about, "front": "HTTP"}, memory(server.pid))
            )
    figures = interleaved(subjects, [], size.rounds)
    return [{key: f[key] for key in ("name", "package", "era", "front", "rss_mb")} | {"against": {}} for f in figures]


def starts(programs: Programs, packages: list[Package], size: Size) -> list[Figures]:
    """Seconds from the start of the process to the first complete list, over stdio."""
    subjects = [
        Subject(
            f"{package.label}, {children} servers",
            starting(programs, package, children),
            {"package": package.label, "children": children},
        )
        for package in packages
        for children in (10, 100)
    ]
    return interleaved(subjects, [], min(size.rounds, MOST_STARTS))


def starting(programs: Programs, package: Package, children: int) -> Callable[[], Figures]:
    """Visit it with a start."""
    config = programs.config(children)

    def visit() -> Figures:
        client = programs.stdio(package.command(config), package)
        listed = client.result("tools/list", {})["tools"]
        took = client.age()
        client.close()
        if len(listed) != children * BASE_TOOLS:
            raise RuntimeError(f"{len(listed)} tools are listed, not {children * BASE_TOOLS}")
        return {"first_list_s": took}

    return visit


def proxy(programs: Programs, packages: list[Package], size: Size) -> list[Figures]:
    """FastMCP's own multi-server proxy, which connects every child anew for every request; 10 children."""
    few = replace(size, calls=2)
    child = programs.stdio(DIRECT)
    request = child.request("tools/call", {"name": "echo", "arguments": ARGUMENTS})
    subjects = [Subject(DIRECT_CALL, stdio_visit(child, request, size))]
    client = programs.stdio([packages[0].python, "-c", FASTMCP_PROXY, programs.config(10)])
    request = client.request("tools/call", {"name": "s5_echo", "arguments": ARGUMENTS})
    usage = Usage(client.process.pid)
    visit = lambda: one_at_a_time(client, lambda: client.exchange(request), few.calls, usage)  # noqa: E731
    subjects.append(Subject("FastMCP's proxy", visit))
    return interleaved(subjects, [DIRECT_CALL], min(size.rounds, MOST_STARTS))
