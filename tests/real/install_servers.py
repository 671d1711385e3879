"""Installs the servers and clients that the tests in this folder run: `python tests/real/install_servers.py [DIR]`.

DIR is, by default, what REAL_SERVERS names, and otherwise `.real-servers` at the project's root. It gets the servers in
two folders: `python`, a virtual environment, and `node`, with `node_modules`; and the clients in two such folders under
`clients`, servers with pages under `apps`, and identity providers under `identity`, so that what they need disturbs
nobody. An installation with the same pins is left alone.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

Pins = dict[str, dict[str, str]]
"""Versions by package, by registry."""

_UV = shutil.which("uv")
"""It need not be there, and takes a tenth of the time of pip."""

SERVERS: Pins = {
    "python": {
        "fastmcp-tasks": "4.1.2",
        "mcp-server-git": "2026.10.19",
        "mcp-server-time": "2026.10.19",
    },
    "node": {
        "@modelcontextprotocol/server-everything": "2026.8.31",
        "@modelcontextprotocol/server-filesystem": "2026.8.31",
        "@modelcontextprotocol/server-memory": "2026.8.31",
        "@modelcontextprotocol/server-sequential-thinking": "2026.8.31",
    },
}
CLIENTS: Pins = {
    "python": {
        "langchain-mcp-adapters": "0.3.2",
        "openai-agents": "0.24.0",
    },
    "node": {
        "@modelcontextprotocol/sdk": "1.32.2",
        "@modelcontextprotocol/client": "2.3.1",
        "@modelcontextprotocol/inspector": "2.12.0",
        # The Inspector needs Node.js 22.
        "node": "22.23.3",
    },
}
APPS: Pins = {
    "python": {},
    "node": {
        # The host, and what makes one script of it.
        "@modelcontextprotocol/ext-apps": "2.0.4",
        "esbuild": "0.28.2",
        "@modelcontextprotocol/server-basic-preact": "2.0.3",
        "@modelcontextprotocol/server-basic-react": "2.0.3",
        "@modelcontextprotocol/server-basic-vanillajs": "2.0.3",
        "@modelcontextprotocol/server-basic-vue": "2.0.3",
        "@modelcontextprotocol/server-budget-allocator": "2.0.3",
        "@modelcontextprotocol/server-cohort-heatmap": "2.0.3",
        "@modelcontextprotocol/server-customer-segmentation": "2.0.3",
        "@modelcontextprotocol/server-debug": "2.0.3",
        "@modelcontextprotocol/server-scenario-modeler": "2.0.3",
        "@modelcontextprotocol/server-system-monitor": "2.0.3",
    },
}
# And a proxy that may stand before them.
IDENTITY_PROVIDERS: Pins = {"python": {}, "node": {"oidc-provider": "9.13.3", "proxy": "4.1.0"}}


def default_folder() -> Path:
    """Where the servers are installed, unless told otherwise."""
    chosen = os.environ.get("REAL_SERVERS")
    return Path(chosen) if chosen else Path(__file__).parents[2] / ".real-servers"


def clients_folder(folder: Path) -> Path:
    """Where the clients are, if the servers are in this folder."""
    return folder / "clients"


def apps_folder(folder: Path) -> Path:
    """Where the servers with pages are, and a host, if the servers are in this folder."""
    return folder / "apps"


def identity_folder(folder: Path) -> Path:
    """Where the identity providers are, if the servers are in this folder."""
    return folder / "identity"


def is_installed(folder: Path) -> bool:
    """Whether the servers, clients, apps and identity providers are there, in the versions that are pinned above."""
    parts = {
        folder: SERVERS,
        clients_folder(folder): CLIENTS,
        apps_folder(folder): APPS,
        identity_folder(folder): IDENTITY_PROVIDERS,
    }
    return all(is_stamped(part, pins) for part, pins in parts.items())


def python_bin(folder: Path) -> Path:
    """The folder of the Python servers' commands."""
    return folder / "python" / ("Scripts" if sys.platform == "win32" else "bin")


