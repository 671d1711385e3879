"""File permissions: who else on this machine could change a file, by its owner, its mode, and those of its folders."""

from __future__ import annotations

import logging
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

logger = logging.getLogger(__name__)


def weaknesses(path: Path) -> list[str]:
    """Say how others than we and the administrator could change a file; nothing if they cannot, or it is not there.

    A file on a file system that is mounted read-only is nobody's to change. On Windows nothing is looked at.
    """
    if sys.platform == "win32":
        return []
    try:
        if os.statvfs(path).f_flag & os.ST_RDONLY:
            return []
        return list(_weaknesses(path.absolute()))
    except (OSError, ValueError):
        return []  # reading it tells


def warn_of(path: Path, weakness: str) -> None:
    logger.warning("%s %s; what it says is done with your rights", path, weakness)


def _weaknesses(path: Path) -> Iterator[str]:
    target = path.resolve()
    found = target.stat()
    if not is_trusted(found.st_uid):
        yield f"belongs to another user ({_name(found.st_uid)})"
    if _others_may_write(found):
        yield "can be written to by others than its owner"
    for folder in dict.fromkeys([target.parent, path.parent]):
        about = folder.stat()
        if not is_trusted(about.st_uid):
            yield f"is in a folder of another user ({_name(about.st_uid)}): {folder}"
    for folder in dict.fromkeys([*target.parents, *path.parents]):
        about = folder.stat()
        if _others_may_write(about) and not about.st_mode & stat.S_ISVTX:
            yield f"can be replaced by others, who may write to the folder {folder}"


def is_trusted(owner: int) -> bool:
    """Whether it is ourselves or the administrator."""
    return owner in (0, os.geteuid())


def _others_may_write(found: os.stat_result) -> bool:
    by_group = found.st_mode & stat.S_IWGRP and not _is_private(found.st_gid, found.st_uid)
    return bool(found.st_mode & stat.S_IWOTH or by_group)


def _is_private(group: int, owner: int) -> bool:
    """Whether a group is that of one user alone, which many systems make for each."""
    import grp  # noqa: PLC0415 - POSIX only

    try:
        known = grp.getgrgid(group)
    except KeyError:
        return False
    name = _name(owner)
    return known.gr_name == name and {*known.gr_mem} <= {name}


def _name(user: int) -> str:
    import pwd  # noqa: PLC0415 - POSIX only

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
