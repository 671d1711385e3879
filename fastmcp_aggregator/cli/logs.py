"""The log of the program: to stderr, warnings and worse; everything of ours with `--debug`."""

from __future__ import annotations

import logging
from collections.abc import Callable

from fastmcp_aggregator.cli.output import say
from fastmcp_aggregator.errors import ChildServerError


class _StderrHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            say(self.format(record))
        except Exception:
            self.handleError(record)


class _WithoutTracebacks(logging.Formatter):
    """Says of an exception what it is, but not where it was."""

    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        text = f"{record.levelname.lower()}: {record.getMessage()}"
        return text if error is None else f"{text}: {error.__class__.__name__}: {error}"


_HANDLER = _StderrHandler()


def set_up_logging(*, debug: bool) -> None:
    """Send the log to stderr; tracebacks only with `debug`."""
    root = logging.getLogger()
    root.handlers = [_HANDLER]
    root.setLevel(logging.WARNING)
    logging.getLogger("fastmcp_aggregator").setLevel(logging.DEBUG if debug else logging.WARNING)
    _HANDLER.filters.clear()
    _HANDLER.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s") if debug else _WithoutTracebacks())


def take_over(name: str) -> None:
    """Let a library's log come out like ours, whatever the library has set up for it."""
    logger = logging.getLogger(name)
    logger.handlers.clear()
    logger.propagate = True


def leave_out(is_told_elsewhere: Callable[[ChildServerError], bool]) -> None:
    """Keep failures of servers that are told elsewhere out of the log."""

    def is_kept(record: logging.LogRecord) -> bool:
        arguments = record.args if isinstance(record.args, tuple) else ()
        failures = [argument for argument in arguments if isinstance(argument, ChildServerError)]
        return not (failures and is_told_elsewhere(failures[0]))

    _HANDLER.addFilter(is_kept)
