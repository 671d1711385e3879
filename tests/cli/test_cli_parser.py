"""The grammar of the command line, and how little of the package it needs to answer."""

import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from fastmcp_aggregator.cli import actions, commands
from fastmcp_aggregator.cli.commands import all_commands
from fastmcp_aggregator.cli.main import parse
from fastmcp_aggregator.cli.parser.command import Command
from fastmcp_aggregator.version import PROGRAM, VERSION


def told(capsys: pytest.CaptureFixture[str], *arguments: str, code: int) -> str:
    with pytest.raises(SystemExit) as ended:
        parse(arguments)
    assert ended.value.code == code
    output = capsys.readouterr()
    return output.err if code else output.out


def test_a_config_alone_is_served() -> None:
    options = parse(["config.json"])
    assert (options.command, options.config, options.transport) == ("serve", "config.json", "stdio")


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "config.json"],
        ["--config", "config.json"],
        ["serve", "--config", "config.json"],
        ["--debug", "config.json"],
    ],
)
def test_the_command_serve_and_the_option_config_may_be_written_out(arguments: list[str]) -> None:
    options = parse(arguments)
    assert (options.command, options.config) == ("serve", "config.json")


def test_a_config_that_is_called_like_a_command_can_be_given_with_its_folder() -> None:
    assert parse(["./check"]).config == "./check"


def test_a_config_whose_name_is_nearly_a_command_is_a_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("chekc").touch()
    assert parse(["chekc"]).config == "chekc"


def test_what_is_not_given_is_left_to_the_settings() -> None:
    options = vars(parse(["config.json"]))
    names = ("settings", "name", "server_version", "separator", "prefix", "strict", "host", "port", "telemetry")
    assert {options[name] for name in names} == {None}


def test_every_option_of_serve_is_understood() -> None:
    line = (
        "config.json --transport http --host localhost --port 0 --settings s.toml --name n --server-version 3 "
        "--separator __ --no-prefix --no-strict --otel --debug"
    )
    expected: dict[str, Any] = {
        "transport": "http",
        "host": "localhost",
        "port": "0",
        "settings": "s.toml",
        "telemetry": True,
        "name": "n",
        "server_version": "3",
        "separator": "__",
        "prefix": False,
        "strict": False,
        "debug": True,
    }
    options = vars(parse(line.split()))
    assert {name: options[name] for name in expected} == expected


@pytest.mark.parametrize("command", ["check", "list", "call"])
def test_the_other_commands_take_the_options_that_mean_something_to_them(command: str) -> None:
    line = f"{command} c.json {'a:b' if command == 'call' else ''} --settings s --separator _ --no-prefix --no-strict"
    options = parse([*line.split(), "--debug"])
    assert options.command == command
    assert (options.config, options.settings, options.separator) == ("c.json", "s", "_")
    assert (options.prefix, options.strict, options.debug) == (False, False, True)


