"""How a command is started so that it ends with us: by a program that becomes it, or else by Python."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastmcp_aggregator.children.process_groups import parent_death
from fastmcp_aggregator.children.process_groups.parent_death import with_parent_death_signal

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has the signal")
SETPRIV = "/usr/bin/setpriv"


@pytest.fixture(autouse=True)
def _has_setpriv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parent_death, "_setpriv", lambda: SETPRIV)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """With a script, one whose interpreter is missing, one without any, one that nobody may execute, and a folder."""
    texts = {
        "script": f"#!{sys.executable} -S\n",
        "lost": "#!/no/such/interpreter\n",
        "text": "echo hello\n",
        "empty": "",
        "bare": "#!\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "closed").write_text(texts["script"])
    (tmp_path / "folder").mkdir()
    return tmp_path


def is_by_setpriv(command: str, environment: dict[str, str], cwd: str | None = None) -> bool:
    started, options = with_parent_death_signal(command, ["-x", "--", "y"], environment, cwd)
    assert started[-4:] == [command, "-x", "--", "y"]
    assert (started[0] == SETPRIV) is ("preexec_fn" not in options)
    return started[0] == SETPRIV


def test_programs_and_scripts_are_started_without_a_copy_of_us(folder: Path) -> None:
    path = {"PATH": f"/no/such/folder:{folder}"}
    assert is_by_setpriv(sys.executable, {})
    assert is_by_setpriv("sh", {})
    assert is_by_setpriv("script", path)
    assert is_by_setpriv("./script", {}, str(folder))
    assert is_by_setpriv(str(folder / "script"), {}, "/")


@pytest.mark.parametrize("name", ["lost", "text", "empty", "bare", "closed", "folder", "missing", "nul\0"])
def test_what_cannot_be_executed_is_left_to_python_which_says_why(folder: Path, name: str) -> None:
    assert not is_by_setpriv(name, {"PATH": str(folder)})
    assert not is_by_setpriv(f"./{name}", {}, str(folder))


def test_a_server_whose_environment_is_for_the_loader_is_left_to_python() -> None:
    assert not is_by_setpriv(sys.executable, {"LD_PRELOAD": "libx.so"})


def test_without_a_setpriv_that_can_do_it_python_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    (tmp_path / "busybox").write_bytes(b"\x7fELF setpriv")
    paths = str(tmp_path / "none"), str(tmp_path / "busybox")
    assert parent_death._setpriv.__wrapped__(paths) is None
    (tmp_path / "none").write_bytes(b"\x7fELF --pdeathsig")
    assert parent_death._setpriv.__wrapped__(paths) == str(tmp_path / "none")
