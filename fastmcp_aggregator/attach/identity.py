"""The identity of a hub: one for each user, config, options that change what is served, and environment."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fastmcp_aggregator.attach.folder import Unusable
from fastmcp_aggregator.early.answers import digest_of, digests_of_variables, made_secret, variables_in
from fastmcp_aggregator.early.reading import read_bytes
from fastmcp_aggregator.version import VERSION

_FILES = ("settings", "groups", "env_file")
_VALUES = ("separator", "name", "server_version")
_SWITCHES = {"prefix": ("--no-prefix", False), "strict": ("--no-strict", False), "telemetry": ("--otel", True)}
_TOKEN_VARIABLE = re.compile(r"""bearer_env["']?\s*[:=]\s*["']([A-Za-z_][A-Za-z0-9_]*)["']""")
_VERSION, _FOLDER = "its version", "where its program is"
_LARGEST_FILE = 16 * 1024**2


@dataclass(frozen=True, slots=True)
class HubIdentity:
    """A hub: what it is called, and what it serves. `arguments` are those of its program, without what is secret."""

    id: str
    name: str | None
    config: str
    arguments: tuple[str, ...]
    is_debugged: bool = False
    """True if this client, should it start the hub, wants debug logs."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """Digests of what it depends on beside the config, by what that is called; versions and folders as they are."""


def difference(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """The parts in which two hubs of one config differ, as people call them."""
    names = {name for name in {*one, *other} if one.get(name) != other.get(name)}
    told = [_told(name, one.get(name), other.get(name)) for name in names]
    return ["--hub"] if "--hub" in names else sorted(told)


def how_to_share(differs: Iterable[str]) -> str:
    """Advice for clients whose hubs differ by these parts, so that they share one."""
    if any(each.startswith(_VERSION) for each in differs):
        return "restart the clients of the older version"
    return "start all clients with the same, or with --hub NAME"


def _told(name: str, here: str | None, there: str | None) -> str:
    if name in (_VERSION, _FOLDER) and here and there:
        return f"{name} ({here} here, {there} there)"
    return f"the variable {name}" if name.isidentifier() and name != "PATH" else name


def identity_of(options: argparse.Namespace, environ: Mapping[str, str]) -> HubIdentity:
    """The hub of a client that was started with these options.

    Raises:
        Unusable: there is no secret with which the environment can be digested.
    """
    config = os.path.realpath(os.path.expanduser(options.config))
    given = _given(options)
    arguments = (config, *itertools.chain.from_iterable(given.values()))
    program = [VERSION, sys.executable, sys.version, os.path.dirname(__file__)]
    if options.hub is not None:
        served: list[object] = ["named", options.hub]
        parts = {"--hub": options.hub}
    else:
        parts = _parts_of_environment(options, config, environ)
        served = [*arguments, parts]
    digest = digest_of(json.dumps([program, _user(), served], sort_keys=True).encode())
    parts |= {
        **{option: digest_of(json.dumps(words).encode()) for option, words in given.items()},
        _VERSION: VERSION,
        "its Python": digest_of(repr([sys.executable, sys.version]).encode()),
        _FOLDER: os.path.dirname(__file__),
    }
    return HubIdentity(digest[:16], options.hub, config, arguments, options.debug, parts)


def _user() -> int | str:
    """The number of the user whose hub it is; on Windows, which has none, the user's folder."""
    if sys.platform == "win32":
        return os.path.expanduser("~")
    return os.getuid()


def _given(options: argparse.Namespace) -> dict[str, list[str]]:
    """The arguments of each option that is given and changes what is served."""
    given: dict[str, list[str]] = {}
    for name in (*_FILES, *_VALUES):
        if (value := getattr(options, name)) is not None:
            option = f"--{name.replace('_', '-')}"
            is_file = name in _FILES
            given[option] = [option, os.path.realpath(os.path.expanduser(value))] if is_file else [f"{option}={value}"]
    return given | {switch: [switch] for name, (switch, on) in _SWITCHES.items() if getattr(options, name) is on}


def _parts_of_environment(options: argparse.Namespace, config: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Keyed digests of the variables that may matter. A file that has more of them is followed by the hub."""
    try:
        secret = made_secret()
    except OSError as error:
        raise Unusable(f"{error.filename} cannot be used: {error.strerror}") from None
    settings = _text_of(options.settings)
    names = variables_in(_text_of(config)) | variables_in(settings) | set(_TOKEN_VARIABLE.findall(settings))
    return digests_of_variables(names, {**environ, "PATH": _once_each(environ.get("PATH", ""))}, secret)


def _once_each(path: str) -> str:
    """The same folders in the same order; a second time they are never looked at."""
    return os.pathsep.join(dict.fromkeys(folder.rstrip("/") or folder[:1] for folder in path.split(os.pathsep)))


def _text_of(path: str | None) -> str:
    """The text of a file; empty if it cannot be read: who needs it says so."""
    if path is None:
        return ""
    try:
        return read_bytes(os.path.expanduser(path), _LARGEST_FILE).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def answers_name(hub_id: str, group: str | None, tool_search: bool | None) -> str:
    """The name under which the first answers to the clients of a hub are kept that see this group so."""
    return digest_of(json.dumps(["hub", hub_id, group, tool_search]).encode())
