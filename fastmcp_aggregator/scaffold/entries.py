"""A new server in the aggregator's config: its entry, put into the file without touching the rest of it."""

from __future__ import annotations

import json
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastmcp_aggregator.config.documents import Location, parse_json, text_of
from fastmcp_aggregator.config.jsonc import with_member
from fastmcp_aggregator.config.loader import entries_of
from fastmcp_aggregator.errors import AggregatorError
from fastmcp_aggregator.files.atomic import PUBLIC, require_no_link_to_nothing
from fastmcp_aggregator.scaffold.rules import Plan


@dataclass(frozen=True, slots=True)
class Addition:
    """An entry, and the config's text with it."""

    path: Path
    text: str
    mode: int


def entry_for(plan: Plan, folder: Path) -> dict[str, Any]:
    """The entry with which the aggregator starts the server; its settings file is in its working directory."""
    root = folder.absolute()
    if plan.language == "python":
        command: dict[str, Any] = {"command": str(root / ".venv" / "bin" / plan.project)}
    else:
        command = {"command": "node", "args": [str(root / "dist" / "src" / "main.js")]}
    return {name: _literal(value) for name, value in {**command, "cwd": str(root)}.items()}


def addition(path: Path, key: str, entry: dict[str, Any]) -> Addition:
    """The change that adds the entry to a config. Nothing is written yet.

    Raises:
        ConfigError: the file is no config.
        AggregatorError: it has a server of this name, or the file cannot be put where it is said to be.
    """
    require_no_link_to_nothing(path)
    if not path.exists():
        if not path.absolute().parent.is_dir():
            raise AggregatorError(f"there is no folder {path.absolute().parent} for the config")
        return Addition(path, json.dumps({"mcpServers": {key: entry}}, indent=2, ensure_ascii=False) + "\n", PUBLIC)
    location = Location(str(path))
    text = text_of(path)
    document = parse_json(text, location, takes_comments=True)
    location.raise_problems()
    entries = entries_of(document, location)
    location.raise_problems()
    if key in entries:
        raise AggregatorError(f"{path} has a server {key!r} already; choose another name, or remove that one first")
    return Addition(path, with_member(text, ["mcpServers"], key, entry), stat.S_IMODE(path.stat().st_mode))


def _literal(value: Any) -> Any:
    """A `$` of a path is no variable of the config."""
    return [_literal(item) for item in value] if isinstance(value, list) else value.replace("$", "$$")
