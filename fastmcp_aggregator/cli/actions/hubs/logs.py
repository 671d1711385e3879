"""The log of a hub, which is there when the hub has ended, too."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from fastmcp_aggregator.attach.folder import log_of
from fastmcp_aggregator.cli.running.local_hubs import chosen, refuse_url, running_hubs
from fastmcp_aggregator.cli.terminal.console import put_lines, say
from fastmcp_aggregator.cli.terminal.exits import FINE, UsageError
from fastmcp_aggregator.cli.terminal.signals import end_on_signals
from fastmcp_aggregator.escaping import printable

_LOOK_INTERVAL = 0.2
_CHUNK = 256 * 1024


def run(options: argparse.Namespace) -> int:
    refuse_url(options.hub, "its log is the stderr of its own process, or with what runs it (`journalctl`)")
    end_on_signals(FINE)
    path = _path_of(options.hub)
    say(f"the log {path}")
    with suppress(FileNotFoundError):
        put_lines(Path(f"{path}.1").read_text("utf-8", "replace").splitlines())
    for text in _read(path, follows=options.follow):
        put_lines(text.splitlines())
    return FINE


def _path_of(word: str | None) -> Path:
    """The log of a hub that runs or, if none fits, the newest one of such an id."""
    ended = _logs_of(word)
    try:
        hub = chosen(word, running_hubs())
    except UsageError:
        if word is None or not ended:
            raise
        hub = None
    if hub is not None:
        return Path(log_of(hub["id"]))
    if not ended:
        raise UsageError("there is no log of a hub" if word is None else f"there is no log of a hub {word!r}")
    return ended[-1]


def _logs_of(word: str | None) -> list[Path]:
    """The logs of hubs that the word names, the newest last."""
    found = [path for path in Path(log_of("")).parent.glob("hub-*.log") if _is_named(path, word)]
    return sorted(found, key=lambda path: path.stat().st_mtime)


def _is_named(log: Path, word: str | None) -> bool:
    """True if the word is the beginning of the hub's id, its name, or the path of its config, as its log tells."""
    if word is None or log.name.startswith(f"hub-{word}"):
        return True
    config = os.path.realpath(os.path.expanduser(word))
    text = log.read_text("utf-8", "replace")
    return f"the hub {word} begins, " in text or f", and serves {printable(config)}\n" in text


def _read(path: Path, *, follows: bool) -> Iterator[str]:
    """The lines of the file; if it is followed, also those added to it and to its successors, for ever."""
    file, rest = _opened(path), b""
    while True:
        if file is not None and (data := file.read(_CHUNK)):
            *lines, rest = (rest + data).split(b"\n")
            if lines:
                yield b"\n".join(lines).decode("utf-8", "replace")
        elif not follows:
            yield rest.decode("utf-8", "replace")
            return
        elif _is_another(path, file):
            if file is not None:
                file.close()
            file, rest = _opened(path), b""
        else:
            time.sleep(_LOOK_INTERVAL)


def _opened(path: Path) -> BinaryIO | None:
    with suppress(FileNotFoundError):
        return path.open("rb")
    return None


def _is_another(path: Path, file: BinaryIO | None) -> bool:
    with suppress(FileNotFoundError):
        found = path.stat()
        return file is None or not os.path.samestat(found, os.fstat(file.fileno()))
    return False
