"""The folder of a user's hubs: a socket and a lock for each, for this user alone; and that of their logs.

On Windows a hub has a named pipe instead, and what is in the user's own folder is the user's alone as a rule.
"""

from __future__ import annotations

import os
import stat
import sys

from fastmcp_aggregator.early.answers import cache_folder, make_private

_LONGEST_ADDRESS = 103
"""Bytes of a socket's path (macOS has the shortest: 104, with a zero at the end)."""
_NAME_BYTES = len("/0123456789abcdef.sock")


class Unusable(Exception):
    """There can be no hub; the message is the end of a sentence that says why."""


def hub_folder() -> str:
    """Where the sockets are: with what lasts as long as the user's session, or in the user's cache folder; if its path
    is too long for them, in one of the user's own in /tmp.
    """
    if sys.platform == "win32":
        return os.path.join(cache_folder(), "hubs")
    for runtime in (os.environ.get("XDG_RUNTIME_DIR", "").strip(), f"/run/user/{os.getuid()}"):
        if runtime and os.path.isabs(runtime) and _is_private(runtime):
            return os.path.join(runtime, "fastmcp-aggregator")
    folder = os.path.join(cache_folder(), "hubs")
    if len(os.fsencode(folder)) + _NAME_BYTES <= _LONGEST_ADDRESS:
        return folder
    return f"/tmp/fastmcp-aggregator-{os.getuid()}"  # `made_hub_folder` looks whose it is


def made_hub_folder() -> str:
    """The same, made if it is not there. Raises Unusable: it cannot be made, or others may write to it or read it."""
    folder = hub_folder()
    try:
        make_private(folder)
    except OSError as error:
        raise Unusable(f"the folder {folder} cannot be made: {error.strerror}") from None
    if not _is_private(folder):
        raise Unusable(f"the folder {folder} is not for this user alone")
    return folder


def socket_of(hub_id: str) -> str:
    if sys.platform == "win32":
        return rf"\\.\pipe\fastmcp-aggregator-{hub_id}"
    return os.path.join(hub_folder(), f"{hub_id}.sock")


def lock_of(hub_id: str) -> str:
    """The path of the file whose lock a hub has as long as it lives."""
    return os.path.join(hub_folder(), f"{hub_id}.lock")


def log_of(hub_id: str) -> str:
    return os.path.join(cache_folder(), "logs", f"hub-{hub_id}.log")


def require_short(path: str) -> None:
    """Raise Unusable if a socket cannot have this path."""
    if len(os.fsencode(path)) > _LONGEST_ADDRESS:
        raise Unusable(f"the path {path} is too long for a socket")


def known_hubs() -> list[str]:
    """The ids of the hubs that have left a socket or a lock, whether they run, end, or have ended.

    None in a folder that another user may have made: what is noted there of a hub is believed.
    """
    folder = hub_folder()
    if not _is_private(folder):
        return []
    names = os.listdir(folder)
    return sorted({name.rpartition(".")[0] for name in names if name.endswith((".sock", ".lock"))})


def _is_private(path: str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    if sys.platform == "win32":
        return stat.S_ISDIR(found.st_mode)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
