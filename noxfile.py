"""One command for each task: `nox -s lint`. Without `-s`, everything that a change must pass."""

from __future__ import annotations

import os
import random
import shutil
import zipfile
from pathlib import Path

import nox

# Sessions start programs again and again: they keep their bytecode, as installed ones do.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

nox.needs_version = ">=2025.10"
nox.options.sessions = ["lint", "types", "tests", "docs", "build"]
nox.options.default_venv_backend = "uv|virtualenv"  # with uv, which need not be there, in a tenth of the time
nox.options.reuse_existing_virtualenvs = True

PROJECT = nox.project.load_toml("pyproject.toml")


EVERYTHING = ("-n", "2", "-m", "not real")
"""The tests of every mark that needs no installation of its own; plain `pytest` leaves out most marks."""
MARKED = ("-m", "process or browser or replicas or fuzz")
"""Those that plain `pytest` leaves out, with as many workers."""


def install(session: nox.Session, *groups: str, package: bool = False) -> None:
    """Install dependency groups of `pyproject.toml`, and the package itself."""
    needs = nox.project.dependency_groups(PROJECT, *groups) if groups else ()
    session.install(*needs, *(["--editable", "."] if package else []))


@nox.session
def lint(session: nox.Session) -> None:
    """Check the style of all Python files. To repair: `nox -s lint -- --fix`."""
    install(session, "lint")
    session.run("ruff", "check", *session.posargs)
    session.run("ruff", "format", *([] if "--fix" in session.posargs else ["--check"]))


