"""How much the fuzz tests try and from which seed, and whether what they shake stays as large as it was.

    FUZZ_SCALE=20 FUZZ_SEED=7 pytest -s tests/faults/test_fuzz_http.py

Every batch of inputs is made by a generator of random numbers of its own, from the seed, a name and a number, so what a
failure names can be made again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import psutil

SCALE = int(os.environ.get("FUZZ_SCALE", "1"))
"""How many times as many inputs as in an ordinary run."""
SEED = int(os.environ.get("FUZZ_SEED", "0"))
ENVIRONMENT = {**os.environ, "FASTMCP_AGGREGATOR_WATCH_CONFIG": "false"}
"""For programs whose threads and descriptors are counted: watching a file takes some, from time to time."""
_MIB = 1024**2


@dataclass(frozen=True, slots=True)
class Draw:
    """The random numbers of one input; as text, how to make it again."""

    what: str
    number: int

    @property
    def random(self) -> Random:
        return Random(f"{SEED}:{self.what}:{self.number}")

    def __str__(self) -> str:
        return f"FUZZ_SEED={SEED} FUZZ_SCALE={SCALE}, {self.what} {self.number}"


def draws(what: str, count: int) -> Iterator[Draw]:
    """So many draws, times the scale."""
    return (Draw(what, number) for number in range(count * SCALE))


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a process takes: bytes of memory, descriptors, threads."""

    memory: int
    descriptors: int
    threads: int

    @classmethod
    def of(cls, pid: int | None = None) -> Footprint:
        """As it is now; of this process if none is given."""
        process = psutil.Process(pid)
        with process.oneshot():
            return cls(process.memory_info().rss, process.num_fds(), process.num_threads())

    def has_grown_since(self, before: Footprint, *, memory: int = 32 * _MIB) -> bool:
        """Whether it is larger than before by more than so many bytes, or has more descriptors or threads.

        A few more may be there because the program had just begun: it watches its files, and reads them in threads.
        """
        return (
            self.memory > before.memory + memory
            or self.descriptors > before.descriptors + _SETTLING
            or self.threads > before.threads + _SETTLING
        )

    def __str__(self) -> str:
        return f"{self.memory / _MIB:.1f} MiB, {self.descriptors} descriptors, {self.threads} threads"


_SETTLING = 8
"""Far fewer than the inputs of any run: whatever leaks with an input is found."""


class Watch:
    """What a process takes, and how long it took, over many inputs."""

    def __init__(self, what: str, pid: int | None = None) -> None:
        """`pid` is the process to watch; this one if none is given."""
        self._what = what
        self._pid = pid
        self._began = time.monotonic()
        self.before = Footprint.of(pid)

    @property
    def has_grown(self) -> bool:
        """Whether it is larger than at the beginning."""
        return Footprint.of(self._pid).has_grown_since(self.before)

    def report(self, inputs: int) -> str:
        """So many inputs, in how long, and what came of it; also printed."""
        seconds = time.monotonic() - self._began
        text = f"{self._what}: {inputs} inputs in {seconds:.1f} s, {self.before} → {Footprint.of(self._pid)}"
        print(text)
        return text
