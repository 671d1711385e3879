"""Settings: their sources and precedence, their defaults, and what is said about wrong ones."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from support.usual import USUAL

from fastmcp_aggregator.config import StdioServer
from fastmcp_aggregator.errors import ConfigError
from fastmcp_aggregator.settings.model import (
    ENV_PREFIX,
    AggregatorSettings,
    ServerSettings,
    load_settings,
    unknown_servers,
)
from fastmcp_aggregator.settings.oauth import OAuthSettings
from fastmcp_aggregator.settings.options import DEFAULT_OPTIONS, ChildOptions, EndpointOptions, RemoteAccess
from fastmcp_aggregator.settings.sections import CallerSettings, ToolSettings


@pytest.fixture(autouse=True)
def _no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith(ENV_PREFIX)]:
        monkeypatch.delenv(name, raising=False)


def write(folder: Path, text: str, suffix: str = ".toml") -> Path:
    path = folder / f"settings{suffix}"
    path.write_text(text)
    return path


def error_of(file: Path | None = None, **overrides: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_settings(file, **overrides)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    return caught.value


def problem_of(file: Path | None = None, **overrides: Any) -> str:
    (problem,) = error_of(file, **overrides).details
    return str(problem)


# Values


def test_without_any_source_everything_has_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in USUAL:
        monkeypatch.delenv(name, raising=False)
    defaults = {
        name: field.get_default(call_default_factory=True) for name, field in AggregatorSettings.model_fields.items()
    }
    assert load_settings().model_dump() == defaults


def test_every_setting_says_what_it_is_and_has_a_default() -> None:
    for model in (AggregatorSettings, ServerSettings, CallerSettings, ToolSettings):
        assert all(field.description and not field.is_required() for field in model.model_fields.values())


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        AggregatorSettings().port = 1


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".toml", 'name = "hub"\nstrict = false\n[servers."my files"]\ncall_timeout = 7\nera = "legacy"\n'),
        (
            ".json",
            json.dumps(
                {
                    "name": "hub",
                    "strict": False,
                    "servers": {"my files": {"call_timeout": 7, "era": "legacy"}},
                }
            ),
        ),
    ],
)
def test_a_file_is_toml_or_json(tmp_path: Path, suffix: str, text: str) -> None:
    settings = load_settings(write(tmp_path, text, suffix))
    assert (settings.name, settings.strict) == ("hub", False)
    assert settings.servers == {"my files": ServerSettings(call_timeout=7, era="legacy")}


def test_the_path_of_the_file_may_be_a_string(tmp_path: Path) -> None:
    assert load_settings(str(write(tmp_path, "port = 1"))).port == 1


def test_an_empty_file_sets_nothing(tmp_path: Path) -> None:
    assert load_settings(write(tmp_path, "")) == AggregatorSettings()


def test_the_environment_sets_plain_and_nested_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTMCP_AGGREGATOR_STRICT", "false")
    monkeypatch.setenv("FASTMCP_AGGREGATOR_CALL_TIMEOUT", "12.5")
    monkeypatch.setenv("FASTMCP_AGGREGATOR_SERVERS__FILES__STARTUP_TIMEOUT", "90")
    settings = load_settings()
    assert (settings.strict, settings.call_timeout) == (False, 12.5)
    assert settings.servers == {"files": ServerSettings(startup_timeout=90)}


def test_all_servers_can_be_set_by_one_variable_in_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTMCP_AGGREGATOR_SERVERS", '{"My-Files": {"era": "modern"}}')
    assert load_settings().servers == {"My-Files": ServerSettings(era="modern")}


def test_an_empty_variable_sets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTMCP_AGGREGATOR_PORT", "")
    monkeypatch.setenv("FASTMCP_AGGREGATOR_NONSENSE", "")
    assert load_settings().port == 8000


# Precedence


def test_overrides_come_before_the_environment_before_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, 'name = "file"\nhost = "file"\npath = "/file"')
    monkeypatch.setenv("FASTMCP_AGGREGATOR_NAME", "environment")
    monkeypatch.setenv("FASTMCP_AGGREGATOR_HOST", "environment")
    settings = load_settings(file, name="override", server_version=None)
    assert (settings.name, settings.host, settings.path) == ("override", "environment", "/file")


def test_an_override_of_none_sets_nothing(tmp_path: Path) -> None:
    assert load_settings(write(tmp_path, "port = 1"), port=None).port == 1


def test_settings_of_one_server_are_put_together_from_all_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path, '[servers.files]\nstartup_timeout = 1\ncall_timeout = 1\nera = "legacy"')
    monkeypatch.setenv("FASTMCP_AGGREGATOR_SERVERS__FILES__CALL_TIMEOUT", "2")
    monkeypatch.setenv("FASTMCP_AGGREGATOR_SERVERS__FILES__STARTUP_TIMEOUT", "2")
    settings = load_settings(file, servers={"files": {"startup_timeout": 3}})
    assert settings.servers == {"files": ServerSettings(startup_timeout=3, call_timeout=2, era="legacy")}


def test_the_settings_of_a_server_may_be_given_as_a_model() -> None:
    settings = load_settings(servers={"files": ServerSettings(era="legacy")})
    assert settings.servers == {"files": ServerSettings(era="legacy")}


def test_the_constructor_reads_the_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTMCP_AGGREGATOR_PORT", "1")
    monkeypatch.setenv("FASTMCP_AGGREGATOR_HOST", "environment")
    settings = AggregatorSettings(port=2)
    assert (settings.port, settings.host) == (2, "environment")


# What holds for one server


def options_of(key: str, *, timeout: float | None = None, **overrides: Any) -> ChildOptions:
    server = StdioServer(key=key, label="x", command="x", timeout=timeout)
    return ChildOptions.from_settings(load_settings(**overrides), server)


GENERAL_TOO = [name for name in ServerSettings.model_fields if name in AggregatorSettings.model_fields]
"""The settings that there are for every server and for one."""


@pytest.mark.parametrize("name", GENERAL_TOO)
def test_what_a_server_has_of_its_own_comes_before_what_is_set_for_every_server(name: str) -> None:
    words = {"catalogue": ("on", "off"), "start": ("eager", "on_demand"), "isolation": ("auto", "session")}
    general, own = words.get(name, (7, 1))
    overrides = {name: general, "servers": {"files": {name: own}, "git": {}}}
    held = [getattr(options_of(key, **overrides).settings, name) for key in ("files", "git", "other")]
    assert held == [own, general, general]


def test_a_server_that_has_settings_of_its_own_keeps_the_general_ones_beside_them() -> None:
    settings = options_of("files", startup_timeout=9, servers={"files": {"call_timeout": 1}}).settings
    assert (settings.startup_timeout, settings.call_timeout, settings.read_timeout) == (9, 1, 60)


def test_a_call_timeout_is_the_servers_own_then_the_configured_then_the_general_one() -> None:
    overrides = {"call_timeout": 9, "servers": {"files": {"call_timeout": 1}, "git": {}}}
    assert options_of("files", timeout=5, **overrides).deadlines.call == 1
    assert options_of("git", timeout=5, **overrides).deadlines.call == 5
    assert options_of("git", **overrides).deadlines.call == 9
    assert options_of("other", **overrides).deadlines.call == 9


@pytest.mark.parametrize(
    ("line", "overrides", "seconds"),
    [
        ("my-server", {}, 30),
        ("npx -y some-server", {}, 120),
        ("/opt/bin/uvx some-server", {}, 120),
        ("uv tool run some-server", {}, 120),
        ("uv run some-server", {}, 30),
        ("cmd /c npx some-server", {}, 120),
        ("npx -y some-server", {"startup_timeout": 30}, 30),
        ("npx -y some-server", {"servers": {"files": {"startup_timeout": 5}}}, 5),
    ],
)
def test_what_may_have_to_be_downloaded_has_longer_to_start(
    line: str, overrides: dict[str, Any], seconds: float
) -> None:
    command, *arguments = line.split()
    server = StdioServer(key="files", label="x", command=command, args=tuple(arguments))
    assert ChildOptions.from_settings(load_settings(**overrides), server).startup_timeout == seconds


def test_reads_and_prompts_have_deadlines_of_their_own() -> None:
    deadlines = options_of("files", read_timeout=2, servers={"files": {"prompt_timeout": 3}}).deadlines
    assert (deadlines.call, deadlines.read, deadlines.prompt) == (300, 2, 3)


def test_the_most_calls_at_once_are_the_servers_own_or_the_general_or_half_of_the_http_requests() -> None:
    overrides = {"max_concurrent_calls": 9, "servers": {"files": {"max_concurrent_calls": 1}, "git": {}}}
    assert [options_of(key, **overrides).max_concurrent_calls for key in ("files", "git", "other")] == [1, 9, 9]
    assert options_of("files").max_concurrent_calls == 50
    assert options_of("files", max_concurrent_requests=7).max_concurrent_calls == 3
    assert options_of("files", max_concurrent_requests=1).max_concurrent_calls == 1


def test_half_of_the_http_requests_that_may_wait_may_wait_for_one_server() -> None:
    assert options_of("files").max_waiting_calls == 500
    assert options_of("files", max_waiting_requests=0).max_waiting_calls == 0


def test_the_directory_for_stderr_may_begin_with_a_tilde(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert options_of("files").endpoint.stderr_dir is None
    assert options_of("files", stderr_dir="~/logs").endpoint.stderr_dir == Path("/home/somebody/logs")


def test_an_era_is_the_servers_own_or_auto() -> None:
    servers = {"files": {"era": "legacy"}}
    assert [options_of(key, servers=servers).era for key in ("files", "other")] == ["legacy", "auto"]


def test_without_any_settings_an_endpoint_has_the_defaults_that_the_settings_have() -> None:
    assert options_of("files").endpoint == DEFAULT_OPTIONS == EndpointOptions.from_settings(load_settings())


def test_oauth_is_switched_on_or_described() -> None:
    servers = {"far": {"oauth": True}, "off": {"oauth": False}, "own": {"oauth": {"client_id": "c", "scopes": ["a"]}}}
    found = {key: options_of(key, servers=servers).endpoint.access for key in (*servers, "near")}
    assert found == {
        "far": RemoteAccess(oauth=OAuthSettings()),
        "off": RemoteAccess(),
        "own": RemoteAccess(oauth=OAuthSettings(client_id="c", scopes=("a",))),
        "near": RemoteAccess(),
    }


@pytest.mark.parametrize(
    ("oauth", "words"),
    [
        ({"client_secret_env": "S"}, "must have a `client_id` with `client_secret_env`"),
        ({"client_id": "c", "client_secret_env": "S"}, "must have an `issuer`"),
        ({"client_id": "c", "client_secret_env": "not a name", "issuer": "https://i"}, "name of an environment"),
        ({"client_id": "c", "client_metadata_url": "https://c.example/id.json"}, "not both"),
        ({"client_metadata_url": "http://c.example/id.json"}, "must begin with https://"),
        ({"client_metadata_url": "https://c.example/"}, "have a path"),
        ({"grant": "client_credentials"}, "must have a `client_id`"),
        ({"grant": "client_credentials", "client_id": "c"}, "`client_secret_env` or `private_key_file`"),
        ({"scopes": ["a b"]}, "number 1 is none"),
        ({"resource": "x"}, ""),
        ({"callback_path": "callback"}, "must be a path"),
        ({"callback_port": 0}, ""),
        ({"secret": "s3cret"}, ""),
    ],
)
def test_what_cannot_be_meant_of_oauth_is_refused(oauth: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(servers={"far": {"oauth": oauth}})
    assert words in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_servers_with_settings_that_are_not_in_the_config_are_found() -> None:
    settings = load_settings(servers={"files": {}, "fiels": {}, "gti": {}})
    assert unknown_servers(settings, {"files": 1, "git": 2}) == ["fiels", "gti"]


# What is wrong


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ({"port": "http"}, "$.port: must be a valid integer"),
        ({"port": -1}, "$.port: must be greater than or equal to 0"),
        ({"port": 65536}, "$.port: must be less than or equal to 65535"),
        ({"path": "mcp"}, "$.path: must begin with /"),
        ({"host": ""}, "$.host: must have at least 1 character"),
        ({"name": ""}, "$.name: must have at least 1 character"),
        ({"separator": "-"}, "$.separator: must be 'auto', ':', '__', '.' or '_'"),
        ({"strict": "perhaps"}, "$.strict: must be a valid boolean"),
        ({"startup_timeout": 0}, "$.startup_timeout: must be greater than 0"),
        ({"call_timeout": float("inf")}, "$.call_timeout: must be a finite number"),
        ({"call_timeout": float("nan")}, "$.call_timeout: must be a finite number"),
        ({"ready_wait": -0.1}, "$.ready_wait: must be greater than or equal to 0"),
        (
            {"servers": {"a b": {"startup_timeout": 0}}},
            '$.servers["a b"].startup_timeout: must be greater than 0',
        ),
        ({"servers": {"a": {"era": "old"}}}, "$.servers.a.era: must be 'auto', 'legacy' or 'modern'"),
        ({"servers": {"a": 1}}, "$.servers.a: must be a valid dictionary"),
        (
            {"servers": {"a": {"cal_timeout": 1}}},
            "$.servers.a.cal_timeout: is not a setting; did you mean `call_timeout`?",
        ),
        (
            {"servers": {"a": {"tools": {"x": {"titel": "X"}}}}},
            "$.servers.a.tools.x.titel: is not a setting; did you mean `title`?",
        ),
        ({"callers": {"alice": {"rate_limit": -1}}}, "$.callers.alice.rate_limit: must be greater than or equal to 0"),
        (
            {"callers": {"alice": {"rate_limt": 1}}},
            "$.callers.alice.rate_limt: is not a setting; did you mean `rate_limit`?",
        ),
        ({"startup_timout": 1}, "$.startup_timout: is not a setting; did you mean `startup_timeout`?"),
        ({"colour": 1}, "$.colour: is not a setting; remove it"),
    ],
)
def test_a_wrong_value_is_reported_where_it_is(tmp_path: Path, overrides: dict[str, Any], problem: str) -> None:
    assert problem_of(**overrides).startswith(problem)
    file = write(tmp_path, json.dumps(overrides), ".json")
    error = error_of(file)
    assert (error.code, error.source) == ("invalid_schema", str(file))
    assert str(error.details[0]).startswith(problem)


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("FASTMCP_AGGREGATOR_PORT", "tcp://10.0.0.1:80", "must be a valid integer"),
        ("FASTMCP_AGGREGATOR_SERVERS__FILES__CALL_TIMEOUT", "-1", "must be greater than 0"),
        ("FASTMCP_AGGREGATOR_SERVERS__FILES__TIMEOUT", "1", "is not a setting"),
        ("FASTMCP_AGGREGATOR_SERVERS__FILES", "1", "must be a valid dictionary"),
        ("FASTMCP_AGGREGATOR_SERVERS", '{"files": {"era": "old"}}', "must be 'auto', 'legacy' or 'modern'"),
        ("FASTMCP_AGGREGATOR_SERVERS", "{files", "is not valid JSON"),
        ("FASTMCP_AGGREGATOR_CALLERS", "{alice", "is not valid JSON"),
        ("FASTMCP_AGGREGATOR_CALLERS__ALICE__RATE_BURST", "0", "must be greater than or equal to 1"),
        ("FASTMCP_AGGREGATOR_SERVERS__FILES__PASS_HEADERS", "[x", "is not valid JSON"),
        ("fastmcp_aggregator_port", "x", "must be a valid integer"),
        ("FASTMCP_AGGREGATOR_COLOUR", "1", "is not a setting; remove it"),
        (
            "FASTMCP_AGGREGATOR_CALL_TIMOUT",
            "1",
            "is not a setting; did you mean `FASTMCP_AGGREGATOR_CALL_TIMEOUT`?",
        ),
        ("FASTMCP_AGGREGATOR_PORT__HTTP", "1", "is not a setting"),
    ],
)
def test_a_wrong_variable_is_reported_by_its_name(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, problem: str
) -> None:
    monkeypatch.setenv(variable, value)
    assert problem_of().startswith(f"{variable}: {problem}")


def test_a_wrong_override_is_not_blamed_on_the_variable_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTMCP_AGGREGATOR_PORT", "1")
    assert problem_of(port=-1).startswith("$.port: ")


def test_all_problems_of_all_sources_are_reported_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, 'colour = 1\nhost = ""\n[servers.files]\nera = "old"')
    monkeypatch.setenv("FASTMCP_AGGREGATOR_PORT", "x")
    monkeypatch.setenv("FASTMCP_AGGREGATOR_SIZE", "1")
    error = error_of(file, path="mcp")
    assert sorted(problem.path for problem in error.details) == [
        "$.colour",
        "$.host",
        "$.path",
        "$.servers.files.era",
        "FASTMCP_AGGREGATOR_PORT",
        "FASTMCP_AGGREGATOR_SIZE",
    ]


def test_a_message_does_not_repeat_the_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTMCP_AGGREGATOR_PORT", "s3cret")
    monkeypatch.setenv("FASTMCP_AGGREGATOR_SERVERS", "{s3cret")
    assert "s3cret" not in str(error_of(strict="s3cret", path="s3cret"))


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    error = error_of(tmp_path / "absent.toml")
    assert (error.code, error.details[0].path) == ("file_not_found", "$")


@pytest.mark.parametrize(
    ("suffix", "text", "words"),
    [
        (".toml", "port = ", "is not valid TOML: Invalid value (at "),
        (".json", '{"port": }', "is not valid JSON at line 1, column 10"),
        (".toml", "port = " + "[" * 100_000, "cannot be read as TOML"),
        (".toml", "port = " + "9" * 5000, "cannot be read as TOML"),
    ],
)
def test_a_file_that_cannot_be_parsed_says_where(tmp_path: Path, suffix: str, text: str, words: str) -> None:
    error = error_of(write(tmp_path, text, suffix))
    assert error.code == "invalid_json"
    assert words in str(error)


def test_a_key_written_twice_in_a_json_file_is_a_problem(tmp_path: Path) -> None:
    assert "$.port: is written more than once" in problem_of(write(tmp_path, '{"port": 1, "port": 2}', ".json"))


@pytest.mark.parametrize("text", ["[]", "null", "1"])
def test_a_json_file_must_be_an_object(tmp_path: Path, text: str) -> None:
    assert problem_of(write(tmp_path, text, ".json")) == "$: must be an object with settings in it"


def test_a_file_of_another_type_is_refused(tmp_path: Path) -> None:
    assert "ends in .toml or .json" in problem_of(write(tmp_path, "port: 1", ".yaml"))


def test_names_that_pydantic_settings_reserves_are_not_settings(tmp_path: Path) -> None:
    assert problem_of(write(tmp_path, '_env_prefix = "OTHER_"')).startswith("$._env_prefix: is not a setting")


def test_the_key_of_a_client_may_be_in_the_environment_of_every_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTMCP_AGGREGATOR_API_KEY", "of-status")
    assert load_settings() == AggregatorSettings()
