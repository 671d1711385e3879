"""The parent-death signal: on Linux the kernel kills a process when the one that has started it ends, in whatever way.

Only a process itself can ask for that. Python's way to have it ask (`preexec_fn`) copies the page tables of the whole
program first, 10 ms in which nothing is served; without it a start takes 0.2 ms. So `setpriv` asks, which every
distribution with util-linux has, and becomes the program in the same process. Where it might start something else than
Python would, or report it otherwise, Python's way is left.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_LONGEST_SHEBANG = 256
_ELF = b"\x7fELF"


def with_parent_death_signal(
    command: str, arguments: Sequence[str], environment: Mapping[str, str], cwd: str | None
) -> tuple[list[str], Mapping[str, Any]]:
    """The command that makes another end with us, and the options of `Popen` for it."""
    setpriv = _setpriv()
    if setpriv is None or _asks_the_loader(environment) or not _starts(command, environment, cwd):
        return [command, *arguments], {"preexec_fn": _asking()}
    return [setpriv, "--pdeathsig", "KILL", "--", command, *arguments], {}


@functools.cache
def _setpriv(paths: Sequence[str] = ("/usr/bin/setpriv", "/bin/setpriv")) -> str | None:
    """The program, if it can do that: the one of busybox cannot."""
    for path in paths:
        with suppress(OSError):
            if b"pdeathsig" in Path(path).read_bytes():
                return path
    return None


@functools.cache
def _asking() -> Callable[[], object]:
    import ctypes  # noqa: PLC0415 - only here

    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _asks_the_loader(environment: Mapping[str, str]) -> bool:
    """True if it names libraries for programs to load, which is meant for the server's alone."""
    return any(name.startswith("LD_") for name in environment)


def _starts(command: str, environment: Mapping[str, str], cwd: str | None) -> bool:
    """True if Linux would execute it: a program, or a script whose interpreter is there."""
    try:
        if os.sep in command:
            path: str | None = os.path.join(cwd or "", command)
        else:
            path = shutil.which(command, path=environment.get("PATH", os.defpath))
        if path is None or not os.access(path, os.X_OK) or not os.path.isfile(path):
            return False
        with open(path, "rb") as file:
            head = file.read(_LONGEST_SHEBANG)
    except (OSError, ValueError):
        return False
    if head.startswith(_ELF):
        return True
    words = head.partition(b"\n")[0][2:].split()
    return head.startswith(b"#!") and bool(words) and os.access(words[0], os.X_OK)
