"""Catalogues on disk: what is kept comes back, and what cannot be used is said once and replaced."""

from __future__ import annotations

import errno
import json
import logging
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from support.wire import PATIENCE

from fastmcp_aggregator.catalogue.persisted import store as module
from fastmcp_aggregator.catalogue.persisted.document import MOST_KINDS, KnownCatalogue
from fastmcp_aggregator.catalogue.persisted.store import CatalogueStore, KnownServer
from fastmcp_aggregator.catalogue.snapshot import CacheHint, Catalogue, Kind
from fastmcp_aggregator.config import load_config
from fastmcp_aggregator.settings.model import load_settings
from fastmcp_aggregator.settings.options import ChildOptions

CATALOGUE = Catalogue(
    0,
    {Kind.TOOL: ({"name": "t", "inputSchema": {"type": "object"}, "odd": [1, 2.5, None, "ü"]},), Kind.PROMPT: ()},
    "be kind",
    {"tools": {"listChanged": True}},
    {Kind.TOOL: CacheHint(5)},
    {"t": {"type": "object"}},
)
KNOWN = KnownCatalogue(CATALOGUE, "2025-11-25", "legacy")


def known(store: CatalogueStore, entry: dict[str, Any], key: str = "a", **settings: Any) -> KnownServer:
    server = load_config({"mcpServers": {key: entry}}).servers[key]
    return store.known(server, ChildOptions.from_settings(load_settings(**{"catalogue": "on", **settings}), server))


