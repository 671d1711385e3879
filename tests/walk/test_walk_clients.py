"""The files that the walk gives to clients: each server is found again, once."""

from __future__ import annotations

from pathlib import Path

from support.machines import machine

from fastmcp_aggregator.client_configs.found import found_files
from walk.clients import write_files


def test_each_server_is_in_one_clients_file(tmp_path: Path) -> None:
    here = machine(tmp_path)
    servers = {f"s{number}": {"command": "x", "args": ["a"], "env": {"A_TOKEN": "b"}} for number in range(20)}
    write_files(here, servers)
    files = found_files(here)
    assert [file.error for file in files] == [None] * 9
    assert sorted(server.key for file in files for server in file.servers) == sorted([*servers, "docs"])
