"""The store of catalogues: one file for each server in the user's cache folder, read at once, written by a thread.

Theory. A cache may be absent, read-only, full, damaged, another user's or on a share that is gone; then the servers are
asked as if there were none, and nothing else happens. So a file is used only if it is plain, ours, whole and of this
version; what cannot be used is said once, and replaced by what is listed next; and no write is waited for. What was
listed again as it was only makes its file younger: a file's time is when its lists were last read.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fastmcp_aggregator.catalogue.persisted.document import (
    Known,
    KnownCatalogue,
    KnownCatalogues,
    UnusableDocument,
    counts_of,
    decoded,
    encoded,
    head_of,
)
from fastmcp_aggregator.catalogue.persisted.fingerprint import fingerprint_of
from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.config import ServerConfig
from fastmcp_aggregator.early.answers import cache_folder, made_secret, make_private
from fastmcp_aggregator.early.reading import is_own, read_own
from fastmcp_aggregator.files.atomic import PRIVATE, staged
from fastmcp_aggregator.isolation.decision import Shown
from fastmcp_aggregator.settings.options import ChildOptions

logger = logging.getLogger(__name__)

CATALOGUE_SIZE_LIMIT = 16 * 1024**2
_SUFFIX = ".catalogue.json"
_EXIT_BOUND = 1.0
"""Seconds that the program's exit waits for what is being written."""
_PLAIN = re.compile(r"[^A-Za-z0-9_-]")


def default_folder() -> Path:
    return Path(cache_folder()) / "catalogues"


@dataclass(frozen=True, slots=True)
class KnownServer:
    """The stored knowledge of one server. `since` is when its lists were last read, in seconds since 1970; `shown` is
    what it has shown of itself besides.
    """

    fingerprint: str | None = None
    by_kind: KnownCatalogues | None = None
    since: float = 0.0
    shown: frozenset[str] = frozenset()


