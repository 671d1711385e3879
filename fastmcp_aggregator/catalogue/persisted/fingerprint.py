"""The fingerprint of a server: a digest of everything that decides what it lists. Another one: another catalogue.

It is keyed with a secret of the cache folder, so that a file of that folder tells nothing of tokens in a command line,
a URL, a variable or a header, not even by guessing.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import shutil
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from fastmcp_aggregator.config import RemoteServer, ServerConfig, StdioServer
from fastmcp_aggregator.early.answers import FileState
from fastmcp_aggregator.settings.options import ChildOptions

_MOST_FILES = 50
"""Arguments that are looked at for being files."""
_MANIFESTS = ("package.json", "pyproject.toml")
"""Files with the version of the package that a script belongs to."""
_MOST_PARENTS = 6


def fingerprint_of(server: ServerConfig, options: ChildOptions, secret: bytes, working_folder: str) -> str | None:
    """The fingerprint, in hex; None for a server that cannot be used. `working_folder`: of those without `cwd`."""
    match server:
        case StdioServer():
            parts: dict[str, Any] = {
                "command": server.command,
                "args": server.args,
                "cwd": server.cwd or working_folder,
                "env": server.environment(),
                "files": list(files_of(server)),
            }
        case RemoteServer():
            access = options.endpoint.access
            parts = {
                "url": server.url,
                "transport": server.transport,
                "headers": server.plain_headers(),
                "token": os.environ.get(access.bearer_env, "") if access.bearer_env else None,
                "oauth": None if access.oauth is None else access.oauth.model_dump(mode="json"),
            }
        case _:
            return None
    settings = options.settings
    parts |= {
        "key": server.key,
        "era": options.era,
        "max_tools": settings.max_tools_per_child,
        "pins": _digest_of(settings.pins) if settings.pins and settings.on_pin_mismatch == "block" else None,
    }
    return hmac.new(secret, json.dumps(parts, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def files_of(server: StdioServer) -> Iterator[FileState]:
    """The program, the scripts among its arguments, and what tells the versions of their packages."""
    folder = Path(server.cwd or ".")
    path = server.environment().get("PATH") or os.environ.get("PATH")
    program = shutil.which(server.command, path=path) or server.command
    seen: set[str] = set()
    for name in (program, *server.args[:_MOST_FILES]):
        if not name or name.startswith("-") or "\0" in name:
            continue
        file = folder / name
        if (state := _state_of(file)) is None:
            continue
        for found in (state, _manifest_of(file)):
            if found is not None and found[0] not in seen:
                seen.add(found[0])
                yield found


def _manifest_of(file: Path) -> FileState | None:
    """The file with the version of the package of a file; links are followed, as `node_modules/.bin` has."""
    for folder in list(Path(os.path.realpath(file)).parents)[:_MOST_PARENTS]:
        for name in _MANIFESTS:
            if (state := _state_of(folder / name)) is not None:
                return state
    return None


def _state_of(file: Path) -> FileState | None:
    try:
        found = os.stat(file)
    except (OSError, ValueError):
        return None
    is_file = (found.st_mode & 0o170000) == 0o100000
    return (str(file), found.st_size, found.st_mtime_ns) if is_file else None


def _digest_of(pins: str) -> str | None:
    state = _state_of(Path(pins).expanduser())
    return None if state is None else _digest_of_file(state)


@lru_cache(maxsize=4)
def _digest_of_file(state: FileState) -> str:
    return hashlib.sha256(Path(state[0]).read_bytes()).hexdigest()
