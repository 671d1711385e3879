"""Many clients of both eras at a team's hub, for a while."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from benchmarks.clients import ERAS, load
from benchmarks.programs import ROOT, HttpServer, Package, Programs
from benchmarks.rounds import Figures, Size, Usage, spread
from benchmarks.rows.calls import echo

OF_EACH_ERA = 30
MEMBERS = 6
"""API keys that they share."""
SLICES = 6
"""Turns that the time of each package is taken in, so that several have the same machine."""
WARM_UP = 2.0


@dataclass(frozen=True)
class Visit:
    """What was seen in one turn: seconds of each call by the client's era, and of each look at `/ready`."""

    times: dict[str, list[float]]
    ready: list[float]
    seconds: float
    cpu: float
    rss_mb: float

    @property
    def every(self) -> list[float]:
        """The seconds of all calls."""
        return [took for times in self.times.values() for took in times]

    @property
    def calls_per_s(self) -> float:
        """Calls a second of all clients."""
        return len(self.every) / self.seconds


class Crowd:
    """All clients of one aggregator."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._usage = Usage(server.pid)
        clients = [(era, server.client(era, caller=number)) for era in ERAS for number in range(OF_EACH_ERA)]
        self._eras = [era for era, _ in clients]
        self._pairs = [(client, echo(client)) for _, client in clients]

    def visit(self, seconds: float) -> Visit:
        """Let all clients call for so long, while another looks at `/ready`."""
        for client, _ in self._pairs:
            client.connect()
        command = [sys.executable, "-m", "benchmarks.ready", str(self._server.port), str(seconds)]
        looking = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        times: dict[str, list[float]] = {era: [] for era in ERAS}
        cpu, began = self._usage.cpu(), time.perf_counter()
        for index, _, took in load(self._pairs, lambda sent: time.perf_counter() < began + seconds):
            times[self._eras[index]].append(took)
        lasted, used = time.perf_counter() - began, self._usage.cpu() - cpu
        return Visit(times, json.loads(looking.communicate()[0]), lasted, used, self._usage.rss_mb())


def clients(programs: Programs, packages: list[Package], size: Size) -> list[Figures]:
    """30 clients of each era at once, with all that a team's hub checks, each calling without pause."""
    config = programs.config(10)
    crowds = {p.label: Crowd(programs.team_aggregator(p, config, members=MEMBERS)) for p in packages}
    warm = {label: crowd.visit(min(WARM_UP, size.seconds / SLICES)) for label, crowd in crowds.items()}
    seen: dict[str, list[Visit]] = {label: [] for label in crowds}
    for number in range(SLICES):
        first = number % len(packages)
        for package in (*packages[first:], *packages[:first]):
            seen[package.label].append(crowds[package.label].visit(size.seconds / SLICES))
    before = packages[0].label
    return [
        {**line, "name": f"{label}, {line['name']}", "package": label}
        for label, visits in seen.items()
        for line in lines(visits, warm[label].rss_mb, {} if label == before else {before: seen[before]})
    ]


def lines(visits: Sequence[Visit], rss_mb_before: float, others: dict[str, list[Visit]]) -> list[Figures]:
    """What was seen of one package: by clients of each era, by all of them and at `/ready`."""
    every = [took for visit in visits for took in visit.every]
    seconds = sum(visit.seconds for visit in visits)
    by_era = {era: [took for visit in visits for took in visit.times[era]] for era in ERAS}
    used = {
        "cpu_us_at_once": round(sum(visit.cpu for visit in visits) / len(every) * 1e6, 1),
        "rss_mb_before": round(rss_mb_before, 1),
        "rss_mb": round(visits[-1].rss_mb, 1),
        "against": {
            label: {"calls_per_s": spread([v.calls_per_s / o.calls_per_s for v, o in zip(visits, other, strict=True)])}
            for label, other in others.items()
        },
    }
    return [
        *(
            {**summary(f"{OF_EACH_ERA} clients of {era}", times), **rate(times, seconds)}
            for era, times in by_era.items()
        ),
        {**summary(f"all {len(ERAS) * OF_EACH_ERA}", every), **rate(every, seconds), **used},
        summary("/ready", [took for visit in visits for took in visit.ready]),
    ]


def summary(name: str, times: Sequence[float]) -> Figures:
    """Median and 99th percentile."""
    p99 = quantiles(times, n=100, method="inclusive")[98]
    return {"name": name, "p50_ms": round(median(times) * 1000, 2), "p99_ms": round(p99 * 1000, 2), "against": {}}


def rate(times: Sequence[float], seconds: float) -> Figures:
    """Calls a second."""
    return {"calls_per_s": round(len(times) / seconds, 1)}
