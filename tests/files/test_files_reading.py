"""Files that people name: whatever stands in their place, the program does not wait or work without end."""

from __future__ import annotations

import json
import os
import select
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastmcp_aggregator import load_config, load_settings
from fastmcp_aggregator.access.keys_file import read_keys
from fastmcp_aggregator.attach.identity import _text_of
from fastmcp_aggregator.cli.running.given_files import variables_of
from fastmcp_aggregator.cli.terminal.exits import UsageError
from fastmcp_aggregator.client_configs.documents import read
from fastmcp_aggregator.config import UnresolvedServer, documents
from fastmcp_aggregator.config.servers import missing_variables
from fastmcp_aggregator.early.ancestors import why_recursive
from fastmcp_aggregator.early.reading import read_bytes
from fastmcp_aggregator.errors import ConfigError
from fastmcp_aggregator.files.kept_key import kept_key
from fastmcp_aggregator.groups import load_groups
from fastmcp_aggregator.pinning.pins_file import read_pins

MANY = range(20_000)


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A pipe into which nobody writes."""
    path = tmp_path / "pipe.json"
    os.mkfifo(path)
    return path


class NothingComes:
    """The system's `poll`, for which the time in which nothing comes is over at once."""

    def register(self, *_: object) -> None: ...

    def poll(self, milliseconds: float) -> list[object]:
        return []


@pytest.fixture
def no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "poll", NothingComes)


def written(path: Path, document: Any) -> Path:
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return path


# What a file is.


def test_a_file_is_read_up_to_a_bound(tmp_path: Path) -> None:
    path = written(tmp_path / "a", "abcdef")
    assert (read_bytes(path, 3), read_bytes(path, 100)) == (b"abc", b"abcdef")


def test_what_is_no_regular_file_is_read_with_a_timeout_alone(pipe: Path) -> None:
    with pytest.raises(OSError, match="not a regular file"):
        read_bytes(pipe, 10)
    with pytest.raises(TimeoutError, match=r"whose end has not come for 0\.05 s"):
        read_bytes(pipe, 10, timeout=0.05)
    assert read_bytes("/dev/zero", 3, timeout=10) == bytes(3)


def test_what_comes_through_a_pipe_is_read_to_its_end(pipe: Path) -> None:
    writer = threading.Thread(target=pipe.write_bytes, args=(b"x" * 100_000,))
    writer.start()
    assert len(read_bytes(pipe, 200_000, timeout=30)) == 100_000
    writer.join()


def test_a_pipe_that_is_open_already_is_read_to_its_end(tmp_path: Path) -> None:
    """As a shell gives it: `check <(…)`."""
    reading, writing = os.pipe()
    os.write(writing, b'{"mcpServers": {}}')
    os.close(writing)
    try:
        assert load_config(f"/dev/fd/{reading}").servers == {}
    finally:
        os.close(reading)


READERS: dict[str, Callable[[Path], object]] = {
    "config": load_config,
    "groups": lambda path: load_groups(path, ["a"]),
    "settings": load_settings,
    "keys": read_keys,
    "pins": read_pins,
}


