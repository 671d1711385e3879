"""The audit log: who called what, when, and what came of it; one JSON object a line.

Theory. `record` puts an entry into a bounded queue and returns at once; one thread of the log's own writes, all entries
of some milliseconds together, because to wake it for each would cost a call more than all else here: while entries
come, it looks by itself. So a slow disk never blocks a call. While nothing can be written, entries wait in the queue
and are tried again; those that it has no room for are lost, which the program's log says at most once a minute, and the
audit log itself as soon as it can be written, where they are missing. For those who must not work without a complete
audit log it fails closed: then `must_reject` is true from the first failure on, while the queue still has room for the
entries of the calls in flight.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Self

from fastmcp_aggregator.errors import AggregatorError
from fastmcp_aggregator.files.rotating import RotatingFile
from fastmcp_aggregator.pipe.bucket import TokenBucket
from fastmcp_aggregator.protocol import raw_json

logger = logging.getLogger(__name__)

_TEXT_LIMIT = 2048
"""Bytes of one text in an entry, at most: clients may send names and addresses of any length."""
_ESCAPED = 12
"""Bytes that a character may take: two escapes."""
_GATHERING = 0.05
"""Seconds from an entry to its being written, for those that come meanwhile."""

_encode_anything = json.JSONEncoder(separators=(",", ":")).encode


class StandardOutput:
    """Lines on stdout in place of a file, for a program that serves HTTP in a container."""

    def __str__(self) -> str:
        return "stdout"

    def open(self) -> None:
        """Do nothing: it is open."""

    def write(self, lines: bytes) -> int:
        """Write to the descriptor itself, so that what is not written is known."""
        return os.write(1, lines)

    def close(self) -> None:
        """Do nothing: it is not ours."""


class AuditLog:
    """Takes entries from any thread and writes them in order, while it is entered."""

    def __init__(
        self,
        destination: RotatingFile | StandardOutput,
        *,
        rejects: bool = False,
        queue_bytes: int = 16 * 1024**2,
        retry_pause: float = 1.0,
        close_timeout: float = 5.0,
    ) -> None:
        self._destination = destination
        self._rejects = rejects
        self._queue_bytes = queue_bytes
        self._retry_pause = retry_pause
        self._close_timeout = close_timeout
        self.lost = 0
        """Entries dropped so far."""
        self._lost_here = 0
        """Lost entries that no entry of the log reports yet."""
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._changed = threading.Condition()
        self._is_asleep = False
        """True if the writer has to be woken for an entry."""
        self._is_closing = threading.Event()
        self._is_failing = False
        self._alarms = TokenBucket.once_a_minute()
        self._writer = threading.Thread()

    def __enter__(self) -> Self:
        """Open it. Raises AggregatorError: it cannot be opened."""
        try:
            self._destination.open()
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise AggregatorError(f"the audit log {self._destination} cannot be opened: {reason}") from None
        self._is_closing.clear()
        self._writer = threading.Thread(target=self._write_all, name="audit log", daemon=True)
        self._writer.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Write what waits, within a bound, and close."""
        self._is_closing.set()
        with self._changed:
            self._changed.notify()
        self._writer.join(self._close_timeout)
        if self._writer.is_alive():
            logger.error("the audit log %s was not closed within %g s", self._destination, self._close_timeout)

    @property
    def is_failing(self) -> bool:
        return self._is_failing

    @property
    def must_reject(self) -> bool:
        """True if calls are to be rejected, as they might not be recorded."""
        return self._rejects and (self._is_failing or self._waiting_bytes > self._queue_bytes // 2)

    def record(self, event: str, fields: Mapping[str, Any]) -> None:
        """Queue an entry; never blocks. Fields that are None are left out."""
        line = _line(event, fields)
        with self._changed:
            if self._is_asleep:
                self._changed.notify()
            is_lost = self._waiting_bytes + len(line) > self._queue_bytes
            if is_lost:
                self.lost += 1
                self._lost_here += 1
            else:
                self._waiting.append(line)
                self._waiting_bytes += len(line)
        if is_lost:
            self._alarm(f"has lost {self.lost} entries, because they could not be written in time")

    # The writer's side.

    def _write_all(self) -> None:
        rest, is_last_try = b"", False
        while rest := rest or self._take():
            try:
                rest = rest[self._destination.write(rest) :]
                self._succeeded()
            except OSError as error:
                if is_last_try:
                    self._give_up(rest)
                    break
                self._failed(error)
                is_last_try = self._is_closing.wait(self._retry_pause)
        self._destination.close()

    def _take(self) -> bytes:
        """All entries that wait, and then how many are missing there; nothing when the log is to be closed."""
        while not self._is_closing.wait(_GATHERING) and not self._has_any:
            with self._changed:
                self._is_asleep = True
                self._changed.wait_for(lambda: self._has_any or self._is_closing.is_set())
                self._is_asleep = False
        with self._changed:
            lines, self._waiting, self._waiting_bytes = self._waiting, [], 0
            if self._lost_here:
                lines.append(_line("lost", {"entries": self._lost_here}))
                self._lost_here = 0
        return b"".join(lines)

    @property
    def _has_any(self) -> bool:
        return bool(self._waiting or self._lost_here)

    def _failed(self, error: OSError) -> None:
        if not self._is_failing:
            self._is_failing = True
            then = "calls are refused" if self._rejects else "entries wait, as many as there is room for"
            self._alarm(f"cannot be written: {error.strerror or type(error).__name__}; until it can, {then}")

    def _succeeded(self) -> None:
        if self._is_failing:
            self._is_failing = False
            logger.warning("the audit log %s is written again; %d entries were lost", self._destination, self.lost)

    def _give_up(self, rest: bytes) -> None:
        self.lost += (rest + self._take()).count(b"\n")
        logger.error("the audit log %s has lost %d entries at its end", self._destination, self.lost)

    def _alarm(self, what: str) -> None:
        if self._alarms.take(time.monotonic()):
            logger.error("the audit log %s %s", self._destination, what)


_RUN = secrets.token_hex(4)
_numbers = itertools.count(1)


def _line(event: str, fields: Mapping[str, Any]) -> bytes:
    time_ = datetime.now(UTC).isoformat(timespec="milliseconds")
    told = {
        k: v if type(v) is not str or len(v) <= _TEXT_LIMIT // _ESCAPED else cut(v)
        for k, v in fields.items()
        if v is not None
    }
    entry = {"time": time_, "event": event, **told, "id": f"{_RUN}-{next(_numbers)}"}
    return _as_ascii(entry) + b"\n"


def _as_ascii(entry: Mapping[str, Any]) -> bytes:
    """JSON that a terminal can show, whatever is in it: all but printable ASCII is escaped."""
    with suppress(TypeError, OverflowError, *raw_json.Malformed):
        text = raw_json.encode(entry)
        if text.isascii() and b"\x7f" not in text:
            return text
    return _encode_anything(entry).encode()


def cut(text: str, most: int = _TEXT_LIMIT) -> str:
    """The part of a text that takes no more bytes in an entry, where all but printable ASCII is escaped."""
    size = 0
    for number, character in enumerate(text[: most + 1]):
        size += 1 if " " <= character <= "~" else _ESCAPED if character > "\uffff" else 6
        if size > most:
            return text[:number] + "…"
    return text