@pytest.mark.parametrize(
    "line",
    [
        "call c.json a:b --json x=1 y=-2",
        "call c.json --json a:b x=1 y=-2",
        "call --json c.json a:b x=1 y=-2",
        "call c.json a:b x=1 --json y=-2",
    ],
)
def test_the_arguments_of_a_call_may_stand_before_and_after_options(line: str) -> None:
    options = parse(line.split())
    assert (options.config, options.tool, options.pairs) == ("c.json", "a:b", ["x=1", "y=-2"])
    assert options.json is True


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "give the path of a config file, such as: fastmcp-aggregator config.json"),
        ("c.json --config d.json", "give the config once"),
        ("c.json --port 80", "--host and --port go with --transport http"),
        ("c.json --host ::1", "--host and --port go with --transport http"),
        ("c.json --separator -", "invalid choice: '-'"),
        ("c.json --nostrict", "unrecognized arguments: --nostrict"),
        ("c.json --nostrict", "did you mean `--no-strict`?\nAll options: fastmcp-aggregator --help"),
        ("c.json --idle-timeout 5", "it is a setting: FASTMCP_AGGREGATOR_IDLE_TIMEOUT, or `idle_timeout` in the file"),
        ("stop --idle-timeout 5", "unrecognized arguments: --idle-timeout"),
        ("install claud-desktop --config c.json", "did you mean `claude-desktop`?"),
        ("import --from cursr", "did you mean `cursor`?"),
        ("check", "the following arguments are required: CONFIG"),
        ("call c.json", "the following arguments are required: SERVER:TOOL"),
        ("cache", "the following arguments are required: list|clear\n"),
        ("keys", "the following arguments are required: create|list|set|revoke\n"),
        ("accounts", "the following arguments are required: list|revoke, CONFIG\n"),
        ("completion", "the following arguments are required: bash|zsh|fish\n"),
        ("list c.json --sep _", "unrecognized arguments: --sep _"),
        ("chekc mcp.json", "'chekc' is neither a command nor a config file; did you mean `check`?"),
        ("Import", "'Import' is neither a command nor a config file; did you mean `import`?"),
    ],
)
def test_a_wrong_command_line_ends_with_code_2_and_says_why(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = told(capsys, *line.split(), code=2)
    assert message in said
    assert len(said.splitlines()) == 2


def test_the_help_names_the_commands_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, "--help", code=0)
    assert all(f"\n  {command} " in text for command in ("serve", "check", "list", "call"))
    assert "exit codes:\n  0  fine" in text
    assert all(option in text for option in ("--transport", "--no-strict", "--separator {auto,:,__,.,_}"))


@pytest.mark.parametrize("command", all_commands().values(), ids=lambda command: command.name)
def test_each_command_tells_of_itself(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, command.name, "--help", code=0)
    assert command.summary in " ".join(text.split())
    assert command.summary.endswith(".")
    assert "\n\nexamples:\n  fastmcp-aggregator " in text
    assert "\n\nexit codes:\n" in text
    first = "" if command.name == "serve" else command.name
    assert command.usage.startswith(first or "[serve]")
    assert command.examples
    assert all(example.startswith(first) for example in command.examples)
    for example in command.examples:
        line = shlex.split(example.partition(" | ")[0].partition(" > ")[0])
        assert parse(line).command == command.name


def test_the_help_of_the_program_has_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, "--help", code=0)
    for command in all_commands().values():
        assert f"{PROGRAM} {command.usage}\n" in text
        assert re.search(rf"^  {command.name} +{re.escape(command.summary)}$", text, re.MULTILINE)


def test_every_action_belongs_to_a_command() -> None:
    files = [path.read_text() for path in Path(commands.__path__[0]).rglob("*.py")]
    named = {name for text in files for name in re.findall(r'run=action\("([\w.]+)"', text)}
    assert named >= {path.stem for path in Path(actions.__path__[0]).glob("[!_]*.py")} - {"status"}  # of `hubs.status`
    assert all(callable(import_module(f"{actions.__name__}.{name}").run) for name in named)


@pytest.mark.parametrize("line", ["--version", "serve --version", "check --version"])
def test_the_version_is_told(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, *line.split(), code=0) == f"fastmcp-aggregator {VERSION}\n"


@pytest.mark.parametrize("line", ["--help", "--version", "call --help", "--port 1"])
def test_what_needs_no_config_imports_no_library(line: str) -> None:
    program = (
        "import sys\n"
        "from fastmcp_aggregator.cli.main import main\n"
        "try:\n"
        "    main(sys.argv[1:])\n"
        "finally:\n"
        "    heavy = {'fastmcp', 'mcp', 'mcp_types', 'pydantic', 'rich', 'asyncio', 'uvicorn', 'structlog'}\n"
        "    print('imported:', sorted(heavy & sys.modules.keys()))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, *line.split()], capture_output=True, text=True, check=False)
    assert "imported: []" in done.stdout
