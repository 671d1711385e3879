"""The stderr file of one child: rotating, of limited size, written by a thread behind a bounded queue.

Theory. A disk may be full, slow, or a share on a network that is gone, and must not hold up the event loop, nor through
it the child and all the others. So a thread writes, which begins with the first line and ends with the child's stderr.
The event loop hands lines over, and drops them while too many wait. Processes of one server (it may have one for each
client session) share a file.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import re
import threading
import time
from pathlib import Path
from queue import SimpleQueue

from fastmcp_aggregator.files.rotating import RotatingFile

logger = logging.getLogger(__name__)

FILE_SIZE = 1024**2
FILES = 3
"""Files of one child, at most."""
_MOST_WAITING_BYTES = 1024**2
_EXIT_BOUND = 1.0
"""Seconds that the program's exit waits for the last words of all children to be written."""
_PLAIN_KEY = re.compile(r"[a-z0-9_-][a-z0-9_.-]{0,63}")

_files: dict[Path, StderrFile] = {}
_writing: set[threading.Thread] = set()


def file_name(server_key: str) -> str:
    """The file's name: another for each server key, also on a file system where `Git` and `git` are one name."""
    if _PLAIN_KEY.fullmatch(server_key):
        return f"{server_key}.log"
    shown = re.sub(r"[^A-Za-z0-9_-]", "_", server_key)[:64]
    digest = hashlib.sha256(server_key.encode(errors="surrogatepass")).hexdigest()
    return f"{shown}~{digest[:16]}.log"


def open_stderr_file(directory: Path, server_key: str) -> StderrFile:
    """The file for one more process of a server; the directory is made if need be."""
    path = directory / file_name(server_key)
    file = _files.get(path)
    if file is None:
        file = _files[path] = StderrFile(path, server_key)
    file.processes += 1
    return file


class StderrFile:
    """Appends to a file. Never raises; what fails is reported once."""

    def __init__(self, path: Path, server_key: str) -> None:
        self.processes = 0
        """Processes that write to it."""
        self._key = server_key
        self._path = path
        self._chunks: SimpleQueue[bytes | None] = SimpleQueue()
        self._given = 0
        self._taken = 0  # changed by the thread only, as the number above is by the event loop only
        self._file = RotatingFile(path, max_bytes=FILE_SIZE, keep=FILES - 1)
        self._is_reported = False
        thread = threading.Thread(target=self._write_all, name=f"stderr:{server_key}", daemon=True)
        thread.start()
        _writing.add(thread)

    def write(self, data: bytes) -> None:
        """Take whole lines, to be written soon."""
        if self._given - self._taken > _MOST_WAITING_BYTES:
            self._report("it is written too slowly; some is left out")
            return
        self._given += len(data)
        self._chunks.put(data)

    def close(self) -> None:
        """Close the file for one of the processes."""
        self.processes -= 1
        if self.processes == 0:
            del _files[self._path]
            self._chunks.put(None)

    def _write_all(self) -> None:
        while (lines := self._chunks.get()) is not None:
            self._write_or_report(lines)
            self._taken += len(lines)
        self._file.close()
        _writing.discard(threading.current_thread())

    def _write_or_report(self, lines: bytes) -> None:
        rest = lines
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self._file.close()  # the next lines try again from the beginning
            self._report(error.strerror or error.__class__.__name__)

    def _report(self, why: str) -> None:
        if not self._is_reported:
            self._is_reported = True
            logger.warning("the stderr of server %r cannot be kept in %s: %s", self._key, self._path, why)


@atexit.register
def _finish() -> None:
    deadline = time.monotonic() + _EXIT_BOUND
    for thread in list(_writing):
        thread.join(max(0.0, deadline - time.monotonic()))
