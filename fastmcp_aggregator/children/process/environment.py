"""The environment of a child process, and the reason why one could not be spawned."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from fastmcp_aggregator.config import StdioServer
from fastmcp_aggregator.early.ancestors import CONFIGS_ABOVE
from fastmcp_aggregator.file_descriptors import shortage

_WINDOWS_VARIABLES = """
    APPDATA HOMEDRIVE HOMEPATH LOCALAPPDATA PATH PATHEXT PROCESSOR_ARCHITECTURE SYSTEMDRIVE SYSTEMROOT TEMP
    USERNAME USERPROFILE
"""
_POSIX_VARIABLES = "HOME LOGNAME PATH SHELL TERM USER"
SAFE_VARIABLES = tuple((_WINDOWS_VARIABLES if sys.platform == "win32" else _POSIX_VARIABLES).split())
"""The variables of our environment that a child gets; the same ones that the MCP SDK passes on."""

NOT_STARTED = "it could not be started; see the log of the aggregator"
"""The message for those who are not on this machine."""


def child_environment(server: StdioServer) -> dict[str, str]:
    """The child's whole environment: the safe variables of ours, which configs are served above it, then its own. Never
    all of ours.
    """
    safe = {name: value for name in (*SAFE_VARIABLES, CONFIGS_ABOVE) if (value := os.environ.get(name)) is not None}
    return {**safe, **server.environment()}


def working_folder(server: StdioServer) -> str | None:
    """The child's working folder; None: ours. If our folder is gone, as that of a client may be, it is the home of the
    user: programs such as `npx` do not start where there is no folder.
    """
    if server.cwd is not None:
        return server.cwd
    try:
        os.getcwd()
    except OSError:
        home = os.path.expanduser("~")
        return home if os.path.isdir(home) else None
    return None


def advice_on_missing(server: StdioServer, home: str | None = None) -> str:
    """Advice on a missing program; `home` is where such a program comes from."""
    if _has_arguments(server):
        return "arguments belong into `args`, each as a string of its own"
    if _is_before_uv_sync(server.command):
        return "run `uv sync` in its project"
    if os.path.dirname(server.command):
        return "install or build the server first, or correct the path"
    return f"install it{f' from {home}' if home else ''}, or give its full path as `command`"


def _has_arguments(server: StdioServer) -> bool:
    """True if it is a whole command line: there are options, or the first word alone is a program."""
    words = server.command.split()
    has_options = any(word.startswith("-") for word in words[1:])
    return has_options or (len(words) > 1 and located(server, words[0]) is not None)


def located(server: StdioServer, program: str) -> str | None:
    """The path of a program, by the search path that the server will have."""
    if os.path.dirname(program) and server.cwd is not None:
        program = str(Path(server.cwd) / program)
    return shutil.which(program, path=child_environment(server).get("PATH"))


def _is_before_uv_sync(command: str) -> bool:
    """True if it belongs to the environment of a Python project that has none yet."""
    project, _, rest = command.partition(f"{os.sep}.venv{os.sep}")
    return bool(rest) and Path(project, "pyproject.toml").is_file() and not Path(project, ".venv").exists()


def spawn_failure(server: StdioServer, error: Exception) -> str:
    """Why the process could not be started, and what to do."""
    if server.cwd is not None and not Path(server.cwd).is_dir():
        return "its working directory (`cwd`) does not exist; create it or correct the path"
    if lacking := shortage(error):
        return f"cannot start {server.label!r}: {lacking}"
    if isinstance(error, FileNotFoundError):
        return f"command not found: {server.label!r}; {advice_on_missing(server)}"
    if isinstance(error, PermissionError):
        return f"command is not executable: {server.label!r}; make it executable, or name the program that runs it"
    return f"cannot start {server.label!r}: {error.__class__.__name__}"
