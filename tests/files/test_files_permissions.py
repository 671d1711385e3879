"""Who else could change a file: its owner, its mode, and those of the folders that it is in."""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.command_line import run_main
from support.harness import until

from fastmcp_aggregator.access.keys import new_key
from fastmcp_aggregator.access.keys_file import FollowedKeys, read_keys, write_keys
from fastmcp_aggregator.errors import ConfigError
from fastmcp_aggregator.files import permissions
from fastmcp_aggregator.files.followed import FollowedFiles
from fastmcp_aggregator.files.permissions import weaknesses

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="of POSIX")

Damage = Callable[[Path, pytest.MonkeyPatch], None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which nobody else may write."""
    made = tmp_path / "a" / "b"
    made.mkdir(parents=True)
    for path in (made, made.parent, tmp_path):
        path.chmod(0o755)
    return made


def _of_another(wanted: str) -> Damage:
    def damage(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        of_another = path.resolve() if wanted == "file" else path.parent
        theirs = of_another.stat().st_ino
        real = Path.stat

        def stat(self: Path, **options: Any) -> Any:
            found = real(self, **options)
            names = ("st_mode", "st_gid", "st_ino", "st_dev", "st_size", "st_mtime_ns", "st_ctime_ns")
            about = {name: getattr(found, name) for name in names}
            return SimpleNamespace(**about, st_uid=54321 if found.st_ino == theirs else found.st_uid)

        monkeypatch.setattr(Path, "stat", stat)

    return damage


def _mode(of: Callable[[Path], Path], mode: int) -> Damage:
    return lambda path, _: of(path).chmod(mode)


WEAK: dict[str, tuple[Damage, str]] = {
    "file of another": (_of_another("file"), "belongs to another user (54321)"),
    "folder of another": (_of_another("folder"), "is in a folder of another user (54321)"),
    "file for all": (_mode(lambda path: path, 0o646), "can be written to by others than its owner"),
    "folder for all": (
        _mode(lambda path: path.parent, 0o777),
        "can be replaced by others, who may write to the folder",
    ),
    "folder above": (_mode(lambda path: path.parent.parent, 0o777), "can be replaced by others"),
}


@pytest.mark.parametrize("what", WEAK)
def test_each_way_to_change_a_file_is_said(what: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "mcp.json"
    path.write_text("{}")
    path.chmod(0o644)
    assert weaknesses(path) == []
    damage, said = WEAK[what]
    damage(path, monkeypatch)
    assert [said in weakness for weakness in weaknesses(path)] == [True]


@pytest.mark.parametrize("what", WEAK)
def test_keys_that_others_could_change_let_nobody_in(
    what: str, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = folder / "keys.json"
    key, kept = new_key("ann", None, None)
    write_keys(path, [kept])
    keys = FollowedKeys(path)
    assert keys.find(key) == kept
    WEAK[what][0](path, monkeypatch)
    with pytest.raises(ConfigError, match="could grant themselves access"):
        read_keys(path)
    os.utime(path, (1, 1))
    assert keys.find(key) is None
    assert "all API keys are rejected until this is fixed" in caplog.text


def test_a_group_of_one_user_alone_is_not_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import grp
    import pwd

    path = folder / "mcp.json"
    path.write_text("{}")
    path.chmod(0o664)
    me = pwd.getpwuid(os.getuid()).pw_name
    for name, members, is_weak in ((me, [], False), (me, [me], False), (me, ["eve"], True), ("staff", [], True)):
        group = SimpleNamespace(gr_name=name, gr_mem=members)
        monkeypatch.setattr(grp, "getgrgid", lambda _, group=group: group)
        assert bool(weaknesses(path)) is is_weak


def test_a_sticky_folder_and_a_read_only_file_system_are_safe(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "mcp.json"
    path.write_text("{}")
    folder.chmod(0o1777)
    assert weaknesses(path) == []
    folder.chmod(0o777)
    assert weaknesses(path) != []
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_RDONLY))
    monkeypatch.setattr(permissions, "_shares_its_processes", lambda: False)
    assert weaknesses(path) == []
    assert weaknesses(folder / "none") == []


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces")
def test_what_is_read_only_for_a_service_alone_is_not_safe(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "mcp.json"
    path.write_text("{}")
    folder.chmod(0o777)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_RDONLY))
    of_all = SimpleNamespace(st_ino=0xEFFFFFFC)
    real = os.stat
    monkeypatch.setattr(os, "stat", lambda at, **how: of_all if at == "/proc/self/ns/pid" else real(at, **how))
    assert weaknesses(path) != []
    of_all.st_ino += 1  # a container
    assert weaknesses(path) == []


def test_a_link_is_as_weak_as_its_folder_and_as_what_it_leads_to(folder: Path) -> None:
    real, link = folder / "real.json", folder.parent / "link.json"
    real.write_text("{}")
    link.symlink_to(real)
    assert weaknesses(link) == []
    real.chmod(0o666)
    assert len(weaknesses(link)) == 1
    real.chmod(0o600)
    folder.parent.chmod(0o777)
    assert len(weaknesses(link)) == 1


def test_every_link_and_folder_on_the_way_counts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, open_folder, last = folder / "real.json", folder / "open", folder / "last.json"
    real.write_text("{}")
    open_folder.mkdir()
    open_folder.chmod(0o777)
    (open_folder / "between.json").symlink_to("../real.json")
    last.symlink_to(open_folder / "between.json")
    assert [str(open_folder) in weakness for weakness in weaknesses(last)] == [True]
    open_folder.chmod(0o1777)
    assert weaknesses(last) == []
    theirs = (open_folder / "between.json").lstat().st_ino
    monkeypatch.setattr(permissions, "is_trusted", _unless_of(theirs, monkeypatch))
    assert ["is reached by a link of another user" in weakness for weakness in weaknesses(last)] == [True]


def test_a_folder_far_above_that_is_of_another_user_counts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "mcp.json"
    path.write_text("{}")
    monkeypatch.setattr(permissions, "is_trusted", _unless_of(folder.parent.parent.stat().st_ino, monkeypatch))
    assert [weakness.endswith(f": {folder.parent.parent}") for weakness in weaknesses(path)] == [True]


def test_links_in_a_circle_are_left_to_who_reads_them(folder: Path) -> None:
    one, two = folder / "one", folder / "two"
    one.symlink_to(two)
    two.symlink_to(one)
    assert weaknesses(one) == []


def _unless_of(inode: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], bool]:
    """Whether an owner is trusted, where what has this inode is of another."""
    real = Path.stat

    def stat(self: Path, **options: Any) -> Any:
        found = real(self, **options)
        names = ("st_mode", "st_gid", "st_ino", "st_dev", "st_size", "st_mtime_ns", "st_ctime_ns")
        about = {name: getattr(found, name) for name in names}
        return SimpleNamespace(**about, st_uid=54321 if found.st_ino == inode else os.geteuid())

    monkeypatch.setattr(Path, "stat", stat)
    return lambda owner: owner != 54321


NOBODY = 0xFFFFFFFF
ACLS = {
    "another user": ([(0x02, 6, 54321)], True),
    "another user who may read": ([(0x02, 4, 54321)], False),
    "this user": ([(0x02, 6, os.geteuid() if sys.platform != "win32" else 0)], False),
    "another group": ([(0x08, 6, 54321)], True),
}


@pytest.mark.skipif(sys.platform != "linux", reason="ACLs of Linux")
@pytest.mark.parametrize("of_folder", [False, True])
@pytest.mark.parametrize("name", ACLS)
def test_an_acl_counts_also_where_the_group_is_private(
    name: str, of_folder: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(permissions, "_is_private", lambda group, owner: group != 54321)
    path = folder / "mcp.json"
    path.write_text("{}")
    granted, is_weak = ACLS[name]
    entries = [(0x01, 7, NOBODY), *granted, (0x04, 4, NOBODY), (0x10, 7, NOBODY), (0x20, 4, NOBODY)]
    entries.sort()
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(folder if of_folder else path, "system.posix_acl_access", acl)
    except OSError:
        pytest.skip("no ACLs here")
    assert bool(weaknesses(path)) is is_weak


async def test_a_followed_file_that_becomes_weak_is_warned_of_once(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = folder / "mcp.json"
    path.write_text("{}")
    read: list[int] = []

    async def read_again() -> None:
        read.append(1)

    files = FollowedFiles([path], read_again)
    async with files.following(watch=False):
        assert not caplog.records
        path.chmod(0o666)
        for times in (1, 2):
            files.ask()
            await until(lambda times=times: len(read) == times)  # type: ignore[misc]
    assert caplog.text.count("can be written to by others than its owner; what it says is done with your rights") == 1
    await asyncio.sleep(0)


def test_check_says_it_of_every_file_that_is_read(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    texts = {"mcp.json": '{"mcpServers": {}}', "s.toml": "", "g.json": "{}", "x.env": "", "p.json": '{"servers": {}}'}
    files = {name: folder / name for name in [*texts, "k.json"]}
    texts["s.toml"] = f'pins = "{files["p.json"]}"\nkeys_file = "{files["k.json"]}"\n'
    texts["k.json"] = '{"keys": []}'
    for name, text in texts.items():
        files[name].write_text(text)
        files[name].chmod(0o666)
    line = ["check", str(files["mcp.json"]), "--settings", str(files["s.toml"]), "--groups", str(files["g.json"])]
    ended = run_main(capfd, [*line, "--env-file", str(files["x.env"])])
    errors, _, to_decide = ended.out.partition("To decide:\n")
    for name, path in files.items():
        found, mark = (errors, ":") if name == "k.json" else (to_decide, "")
        assert f"  {path}{mark} can be written to by others than its owner" in found
    assert permissions.is_trusted(0)
