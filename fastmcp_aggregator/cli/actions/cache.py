"""Listing and clearing the catalogues on disk."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from fastmcp_aggregator.catalogue.persisted.store import CatalogueStore, StoredFile
from fastmcp_aggregator.cli.terminal.console import counted, put, put_json, say
from fastmcp_aggregator.cli.terminal.exits import FAILED, FINE
from fastmcp_aggregator.early import answers
from fastmcp_aggregator.escaping import printable


def run(options: argparse.Namespace) -> int:
    store = CatalogueStore()
    try:
        files = list(store.files())
        if options.action == "clear":
            files = [file for file in files if not options.servers or file.server in options.servers]
            for file in files:
                file.path.unlink(missing_ok=True)
            answers.clear()
    except OSError as error:
        say(f"{store.folder}: {error.strerror}")
        return FAILED
    if options.json:
        put_json({"folder": str(store.folder), "files": [_as_json(file) for file in files]})
    elif options.action == "clear":
        put(f"removed {counted(len(files), 'file')} from {store.folder}")
    else:
        put("\n".join([*_lines(files), f"{counted(len(files), 'file')} in {store.folder}", *_why_several(files)]))
    return FINE


def _as_json(file: StoredFile) -> dict[str, Any]:
    return {
        "server": file.server,
        "file": str(file.path),
        "bytes": file.size,
        "since": file.since,
        "counts": file.counts,
        "problem": file.problem or None,
    }


def _why_several(files: Sequence[StoredFile]) -> Iterable[str]:
    names = [file.server for file in files if file.server is not None]
    if len(set(names)) < len(names):
        yield "A server has a file for each different entry: in other configs, or before its entry or settings changed."


def _lines(files: Iterable[StoredFile]) -> Iterable[str]:
    for file in files:
        when = datetime.fromtimestamp(file.since).strftime("%Y-%m-%d %H:%M")
        offer = file.problem or ", ".join(counted(number, kind[:-1]) for kind, number in file.counts.items() if number)
        yield f"{printable(file.server or file.path.name)}  {when}  {file.size // 1024 + 1} KiB  {offer or 'nothing'}"
