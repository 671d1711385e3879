"""What the runs need: the suite and its Node.js from npm; the fixture from the source of the MCP SDK on PyPI."""

from __future__ import annotations

import os
import tarfile
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from real.install_servers import (
    Pins,
    find_npm,
    install_from_npm,
    install_from_pypi,
    is_stamped,
    make_venv,
    node_script,
    pip_of,
    python_bin,
    run,
    stamp,
    unstamp,
)

SUITE = "@modelcontextprotocol/conformance"
NODE_PINS = {SUITE: "0.2.0-alpha.12", "node": "22.23.3"}
FIXTURE = "examples/servers/everything-server"
"""Where the fixture is in the source distribution of the SDK."""


@dataclass(frozen=True, slots=True)
class Installation:
    """A folder with the suite and the fixture."""

    folder: Path

    @property
    def suite(self) -> list[str]:
        """The command line of the suite."""
        node = self.folder / "node" / "node_modules" / "node" / "bin" / "node"
        return [str(node), str(node_script(self.folder, SUITE))]

    @property
    def fixture_python(self) -> str:
        """The Python that can import the fixture."""
        return str(python_bin(self.folder) / "python")


def default_folder() -> Path:
    """Where the suite and the fixture are installed, unless told otherwise."""
    chosen = os.environ.get("CONFORMANCE_SUITE")
    return Path(chosen).absolute() if chosen else Path(__file__).parents[2] / ".conformance"


def pins() -> Pins:
    """The versions that are run; the fixture is of the SDK version that is installed here."""
    return {"node": NODE_PINS, "python": {"mcp": version("mcp")}}


def install(folder: Path) -> Installation:
    """Install what is missing. Ends the program if that fails, or without node and npm."""
    installation = Installation(folder)
    if not is_stamped(folder, pins()):
        npm = find_npm()
        unstamp(folder)
        install_from_npm(npm, folder, NODE_PINS)
        run([*installation.suite, "--version"])
        _install_fixture(folder, f"mcp=={version('mcp')}")
        stamp(folder, pins())
    return installation


def _install_fixture(folder: Path, requirement: str) -> None:
    make_venv(folder)
    with tempfile.TemporaryDirectory() as name:
        sources = Path(name)
        # Only `mcp` itself as source: what builds it may come as wheels.
        run([*pip_of(folder), "download", "--no-deps", "--no-binary", "mcp", "--dest", name, requirement])
        archive = next(sources.glob("mcp-*.tar.gz"))
        with tarfile.open(archive) as tar:
            tar.extractall(sources, filter="data")
        fixture = sources / archive.name.removesuffix(".tar.gz") / FIXTURE
        install_from_pypi(folder, [requirement, str(fixture)])
