"""The variables of a config that stand for the working folder: that of the client, where there are several."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from fastmcp_aggregator.config.expansion import variables_in

_NAMED = ("workspaceFolder", "WORKSPACE_FOLDER")
"""As clients write it in their own config files, and as `import` writes it; environments have no such variable."""
FOLDER_VARIABLES = ("PWD", *_NAMED)
_FIELDS = ("command", "args", "env", "cwd")


def with_working_folder(environ: Mapping[str, str]) -> Mapping[str, str]:
    """The environment, with the variables for the working folder that it lacks."""
    try:
        folder = os.getcwd()
    except OSError:  # it is gone
        return environ
    return {**dict.fromkeys(_NAMED, folder), **environ}


def in_working_folder(environ: Mapping[str, str], folder: str) -> Mapping[str, str]:
    """The environment of a client that works there."""
    return {**environ, **dict.fromkeys(FOLDER_VARIABLES, folder)}


def folder_variables_of(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """The variables for the working folder on which the process of an entry depends."""
    used = {name for field in _FIELDS for name in variables_in(entry.get(field))}
    return tuple(name for name in FOLDER_VARIABLES if name in used)
