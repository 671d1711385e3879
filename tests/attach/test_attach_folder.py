"""Where the sockets of hubs are, and what others may have put there."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastmcp_aggregator.attach import folder, starting
from fastmcp_aggregator.attach.folder import Unusable, lock_of, made_hub_folder, require_short, socket_of
from fastmcp_aggregator.attach.identity import HubIdentity
from fastmcp_aggregator.attach.systems import posix

HUB = HubIdentity("0123456789abcdef", None, "mcp.json", ())


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of hubs; none is started."""
    monkeypatch.setattr(posix, "_detach", lambda *_: None)
    with tempfile.TemporaryDirectory(prefix="hub-") as made:  # a socket's path must be short
        monkeypatch.setenv("XDG_RUNTIME_DIR", made)
        yield Path(made_hub_folder())


@pytest.mark.parametrize("name", ["short", "long" * 30])
def test_a_long_home_keeps_nobody_from_a_hub(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", f"/{name}")
    monkeypatch.setattr(folder, "_is_private", lambda _: False)
    require_short(socket_of("0123456789abcdef"))


def test_what_is_in_the_place_of_a_socket_is_replaced_and_no_link_is_followed(place: Path) -> None:
    path, target = Path(socket_of(HUB.id)), place.parent / "target"
    target.write_text("mine")
    path.symlink_to(target)
    assert starting.connected(HUB.id) is None
    assert starting.begin(HUB)
    assert target.read_text() == "mine"
    assert path.is_socket()
    assert not path.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("is_emptied", [False, True])
def test_a_hub_that_ends_takes_away_what_is_its_own_and_not_what_another_has_made_in_an_emptied_folder(
    is_emptied: bool, place: Path
) -> None:
    path, lock = Path(socket_of(HUB.id)), Path(lock_of(HUB.id))
    with lock.open("w") as locked:
        listener = posix.Listener(posix._listening(str(path)), str(lock), locked.fileno())
        if is_emptied:
            path.unlink()
            lock.unlink()
            assert starting.begin(HUB)
        listener.close(b"")
        listener.finish()
    assert [path.exists(), lock.exists()] == [is_emptied, is_emptied]


def test_a_hub_that_starts_is_not_taken_for_the_one_before_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That one may have been killed, and its note says that it serves; who serves has to greet at once."""
    Path(lock_of(HUB.id)).write_text('{"pid": 1, "serves": true}')
    listening, noted = posix._listening, []

    def observed(path: str) -> socket.socket:
        noted.append(starting.record_of(HUB.id))
        return listening(path)

    monkeypatch.setattr(posix, "_listening", observed)
    assert starting.begin(HUB)
    assert noted == [{}]


def test_a_link_in_the_place_of_a_lock_is_not_followed(place: Path) -> None:
    target = place.parent / "target"
    Path(lock_of(HUB.id)).symlink_to(target)
    with pytest.raises(Unusable, match="no hub can be started"):
        starting.begin(HUB)
    assert not target.exists()
    assert starting.record_of(HUB.id) is None


def test_a_folder_in_the_place_of_a_socket_is_told(place: Path) -> None:
    Path(socket_of(HUB.id)).mkdir()
    with pytest.raises(Unusable, match="no hub can be started"):
        starting.begin(HUB)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(place: Path) -> None:
    os.chown(place, 65534, 65534)
    with pytest.raises(Unusable, match="not for this user alone"):
        made_hub_folder()


def test_a_runtime_folder_that_anybody_may_write_to_is_not_used(place: Path) -> None:
    place.parent.chmod(0o1777)
    assert not folder.hub_folder().startswith(str(place))


def test_a_socket_that_is_no_stream_is_not_spoken_to(place: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(socket_of(HUB.id))
        with pytest.raises(Unusable, match="cannot be used"):
            starting.connected(HUB.id)


def test_hubs_of_a_folder_that_others_may_have_made_are_not_believed(place: Path) -> None:
    """Who could write there could name any process as a hub, for `stop` to end."""
    assert starting.begin(HUB)
    assert folder.known_hubs() == [HUB.id]
    place.chmod(0o770)
    assert folder.known_hubs() == []


@pytest.mark.parametrize("pid", [-1, 0, 1, "7", None])
def test_what_is_no_process_of_a_hub_is_not_taken_for_one(pid: object) -> None:
    assert starting._record_in(json.dumps({"pid": pid}).encode()) is None
    assert starting._record_in(b'{"pid": 4242}') == {"pid": 4242}
