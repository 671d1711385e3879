"""The completion scripts: bash's in a real bash, the others by what is in them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from support.wire import PATIENCE

from fastmcp_aggregator.cli.commands import all_commands
from fastmcp_aggregator.cli.main import main

COMPLETE = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 ))
function=$(complete -p fastmcp-aggregator | sed 's/.*-F \\([^ ]*\\).*/\\1/')
$function fastmcp-aggregator "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["unin"], ["uninstall"]),
        (["install", "cur"], ["cursor"]),
        (["check", "--conn"], ["--connect"]),
        (["check", "--separator", ""], ["auto", ":", "__", ".", "_"]),
        (["check", "conf"], ["config.json"]),
        (["list", "config.json", "--settings", "conf"], ["config.json"]),
        (["keys", "cr"], ["create"]),
        (["serve", "--transport", "h"], ["http"]),
    ],
)
def test_bash_completes(
    words: list[str], completed: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", "bash"]) == 0
    script = capfd.readouterr().out
    (tmp_path / "script").write_text(script)
    (tmp_path / "config.json").touch()
    line = ["bash", "-c", COMPLETE, "bash", str(tmp_path / "script"), "fastmcp-aggregator", *words]
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, timeout=PATIENCE, check=True)
    assert done.stdout.split() == completed
    assert "-o default" in script.splitlines()[-1]


def test_zsh_is_told_values_without_bare_colons(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == 0
    script = capfd.readouterr().out
    assert r":separator:(auto \: __ . _)" in script
    assert "(auto :" not in script


def test_fish_says_beside_a_client_that_it_is_one(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "fish"]) == 0
    script = capfd.readouterr().out
    assert "the client" in script
    assert "claude-desktop, claude-code, cursor" not in script


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_know_every_command(shell: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capfd.readouterr().out
    assert [command for command in all_commands() if command not in script] == []
    if path := shutil.which(shell):
        subprocess.run([path, "-n"], input=script, text=True, timeout=PATIENCE, check=True)
