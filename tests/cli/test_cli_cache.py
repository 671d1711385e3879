"""`cache`: what is kept, by server, and gone when it is cleared."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.command_line import run_main
from support.wire import PATIENCE

from fastmcp_aggregator.catalogue.persisted.document import KnownCatalogue
from fastmcp_aggregator.catalogue.persisted.store import CatalogueStore
from fastmcp_aggregator.catalogue.snapshot import Catalogue, Kind


def fill(*servers: str) -> CatalogueStore:
    store = CatalogueStore()
    catalogue = Catalogue(0, {Kind.TOOL: ({"name": "t"},)})
    for server in servers:
        store._get_secret()
        store.keep(server, "f" * 64, "any", KnownCatalogue(catalogue, "2025-11-25", "legacy"))
    assert store.flush(PATIENCE)
    return store


def listed(capfd: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    files: list[dict[str, Any]] = json.loads(run_main(capfd, ["cache", "list", "--json"]).out)["files"]
    return files


def test_what_is_kept_is_listed(capfd: pytest.CaptureFixture[str]) -> None:
    store = fill("git", "files")
    assert [(file["server"], file["counts"]) for file in listed(capfd)] == [
        ("files", {"tools": 1}),
        ("git", {"tools": 1}),
    ]
    ended = run_main(capfd, ["cache", "list"])
    assert ended.code == 0
    assert "git  20" in ended.out
    assert ended.out.splitlines()[0].endswith("1 tool")
    assert f"2 files in {store.folder}" in ended.out


def test_several_files_of_one_server_are_explained(capfd: pytest.CaptureFixture[str]) -> None:
    store = fill("git")
    assert "different entry" not in run_main(capfd, ["cache", "list"]).out
    store.keep("git", "e" * 64, "any", KnownCatalogue(Catalogue(0, {}), "2025-11-25", "legacy"))
    assert store.flush(10)
    assert "\nA server has a file for each different entry: " in run_main(capfd, ["cache", "list"]).out


def test_single_servers_and_all_are_cleared(capfd: pytest.CaptureFixture[str]) -> None:
    fill("git", "files", "time")
    assert "removed 1 file" in run_main(capfd, ["cache", "clear", "git"]).out
    assert [file["server"] for file in listed(capfd)] == ["files", "time"]
    assert "removed 2 files" in run_main(capfd, ["cache", "clear"]).out
    assert listed(capfd) == []


def test_without_a_folder_nothing_is_listed(capfd: pytest.CaptureFixture[str]) -> None:
    assert listed(capfd) == []


def test_a_damaged_file_is_shown_with_its_problem(capfd: pytest.CaptureFixture[str]) -> None:
    next(iter(fill("git").files())).path.write_text("{")
    assert [file["problem"] for file in listed(capfd)] == ["it is damaged"]
