"""File permissions: who else on this machine could change a file, by its owner, its mode and its ACL, and by those of
every folder and link on the way to it.
"""

from __future__ import annotations

import logging
import os
import stat
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

logger = logging.getLogger(__name__)

_MOST_LINKS = 40
"""On the way to a file, as in the kernel of Linux."""
_ACL = "system.posix_acl_access"
_ACL_ENTRY = struct.Struct("<HHI")
_USER, _OWNING_GROUP, _GROUP = 0x02, 0x04, 0x08
"""Tags of the entries of an ACL (`acl_ea.h`)."""
_WRITE = 0x02
_ALL_PROCESSES = 0xEFFFFFFC
"""The number of the namespace with all processes of a machine (`PROC_PID_INIT_INO` of Linux)."""


def weaknesses(path: Path) -> list[str]:
    """Say how others than we and the administrator could change a file; nothing if they cannot, or it is not there.

    A file on a file system that is mounted read-only cannot be changed: a container's, not one that systemd mounts so
    for a service alone, beside users who can write to it. On Windows nothing is looked at.
    """
    if sys.platform == "win32":
        return []
    try:
        if os.statvfs(path).f_flag & os.ST_RDONLY and not _shares_its_processes():
            return []
        return list(_weaknesses(path.absolute()))
    except (OSError, ValueError):
        return []  # reading it tells


def _shares_its_processes() -> bool:
    """True if this is no container, but a process among all of the machine."""
    return sys.platform == "linux" and os.stat("/proc/self/ns/pid").st_ino == _ALL_PROCESSES


def warn_of(path: Path, weakness: str) -> None:
    logger.warning("%s %s; what it says is done with your rights", path, weakness)


def _weaknesses(path: Path) -> Iterator[str]:
    target = path.resolve()
    found = target.stat()
    if not is_trusted(found.st_uid):
        yield f"belongs to another user ({_name(found.st_uid)})"
    if _others_may_write(target, found):
        yield "can be written to by others than its owner"
    for entry in dict.fromkeys(_way_to(path)):
        about = entry.stat(follow_symlinks=False)
        if stat.S_ISLNK(about.st_mode):
            if not is_trusted(about.st_uid):
                yield f"is reached by a link of another user ({_name(about.st_uid)}): {entry}"
        elif stat.S_ISDIR(about.st_mode):
            if not is_trusted(about.st_uid):
                yield f"is in a folder of another user ({_name(about.st_uid)}): {entry}"
            if _others_may_write(entry, about) and not about.st_mode & stat.S_ISVTX:
                yield f"can be replaced by others, who may write to the folder {entry}"


def _way_to(path: Path) -> Iterator[Path]:
    """Every folder and link that is passed, and the file."""
    at, *names = [Path(part) for part in path.parts]
    links = 0
    yield at
    while names:
        name = names.pop(0)
        if str(name) == "..":
            at = at.parent
            continue
        entry = at / name
        yield entry
        if not entry.is_symlink():
            at = entry
        elif (links := links + 1) > _MOST_LINKS:
            return  # reading it tells
        else:
            to = Path(os.readlink(entry))
            names = [Path(part) for part in to.parts[1 if to.is_absolute() else 0 :]] + names
            at = Path(to.anchor) if to.is_absolute() else at


def is_trusted(owner: int) -> bool:
    """True of ourselves and the administrator."""
    return owner in (0, os.geteuid())


def _others_may_write(path: Path, found: os.stat_result) -> bool:
    if found.st_mode & stat.S_IWOTH:
        return True
    if not found.st_mode & stat.S_IWGRP:
        return False  # of an ACL, this is the most that it may grant
    acl = _acl_of(path) or [(_OWNING_GROUP, _WRITE, 0)]
    for tag, permissions, whose in acl:
        if not permissions & _WRITE or tag not in (_USER, _OWNING_GROUP, _GROUP):
            continue
        if tag == _USER:
            if not is_trusted(whose):
                return True
        elif not _is_private(found.st_gid if tag == _OWNING_GROUP else whose, found.st_uid):
            return True
    return False


def _acl_of(path: Path) -> list[tuple[int, int, int]]:
    """The entries of the ACL of a file: tag, permissions, and whose they are; none where there is no ACL."""
    if sys.platform != "linux":
        return []
    try:
        return list(_ACL_ENTRY.iter_unpack(os.getxattr(path, _ACL)[4:]))
    except (OSError, struct.error):
        return []


def _is_private(group: int, owner: int) -> bool:
    """True if a group has one user alone, as many systems make for each."""
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
