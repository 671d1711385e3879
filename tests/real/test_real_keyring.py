"""The key of the vault in a keyring of a real system: GNOME's, on a session bus of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.wire import PATIENCE

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        not (shutil.which("gnome-keyring-daemon") and shutil.which("dbus-run-session")),
        reason="needs dbus-run-session and gnome-keyring-daemon",
    ),
]
UNLOCKED = 'printf "a password" | gnome-keyring-daemon --unlock --components=secrets >/dev/null && '
VAULT = """
import asyncio, sys
from pathlib import Path
from fastmcp_aggregator.oauth.vault.sealing_key import SealingKeys
from fastmcp_aggregator.oauth.vault.vault import FileVault

async def main(directory, act, timeout="15"):
    vault = FileVault(Path(directory), keys=SealingKeys(Path(directory), timeout=float(timeout)))
    if act == "keep":
        await vault.keep("tokens", "alice", b"of alice")
    print(await vault.read("tokens", "alice"))

asyncio.run(main(*sys.argv[1:]))
"""


def in_session(folder: Path, *commands: str) -> str:
    """What these commands print in one session of a desktop; the keyring's files are in the folder."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder), "LANG": "C.UTF-8"}
    done = subprocess.run(
        ["dbus-run-session", "--", "sh", "-c", " && ".join(commands)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def vault(folder: Path, act: str, *patience: str) -> str:
    (folder / "vault.py").write_text(VAULT)
    return " ".join([sys.executable, str(folder / "vault.py"), str(folder / "tokens"), act, *patience])


def source_of(folder: Path) -> str:
    """Where the key is that the document was sealed with."""
    (file,) = (folder / "tokens").glob("tokens-*")
    return file.read_text().splitlines()[0]


def test_the_key_is_kept_by_gnome_and_found_in_the_next_session(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    assert in_session(tmp_path, UNLOCKED + vault(tmp_path, "keep")) == "b'of alice'\n"
    assert (source_of(tmp_path), (tmp_path / "tokens" / "key").exists()) == ("keyring", False)
    assert in_session(tmp_path, UNLOCKED + vault(tmp_path, "read")) == "b'of alice'\n"


def test_without_the_keyring_what_it_sealed_is_not_read_and_that_is_said(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    in_session(tmp_path, UNLOCKED + vault(tmp_path, "keep"))
    with pytest.raises(AssertionError, match="not available here; log in again"):
        in_session(tmp_path, f"PYTHON_KEYRING_BACKEND=keyring.backends.null.Keyring {vault(tmp_path, 'read')}")


def test_where_the_keyring_is_locked_and_nobody_answers_a_file_is_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    locked = "gnome-keyring-daemon --start --components=secrets >/dev/null"
    assert in_session(tmp_path, locked, vault(tmp_path, "keep", "2")) == "b'of alice'\n"
    assert source_of(tmp_path) == "file"