@nox.session
def types(session: nox.Session) -> None:
    """Check the types of the package."""
    install(session, "types", package=True)
    session.run("mypy", "--strict", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Run all tests, marked or not, with coverage. With arguments: only those, `nox -s tests -- tests/naming`."""
    install(session, "test", package=True)
    session.run("pytest", *EVERYTHING, *(session.posargs or ["--cov", "--cov-fail-under=95"]))


@nox.session
def marked(session: nox.Session) -> None:
    """Run what plain `pytest` leaves out; coverage is of both: `pytest --cov --cov-report= && nox -s marked`."""
    install(session, "test", package=True)
    session.run("pytest", *MARKED, *(session.posargs or ["--cov", "--cov-append", "--cov-fail-under=95"]))


@nox.session
def quick(session: nox.Session) -> None:
    """Run the unmarked tests, as plain `pytest` does: in memory, on any system."""
    install(session, "test", package=True)
    session.run("pytest", *session.posargs)


@nox.session(name="install")
def installation(session: nox.Session) -> None:
    """Run and install the program as newcomers do, by uvx and pipx, from an index of its own with the built wheel."""
    install(session, "test", "build", package=True)
    session.install("pipx")
    session.run("pytest", "-n", "0", "-m", "real", "tests/packaging", *session.posargs, env={"INSTALLS": "1"})


@nox.session
def newcomer(session: nox.Session) -> None:
    """Walk as a newcomer with nine clients and thirty real servers, and write the table. Needs node and npm."""
    install(session, "test", package=True)
    session.install("uv")
    arguments = session.posargs or ["--markdown", "docs/real-servers.md"]
    session.run("python", "-m", "walk", *arguments, env={"PYTHONPATH": "tests"})


@nox.session
def full_path(session: nox.Session) -> None:
    """Run the unmarked tests with the fast path switched off: `nox -s full_path -- tests/relay`."""
    install(session, "test", package=True)
    session.run("pytest", *session.posargs, env={"FASTMCP_AGGREGATOR_FAST_PATH": "false"})


VERSIONS_TESTS = [
    "tests/test_libraries.py",
    "tests/children/test_children_sdk_seams.py",
    "tests/test_embedding.py::test_in_memory_client",
    "tests/test_embedding.py::test_over_http_for_clients_of_both_eras",
    "tests/cli/test_cli_serve.py::test_the_servers_of_a_config_are_served_on_stdio_until_the_client_leaves",
    "tests/cli/test_cli_serve.py::test_http_is_served_on_a_free_port_that_is_told_on_stderr",
]
"""What of FastMCP and the SDK is relied on; and a start, a list and a call on stdio and over HTTP."""


@nox.session
def versions(session: nox.Session) -> None:
    """Run a few tests with the oldest and with the newest FastMCP and SDK that `pyproject.toml` allows."""
    install(session, "test", package=True)
    allowed = [line for line in PROJECT["project"]["dependencies"] if line.startswith(("fastmcp>=", "mcp>="))]
    oldest = [line.partition(",")[0].replace(">=", "==") for line in allowed]
    for wanted in (oldest, ["--upgrade", *allowed]):
        session.install(*wanted)
        session.run("python", "-c", "from importlib.metadata import version as v; print(v('fastmcp'), v('mcp'))")
        session.run("pytest", "-p", "no:cacheprovider", *EVERYTHING, *(session.posargs or VERSIONS_TESTS))


@nox.session
def real(session: nox.Session) -> None:
    """Run the tests with third-party servers and clients, which it installs. Needs node and npm."""
    install(session, "test", package=True)
    session.install("uv")
    session.run("python", "tests/real/install_servers.py")
    session.run("pytest", "-n", "0", "-m", "real", *(session.posargs or ["tests/real"]))


@nox.session
def conformance(session: nox.Session) -> None:
    """Run the official conformance suite, which it installs, beside and through the aggregator. Needs node and npm."""
    install(session, package=True)
    session.install("uv")
    session.run("python", "-m", "conformance", *session.posargs, env={"PYTHONPATH": "tests"})


@nox.session
def scaffold(session: nox.Session) -> None:
    """Follow the guide to a server of one's own, in both languages, and check what it makes. Needs node and npm."""
    install(session, "test", "build", package=True)
    # A service depends on this package, which it gets as others would: as a wheel.
    wheels = str(Path(session.create_tmp()).resolve())
    session.run("python", "-m", "build", "--installer", "uv", "--wheel", "--outdir", wheels, silent=True)
    # The guide installs all projects, which has a time limit of its own.
    options = ["-n", "0", "-m", "", "--timeout", "1200"]
    environment = {"SCAFFOLD": "1", "UV_FIND_LINKS": wheels}
    session.run("pytest", *options, *(session.posargs or ["tests/scaffolded"]), env=environment)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation into `site/`. To read it while you write: `nox -s docs -- serve`."""
    install(session, "docs")
    # The theme's announcement of its successor, Zensical, which reads the same mkdocs.yml.
    session.env["NO_MKDOCS_2_WARNING"] = "1"
    session.run("mkdocs", *(session.posargs or ["build", "--strict"]))


@nox.session
def pictures(session: nox.Session) -> None:
    """Make the documentation's pictures of the dashboard anew. Needs Chromium."""
    install(session, "test", package=True)
    session.run("python", "tests/dashboard/pictures.py", env={"PYTHONPATH": "tests"})


@nox.session
def build(session: nox.Session) -> None:
    """Build the wheel and the sdist into `dist/`, and look into the wheel."""
    install(session, "build")
    shutil.rmtree("dist", ignore_errors=True)
    session.run("python", "-m", "build", "--installer", "uv")
    wheel = next(Path("dist").glob("*.whl"))
    files = zipfile.ZipFile(wheel).namelist()
    for needed in ("fastmcp_aggregator/py.typed", "fastmcp_aggregator/web/dashboard/static/index.html"):
        if needed not in files:
            session.error(f"{wheel} has no {needed}")
    if not any(name.startswith("fastmcp_aggregator/scaffold/templates/") for name in files):
        session.error(f"{wheel} has no templates for new servers")
    if strangers := [f for f in files if not f.startswith(("fastmcp_aggregator/", "fastmcp_aggregator-"))]:
        session.error(f"{wheel} has files that do not belong to the package: {', '.join(strangers)}")


@nox.session
def bench(session: nox.Session) -> None:
    """Measure what the aggregator costs: `nox -s bench -- --rows stdio http --rounds 4`."""
    install(session, package=True)
    session.run("python", "-m", "benchmarks.run", *session.posargs)


@nox.session
def peers(session: nox.Session) -> None:
    """Install other aggregators, measure them beside this one, and write the page: `nox -s peers -- --rows calls`."""
    install(session, "bench", package=True)
    session.run("python", "-m", "benchmarks.peers.run", *session.posargs, env={"PYTHONPATH": "tests"})
    session.run("python", "-m", "benchmarks.peers.page")


@nox.session
def faults(session: nox.Session) -> None:
    """Produce every fault for real and measure what is promised: `nox -s faults -- --only kill_9 --json FILE`."""
    install(session, "test", package=True)
    session.run("python", "-m", "benchmarks.faults", *session.posargs, env={"PYTHONPATH": "tests"})


@nox.session
def fuzz(session: nox.Session) -> None:
    """Send over 200 000 malformed inputs to all that reads, and live 360 random lives: `nox -s fuzz -- SEED`."""
    install(session, "test", package=True)
    seed = session.posargs[0] if session.posargs else str(random.randrange(10**6))
    session.log(f"To repeat it: nox -s fuzz -- {seed}")
    session.run("pytest", "-s", "-n", "0", "-m", "fuzz", "tests", env={"FUZZ_SCALE": "30", "FUZZ_SEED": seed})


@nox.session
def attack(session: nox.Session) -> None:
    """Run the table of attacks against hubs of its own, and write `docs/security.md`: `nox -s attack -- --only jwt`."""
    install(session, "test", package=True)
    arguments = session.posargs or ["--markdown", "docs/security.md"]
    session.run("python", "-m", "attack", *arguments, env={"PYTHONPATH": "tests"})
    if not session.posargs:
        session.run("python", "tests/faults/share_attacks.py", env={"PYTHONPATH": "tests"})
        session.run("python", "tests/faults/floods.py", env={"PYTHONPATH": "tests"})


@nox.session
def relay(session: nox.Session) -> None:
    """Check in 10 000 interleaved calls that nothing reaches a caller that it does not belong to."""
    install(session, "test", package=True)
    tests = session.posargs or ["tests/relay/test_relay_security.py", "tests/local_hub/test_local_hub_relay.py"]
    session.run("pytest", "-s", *EVERYTHING, "-n", "0", *tests, env={"RELAY_CALLS": "10000"})


@nox.session
def random_calls(session: nox.Session) -> None:
    """Make a million random calls, and look what is left of them: `nox -s random_calls -- --calls 10000`."""
    install(session, "test", package=True)
    session.run("python", "-m", "benchmarks.random_calls", *session.posargs, env={"PYTHONPATH": "tests"})


@nox.session
def tasks(session: nox.Session) -> None:
    """Make 10 000 tasks of 50 principals at two replicas while servers are killed. Needs redis-server."""
    install(session, "test", package=True)
    session.run("python", "benchmarks/tasks.py", *session.posargs, env={"PYTHONPATH": "tests"})


@nox.session
def accounts(session: nox.Session) -> None:
    """Make 10 000 calls of 50 principals, each with accounts of its own that end and are revoked meanwhile."""
    install(session, "test", package=True)
    environment = {"PYTHONPATH": "tests", "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring"}
    session.run("python", "benchmarks/accounts.py", *session.posargs, env=environment)


@nox.session
def operate(session: nox.Session) -> None:
    """Walk through operating a hub, write `docs/operating.md`, and make the pictures of the dashboard."""
    install(session, "test", package=True)
    session.run("python", "-m", "operate", *(session.posargs or ["--write"]), env={"PYTHONPATH": "tests"})
    if not session.posargs:
        session.run("python", "tests/dashboard/pictures.py", env={"PYTHONPATH": "tests"})


@nox.session
def soak(session: nox.Session) -> None:
    """Kill servers at random under load, for two minutes: `nox -s soak -- --seconds 600`."""
    install(session, "test", package=True)
    session.run("python", "benchmarks/soak.py", *session.posargs)