def node_script(folder: Path, package: str) -> Path:
    """What `node` runs for one of the npm packages."""
    return folder / "node" / "node_modules" / package / "dist" / "index.js"


def install(folder: Path) -> None:
    """Install what is missing."""
    npm = find_npm()
    install_pinned(folder, SERVERS, npm)
    install_pinned(clients_folder(folder), CLIENTS, npm)
    install_pinned(apps_folder(folder), APPS, npm)
    install_pinned(identity_folder(folder), IDENTITY_PROVIDERS, npm)


def install_pinned(folder: Path, pins: Pins, npm: str) -> None:
    """Install these, unless they are there. The stamp comes last: a half installation is never taken for a whole."""
    if is_stamped(folder, pins):
        print(f"already installed in {folder}", flush=True)
        return
    unstamp(folder)
    if pins["python"]:
        make_venv(folder)
        install_from_pypi(folder, [f"{name}=={version}" for name, version in pins["python"].items()])
    install_from_npm(npm, folder, pins["node"])
    stamp(folder, pins)
    print(f"installed in {folder}", flush=True)


def make_venv(folder: Path) -> None:
    """Make the virtual environment of the folder, with pip."""
    target = str(folder / "python")
    print(f"making a virtual environment in {target}", flush=True)
    by_uv = [_UV, "venv", "--quiet", "--seed", "--clear", "--python", sys.executable, target] if _UV else None
    run(by_uv or [sys.executable, "-m", "venv", target])


def pip_of(folder: Path) -> list[str]:
    """The command line of the pip of the folder's virtual environment."""
    return [str(python_bin(folder) / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet"]


def install_from_pypi(folder: Path, requirements: Sequence[str]) -> None:
    """Install into the folder's virtual environment; a requirement may be a folder."""
    print(f"installing {', '.join(requirements)}", flush=True)
    by_uv = [_UV, "pip", "install", "--quiet", "--python", str(python_bin(folder) / "python")] if _UV else None
    run([*(by_uv or [*pip_of(folder), "install"]), *requirements])


def install_from_npm(npm: str, folder: Path, pins: Mapping[str, str]) -> None:
    """Install npm packages, by name and version, into `node_modules`."""
    target = folder / "node"
    target.mkdir(parents=True, exist_ok=True)
    packages = [f"{name}@{version}" for name, version in pins.items()]
    print(f"installing {', '.join(packages)}", flush=True)
    run([npm, "install", "--prefix", str(target), "--no-audit", "--no-fund", *packages])


def find_npm() -> str:
    """The path of npm. Ends the program without node and npm."""
    missing = [program for program in ("node", "npm") if shutil.which(program) is None]
    if missing:
        sys.exit(f"not found on PATH: {' and '.join(missing)}; install Node.js 20 or later, which has both")
    return str(shutil.which("npm"))


def run(command: Sequence[str]) -> None:
    """Run a command to its end. Ends the program if it fails."""
    code = subprocess.run(command, check=False).returncode
    if code:
        sys.exit(f"failed with exit code {code}: {' '.join(command)}")


def is_stamped(folder: Path, pins: Pins) -> bool:
    """Whether an installation with these pins was completed in the folder."""
    try:
        return bool(json.loads(_stamp_file(folder).read_text()) == pins)
    except (OSError, ValueError):
        return False


def unstamp(folder: Path) -> None:
    """Say that the folder's installation is not complete."""
    _stamp_file(folder).unlink(missing_ok=True)


def stamp(folder: Path, pins: Pins) -> None:
    """Say that an installation with these pins is complete."""
    _stamp_file(folder).write_text(json.dumps(pins, indent=2) + "\n")


def _stamp_file(folder: Path) -> Path:
    return folder / "installed.json"


if __name__ == "__main__":
    if len(sys.argv) > 2 or sys.argv[1:] in (["-h"], ["--help"]):
        sys.exit(__doc__)
    install(Path(sys.argv[1]).absolute() if len(sys.argv) == 2 else default_folder())
