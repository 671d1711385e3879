"""The log of the program, on stderr: words for a person, or, in production, lines of JSON and nothing else.

Words are for warnings and worse; with `--debug` there are lines about everything of ours.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Literal

from fastmcp_aggregator.cli.terminal.console import say
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.observability.logs import FewOfLibraries, PlainFormatter, StructuredFormatter
from fastmcp_aggregator.observability.redaction import Redactor

logger = logging.getLogger("fastmcp_aggregator")


class _StderrHandler(logging.Handler):
    secrets = Redactor()
    is_for_programs = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            say(self.format(record))
        except Exception:
            self.handleError(record)


_HANDLER = _StderrHandler()


def set_up_logging(*, debug: bool, profile: Literal["development", "production"] = "development") -> None:
    """Send the log to stderr; once more when the profile is known."""
    root = logging.getLogger()
    root.handlers = [_HANDLER]
    root.setLevel(logging.WARNING)
    _HANDLER.filters.clear()
    _HANDLER.addFilter(FewOfLibraries())
    _HANDLER.secrets = secrets = Redactor()
    _HANDLER.is_for_programs = profile == "production"
    if _HANDLER.is_for_programs:
        _HANDLER.setFormatter(StructuredFormatter(secrets, "json"))
    else:
        _HANDLER.setFormatter(StructuredFormatter(secrets, "lines") if debug else PlainFormatter(secrets))
    usual = logging.INFO if _HANDLER.is_for_programs else logging.WARNING
    logger.setLevel(logging.DEBUG if debug else usual)


def hide(secrets: Callable[[], Iterable[str]]) -> None:
    """Keep these values out of the log, whatever they are at the time."""
    _HANDLER.secrets.follow(secrets)


def tell(text: str, level: int = logging.INFO) -> None:
    """Say something that is no record of the log; in production it is one, so that every line is JSON."""
    if _HANDLER.is_for_programs:
        logger.log(level, "%s", text)
    else:
        say(_HANDLER.secrets.text(text))


def take_over(name: str) -> None:
    """Let a library's log come out like ours, whatever the library has set up for it."""
    library = logging.getLogger(name)
    library.handlers.clear()
    library.propagate = True
    library.setLevel(logging.NOTSET)


def leave_out(is_told_elsewhere: Callable[[ChildServerError], bool]) -> None:
    """Keep failures of servers that are told elsewhere out of the log."""

    def is_kept(record: logging.LogRecord) -> bool:
        arguments = record.args if isinstance(record.args, tuple) else ()
        failures = [argument for argument in arguments if isinstance(argument, ChildServerError)]
        return not (failures and is_told_elsewhere(failures[0]))

    _HANDLER.addFilter(is_kept)
