"""Installs the peers, each into a folder of its own, in the versions that the table pins."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.peers.table import Peer
from benchmarks.rounds import Figures

SECONDS = 600.0
"""That one installation may take."""
_STAMP = "installed.json"


class NotInstalled(RuntimeError):
    """It cannot be installed here."""


def installed(peer: Peer, folder: Path) -> Figures:
    """Install a peer, if it is not there; its version, or why there is none."""
    try:
        install(peer, folder / peer.slug)
    except NotInstalled as error:
        return {"absent": str(error)}
    return {"version": version(peer, folder / peer.slug)}


def install(peer: Peer, folder: Path) -> None:
    """Install a peer into a folder. The stamp comes last, so that half an installation is none.

    Raises:
        NotInstalled: it cannot be.
    """
    pins = [*peer.python, *peer.node]
    stamp = folder / _STAMP
    if not pins or (stamp.exists() and json.loads(stamp.read_text()) == pins):
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if peer.python:
        environment = folder / "python"
        run([interpreter(peer.needs_python), "-m", "venv", str(environment)])
        run([str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", *peer.python])
    if peer.node:
        run([found("npm"), "install", "--no-audit", "--no-fund", "--prefix", str(folder / "node"), *peer.node])
    stamp.write_text(json.dumps(pins))


def found(program: str) -> str:
    """The path of a program."""
    path = shutil.which(program)
    if path is None:
        raise NotInstalled(f"there is no {program} here")
    return path


def interpreter(needed: tuple[int, int]) -> str:
    """This Python, or another one of this machine if it is too old."""
    if sys.version_info >= needed:
        return sys.executable
    return next((path for path in interpreters(needed) if works(path)), sys.executable)


def interpreters(needed: tuple[int, int]) -> Iterator[str]:
    """Pythons that are new enough: those of `PATH`, and those of pyenv, whose shims often run none."""
    versions = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    for minor in range(needed[1], needed[1] + 3):
        if path := shutil.which(f"python3.{minor}"):
            yield path
        yield from sorted(map(str, versions.glob(f"3.{minor}.*/bin/python")))


def works(python: str) -> bool:
    """Whether a program runs, which is not said of the shims of pyenv."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def run(command: Sequence[str]) -> None:
    """Run a step of an installation."""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired as error:
        raise NotInstalled(f"its installation took over {SECONDS:g} s") from error
    if ended.returncode:
        raise NotInstalled(reason(ended.stderr or ended.stdout))


def reason(said: str) -> str:
    """The line of pip or npm that says why, without addresses: pip's about Python's version, else the first error."""
    lines = [line.strip() for line in said.splitlines()]
    needs = [line.rpartition("Requires-Python ")[2] for line in lines if "Requires-Python " in line]
    if needs:
        return f"needs Python {needs[0]}, here is {sys.version_info.major}.{sys.version_info.minor}"
    marks = ("ERROR:", "npm error")
    errors = [line.removeprefix(mark).strip() for line in lines for mark in marks if line.startswith(mark)]
    told = [line for line in errors if not line.startswith("code ")]
    return re.sub(r" - GET \S+", "", (told or lines or ["it failed without a word"])[0])[:200]


def version(peer: Peer, folder: Path) -> str:
    """The version of a peer that is installed."""
    if peer.python:
        name = peer.python[0].partition("==")[0]
        for library in (folder / "python" / "lib").glob("python3*/site-packages"):
            for found in importlib.metadata.distributions(name=name, path=[str(library)]):
                return found.version
    if peer.node:
        name = peer.node[0].rpartition("@")[0]
        package = json.loads((folder / "node" / "node_modules" / name / "package.json").read_text())
        return str(package["version"])
    return importlib.metadata.version(peer.package or peer.name)
