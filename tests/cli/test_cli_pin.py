"""`pin`, with real servers: what is recorded, what is shown of a change, and what is approved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.command_line import Ended, run_main
from support.harness import config, lean

from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.cli.main import parse
from fastmcp_aggregator.pinning.pins_file import read_pins

pytestmark = pytest.mark.process


class Pinning:
    """The command on a config and a pins file in a folder."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.file = folder / "pins.json"
        self._config = folder / "config.json"
        self._capture = capture

    def __call__(self, *arguments: str, **servers: dict[str, Any]) -> Ended:
        self._config.write_text(json.dumps(config(**servers)))
        return run_main(self._capture, ["pin", str(self._config), "--file", str(self.file), *arguments])


@pytest.fixture
def pin(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Pinning:
    return Pinning(tmp_path, capfd)


def described(text: str, **options: Any) -> dict[str, Any]:
    return lean(tool_extra={"description": text}, **options)


def test_what_is_not_pinned_is_recorded_and_a_change_is_shown_until_it_is_approved(pin: Pinning) -> None:
    before = described("Say it.", instructions="Be kind.")
    after = described("Say it.\nAnd obey\u200b.", instructions="Be rude.")
    first = pin(files=before)
    assert first.code == 0, first.err
    count = len(read_pins(pin.file)["files"].of(Kind.TOOL))
    assert f"pinned {count} tools of 'files'" in first.err
    assert pin("--diff", files=before).code == 0

    recorded = pin.file.read_text()
    shown = pin("--diff", files=after)
    assert shown.code == 1
    assert shown.out.splitlines() == [
        "server 'files': the text of its instructions has changed",
        "  -instructions: Be kind.",
        "  +instructions: Be rude.",
        "server 'files': the tool 'echo' has changed",
        "   name: echo",
        "  -description: Say it.",
        "  +description:",
        "  +  Say it.",
        "  +  And obey\\u200b.",
        "   inputSchema:",
        "     {",
    ]
    assert "its description has invisible characters: 1 of U+200B ZERO WIDTH SPACE" in shown.err
    assert "2 differences; approve with: " in shown.err
    assert pin(files=after).code == 1
    assert pin.file.read_text() == recorded

    approved = pin("--approve", "files", files=after)
    assert (approved.code, pin("--diff", files=after).code) == (0, 0)
    assert f"approved {count} tools of 'files'" in approved.err


def test_what_a_server_offers_to_clients_of_a_hub_alone_is_recorded(pin: Pinning) -> None:
    tools = {name: f"if_{name}" for name in ("roots", "sampling", "elicitation")}
    assert pin(files=lean(tools_if=tools)).code == 0
    assert set(tools.values()) <= set(read_pins(pin.file)["files"].of(Kind.TOOL))


def test_a_server_that_joins_is_pinned_and_the_others_stay_as_they_were(pin: Pinning) -> None:
    pin(files=described("One."))
    joined = pin(files=described("Two."), notes=lean())
    assert joined.code == 1
    assert "tools of 'notes'" in joined.err
    assert "tools of 'files'" not in joined.err
    pins = read_pins(pin.file)
    assert pins["files"].of(Kind.TOOL)["echo"].definition["description"] == "One."
    assert list(pins) == ["files", "notes"]
    assert pin("--approve", files=described("Two."), notes=lean()).code == 0
    assert read_pins(pin.file)["files"].of(Kind.TOOL)["echo"].definition["description"] == "Two."


def test_only_the_servers_that_are_named_are_approved(pin: Pinning) -> None:
    pin(a=described("One."), b=described("One."))
    ended = pin("--approve", "b", a=described("Two."), b=described("Two."))
    assert ended.code == 1
    pins = read_pins(pin.file)
    assert [pins[key].of(Kind.TOOL)["echo"].definition["description"] for key in ("a", "b")] == ["One.", "Two."]


def test_a_server_that_fails_keeps_its_pins_and_is_told_with_its_reason(pin: Pinning) -> None:
    pin(files=described("One."))
    recorded = pin.file.read_text()
    ended = pin("--approve", files=lean(exit_at_start=1))
    assert ended.code == 3
    assert "files: failed: it exited with code 1" in ended.err
    assert "everything is as pinned" not in ended.err
    assert pin.file.read_text() == recorded


def test_a_server_without_a_value_is_told_beside_what_is_pinned(pin: Pinning) -> None:
    ended = pin(good=described("One."), bad={"command": "x", "env": {"A": "${NO_SUCH_VARIABLE}"}})
    assert ended.code == 3
    assert "bad: failed: the environment variable NO_SUCH_VARIABLE is not set" in ended.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--approve", "nobody"], "there is no server 'nobody'; there are: files"), (["--diff"], "there is no file")],
)
def test_what_cannot_be_done_is_said_before_anything_is_started(pin: Pinning, arguments: list[str], words: str) -> None:
    ended = pin(*arguments, files={"command": "no-such-command-anywhere"})
    assert ended.code == 2
    assert words in ended.err
    assert not pin.file.exists()


@pytest.mark.parametrize("arguments", [["pin"], ["pin", "config.json", "--diff", "--approve"]])
def test_what_cannot_be_meant_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments)
    assert ended.value.code == 2


def test_the_same_as_json(pin: Pinning) -> None:
    first = json.loads(pin("--json", a=described("Say it."), bad={"command": "no-such-command"}).out)
    assert (first["written"], list(first["failed"])) == (["a"], ["bad"])
    assert first["failed"]["bad"].startswith("command not found: 'no-such-command'")
    changed = pin("--diff", "--json", a=described("Shout it."))
    document = json.loads(changed.out)
    assert (changed.code, changed.err) == (1, "")
    (difference,) = document["differences"]
    assert (difference["server"], difference["name"], difference["kind"]) == ("a", "echo", "changed")
    assert any(line.startswith("+") and "Shout it." in line for line in difference["diff"])
    assert (document["written"], document["pins"]) == ([], str(pin.file))
