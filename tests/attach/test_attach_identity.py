"""Which hub a client belongs to, and where hubs are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import fastmcp_aggregator.attach
from fastmcp_aggregator.attach import folder
from fastmcp_aggregator.attach.identity import HubIdentity, difference, identity_of
from fastmcp_aggregator.cli.commands.hubs.attach import COMMAND
from fastmcp_aggregator.version import VERSION


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"a": {"command": "x", "env": {"T": "${TOKEN_OF_MINE}"}}}}')
    return path


def identity(*arguments: object, **environ: str) -> HubIdentity:
    options = COMMAND.parsed([str(argument) for argument in arguments])
    return identity_of(options, {"PATH": "/bin", "HOME": "/home/x", **environ})


def hub_of(*arguments: object, **environ: str) -> str:
    return identity(*arguments, **environ).id


def test_clients_of_one_config_have_one_hub_whatever_they_see_of_it(config: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(config)
    hub = hub_of(config)
    assert hub_of(config, "--group", "web") == hub
    assert hub_of(config, "--tool-search") == hub
    assert hub_of("--config", config, "--debug") == hub
    assert hub_of(link, UNRELATED="1") == hub


@pytest.mark.parametrize(
    "arguments",
    [["--no-strict"], ["--separator", "__"], ["--no-prefix"], ["--name", "x"], ["--groups", "g"], ["--settings", "s"]],
)
def test_options_that_change_what_is_served_make_another_hub(config: Path, arguments: list[str]) -> None:
    assert hub_of(config, *arguments) != hub_of(config)


def test_variables_that_the_config_names_make_another_hub_and_so_do_path_and_settings(config: Path) -> None:
    hubs = {
        hub_of(config),
        hub_of(config, TOKEN_OF_MINE="1"),
        hub_of(config, TOKEN_OF_MINE="2"),
        hub_of(config, PATH="/usr/bin"),
        hub_of(config, FASTMCP_AGGREGATOR_CALL_TIMEOUT="1"),
    }
    assert len(hubs) == 5


def test_the_variable_of_a_token_makes_another_hub_and_what_is_in_a_file_of_variables_does_not(
    config: Path, tmp_path: Path
) -> None:
    settings, variables = tmp_path / "settings.toml", tmp_path / "x.env"
    settings.write_text('[servers.a]\nbearer_env = "MY_TOKEN"\n')
    assert hub_of(config, "--settings", settings) != hub_of(config, "--settings", settings, MY_TOKEN="1")
    variables.write_text("A=1")
    before = hub_of(config, "--env-file", variables)
    assert before != hub_of(config)
    variables.write_text("A=2")
    assert hub_of(config, "--env-file", variables) == before


def test_it_is_told_in_what_two_hubs_differ_and_no_value(config: Path) -> None:
    one = identity(config).parts
    assert difference(one, identity(config).parts) == []
    assert difference(one, identity(config, PATH="/usr/bin").parts) == ["PATH"]
    assert difference(one, identity(config, "--no-strict", TOKEN_OF_MINE="1").parts) == [
        "--no-strict",
        "the variable TOKEN_OF_MINE",
    ]
    assert difference(one, identity(config, "--hub", "work").parts) == ["--hub"]
    assert "very secret" not in str(identity(config, TOKEN_OF_MINE="very secret"))


def test_versions_and_places_of_the_program_that_differ_are_named(config: Path) -> None:
    one = identity(config).parts
    assert difference(one, {**one, "its version": "99.0"}) == [f"its version ({VERSION} here, 99.0 there)"]
    [said] = difference(one, {**one, "where its program is": "/opt/other"})
    assert said == f"where its program is ({Path(fastmcp_aggregator.attach.__file__).parent} here, /opt/other there)"


def test_the_same_folders_in_path_are_the_same_path(config: Path) -> None:
    hub = hub_of(config, PATH="/usr/bin:/bin")
    assert hub_of(config, PATH="/usr/bin/:/bin:/usr/bin:/bin/") == hub
    assert hub_of(config, PATH="/bin:/usr/bin") != hub
    assert hub_of(config, PATH="/usr/bin::/bin") != hub  # the working folder is in it


def test_the_key_of_a_command_makes_no_other_hub(config: Path) -> None:
    assert hub_of(config, FASTMCP_AGGREGATOR_API_KEY="1") == hub_of(config)
    config.write_text('{"mcpServers": {"a": {"url": "${FASTMCP_AGGREGATOR_API_KEY}"}}}')
    assert hub_of(config, FASTMCP_AGGREGATOR_API_KEY="1") != hub_of(config)


def test_a_name_decides_alone(config: Path) -> None:
    assert hub_of(config, "--hub", "work") == hub_of("other.json", "--hub", "work", "--no-strict", PATH="/x")
    assert hub_of(config, "--hub", "work") != hub_of(config, "--hub", "home")


def test_the_program_of_a_hub_is_told_no_secrets(config: Path) -> None:
    options = COMMAND.parsed([str(config), "--no-strict", "--separator=:", "--name=--x"])
    identity = identity_of(options, {**os.environ, "TOKEN_OF_MINE": "very secret"})
    assert identity.arguments == (str(config), "--separator=:", "--name=--x", "--no-strict")


def test_a_runtime_folder_is_used_only_if_it_is_this_users_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    tmp_path.chmod(0o700)
    assert folder.hub_folder() == str(tmp_path / "fastmcp-aggregator")
    tmp_path.chmod(0o755)
    assert not folder.hub_folder().startswith(str(tmp_path / "fastmcp-aggregator"))


def test_a_folder_that_others_can_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    made = Path(folder.made_hub_folder())
    assert made.stat().st_mode & 0o777 == 0o700
    made.chmod(0o770)
    with pytest.raises(folder.Unusable, match="not for this user alone"):
        folder.made_hub_folder()
    made.rmdir()
    made.symlink_to(tmp_path)
    with pytest.raises(folder.Unusable, match="not for this user alone"):
        folder.made_hub_folder()
