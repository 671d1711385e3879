"""Packages that `npx`, `uvx` and the like fetch at each start without a version: whatever was published last is run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from fastmcp_aggregator.config import McpConfig, StdioServer
from fastmcp_aggregator.config.disclosure import shown
from fastmcp_aggregator.config.models import Runner, runner_of
from fastmcp_aggregator.doctor.findings import Finding, Source

_NPM_PINNED = re.compile(r"(@[^/@]+/)?[^/@]+@[\^~]?\d.*")
_PYPI_PINNED = re.compile(r"[^@=<>]+(\[[^]]*\])?(@\d.*|===?\s*\d.*)|.*@ .*")
_ELSEWHERE = re.compile(r"[./~\\]|[a-z][a-z0-9+.-]*:|[A-Za-z]:[\\/]|git\+")
_UNPINNED = "the package has no version, so each start may run another one"
_WITH_VALUE = {
    "npx": {"-w", "--workspace", "--registry", "--cache", "-c", "--call"},
    "uvx": {
        "--with", "--with-editable", "--with-requirements", "-p", "--python", "--index", "--index-url",
        "--default-index", "--extra-index-url", "-i", "--find-links", "-f", "--cache-dir", "--directory", "--project",
        "--config-file", "-c", "--constraints", "--overrides", "--refresh-package", "-P", "--upgrade-package",
    },
    "pipx": {"--python", "--index-url", "-i", "--pip-args"},
}  # fmt: skip
_PACKAGE_OPTIONS = {"npx": {"-p", "--package"}, "uvx": {"--from"}, "pipx": {"--spec"}}


def unpinned_packages(config: McpConfig, source: Source) -> Iterator[Finding]:
    """Servers that run whatever version of a package is the newest."""
    for server in config.known:
        if not isinstance(server, StdioServer):
            continue
        written = source.entry(server.key).get("args")  # with its variables, whose values may be secret
        found = unpinned(server.command, [str(word) for word in written]) if isinstance(written, list) else None
        if found is not None:
            index, bare, kind = found
            package = shown("package", bare, "terminal")
            pin = f"{package}@VERSION" if kind != "pipx" else f"{package}==VERSION"
            look_up = f"npm view {package} version" if kind == "npx" else f"pip index versions {package}"
            message = f"{package} has no version: each start may run another one; `{look_up}` tells the newest"
            path = ("args", index)
            yield source.finding("warning", server.key, message, *path, written=package, change=pin, common=_UNPINNED)


def unpinned(command: str, arguments: Sequence[str]) -> tuple[int, str, str] | None:
    """The index of the argument that names a package without a version, the package, and who runs it."""
    runner = runner_of(command, arguments)
    if runner is None:
        return None
    found = _package(arguments, runner)
    if found is None:
        return None
    index, package = found
    bare = package.partition("=")[2] if package.startswith("--") else package
    pinned = _NPM_PINNED if runner.kind == "npx" else _PYPI_PINNED
    if not bare or "$" in bare or _ELSEWHERE.match(bare) or pinned.fullmatch(bare):
        return None
    return index, bare.removesuffix("@latest"), runner.kind


def _package(arguments: Sequence[str], runner: Runner) -> tuple[int, str] | None:
    """The first argument that is no option, unless an option names the package; with the index of where it stands."""
    index = runner.begins
    while index < len(arguments):
        argument = arguments[index]
        name, equals, _ = argument.partition("=")
        if name in _PACKAGE_OPTIONS[runner.kind]:
            named = index if equals else index + 1
            return (named, arguments[named]) if named < len(arguments) else None
        if not argument.startswith("-"):
            return index, argument
        index += 2 if argument in _WITH_VALUE[runner.kind] else 1
    return None