@pytest.mark.usefixtures("no_time")
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_a_pipe_into_which_nobody_writes_is_told(reader: Callable[[Path], object], pipe: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read: it is (a pipe.* for 10 s|not a regular file)"):
        reader(pipe)


@pytest.mark.usefixtures("no_time")
def test_variables_of_a_pipe_into_which_nobody_writes_are_told(pipe: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: it is a pipe"):
        variables_of(str(pipe))


def test_who_only_looks_leaves_a_pipe_to_who_reads_it(pipe: Path) -> None:
    assert why_recursive(str(pipe)) is None
    assert _text_of(str(pipe)) == ""
    with pytest.raises(OSError, match="not a regular file"):
        kept_key(pipe)


def test_a_file_of_variables_has_a_bound(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="larger than 10 MiB"):
        variables_of(str(written(tmp_path / "env", "#" * (10 * 1024**2 + 1))))


# What is in it.


def entries(**servers: Any) -> dict[str, Any]:
    return {"mcpServers": servers}


DOCUMENTS: dict[str, tuple[Callable[[Path], object], Callable[[], Any]]] = {
    "config": (load_config, lambda: entries(**{f"s{number}": {"comand": 1} for number in MANY})),
    "arguments": (load_config, lambda: entries(a={"command": "x", "args": [*MANY]})),
    "groups": (lambda path: load_groups(path, ["a"]), lambda: {f"g{number}": {"servers": ["b"]} for number in MANY}),
    "keys": (read_keys, lambda: {"keys": [{"id": number} for number in MANY]}),
    "pins": (read_pins, lambda: {"format": 2, "servers": {f"s{number}": 1 for number in MANY}}),
    "settings": (load_settings, lambda: {f"x{number}": 1 for number in MANY}),
}
"""They are made by the test alone, and not by each worker that collects it."""


@pytest.mark.parametrize(("reader", "document"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_a_file_with_too_many_mistakes_is_not_read_to_its_end(
    reader: Callable[[Path], object], document: Callable[[], Any], tmp_path: Path
) -> None:
    path = written(tmp_path / "many.json", document())
    path.chmod(0o600)
    with pytest.raises(ConfigError) as caught:
        reader(path)
    assert len(caught.value.details) <= documents.MOST_PROBLEMS + 20
    assert str(caught.value).startswith(f"{path}: ")
    assert str(caught.value).count("\n") <= 102
    assert str(caught.value).endswith(" more")


def test_a_config_with_very_many_mistakes_is_refused_as_a_whole_though_it_is_not_strict() -> None:
    few = load_config(entries(**{f"s{number}": {} for number in range(500)}), strict=False)
    assert all(isinstance(server, UnresolvedServer) for server in few.servers.values())
    with pytest.raises(ConfigError):
        load_config(entries(**{f"s{number}": {} for number in range(2000)}), strict=False)


def test_an_entry_with_many_mistakes_tells_of_the_first_ten() -> None:
    (server,) = load_config(entries(a={"command": "x", "args": [*range(100)]}), strict=False).servers.values()
    assert isinstance(server, UnresolvedServer)
    assert server.reason.endswith("; and 90 more")


@pytest.mark.parametrize("args", [["${BIG}" * 100_000], ["${BIG}"] * 100_000, ["$BIG" * 100_000]])
def test_what_variables_stand_for_is_bounded(args: list[str]) -> None:
    with pytest.raises(ConfigError, match="becomes too large by the variables in it"):
        load_config(entries(a={"command": "x", "args": args}), environ={"BIG": "x" * 100_000})


def test_variables_without_a_value_are_found_without_their_values() -> None:
    environ = {"BIG": "x" * 1_000_000, "EMPTY": ""}
    entry = {"command": "x", "args": ["${BIG}" * 100_000, "${EMPTY:-$NONE}", "${BIG:-$OTHER}", "$EMPTY"]}
    assert missing_variables({"a": entry}, environ) == {"a": ("NONE",)}


def test_a_server_in_another_folder_is_read_with_all_variables_however_often() -> None:
    entry = {"command": "x", "args": ["${BIG}", "${PWD}"]}
    (server,) = load_config(entries(a=entry), environ={"BIG": "x" * 100_000, "PWD": "/"}).servers.values()
    for number in range(500):
        assert server.read_in(f"/{number}").args[1] == f"/{number}"  # type: ignore[union-attr, misc]


LONG_KEYS = ["a" + ".a" * 5000, '"a"' + ' . "a\\"."' * 5000, "'a'" + " .\t'a'" * 5000]


@pytest.mark.parametrize("key", LONG_KEYS, ids=["bare", "basic", "literal"])
@pytest.mark.parametrize("line", ["{} = 1", "[{}]", "[[{}]]", "x = {{ {} = 1 }}"])
def test_a_key_of_very_many_parts_is_no_toml(key: str, line: str, tmp_path: Path) -> None:
    text = line.format(key) + "\n"
    with pytest.raises(ConfigError, match="cannot be read as TOML"):
        load_settings(written(tmp_path / "a.toml", text))
    with pytest.raises(ConfigError, match="endless number or key"):
        read(text, "toml", "a.toml")


def test_texts_with_many_dots_are_toml(tmp_path: Path) -> None:
    text = f'[servers."{"Read it. " * 300}"]\nstateful = true\n# {"... " * 300}\n'
    assert len(load_settings(written(tmp_path / "a.toml", text)).servers) == 1
