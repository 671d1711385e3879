"""The configs that are served above this process: each aggregator tells the processes that it starts."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence

from fastmcp_aggregator.early.reading import read_bytes

CONFIGS_ABOVE = "_FASTMCP_AGGREGATOR_CONFIGS_ABOVE"
"""The environment variable that has them."""
_MOST_BYTES = 10 * 1024 * 1024
_PROGRAM = re.compile(r"fastmcp[-_]aggregator")


def configs_above() -> list[str]:
    """Their real paths."""
    return [path for path in os.environ.get(CONFIGS_ABOVE, "").split(os.pathsep) if path]


def real_path_of(config: str) -> str:
    """The path by which a config is known here."""
    try:
        return os.path.normcase(os.path.realpath(config))
    except OSError:  # it is relative to a working folder that is gone
        return os.path.normcase(config)


def starts_aggregator(command_line: Sequence[object]) -> bool:
    """True if a word of the command is this program, as a script, a module or a package."""
    words = (word for word in command_line if isinstance(word, str))
    return any(_PROGRAM.search(os.path.basename(os.path.normpath(word))) for word in words)


def serves_config(command_line: Sequence[str], config: str, folder: str | None = None) -> bool:
    """True if the command starts the aggregator with this config. Relative paths are those of `folder`, by default our
    own.
    """
    path = real_path_of(config)
    others = [word for word in command_line if _path_in(word, folder) != path]
    return len(others) < len(command_line) and starts_aggregator(others)


def _is_in_itself(config: str) -> bool:
    """True if one of its servers starts the aggregator with it, as far as a first look tells: of JSON, as written."""
    try:
        entries = json.loads(read_bytes(config, _MOST_BYTES))["mcpServers"].values()
        lines = [[entry["command"], *entry.get("args", [])] for entry in entries if "command" in entry]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return False  # the full reader says what is wrong
    return any(serves_config([word for word in line if isinstance(word, str)], config) for line in lines)


def _path_in(word: str, folder: str | None) -> str:
    _, is_option, value = word.partition("=") if word.startswith("--") else ("", "", "")
    try:
        return real_path_of(os.path.join(folder or "", os.path.expanduser(value if is_option else word)))
    except ValueError:  # it has a null character
        return ""


def why_recursive(config: str) -> str | None:
    """Why this config must not be served here; None: it is not served above us already, nor by a server of its own."""
    if real_path_of(config) not in configs_above() and not _is_in_itself(config):
        return None
    return (
        f"{config} contains the aggregator itself, with this same file: it would start itself without end; "
        "remove that entry, or give the aggregator a config of its own"
    )