def program(**more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-V"], **more}


def keep(store: CatalogueStore, entry: dict[str, Any], kind: str = "any") -> Path:
    """Keep a catalogue; its file."""
    fingerprint = known(store, entry).fingerprint
    assert fingerprint
    store.keep("a", fingerprint, kind, KNOWN)
    assert store.flush(PATIENCE)
    return next(store.folder.glob("a~*.json"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_what_is_kept_comes_back_as_it_was_and_is_for_its_owner_alone(folder: Path) -> None:
    path = keep(CatalogueStore(folder), program())
    again = known(CatalogueStore(folder), program())
    assert again.by_kind == {"any": KNOWN}
    assert again.since == path.stat().st_mtime
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.skipif(sys.platform == "win32", reason="a folder has no mode there")
def test_the_folder_above_is_for_its_owner_alone_too_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "home" / "program" / "catalogues"
    before = os.umask(0)
    try:
        keep(CatalogueStore(path), program())
    finally:
        os.umask(before)
    assert {stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)} == {0o700}


def test_a_damaged_secret_is_made_anew(folder: Path) -> None:
    keep(CatalogueStore(folder), program())
    (folder / "secret").write_bytes(b"half")
    assert known(CatalogueStore(folder), program()).by_kind is None
    keep(CatalogueStore(folder), program())
    assert known(CatalogueStore(folder), program()).by_kind == {"any": KNOWN}


def test_what_a_server_has_shown_is_kept_beside_its_catalogue_and_added_to(folder: Path) -> None:
    store = CatalogueStore(folder)
    fingerprint = known(store, program()).fingerprint
    assert fingerprint
    store.keep_shown("a", fingerprint, frozenset({"asks_for_roots"}))
    keep(store, program())
    store.keep_shown("a", fingerprint, frozenset({"something_else"}))
    assert store.flush(PATIENCE)
    again = known(CatalogueStore(folder), program())
    assert again.by_kind == {"any": KNOWN}
    assert again.shown == {"asks_for_roots", "something_else"}


@pytest.mark.parametrize(
    ("tools", "version", "is_shown"),
    [(("t",), "2025-11-25", False), (("t", "u"), "2025-11-25", True), (("t", "u"), "2025-06-18", False)],
)
def test_lists_that_differ_with_the_kind_of_client_in_one_version_are_told(
    folder: Path, tools: tuple[str, ...], version: str, is_shown: bool
) -> None:
    store = CatalogueStore(folder)
    keep(store, program())
    fingerprint = known(store, program()).fingerprint
    assert fingerprint
    other = Catalogue(0, {Kind.TOOL: tuple({"name": name, "inputSchema": {}} for name in tools)})
    store.keep("a", fingerprint, "another", KnownCatalogue(other, version, "legacy"))
    assert store.flush(PATIENCE)
    assert known(CatalogueStore(folder), program()).shown == ({"lists_by_client"} if is_shown else set())


def test_a_file_tells_nothing_of_what_the_server_is_started_with(folder: Path) -> None:
    entry = program(args=["--token", "s3cret-argument"], env={"TOKEN": "s3cret-variable"})
    text = keep(CatalogueStore(folder), entry).read_text()
    assert "s3cret" not in text
    assert sys.executable not in text
    other = known(CatalogueStore(folder.with_name("other")), entry)
    assert other.fingerprint not in text  # it is keyed


@pytest.mark.parametrize(
    "changed",
    [
        {"args": ["-V", "-V"]},
        {"env": {"A": "1"}},
        {"cwd": "/"},
        {"command": "python3-of-nobody"},
    ],
)
def test_another_way_to_start_a_server_has_another_catalogue(folder: Path, changed: dict[str, Any]) -> None:
    keep(CatalogueStore(folder), program())
    assert not known(CatalogueStore(folder), program(**changed)).by_kind


@pytest.mark.parametrize("is_of_hub", [False, True])
def test_a_hub_has_the_same_catalogue_wherever_it_was_started(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_of_hub: bool
) -> None:
    keep(CatalogueStore(folder, is_of_hub=is_of_hub), program())
    monkeypatch.chdir(tmp_path)
    assert bool(known(CatalogueStore(folder, is_of_hub=is_of_hub), program()).by_kind) is is_of_hub
    assert not known(CatalogueStore(folder, is_of_hub=is_of_hub), program(cwd=str(tmp_path))).by_kind


def test_a_script_that_is_changed_has_another_catalogue_and_so_has_a_package(tmp_path: Path, folder: Path) -> None:
    script = tmp_path / "package" / "dist" / "index.js"
    script.parent.mkdir(parents=True)
    script.write_text("1")
    manifest = tmp_path / "package" / "package.json"
    manifest.write_text('{"version": "1"}')
    entry = program(args=[str(script)])
    keep(CatalogueStore(folder), entry)
    assert known(CatalogueStore(folder), entry).by_kind
    manifest.write_text('{"version": "1.10"}')
    assert not known(CatalogueStore(folder), entry).by_kind
    manifest.write_text('{"version": "1"}')
    script.write_text("22")
    assert not known(CatalogueStore(folder), entry).by_kind


def test_a_remote_server_is_known_by_its_address_its_headers_and_its_token(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_OF_A", "1")
    settings: dict[str, Any] = {"servers": {"a": {"bearer_env": "TOKEN_OF_A"}}}
    store = CatalogueStore(folder)
    prints = {
        known(store, {"url": "https://h/mcp"}).fingerprint,
        known(store, {"url": "https://h/other"}).fingerprint,
        known(store, {"url": "https://h/mcp", "headers": {"X": "1"}}).fingerprint,
        known(store, {"url": "https://h/mcp"}, **settings).fingerprint,
    }
    monkeypatch.setenv("TOKEN_OF_A", "2")
    prints.add(known(store, {"url": "https://h/mcp"}, **settings).fingerprint)
    assert len(prints) == 5


def test_pins_that_block_are_part_of_the_fingerprint(folder: Path, tmp_path: Path) -> None:
    pins = tmp_path / "pins.json"
    pins.write_text("{}")
    store = CatalogueStore(folder)
    prints = [known(store, program()).fingerprint]
    prints.append(known(store, program(), pins=str(pins)).fingerprint)
    assert prints[0] == prints[1]
    prints.append(known(store, program(), pins=str(pins), on_pin_mismatch="block").fingerprint)
    pins.write_text("{ }")
    prints.append(known(store, program(), pins=str(pins), on_pin_mismatch="block").fingerprint)
    assert len(set(prints)) == 3


def test_each_kind_of_client_has_its_own_and_the_last_ones_are_kept(folder: Path) -> None:
    store = CatalogueStore(folder)
    for number in range(MOST_KINDS + 2):
        keep(store, program(), f"kind {number}")
    by_kind = known(CatalogueStore(folder), program()).by_kind
    assert by_kind is not None
    assert list(by_kind) == [f"kind {number}" for number in range(2, MOST_KINDS + 2)]


def test_what_is_listed_again_as_it_was_makes_its_file_younger_and_nothing_else(folder: Path) -> None:
    path = keep(CatalogueStore(folder), program())
    os.utime(path, (1, 1))
    inode = path.stat().st_ino
    keep(CatalogueStore(folder), program())
    assert path.stat().st_ino == inode
    assert path.stat().st_mtime > 1


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def garble(path: Path) -> None:
    path.write_bytes(b"\xff\x00garbage")


def nest(path: Path) -> None:
    path.write_bytes(b"[" * 1_000_000)


def age(path: Path) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))


def exchange(path: Path) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), "server": "b"}))