NOTHING_KNOWN = KnownServer()


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file: its bytes, when its lists were read (seconds since 1970), whose it is, how many components it has; or
    why it cannot be used.
    """

    path: Path
    size: int
    since: float
    server: str | None = None
    counts: Mapping[Kind, int] = field(default_factory=dict)
    problem: str = ""


class CatalogueStore:
    """The catalogues of one cache folder. Nothing raises; what fails is reported once."""

    def __init__(self, folder: Path | None = None, *, is_of_hub: bool = False, most_files: int = 500) -> None:
        """A hub serves clients of all folders the same lists: there it makes no difference in which it was started.
        Of more than `most_files` in the folder the oldest go.
        """
        self._is_of_hub = is_of_hub
        self._most_files = most_files
        self.folder = default_folder() if folder is None else folder
        self._secret: bytes | None = None
        self._reported: set[str] = set()
        self._waiting: dict[str, Callable[[], None]] = {}
        self._has_work = threading.Condition()
        self._is_writing = False
        self._thread: threading.Thread | None = None

    def known(self, server: ServerConfig, options: ChildOptions) -> KnownServer:
        """The stored knowledge of a server, if its catalogue is to be kept."""
        if options.settings.catalogue != "on":
            return NOTHING_KNOWN
        try:
            working_folder = "" if self._is_of_hub else os.getcwd()
            fingerprint = fingerprint_of(server, options, self._get_secret(), working_folder)
        except (OSError, ValueError):
            fingerprint = None
        if fingerprint is None:
            return NOTHING_KNOWN
        path = self._path(server.key, fingerprint)
        try:
            data, since = _content_of(path)
            known = decoded(data, server.key, fingerprint)
            shown = known.shown | ({Shown.LISTS_BY_CLIENT} if known.lists_by_client else set())
            return KnownServer(fingerprint, known.by_kind, since, shown)
        except FileNotFoundError:
            pass
        except UnusableDocument as problem:
            self._report(str(path), f"{path} is not used: {problem}")
        except OSError as error:
            self._report("folder", f"catalogues cannot be read in {self.folder}: {error.strerror}")
        return KnownServer(fingerprint)

    def keep(self, server_key: str, fingerprint: str, kind: str, known: KnownCatalogue) -> None:
        """Have the catalogue that a kind of client was shown written soon."""
        path = self._path(server_key, fingerprint)
        self.write_soon(str(path), partial(self._write, path, server_key, fingerprint, {kind: known}))

    def keep_shown(self, server_key: str, fingerprint: str, shown: frozenset[str]) -> None:
        """Have it written soon what the server has shown of itself, besides its catalogues."""
        path = self._path(server_key, fingerprint)
        self.write_soon(f"{path}: shown", partial(self._write, path, server_key, fingerprint, {}, shown))

    def write_soon(self, path: str, write: Callable[[], None]) -> None:
        """Have a file of the folder written soon, by what writes it last."""
        with self._has_work:
            self._waiting[path] = write
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_all, name="catalogues", daemon=True)
                self._thread.start()
                atexit.register(self.flush, _EXIT_BOUND)
            self._has_work.notify_all()

    def flush(self, seconds: float) -> bool:
        """Wait until everything is written, for so long at most; whether it is."""
        with self._has_work:
            return self._has_work.wait_for(lambda: not self._waiting and not self._is_writing, seconds)

    def files(self) -> Iterator[StoredFile]:
        """The files of the folder. Raises OSError: it cannot be read."""
        for path in sorted(self.folder.glob(f"*{_SUFFIX}")):
            size, since = 0, 0.0
            try:
                found = path.lstat()
                size, since = found.st_size, found.st_mtime
                data = _content_of(path)[0]
                yield StoredFile(path, size, since, head_of(data).server, counts_of(data))
            except FileNotFoundError:
                continue
            except UnusableDocument as problem:
                yield StoredFile(path, size, since, problem=str(problem))

    # The thread.

    def _write_all(self) -> None:
        while True:
            with self._has_work:
                self._is_writing = False
                self._has_work.notify_all()
                self._has_work.wait_for(lambda: self._waiting)
                path = next(iter(self._waiting))
                write = self._waiting.pop(path)
                self._is_writing = True
            try:
                write()
            except (OSError, ValueError, UnusableDocument) as error:
                why = error.strerror if isinstance(error, OSError) else str(error)
                self._report("folder", f"catalogues cannot be kept in {self.folder}: {why}")

    def _write(
        self,
        path: Path,
        server_key: str,
        fingerprint: str,
        by_kind: KnownCatalogues,
        shown: frozenset[str] = frozenset(),
    ) -> None:
        """Lay this over what is there."""
        before = Known({})
        with suppress(OSError, UnusableDocument):
            before = decoded(_content_of(path)[0], server_key, fingerprint)
            if shown <= before.shown and all(before.by_kind.get(kind) == known for kind, known in by_kind.items()):
                os.utime(path)
                return
        others = {kind: known for kind, known in before.by_kind.items() if kind not in by_kind}
        data = encoded(server_key, fingerprint, Known({**others, **by_kind}, before.shown | shown))
        if len(data) > CATALOGUE_SIZE_LIMIT:
            raise ValueError(f"that of {server_key!r} is larger than {CATALOGUE_SIZE_LIMIT // 1024**2} MiB")
        _require_ours(self.folder)
        with staged(path, data.decode(), mode=PRIVATE) as put_in_place:
            put_in_place()
        self._prune()

    def _prune(self) -> None:
        files = sorted(self.folder.glob(f"*{_SUFFIX}"), key=lambda path: path.lstat().st_mtime)
        for path in files[: -self._most_files]:
            path.unlink(missing_ok=True)

    def _path(self, server_key: str, fingerprint: str) -> Path:
        return self.folder / f"{_PLAIN.sub('_', server_key)[:64]}~{fingerprint[:24]}{_SUFFIX}"

    def _get_secret(self) -> bytes:
        """The secret of the folder, which is made with it; one for this process alone, if it cannot be."""
        if self._secret is None:
            try:
                make_private(str(self.folder))
                _require_ours(self.folder)
                self._secret = made_secret(str(self.folder))
            except (OSError, UnusableDocument) as error:
                why = error.strerror if isinstance(error, OSError) else str(error)
                self._report("folder", f"catalogues cannot be kept in {self.folder}: {why}")
                self._secret = secrets.token_bytes(32)
        return self._secret

    def _report(self, what: str, text: str) -> None:
        if what not in self._reported:
            self._reported.add(what)
            logger.warning("%s; the servers are asked, as without a catalogue", text)


def _content_of(path: Path) -> tuple[bytes, float]:
    """The content of a file of ours, and when it was written.

    Raises:
        OSError: it cannot be read.
        UnusableDocument: it is another's, no plain file, or too large.
    """
    try:
        return read_own(path, CATALOGUE_SIZE_LIMIT)
    except ValueError as error:
        raise UnusableDocument(str(error)) from None


def _require_ours(folder: Path) -> None:
    if not is_own(folder.stat()):
        raise UnusableDocument("it belongs to another user, or others may write there")
