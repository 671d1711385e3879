"""How a record of the log is written, in each form."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from typing import Any

import pytest
from support.wire import PATIENCE

from fastmcp_aggregator.cli.terminal.logs import FewOfLibraries, PlainFormatter, StructuredFormatter
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.observability.redaction import Redactor

SECRETS = Redactor(["s3cret", "info", "timestamp"])
FORMS = [PlainFormatter(SECRETS), StructuredFormatter(SECRETS, "json"), StructuredFormatter(SECRETS, "lines")]


def record(message: str, *arguments: Any, error: BaseException | None = None, **extra: Any) -> logging.LogRecord:
    logger = logging.getLogger("fastmcp_aggregator.x")
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    return logger.makeRecord(logger.name, logging.INFO, __file__, 1, message, arguments, exc_info, extra=extra)


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


def chained() -> Exception:
    try:
        try:
            raise KeyError("s3cret")
        except KeyError as error:
            raise ValueError("s3cret again") from error
    except ValueError as error:
        return error


@pytest.mark.parametrize("formatter", FORMS, ids=["words", "json", "lines"])
@pytest.mark.parametrize(
    "written",
    [
        record("a s3cret"),
        record("%s", "a s3cret"),
        record("%(a)s", {"a": "s3cret"}),
        record("%r", ["s3cret"]),
        record("broken", error=raised(ValueError("s3cret"))),
        record("broken", error=chained()),
        record("%s", ChildServerError("git", "startup", "it exited", stderr_tail=["no such token: s3cret"])),
        record("something", server={"env": ["s3cret"]}),
    ],
    ids=["message", "argument", "named", "repr", "exception", "cause", "stderr", "extra"],
)
def test_no_form_of_a_record_has_a_secret(formatter: logging.Formatter, written: logging.LogRecord) -> None:
    assert "s3cret" not in formatter.format(written)


def test_words_are_the_level_and_the_message_and_what_was_raised() -> None:
    words = PlainFormatter(Redactor())
    assert words.format(record("two %s", ValueError("lines\nof it"))) == "info: two lines\n    of it"
    assert words.format(record("broken", error=raised(KeyError("k")))) == "info: broken: KeyError: 'k'"


def test_json_has_the_record_in_one_line_and_what_is_ours_is_never_hidden() -> None:
    text = StructuredFormatter(SECRETS, "json").format(
        record("two\nlines %s", "s3cret", server="git", tries=3, is_open=True)
    )
    assert "\n" not in text
    entry = json.loads(text)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", entry.pop("timestamp"))
    assert entry == {
        "event": "two\nlines ***",
        "server": "git",
        "tries": 3,
        "is_open": True,
        "level": "info",
        "logger": "fastmcp_aggregator.x",
    }


def test_json_has_tracebacks() -> None:
    entry = json.loads(StructuredFormatter(SECRETS, "json").format(record("broken", error=chained())))
    assert entry["event"] == "broken"
    assert entry["exception"].startswith("Traceback (most recent call last):")
    assert entry["exception"].endswith("ValueError: *** again")


def test_lines_have_everything_and_no_colours() -> None:
    first, *others = (
        StructuredFormatter(SECRETS, "lines").format(record("broken", error=chained(), server="git")).splitlines()
    )
    assert re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z \[info +\] broken +\[fastmcp_aggregator\.x\] server=git$", first)
    assert others[0] == "    Traceback (most recent call last):"
    assert others[-1] == "    ValueError: *** again"


HARMFUL = [
    *map(chr, range(32)),
    *map(chr, range(0x7F, 0xA0)),
    *"\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069\ufeff",
]


@pytest.mark.parametrize("formatter", FORMS, ids=["words", "json", "lines"])
@pytest.mark.parametrize(
    "make",
    [
        lambda text: record("address %s", text),
        lambda text: record("address %(uri)s", {"uri": text}),
        lambda text: record(f"address {text}"),
        lambda text: record("broken: %s", ValueError(text)),
        lambda text: record("broken", error=raised(ValueError(text))),
        lambda text: record("broken", error=raised(ValueError(text)), incident="1a2b"),
        lambda text: record("something", server=text),
        lambda text: record("something", server={"key": text}),
    ],
    ids=["argument", "named", "message", "error", "exception", "incident", "extra", "nested"],
)
def test_foreign_text_forges_no_line_and_moves_no_cursor(formatter: logging.Formatter, make: Any) -> None:
    for character in HARMFUL:
        text = formatter.format(make(f"a{character}warning: forged"))
        assert character == "\n" or character not in text
        assert all(line.startswith("    ") for line in text.split("\n")[1:])


def test_a_newline_in_what_a_record_names_is_escaped() -> None:
    assert PlainFormatter(Redactor()).format(record("no %s", "x\nwarning: forged")) == "info: no x\\nwarning: forged"


def test_a_record_that_cannot_be_formatted_is_an_error_of_the_formatter() -> None:
    for formatter in FORMS:
        with pytest.raises(TypeError):
            formatter.format(record("%d", "no number"))


def test_structlog_is_not_imported_before_there_is_something_to_write() -> None:
    code = """
import sys
from fastmcp_aggregator.cli.terminal.logs import set_up_logging
set_up_logging(debug=True, profile="production")
print("structlog" in sys.modules)
import logging
logging.getLogger("x").warning("now")
print("structlog" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout.split() == ["False", "True"]


def of_library(line: int, message: str, *arguments: Any, name: str = "mcp.server.x") -> logging.LogRecord:
    return logging.getLogger(name).makeRecord(name, logging.WARNING, "x.py", line, message, arguments, None)


def test_of_what_a_library_says_again_and_again_some_is_logged_and_the_rest_counted() -> None:
    now = 0.0
    few = FewOfLibraries(lambda: now)
    written = [of_library(1, "rejected a request of %s", number) for number in range(1000)]
    assert [each.getMessage() for each in written if few(each)] == [f"rejected a request of {n}" for n in range(5)]
    assert few(of_library(2, "something else"))
    now = 11.0
    last = of_library(1, "rejected a request of %s", "ann")
    assert few(last)
    assert last.getMessage() == "rejected a request of ann (and 995 more like this that were not logged)"


def test_what_a_library_says_is_cut() -> None:
    few, long = FewOfLibraries(), of_library(1, "rejected a token of %s", "x" * 40_000)
    assert few(long)
    assert len(long.getMessage()) == 2000
    assert few(of_library(3, "wrong %d", "x"))


def test_what_we_say_is_all_logged() -> None:
    few = FewOfLibraries()
    assert all(few(of_library(1, "x" * 5000, name="fastmcp_aggregator.front")) for _ in range(100))
