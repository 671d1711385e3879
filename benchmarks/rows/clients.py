"""Many clients of both eras at a team's hub, for a while."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from statistics import median, quantiles

from benchmarks.clients import ERAS, HttpClient, Request, load
from benchmarks.programs import ROOT, HttpServer, Package, Programs
from benchmarks.rounds import Figures, Size, Usage
from benchmarks.rows.calls import echo

OF_EACH_ERA = 30
MEMBERS = 6
"""API keys that they share."""
SLICES = 6
"""Turns that the time of each package is taken in, so that several have the same machine."""


class Crowd:
    """All clients of one aggregator, and what they have seen."""

    def __init__(self, package: Package, server: HttpServer) -> None:
        self._package = package
        self._server = server
        self._usage = Usage(server.pid)
        clients = [(era, server.client(era, caller=number)) for era in ERAS for number in range(OF_EACH_ERA)]
        self._eras = [era for era, _ in clients]
        self._pairs: list[tuple[HttpClient, Request]] = [(client, echo(client)) for _, client in clients]
        self._times: dict[str, list[float]] = {era: [] for era in ERAS}
        self._ready: list[float] = []
        self._seconds = self._cpu = 0.0
        self._rss: list[float] = []

    def visit(self, seconds: float, *, counts: bool) -> None:
        """Let all clients call for so long, while another looks at `/ready`."""
        for client, _ in self._pairs:
            client.connect()
        command = [sys.executable, "-m", "benchmarks.ready", str(self._server.port), str(seconds)]
        looking = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        before, began = self._usage.cpu(), time.perf_counter()
        until = began + seconds
        for index, _, took in load(self._pairs, lambda sent: time.perf_counter() < until):
            if counts:
                self._times[self._eras[index]].append(took)
        if counts:
            self._seconds += time.perf_counter() - began
            self._cpu += self._usage.cpu() - before
        looks = json.loads(looking.communicate()[0])
        if counts:
            self._ready += looks
        self._rss.append(self._usage.rss_mb())

    def figures(self) -> list[Figures]:
        """What was seen in all visits that count; memory before them and after."""
        every = [took for times in self._times.values() for took in times]
        used = {
            "cpu_us_at_once": round(self._cpu / len(every) * 1e6, 1),
            "rss_mb_before": round(self._rss[0], 1),
            "rss_mb": round(self._rss[-1], 1),
        }
        return [
            *(self._line(f"{OF_EACH_ERA} clients of {era}", self._times[era], is_of_calls=True) for era in ERAS),
            self._line(f"all {len(self._pairs)}", every, is_of_calls=True) | used,
            self._line("/ready", self._ready, is_of_calls=False),
        ]

    def _line(self, name: str, times: list[float], *, is_of_calls: bool) -> Figures:
        return {
            "name": f"{self._package.label}, {name}",
            "package": self._package.label,
            "p50_ms": round(median(times) * 1000, 2),
            "p99_ms": round(quantiles(times, n=100, method="inclusive")[98] * 1000, 2),
            **({"calls_per_s": round(len(times) / self._seconds, 1)} if is_of_calls else {}),
            "against": {},
        }


def clients(programs: Programs, packages: list[Package], size: Size) -> list[Figures]:
    """30 clients of each era at once, with all that a team's hub checks, each calling without pause."""
    config = programs.config(10)
    crowds = [Crowd(package, programs.team_aggregator(package, config, members=MEMBERS)) for package in packages]
    for crowd in crowds:
        crowd.visit(min(2.0, size.seconds / SLICES), counts=False)
    for number in range(SLICES):
        first = number % len(crowds)
        for crowd in (*crowds[first:], *crowds[:first]):
            crowd.visit(size.seconds / SLICES, counts=True)
    return [line for crowd in crowds for line in crowd.figures()]
