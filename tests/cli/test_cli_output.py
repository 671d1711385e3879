"""What goes out: words on stderr, results on stdout, the log."""

import io
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.wire import PATIENCE

from fastmcp_aggregator.cli.main import parse
from fastmcp_aggregator.cli.running.starting import built_early, load
from fastmcp_aggregator.cli.terminal.console import put, put_json, say
from fastmcp_aggregator.cli.terminal.logs import hide, leave_out, set_up_logging, take_over, tell
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.escaping import printable

FAILURE = ChildServerError("git", "startup", "command not found")


@pytest.fixture(autouse=True)
def _log_as_found() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers = handlers
    root.setLevel(level)


def test_lines_are_said_on_stderr_and_results_are_put_on_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    say("one\ntwo")
    put("three")
    put("four\n")
    assert capfd.readouterr() == ("three\nfour\n", "one\ntwo\n")


def test_nothing_that_is_said_can_steer_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    say("red \x1b[31m, back \b, umlaut ü")
    assert capfd.readouterr().err == "red \\x1b[31m, back \\x08, umlaut ü\n"
    assert printable("a\nb") == "a\\nb"


def test_long_lines_are_said_whole(capfd: pytest.CaptureFixture[str]) -> None:
    say("x" * 9999)
    assert capfd.readouterr().err == "x" * 9999 + "\n"


def test_a_stderr_that_nobody_reads_does_not_stop_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with open(reading, "rb"), open(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stderr", pipe)
        saying = threading.Thread(target=lambda: say("x" * 10_000_000), daemon=True)
        saying.start()
        saying.join(PATIENCE)
        assert not saying.is_alive()


@pytest.mark.parametrize("stream", [None, open(os.devnull, "w")])  # noqa: SIM115 - it is closed in the test
def test_a_stderr_that_is_closed_is_no_error(stream: io.TextIOBase | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if stream is not None:
        stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    say("into the void")


def test_what_is_said_also_reaches_a_stderr_without_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    say("kept")
    assert sys.stderr.getvalue() == "kept\n"  # type: ignore[attr-defined]


def test_a_result_is_written_whatever_characters_it_has(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    put("half \ud83d")
    put_json({"whole": "😀", "half": "\ud83d"})
    text, _, document = capfdbinary.readouterr().out.partition(b"\n")
    assert text == b"half \\ud83d"
    assert "😀".encode() in document
    assert json.loads(document) == {"whole": "😀", "half": "\ud83d"}


def test_the_log_has_warnings_without_tracebacks(capfd: pytest.CaptureFixture[str]) -> None:
    set_up_logging(debug=False)
    logging.getLogger("fastmcp_aggregator.x").info("unseen")
    logging.getLogger("fastmcp_aggregator.x").warning("seen %d", 1)
    try:
        raise ValueError("bad")
    except ValueError:
        logging.getLogger("some.library").exception("broken")
    assert capfd.readouterr().err == "warning: seen 1\nerror: broken: ValueError: bad\n"


def test_with_debug_the_log_has_everything_of_ours_and_tracebacks(capfd: pytest.CaptureFixture[str]) -> None:
    set_up_logging(debug=True)
    logging.getLogger("fastmcp_aggregator.x").debug("seen")
    logging.getLogger("some.library").info("unseen")
    try:
        raise ValueError("bad")
    except ValueError:
        logging.getLogger("some.library").exception("broken")
    lines = capfd.readouterr().err.splitlines()
    assert re.search(r"\[debug +\] seen +\[fastmcp_aggregator\.x\]$", lines[0])
    assert re.search(r"\[error +\] broken +\[some\.library\]$", lines[1])
    assert lines[2] == "    Traceback (most recent call last):"


def test_in_production_the_log_is_json_and_has_what_is_told_to_people_too(capfd: pytest.CaptureFixture[str]) -> None:
    set_up_logging(debug=False, profile="production")
    logging.getLogger("fastmcp_aggregator.x").info("seen")
    logging.getLogger("fastmcp_aggregator.x").debug("unseen")
    logging.getLogger("some.library").info("unseen")
    tell("serving")
    tell("one\ntwo", logging.ERROR)
    entries = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [(entry["level"], entry["event"]) for entry in entries] == [
        ("info", "seen"),
        ("info", "serving"),
        ("error", "one\ntwo"),
    ]
    set_up_logging(debug=False)
    tell("serving")
    assert capfd.readouterr().err == "serving\n"


def test_nothing_that_is_to_be_hidden_is_logged_or_told(capfd: pytest.CaptureFixture[str]) -> None:
    set_up_logging(debug=False)
    hide(lambda: ["s3cret"])
    logging.getLogger("some.library").warning("a %s", "s3cret")
    tell("the s3cret")
    assert capfd.readouterr().err == "warning: a ***\nthe ***\n"


def test_failures_that_are_told_elsewhere_are_left_out_of_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    set_up_logging(debug=False)
    leave_out(lambda failure: failure.server_key == "git")
    logger = logging.getLogger("fastmcp_aggregator.x")
    logger.warning("%s", FAILURE)
    logger.warning("%s", ChildServerError("docs", "startup", "no answer"))
    logger.warning("100 %")
    assert capfd.readouterr().err == "warning: server 'docs' failed during startup: no answer\nwarning: 100 %\n"
    set_up_logging(debug=False)
    logger.warning("%s", FAILURE)
    assert capfd.readouterr().err == "warning: server 'git' failed during startup: command not found\n"


def test_the_log_of_a_library_with_handlers_of_its_own_comes_out_like_ours(capfd: pytest.CaptureFixture[str]) -> None:
    set_up_logging(debug=False)
    library = logging.getLogger("a_library")
    library.addHandler(logging.StreamHandler(io.StringIO()))
    library.propagate = False
    library.setLevel(logging.INFO)
    take_over("a_library")
    library.warning("seen")
    library.info("anybody can have this said as often as they like")
    assert capfd.readouterr().err == "warning: seen\n"


def test_a_log_call_that_cannot_be_formatted_does_not_end_the_program(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    set_up_logging(debug=False)
    logging.getLogger("fastmcp_aggregator.x").warning("%d", "no number")
    assert capfd.readouterr().err == ""


async def test_the_secrets_of_the_config_and_the_settings_are_hidden_also_when_the_config_changes(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def document(key: str) -> dict[str, Any]:
        return {"mcpServers": {"docs": {"url": "https://docs.invalid/mcp", "headers": {"X-Key": key}}}}

    (tmp_path / "mcp.json").write_text(json.dumps(document("first-key")))
    (tmp_path / "settings.toml").write_text('[servers.docs]\nbearer_env = "DOCS_TOKEN"\n')
    monkeypatch.setenv("DOCS_TOKEN", "t0ken-value")
    config, settings = load(parse([str(tmp_path / "mcp.json"), "--settings", str(tmp_path / "settings.toml")]))
    async with built_early(config, settings) as app:
        await app.reload(document("second-key"))
        logging.getLogger("some.library").warning("first-key second-key t0ken-value")
    assert capfd.readouterr().err == "warning: *** *** ***\n"