def open_to_all(path: Path) -> None:
    path.chmod(0o666)


def link(path: Path) -> None:
    path.rename(path.with_suffix(".elsewhere"))
    path.symlink_to(path.with_suffix(".elsewhere"))


def swell(path: Path) -> None:
    os.truncate(path, module.CATALOGUE_SIZE_LIMIT + 1)


def queue(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("spoil", [cut, garble, nest, age, exchange, open_to_all, link, swell, queue])
def test_a_file_that_cannot_be_used_is_as_if_it_were_not_there_and_said_once(
    folder: Path, spoil: Any, caplog: pytest.LogCaptureFixture
) -> None:
    spoil(keep(CatalogueStore(folder), program()))
    store = CatalogueStore(folder)
    with caplog.at_level(logging.WARNING):
        assert not known(store, program()).by_kind
        assert not known(store, program()).by_kind
    assert len(caplog.records) == 1
    if spoil is not link:
        keep(store, program())
        assert known(CatalogueStore(folder), program()).by_kind == {"any": KNOWN}


def test_a_file_of_another_user_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(CatalogueStore(folder), program())
    store = CatalogueStore(folder)
    known(store, program())
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert not known(store, program()).by_kind


def test_without_a_folder_that_can_be_used_nothing_is_kept_and_that_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    store = CatalogueStore(tmp_path / "file" / "cache")
    with caplog.at_level(logging.WARNING):
        found = known(store, program())
        assert not found.by_kind
        assert found.fingerprint
        store.keep("a", found.fingerprint, "any", KNOWN)
        assert store.flush(PATIENCE)
    assert len(caplog.records) == 1


def test_on_a_full_disk_what_was_kept_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = CatalogueStore(folder)
    path = keep(store, program())
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with caplog.at_level(logging.WARNING):
        for kind in ("x", "y"):
            keep(store, program(), kind)
    assert path.read_bytes() == before
    assert [name for name in os.listdir(folder) if name.startswith(".")] == []
    assert len(caplog.records) == 1


def test_there_are_only_so_many_files(folder: Path) -> None:
    store = CatalogueStore(folder, most_files=3)
    for number in range(6):
        keep(store, program(env={"N": str(number)}))
    assert len(list(store.files())) == 3


def test_switched_off_nothing_is_read_or_written(folder: Path) -> None:
    assert known(CatalogueStore(folder), program(), catalogue="off") == KnownServer()
    assert known(CatalogueStore(folder), program(), servers={"a": {"catalogue": "off"}}) == KnownServer()
    assert not folder.exists()
