"""Calls in which the server says or asks something before it answers."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from benchmarks.clients import ERAS, HttpClient, Message, StdioClient
from benchmarks.programs import TALKING_CHILD, Package, Programs
from benchmarks.rounds import Figures, Size, Subject, Usage, interleaved, one_at_a_time

CHILDREN = 10
STEPS = 10
MOST_CALLS = 60
"""In a visit: of one server only so many notifications come through in a second."""
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}}
FORM = {"method": "elicitation/create", "params": {"message": "What?", "requestedSchema": SCHEMA}}
QUESTION: Message = {"name": "s5:play", "arguments": {"script": [{"ask": {"q": FORM}}]}}
ABOUT_CLIENT: Message = {
    "capabilities": {"elicitation": {"form": {}}},
    "answer": {"action": "accept", "content": {"name": "benchmark"}},
}

Talker = StdioClient | HttpClient


def talking(programs: Programs, packages: list[Package], size: Size) -> list[Figures]:
    """Calls with 10 progress notifications, and calls with a question (elicitation), over stdio and HTTP."""
    config = programs.config(CHILDREN, program=TALKING_CHILD)
    subjects = []
    for package in packages:
        for era in ERAS:
            server = programs.http_aggregator(package, config)
            on_stdio = programs.aggregator(package, config, era=era, **ABOUT_CLIENT)
            over_http = server.client(era, **ABOUT_CLIENT)
            fronts = (("stdio", on_stdio, on_stdio.process.pid), ("HTTP", over_http, server.pid))
            for front, client, pid in fronts:
                for kind, exchange in (("progress", progress(client)), ("question", question(client))):
                    about = {"package": package.label, "era": era, "front": front, "kind": kind}
                    visit = visited(client, exchange, size, pid)
                    subjects.append(Subject(f"{package.label}, {front}, {era}, {kind}", visit, about))
    return interleaved(subjects, [], size.rounds)


def visited(
    client: StdioClient | HttpClient, exchange: Callable[[], None], size: Size, pid: int
) -> Callable[[], Figures]:
    """Visit it with such exchanges alone."""
    return lambda: one_at_a_time(client, exchange, min(size.calls, MOST_CALLS), Usage(pid))


def progress(client: Talker) -> Callable[[], None]:
    """A call that is told all of its progress: of each server in turn, because of one only so much comes through."""
    params: Message = {"arguments": {"steps": STEPS}, "_meta": {"progressToken": "p"}}
    names = [f"s{number}:progress" for number in range(CHILDREN)]
    requests = itertools.cycle([client.request("tools/call", {"name": name, **params}) for name in names])

    def exchange() -> None:
        request = next(requests)
        before = client.told.total() if isinstance(client, StdioClient) else 0
        response = client.exchange(request)
        is_on_stdio = isinstance(client, StdioClient)
        told = client.told.total() - before if is_on_stdio else response.count(b"notifications/progress")
        if told != STEPS:
            raise RuntimeError(f"{told} progress notifications have come, not {STEPS}")

    return exchange


def question(client: Talker) -> Callable[[], None]:
    """A call that asks, and is answered."""
    request = client.request("tools/call", QUESTION)

    def exchange() -> None:
        response = client.converse(request, QUESTION)
        if b"accept" not in response:
            raise RuntimeError(f"the answer has not come to the server: {response[-500:]!r}")

    return exchange
