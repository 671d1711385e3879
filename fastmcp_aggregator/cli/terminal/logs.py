"""The log of the program, on stderr: words for a person, or, in production, lines of JSON and nothing else.

Words are for warnings and worse; with `--debug` there are lines about everything of ours. Secrets are redacted in the
message, in its arguments and in the texts of exceptions. Untrusted text cannot forge a record (log injection): what is
not printable is escaped, and the further lines of a record are indented.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from contextlib import suppress
from functools import cached_property
from typing import Any, Literal

from fastmcp_aggregator.cli.terminal.console import say
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.escaping import printable
from fastmcp_aggregator.observability.redaction import Redactor
from fastmcp_aggregator.pipe.bucket import TokenBucket

_OURS = __name__.partition(".")[0]
_INDENT = "    "
_AT_ONCE, _PER_SECOND = 5, 0.1
"""Records of one line of a library's code."""
_LONGEST_RECORD = 2000


class FewOfLibraries:
    """A filter: of what a library says again and again, of what clients and servers send, some is logged, and cut.

    What it did not log is told with the next record of the same line.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[tuple[str, int], TokenBucket] = {}

    def __call__(self, record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] == _OURS:
            return True
        line = record.pathname, record.lineno
        bucket = self._buckets.setdefault(line, TokenBucket(burst=_AT_ONCE, rate=_PER_SECOND))
        if not bucket.take(self._clock()):
            return False
        more, bucket.rejected = bucket.rejected, 0
        with suppress(TypeError, ValueError):  # a wrong format, which the handler reports
            text = record.getMessage()
            if more or len(text) > _LONGEST_RECORD:
                others = f" (and {more} more like this that were not logged)" if more else ""
                record.msg, record.args = "%s", (f"{text[:_LONGEST_RECORD]}{others}",)
        return True


class PlainFormatter(logging.Formatter):
    """A level and a message. Says of an exception what it is, and where it was only if it is an error of ours."""

    def __init__(self, secrets: Redactor) -> None:
        super().__init__()
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        text = f"{record.levelname.lower()}: {_with_plain_arguments(record).getMessage()}"
        if error is not None:
            text += f": {error.__class__.__name__}: {error}"
        if error is not None and hasattr(record, "incident"):
            text += "\n" + "".join(traceback.format_exception(error)).rstrip()
        return _in_lines(self._secrets.text(text))


class StructuredFormatter(logging.Formatter):
    """Time, level, message, logger, what was given as `extra`, and tracebacks: a line of JSON, or lines for a person.

    structlog is imported for the first record: that takes a tenth of a second, which a start without records saves.
    """

    def __init__(self, secrets: Redactor, form: Literal["json", "lines"]) -> None:
        super().__init__()
        self._secrets = secrets
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        if self._form == "json":
            return self._formatter.format(record)
        return _in_lines(self._formatter.format(_with_plain_arguments(record)))

    @cached_property
    def _formatter(self) -> logging.Formatter:
        import structlog  # noqa: PLC0415 - see above
        from structlog import dev, processors, stdlib  # noqa: PLC0415

        as_json = self._form == "json"
        chain: list[structlog.typing.Processor] = [
            stdlib.ExtraAdder(),
            processors.format_exc_info,
            self._without_secrets,
            processors.TimeStamper(fmt="iso", utc=True),
            stdlib.add_log_level,
            stdlib.add_logger_name,
            stdlib.ProcessorFormatter.remove_processors_meta,
            processors.JSONRenderer() if as_json else dev.ConsoleRenderer(colors=False),
        ]
        return stdlib.ProcessorFormatter(processors=chain)

    def _without_secrets(
        self, _logger: Any, _method: str, fields: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """Of what a record brings itself; structlog's own fields have names that begin with `_`."""
        for name, value in fields.items():
            if not (name.startswith("_") or isinstance(value, int | float)):
                fields[name] = self._secrets.text(str(value))
        return fields


def _with_plain_arguments(record: logging.LogRecord) -> logging.LogRecord:
    """The record with texts in its arguments that have one line each."""
    match record.args:
        case tuple() as arguments:
            plain: object = tuple(map(_plain, arguments))
        case Mapping() as named:
            plain = {name: _plain(argument) for name, argument in named.items()}
        case _:
            return record
    return logging.makeLogRecord({**record.__dict__, "args": plain})


def _plain(argument: object) -> object:
    return printable(argument) if isinstance(argument, str) else argument


def _in_lines(text: str) -> str:
    return f"\n{_INDENT}".join(map(printable, text.split("\n")))


logger = logging.getLogger(_OURS)


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
