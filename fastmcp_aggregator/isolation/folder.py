"""A server's entry and the working folder of a client: whether it depends on it, and the entry as it is there. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath, PureWindowsPath

from fastmcp_aggregator.config import ServerConfig, StdioServer
from fastmcp_aggregator.isolation.program_words import FOLDER_WORDS, MOST_ARGUMENTS, word_among

_LONGEST_PATH = 4096
_SCRIPT = re.compile(
    r"[\w.-]+([/\\][\w.-]+)*\.(py|pyz|js|mjs|cjs|ts|mts|sh|rb|php|jar|dll|exe|json|toml|ya?ml|db|sqlite)", re.ASCII
)
"""A path that names a script or a file, and nothing else that a program may be given, such as a package."""
_RELATIVE = re.compile(rb'(?<!\\)"\.\.?(?:[/\\][^"]*)?"')
"""A string of JSON that is surely a path, and a relative one."""
_MOST_BYTES = 64 * 1024


def depends_on_folder(server: ServerConfig, arguments: bytes) -> bool:
    """True if a call with these arguments, as JSON, means other files in another working folder."""
    if b'".' not in arguments or not isinstance(server, StdioServer) or server.cwd is not None:
        return False
    return _RELATIVE.search(arguments, 0, _MOST_BYTES) is not None


def why_of_a_folder(server: ServerConfig) -> str | None:
    """Why the server would be another one in another working folder; None: nothing in its entry shows that."""
    return next(_reasons(server), None) if isinstance(server, StdioServer) else None


def in_folder(server: ServerConfig, folder: str | None) -> ServerConfig:
    """The server as a client that works in this folder would start it; the same where that is not known."""
    if folder is None or not isinstance(server, StdioServer):
        return server
    if server.read_in is not None:
        server = server.read_in(folder)
    return replace(server, cwd=folder if server.cwd is None else os.path.join(folder, server.cwd))


def _reasons(server: StdioServer) -> Iterator[str]:
    if server.folder_variables:
        yield f"its entry has the variable {server.folder_variables[0]}, which stands for the working folder"
    if server.cwd is not None:
        if not _is_absolute(server.cwd):
            yield "its `cwd` is relative to the working folder"
        return
    if _is_relative(server.command) or ("/" in server.command and not _is_absolute(server.command)):
        yield "its `command` is a path relative to the working folder"
    for number, argument in enumerate(server.args[:MOST_ARGUMENTS], 1):
        if _is_relative(_value_of(argument)):
            yield f"its argument {number} is a path relative to the working folder"
    if any(_is_relative(value) for value in server.environment().values()):
        yield "one of its variables is a path relative to the working folder"
    if word := word_among(FOLDER_WORDS, server):
        yield f"programs named `{word}` work in the folder in which they are started"


def _value_of(argument: str) -> str:
    """The value of an option such as `--root=.`; an argument that is no option, as it is."""
    name, _, value = argument.partition("=")
    return value if name.startswith("-") else argument


def _is_relative(path: str) -> bool:
    """True if it is surely a path, and a relative one."""
    if path in (".", "..") or path.startswith(("./", "../", ".\\", "..\\")):
        return True
    return len(path) <= _LONGEST_PATH and not _is_absolute(path) and _SCRIPT.fullmatch(path) is not None


def _is_absolute(path: str) -> bool:
    return PurePosixPath(path).is_absolute() or PureWindowsPath(path).is_absolute() or path.startswith("~")
