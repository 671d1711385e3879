"""Installs the servers that the tests in this folder run: `python tests/real/install_servers.py [DIR]`.

DIR is, by default, what REAL_SERVERS names, and otherwise `.real-servers` at the project's root. It gets two folders:
`python`, a virtual environment, and `node`, with `node_modules`. An installation with the same pins is left alone.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PYTHON_PINS = {
    "mcp-server-git": "2026.10.19",
    "mcp-server-time": "2026.10.19",
}
NODE_PINS = {
    "@modelcontextprotocol/server-everything": "2026.8.31",
    "@modelcontextprotocol/server-filesystem": "2026.8.31",
    "@modelcontextprotocol/server-memory": "2026.8.31",
    "@modelcontextprotocol/server-sequential-thinking": "2026.8.31",
}


def default_folder() -> Path:
    """Where the servers are installed, unless told otherwise."""
    chosen = os.environ.get("REAL_SERVERS")
    return Path(chosen) if chosen else Path(__file__).parents[2] / ".real-servers"


def is_installed(folder: Path) -> bool:
    """Whether the servers are there, in the versions that are pinned above."""
    try:
        return json.loads(_stamp(folder).read_text()) == _pins()
    except (OSError, ValueError):
        return False


def python_bin(folder: Path) -> Path:
    """The folder of the Python servers' commands."""
    return folder / "python" / ("Scripts" if sys.platform == "win32" else "bin")


def node_script(folder: Path, package: str) -> Path:
    """What `node` runs for one of the npm packages."""
    return folder / "node" / "node_modules" / package / "dist" / "index.js"


def install(folder: Path) -> None:
    """Install what is missing. The stamp is written last, so that a half installation is never taken for a whole."""
    if is_installed(folder):
        print(f"already installed in {folder}", flush=True)
        return
    npm = _find_npm()
    _stamp(folder).unlink(missing_ok=True)
    _install_python_servers(folder)
    _install_node_servers(folder, npm)
    _stamp(folder).write_text(json.dumps(_pins(), indent=2) + "\n")
    print(f"installed in {folder}", flush=True)


def _install_python_servers(folder: Path) -> None:
    target = folder / "python"
    print(f"making a virtual environment in {target}", flush=True)
    _run([sys.executable, "-m", "venv", str(target)])
    requirements = [f"{name}=={version}" for name, version in PYTHON_PINS.items()]
    print(f"installing {', '.join(requirements)}", flush=True)
    pip = [str(python_bin(folder) / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    _run([*pip, "install", *requirements])


def _install_node_servers(folder: Path, npm: str) -> None:
    target = folder / "node"
    target.mkdir(parents=True, exist_ok=True)
    packages = [f"{name}@{version}" for name, version in NODE_PINS.items()]
    print(f"installing {', '.join(packages)}", flush=True)
    _run([npm, "install", "--prefix", str(target), "--no-audit", "--no-fund", *packages])


def _find_npm() -> str:
    missing = [program for program in ("node", "npm") if shutil.which(program) is None]
    if missing:
        sys.exit(f"not found on PATH: {' and '.join(missing)}; install Node.js 20 or later, which has both")
    return str(shutil.which("npm"))


def _run(command: Sequence[str]) -> None:
    code = subprocess.run(command, check=False).returncode
    if code:
        sys.exit(f"failed with exit code {code}: {' '.join(command)}")


def _stamp(folder: Path) -> Path:
    return folder / "installed.json"


def _pins() -> dict[str, dict[str, str]]:
    return {"python": PYTHON_PINS, "node": NODE_PINS}


if __name__ == "__main__":
    if len(sys.argv) > 2 or sys.argv[1:] in (["-h"], ["--help"]):
        sys.exit(__doc__)
    install(Path(sys.argv[1]).absolute() if len(sys.argv) == 2 else default_folder())
