"""Machines whose clients have what a test puts there."""

from __future__ import annotations

from pathlib import Path

from fastmcp_aggregator.client_configs.known import Machine


def machine(folder: Path, system: str = "linux", **environ: str) -> Machine:
    """A machine whose home and project are in this folder."""
    home = folder / "home"
    project = home / "work" / "project"
    project.mkdir(parents=True, exist_ok=True)
    return Machine(home, system, environ, project)


def put(path: Path, text: str) -> Path:
    """Write a file with the folders that it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
