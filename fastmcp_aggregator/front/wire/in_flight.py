"""The requests that are being answered: counted, so that the program can end when the last one is done."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

DRAIN_BOUND = 30.0
"""Seconds that requests in flight have to finish once the program is told to end."""


class InFlight:
    """A count that can be closed to new requests and waited out."""

    def __init__(self) -> None:
        self.is_closing = False
        self._count = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def one(self) -> Iterator[None]:
        """While one request is answered."""
        self._count += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._count -= 1
            if self._count == 0:
                self._idle.set()

    async def close(self) -> None:
        """Take no new requests and wait for those in flight, within a bound."""
        self.is_closing = True
        try:
            await asyncio.wait_for(self._idle.wait(), DRAIN_BOUND)
        except TimeoutError:
            return

    def open(self) -> None:
        """Take requests again: the app is run once more."""
        self.is_closing = False
