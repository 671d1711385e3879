"""Measuring several programs in turn, so that a change in the machine's speed hits all of them alike.

In each round every subject is visited once, in an order that rotates. What is compared is compared within a round: a
ratio is the median, over the rounds, of a subject's figure divided by the anchor's of the same round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any

from benchmarks.clients import Client, HttpClient, Request, StdioClient, burst
from benchmarks.programs import Usage

Figures = dict[str, Any]
IN_FLIGHT = 16
COMPARED = ("p50_ms", "calls_per_s", "first_list_s")
"""The figures that are set in relation to the anchor's."""
_WARM_UP = 3
_LEAST_SECONDS = 0.1
"""How long each part of a visit takes, however fast the program is: what is shorter depends on what else runs then."""


@dataclass(frozen=True)
class Size:
    """How much is measured: rounds, and in each visit calls one at a time and calls at once."""

    rounds: int = 8
    calls: int = 200
    burst: int = 400
    seconds: float = 60.0


@dataclass(frozen=True)
class Subject:
    """What is visited in each round. `at_end` is measured once, after the last."""

    name: str
    visit: Callable[[], Mapping[str, float]]
    about: Mapping[str, Any] = field(default_factory=dict)
    at_end: Callable[[], Mapping[str, float]] = dict


def interleaved(subjects: Sequence[Subject], anchors: Sequence[str], rounds: int) -> list[Figures]:
    """Visit all subjects in each round, after one that does not count; the figures of each, beside the anchors'."""
    samples: dict[str, list[Mapping[str, float]]] = {subject.name: [] for subject in subjects}
    for number, subject in rotated(subjects, rounds):
        figures = subject.visit()
        if number:
            samples[subject.name].append(figures)
    return [
        {
            "name": subject.name,
            **subject.about,
            **{key: round(median(s[key] for s in samples[subject.name]), 4) for key in samples[subject.name][0]},
            **{key: round(value, 4) for key, value in subject.at_end().items()},
            "against": {
                label: ratios(samples[subject.name], samples[name])
                for label, name in ({name: name for name in anchors} | first_package(subject, subjects)).items()
            },
        }
        for subject in subjects
    ]


def rotated(subjects: Sequence[Subject], rounds: int) -> Iterator[tuple[int, Subject]]:
    """Who is visited when: the number of the round, from 0, which does not count, and the subject."""
    for number in range(rounds + 1):
        first = number % len(subjects)
        yield from ((number, subject) for subject in (*subjects[first:], *subjects[:first]))


def first_package(subject: Subject, subjects: Sequence[Subject]) -> dict[str, str]:
    """The name of what is the same of the first package, by its label, if this is of another."""
    labels = [other.about["package"] for other in subjects if "package" in other.about]
    if subject.about.get("package") in (None, *labels[:1]):
        return {}
    wanted = {**subject.about, "package": labels[0]}
    return dict.fromkeys(labels[:1], next(other.name for other in subjects if other.about == wanted))


def ratios(own: Sequence[Mapping[str, float]], others: Sequence[Mapping[str, float]]) -> Figures:
    """The ratios to the figures of another: median and quartiles over the rounds."""
    return {
        key: spread([mine[key] / other[key] for mine, other in zip(own, others, strict=True)])
        for key in COMPARED
        if key in own[0] and key in others[0]
    }


def spread(values: Sequence[float]) -> list[float]:
    """First quartile, median and third quartile."""
    cuts = quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return [round(cuts[0], 3), round(median(values), 3), round(cuts[2], 3)]


def one_at_a_time(client: Client, exchange: Callable[[], object], calls: int, usage: Usage) -> Figures:
    """Calls one after the other, on a connection that is new and warm: median, and CPU of the program for each."""
    client.connect()
    for _ in range(_WARM_UP):
        exchange()
    before, times = usage.cpu(), list[float]()
    while len(times) < calls or sum(times) < _LEAST_SECONDS:
        times += [timed(exchange) for _ in range(calls)]
    cpu = usage.cpu() - before
    return {"p50_ms": median(times) * 1000, "cpu_us": cpu / len(times) * 1e6}


def at_once(run: Callable[[], float], count: int, usage: Usage) -> Figures:
    """So many calls with several in flight, again and again: calls a second, and CPU of the program for each."""
    before, times = usage.cpu(), list[float]()
    while sum(times) < _LEAST_SECONDS:
        times.append(run())
    calls, cpu = count * len(times), usage.cpu() - before
    return {"calls_per_s": calls / sum(times), "cpu_us_at_once": cpu / calls * 1e6}


def timed(call: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def stdio_visit(client: StdioClient, request: Request, size: Size) -> Callable[[], Figures]:
    """Visit a server on stdio."""
    usage = Usage(client.process.pid)
    return lambda: {
        **one_at_a_time(client, lambda: client.exchange(request), size.calls, usage),
        **at_once(lambda: client.burst(request, size.burst, IN_FLIGHT), size.burst, usage),
    }


def http_visit(pairs: Sequence[tuple[HttpClient, Request]], pid: int, size: Size) -> Callable[[], Figures]:
    """Visit an HTTP server with the first of these clients alone, and then with all of them at once."""
    usage = Usage(pid)
    client, request = pairs[0]

    def visit() -> Figures:
        alone = one_at_a_time(client, lambda: client.exchange(request), size.calls, usage)
        for other, _ in pairs[1:]:
            other.connect()
        return alone | at_once(lambda: burst(pairs, size.burst), size.burst, usage)

    return visit


def memory(pid: int) -> Callable[[], Figures]:
    """The memory of a process."""
    return lambda: {"rss_mb": round(Usage(pid).rss_mb(), 1)}
