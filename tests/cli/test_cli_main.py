"""The entry point: errors as words and exit codes, and what happens before and after FastMCP is there."""

import argparse
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.harness import config, lean, until
from support.processes import is_gone

import fastmcp_aggregator.cli.actions.check
from fastmcp_aggregator.children.process.start_slots import EARLY
from fastmcp_aggregator.cli.main import main, parse
from fastmcp_aggregator.cli.terminal import exits
from fastmcp_aggregator.cli.terminal.signals import end_on_signals
from fastmcp_aggregator.errors import AggregatorError, ChildServerError, ConfigError, ConfigProblem, StartupError
from fastmcp_aggregator.version import VERSION

FAILURE = ChildServerError("a", "startup", "no answer")

# Runs the command line and looks on: when FastMCP or the SDK is first imported, it tells which processes of the
# config have been started by then, and does what the first argument says.
PROBE = """
import os, signal, sys

class Probe:
    told = False

    def find_spec(self, name, path=None, target=None):
        if name in ("fastmcp", "mcp", "mcp_types") and not self.told:
            self.told = True
            from fastmcp_aggregator.children.process.process import _recorded
            print("started:", *sorted(child.pid for child in _recorded), file=sys.stderr, flush=True)
            exec(sys.argv[1])

sys.meta_path.insert(0, Probe())
from fastmcp_aggregator.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


def write(folder: Path, **servers: object) -> str:
    import json

    path = folder / "config.json"
    path.write_text(json.dumps(config(**servers)))  # type: ignore[arg-type]
    return str(path)


def probe(action: str, *arguments: str) -> tuple[subprocess.CompletedProcess[str], list[int]]:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, action, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    (told,) = [line for line in done.stderr.splitlines() if line.startswith("started:")]
    return done, [int(pid) for pid in told.split()[1:]]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (exits.UsageError("x"), 2),
        (ConfigError("x", [ConfigProblem("invalid_json", "$", "x")]), 2),
        (StartupError([FAILURE]), 3),
        (FAILURE, 3),
        (AggregatorError("x"), 1),
        (ValueError("x"), 1),
    ],
)
def test_each_error_has_its_exit_code(error: Exception, code: int) -> None:
    assert exits.exit_code_of(error) == code
    assert f"\n  {code}  " in exits.EXPLAINED


def test_an_error_is_told_by_its_message_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "missing.json"
    assert main([str(path)]) == 2
    assert capfd.readouterr() == ("", f"{path}: 1 problem\n  there is no file {path}; check the path\n")


def test_with_debug_there_is_a_traceback(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "missing.json"), "--debug"]) == 2
    assert "Traceback (most recent call last):" in capfd.readouterr().err


def test_an_error_that_nobody_expected_says_what_it_is_and_how_to_learn_more(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(_: argparse.Namespace) -> int:
        raise ValueError("not thought of")

    monkeypatch.setattr(fastmcp_aggregator.cli.actions.check, "run", fail)
    assert main(["check", "config.json"]) == 1
    assert capfd.readouterr().err == "unexpected ValueError: not thought of\nRun it with --debug to see where.\n"


def test_without_arguments_those_of_the_process_are_taken(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fastmcp-aggregator", "--version"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert VERSION in capfd.readouterr().out


@pytest.mark.process
@pytest.mark.parametrize(
    "command",
    [[sys.executable, "-m", "fastmcp_aggregator"], [str(Path(sys.executable).with_name("fastmcp-aggregator"))]],
    ids=["module", "script"],
)
def test_the_module_and_the_script_are_the_same_program(command: list[str], tmp_path: Path) -> None:
    line = [*command, "check", write(tmp_path, a={})]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "  a: has neither `command` nor `url`" in done.stdout
    assert "is refused without --no-strict: 1 problem" in done.stderr


@pytest.mark.process
def test_a_reader_of_stdout_that_leaves_is_no_reason_for_a_traceback(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    line = [sys.executable, "-m", "fastmcp_aggregator", "check", write(tmp_path, a=lean())]
    done = subprocess.run(line, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.process
@pytest.mark.parametrize("command", ["serve", "list", "check --connect", "call"])
async def test_the_first_processes_are_started_before_fastmcp_is_imported(command: str, tmp_path: Path) -> None:
    path = write(tmp_path, a=lean(), a_b=lean(), remote={"url": "http://127.0.0.1:9/mcp"})
    name, *options = command.split()
    tool = ["a_b_echo"] if name == "call" else []
    done, pids = probe("", name, path, *tool, *options)
    assert len(pids) == min(2, EARLY), done.stderr
    await until(lambda: all(map(is_gone, pids)))


@pytest.mark.process
@pytest.mark.parametrize(
    ("number", "transport"),
    [(signal.SIGTERM, "stdio"), (signal.SIGINT, "stdio"), (signal.SIGHUP, "stdio"), (signal.SIGTERM, "http")],
)
async def test_a_signal_while_fastmcp_is_imported_ends_the_program_and_its_processes(
    number: signal.Signals, transport: str, tmp_path: Path
) -> None:
    stubborn = lean(ignore_eof=True, grandchild=str(tmp_path / "grandchild"))
    path = write(tmp_path, a=stubborn, b=stubborn)
    done, pids = probe(f"os.kill(os.getpid(), {int(number)})", path, "--transport", transport)
    assert done.returncode == 0
    assert done.stdout == ""
    assert done.stderr.strip() == "started: " + " ".join(map(str, pids))
    assert len(pids) == min(2, EARLY)
    await until(lambda: all(map(is_gone, pids)))


@pytest.mark.process
async def test_a_program_that_cannot_import_fastmcp_leaves_no_process_behind(tmp_path: Path) -> None:
    done, pids = probe("raise ImportError('it is broken')", write(tmp_path, a=lean(ignore_eof=True)))
    assert done.returncode == 1
    assert "unexpected ImportError: it is broken\n" in done.stderr
    assert len(pids) == 1
    await until(lambda: all(map(is_gone, pids)))


def test_the_last_steps_are_taken_although_one_fails() -> None:
    program = (
        "import os, signal\n"
        "from fastmcp_aggregator.cli.terminal.signals import end_on_signals\n"
        "end_on_signals(5, lambda: print('first', flush=True), lambda: 1 / 0, lambda: print('last', flush=True))\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (5, "first\nlast\n", "")


def test_outside_of_the_main_thread_signals_are_left_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=end_on_signals, args=(0,))
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_system_without_a_signal_does_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(signal, "SIGHUP")
    end_on_signals(0)
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL


@pytest.mark.parametrize(
    ("word", "command"), [("doctor", "check"), ("ls", "list"), ("run", "serve"), ("add", "import"), ("help", "--help")]
)
def test_a_command_of_other_programs_is_answered_with_ours(
    word: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse([word, "mcp.json"])
    assert f"did you mean `{command}`?" in capsys.readouterr().err


def test_call_without_a_tool_asks_for_the_tool_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["call", "mcp.json"])
    assert "the following arguments are required: SERVER:TOOL\n" in capsys.readouterr().err
    assert parse(["call", "mcp.json", "a:b"]).pairs == []
