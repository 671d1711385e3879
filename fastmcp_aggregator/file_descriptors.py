"""File descriptors: how many a config needs, the process's limit on them, and errors for lack of them."""

from __future__ import annotations

import errno
import logging
import math
from collections.abc import Iterator

from fastmcp_aggregator.config import McpConfig, RemoteServer, ServerConfig, StdioServer
from fastmcp_aggregator.errors import ConfigError, ConfigProblem
from fastmcp_aggregator.isolation.decision import decide
from fastmcp_aggregator.settings.model import AggregatorSettings
from fastmcp_aggregator.settings.options import ChildOptions

try:
    import resource
except ImportError:  # Windows has no such limit
    resource = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)

OWN = 64
"""Descriptors of the program itself, and those that starting a process takes for a moment."""
PER_PROCESS = 5
"""Three pipes, one to learn of its end (on Linux), and the file for its stderr."""
PER_REMOTE = 2
"""The stream of its notifications, and a request of ours."""
_PLENTY = 10_240
"""The limit that is asked for where it may be raised; macOS takes no more (`OPEN_MAX`)."""


def descriptors_needed(config: McpConfig, settings: AggregatorSettings, connections: int = 0) -> int:
    """Count those that the servers of a config need, with `connections` clients at once.

    An isolated server is there once for each client session or folder. Each call to a remote server has a
    connection of its own; it is enough if one of them can have all that it may.
    """
    needed, calls = OWN + connections, 0
    for server in config.servers.values():
        options = ChildOptions.from_settings(settings, server)
        is_shared = decide(server, options).isolation == "shared"
        instances = 1 + (0 if is_shared else settings.max_isolated_sessions)
        needed += instances * _needed(server)
        if isinstance(server, RemoteServer):
            calls = max(calls, options.max_concurrent_calls)
    return needed + calls


def _needed(server: ServerConfig) -> int:
    """Descriptors that one instance needs."""
    match server:
        case StdioServer():
            return PER_PROCESS
        case RemoteServer():
            return PER_REMOTE
        case _:
            return 0


def require_descriptors(config: McpConfig, settings: AggregatorSettings, connections: int = 0) -> None:
    """Raise this process's limit if it is too low for the config and so many clients at once.

    Raises:
        ConfigError: it may not be raised so far.
    """
    needed = descriptors_needed(config, settings, connections)
    limit = _limit(needed)
    if needed > limit:
        clients, less = ("", "have fewer servers")
        if connections:
            clients, less = (f" and {connections} HTTP connections", "lower `max_waiting_requests`")
        message = (
            f"the servers{clients} need {needed} file descriptors, and the limit is {limit}; "
            f"raise it (`ulimit -n {needed}`, or `LimitNOFILE={needed}` in a systemd unit), or {less}"
        )
        raise ConfigError(config.source, [ConfigProblem("too_few_descriptors", "$.mcpServers", message)])


def connections_within(wanted: int, config: McpConfig, settings: AggregatorSettings) -> int:
    """The number of the wanted HTTP connections that the limit allows, after raising it if it may be raised."""
    needed = descriptors_needed(config, settings)
    return int(min(wanted, _limit(needed + wanted) - needed))


def shortage(error: BaseException | None) -> str | None:
    """Explain an exception that descriptors running out led to; None for any other."""
    numbers = {found.errno for found in _behind(error, set()) if isinstance(found, OSError)}
    if errno.EMFILE in numbers:
        return f"all {_limit()} file descriptors are in use; raise the limit (`ulimit -n`)"
    if errno.ENFILE in numbers:
        return "all file descriptors of the system are in use"
    return None


def _behind(error: BaseException | None, seen: set[int]) -> Iterator[BaseException]:
    """Walk the exception and all that led to it, each once: groups and contexts can be circular."""
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    yield error
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    for cause in (*inner, error.__cause__, error.__context__):
        yield from _behind(cause, seen)


def _limit(needed: int = 0) -> float:
    """Return the limit of this process, after raising it if it is below `needed` and may be raised."""
    if resource is None:
        return math.inf
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _number(soft) >= needed or soft == hard:
        return _number(soft)
    wanted = int(min(_number(hard), max(needed, _PLENTY)))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (ValueError, OSError) as error:
        logger.debug("the limit on file descriptors cannot be raised from %d to %d: %s", soft, wanted, error)
        return _number(soft)
    logger.debug("the limit on file descriptors was raised from %d to %d", soft, wanted)
    return wanted


def _number(limit: int) -> float:
    return math.inf if limit == resource.RLIM_INFINITY else limit
