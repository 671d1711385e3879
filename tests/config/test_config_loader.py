"""From a file or a dict to a McpConfig: what is accepted, what is reported, and that no secret is shown."""

import ast
import copy
import json
import logging
import pickle
import traceback
from pathlib import Path
from typing import Any

import pytest

import fastmcp_aggregator.config as config_room
from fastmcp_aggregator.config import McpConfig, RemoteServer, StdioServer, UnresolvedServer, load_config
from fastmcp_aggregator.config.documents import path_step
from fastmcp_aggregator.errors import ConfigError, ConfigProblem

SECRET = "hunter2-s3cret"


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "config.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def load_stdio(entry: dict[str, Any], **environ: str) -> StdioServer:
    server = load_config({"mcpServers": {"one": entry}}, environ=environ).servers["one"]
    assert isinstance(server, StdioServer)
    return server


def load_remote(entry: dict[str, Any], **environ: str) -> RemoteServer:
    server = load_config({"mcpServers": {"one": entry}}, environ=environ).servers["one"]
    assert isinstance(server, RemoteServer)
    return server


def error_of(source: Any, **environ: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_config(source, environ=environ)
    return caught.value


def problem_of(source: Any, **environ: str) -> ConfigProblem:
    (problem,) = error_of(source, **environ).details
    return problem


def problem_of_entry(entry: Any, **environ: str) -> str:
    return str(problem_of({"mcpServers": {"one": entry}}, **environ))


# What is accepted


def test_a_claude_desktop_file_is_read_as_it_is(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        json.dumps(
            {
                "globalShortcut": "Ctrl+Space",
                "mcpServers": {
                    "files": {
                        "command": "npx",
                        "args": ["-y", "server-files", "$HOME"],
                        "env": {"TOKEN": "t"},
                    },
                    "docs": {
                        "url": "https://mcp.example.com/mcp",
                        "headers": {"Authorization": "Bearer $TOKEN"},
                    },
                },
            }
        ),
    )
    config = load_config(path, environ={"HOME": "/home/ada", "TOKEN": "xyz"})
    assert config.source == str(path)
    assert list(config.servers) == ["files", "docs"]
    files, docs = config.servers.values()
    assert isinstance(files, StdioServer)
    assert (files.key, files.command, files.args) == ("files", "npx", ("-y", "server-files", "/home/ada"))
    assert files.environment() == {"TOKEN": "t"}
    assert isinstance(docs, RemoteServer)
    assert (docs.key, docs.url, docs.transport) == ("docs", "https://mcp.example.com/mcp", "http")
    assert docs.plain_headers() == {"Authorization": "Bearer xyz"}


def test_the_path_may_be_a_string(tmp_path: Path) -> None:
    path = str(write(tmp_path, '{"mcpServers": {}}'))
    assert load_config(path) == McpConfig(servers={}, source=path)


def test_no_servers_are_a_valid_config() -> None:
    assert load_config({"mcpServers": {}}) == McpConfig(servers={}, source="<dict>")


def test_a_config_that_is_already_loaded_is_returned_as_it_is() -> None:
    config = load_config({"mcpServers": {"one": {"command": "npx"}}})
    assert load_config(config) is config


def test_a_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    assert not load_config(write(tmp_path, b'\xef\xbb\xbf{"mcpServers": {}}')).servers


def test_servers_keep_the_order_of_the_file() -> None:
    keys = ["b", "a", "c", "B"]
    assert list(load_config({"mcpServers": {key: {"command": "x"} for key in keys}}).servers) == keys


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED", "here")
    server = load_config({"mcpServers": {"one": {"command": "$PLANTED"}}}).servers["one"]
    assert isinstance(server, StdioServer)
    assert server.command == "here"


def test_what_is_left_out_or_null_has_its_default() -> None:
    nothing = dict.fromkeys(["args", "env", "cwd", "timeout", "description", "type", "url", "headers"])
    for entry in ({"command": "npx"}, {"command": "npx", **nothing}):
        assert load_stdio(entry) == StdioServer(key="one", label="npx", command="npx")


def test_a_timeout_in_milliseconds_becomes_seconds() -> None:
    assert load_stdio({"command": "npx", "timeout": 1500}).timeout == 1.5
    assert load_remote({"url": "http://localhost/", "timeout": 0.5}).timeout == 0.0005


def test_cwd_and_description_are_kept() -> None:
    server = load_stdio({"command": "npx", "cwd": "$DIR/x", "description": ""}, DIR="/srv")
    assert (server.cwd, server.description) == ("/srv/x", "")


def test_args_of_a_dict_may_be_a_tuple() -> None:
    assert load_stdio({"command": "npx", "args": ("-y", "x")}).args == ("-y", "x")


def test_variables_are_expanded_in_every_value_at_every_depth_but_not_in_keys() -> None:
    server = load_stdio(
        {
            "command": "${BIN}/run",
            "args": ["$A", "--x=${A}"],
            "env": {"$A": "$A"},
            "description": "for $A",
            "meta": {"$A": ["$A", {"deep": ["${env:A}", 1, None, True]}]},
        },
        BIN="/bin",
        A="value",
    )
    assert (server.command, server.args) == ("/bin/run", ("value", "--x=value"))
    assert server.environment() == {"$A": "value"}
    assert server.description == "for value"
    assert server.extras == {"meta": {"$A": ["value", {"deep": ["value", 1, None, True]}]}}


def test_keys_that_mean_nothing_are_kept_and_said_once_each(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "fastmcp_aggregator.config")
    config = load_config(
        {
            "mcpServers": {
                "one": {"command": "npx", "autoApprove": ["a", "b"], "icon": SECRET, "headers": {}},
                "two": {"url": "http://localhost/", "icon": "x", "args": []},
                "off": {"command": "npx", "icon": "x", "disabled": True},
            }
        }
    )
    assert config.servers["one"].extras == {"autoApprove": ["a", "b"], "icon": SECRET, "headers": {}}
    assert config.servers["two"].extras == {"icon": "x", "args": []}
    assert [(record.levelname, record.args) for record in caplog.records] == [
        ("DEBUG", ("one", "autoApprove")),
        ("DEBUG", ("one", "icon")),
        ("DEBUG", ("one", "headers")),
        ("DEBUG", ("two", "icon")),
        ("DEBUG", ("two", "args")),
    ]
    assert SECRET not in caplog.text


def test_a_loaded_config_can_be_copied_and_pickled() -> None:
    config = load_config({"mcpServers": {"one": {"command": "npx", "env": {"A": "b"}, "x": [1]}}})
    assert copy.deepcopy(config) == config
    assert pickle.loads(pickle.dumps(config)) == config


def test_equal_entries_make_equal_servers_and_a_changed_secret_does_not() -> None:
    entry = {"command": "npx", "env": {"TOKEN": "$TOKEN"}}
    assert load_stdio(entry, TOKEN="a") == load_stdio(entry, TOKEN="a")
    assert load_stdio(entry, TOKEN="a") != load_stdio(entry, TOKEN="b")


# Labels: what may be shown


@pytest.mark.parametrize(
    ("written", "label"),
    [("npx", "npx"), ("$BIN/run", "${BIN}/run"), ("${BIN:-/opt/s3cret}/run", "${BIN}/run")],
)
def test_the_label_of_a_command_is_as_written_without_values_and_arguments(written: str, label: str) -> None:
    assert load_stdio({"command": written, "args": ["--verbose"]}, BIN="/bin").label == label


@pytest.mark.parametrize(
    ("written", "label"),
    [
        ("https://mcp.example.com:8443/v1/mcp", "https://mcp.example.com:8443/v1/mcp"),
        ("https://ada:pw@mcp.example.com/mcp?key=k#part", "https://•••:•••@mcp.example.com/mcp?key=•••#•••"),
        ("https://$USER:$USER@mcp.example.com", "https://${USER}:${USER}@mcp.example.com"),
        ("https://$HOST:1/mcp", "https://${HOST}:1/mcp"),
        ("https://u:p@${HOST}/@org/mcp", "https://•••:•••@${HOST}/•••/mcp"),
        ("${BASE}/mcp?key=$USER", "${BASE}/mcp?key=${USER}"),
        ("${NONE:-https://u:p@h/x?y=z}", "${NONE}"),
        ("${SCHEME}u:p@h/x", "${SCHEME}•••/•••"),
    ],
)
def test_the_label_of_a_url_has_no_values_and_no_more_of_it_than_may_be_shown(written: str, label: str) -> None:
    environ = {"USER": "u", "HOST": "h.example.com", "BASE": "http://b", "SCHEME": "http://"}
    assert load_remote({"url": written}, **environ).label == label


# Files that cannot be used


def test_a_missing_file_is_named_with_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    error = error_of("absent.json")
    assert (error.code, error.source) == ("file_not_found", "absent.json")
    assert str(error.details[0]) == f"there is no file {tmp_path}/absent.json; check the path"


def test_a_directory_is_no_config(tmp_path: Path) -> None:
    problem = problem_of(tmp_path)
    assert (problem.code, problem.message[:14]) == ("file_not_found", "is a directory")


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    problem = problem_of(write(tmp_path, "{}") / "below")
    assert (problem.code, problem.message) == ("file_not_found", "cannot be read: Not a directory")


def test_a_path_that_no_file_can_have_is_not_found() -> None:
    assert problem_of("a\0b").code == "file_not_found"


def test_json_text_in_place_of_a_path_is_not_repeated() -> None:
    error = error_of(json.dumps({"mcpServers": {"one": {"command": "x", "env": {"KEY": SECRET}}}}))
    assert error.code == "file_not_found"
    assert SECRET not in str(error) + repr(error) + error.source


def test_a_file_over_10_mib_is_refused(tmp_path: Path) -> None:
    fitting = '{"mcpServers": {}}'.ljust(10 * 1024 * 1024)
    assert not load_config(write(tmp_path, fitting)).servers
    assert "larger than 10 MiB" in problem_of(write(tmp_path, fitting + " ")).message


def test_invalid_json_is_located_by_line_and_column(tmp_path: Path) -> None:
    problem = problem_of(write(tmp_path, '{\n  "mcpServers": {\n    "a" {}\n  }\n}'))
    assert (problem.code, problem.path) == ("invalid_json", "$")
    assert "at line 3, column 9" in problem.message


@pytest.mark.parametrize("text", ["", "// comment\n", "{'mcpServers': {}}", '{"mcpServers": {},,}'])
def test_what_is_almost_json_is_invalid(tmp_path: Path, text: str) -> None:
    assert problem_of(write(tmp_path, text)).code == "invalid_json"


def test_invalid_utf8_is_located_by_line(tmp_path: Path) -> None:
    problem = problem_of(write(tmp_path, b'{\n"mcpServers": "\xff"}'))
    assert problem.code == "invalid_json"
    assert problem.message == "is not valid UTF-8 at line 2; save the file as UTF-8"


@pytest.mark.parametrize("text", ["[" * 200_000, '{"mcpServers": ' + "9" * 5000 + "}"])
def test_json_that_no_reader_can_hold_is_invalid(tmp_path: Path, text: str) -> None:
    assert problem_of(write(tmp_path, text)).code == "invalid_json"


def test_a_dict_that_contains_itself_is_nested_too_deeply() -> None:
    entry: dict[str, Any] = {"command": "npx"}
    entry["self"] = entry
    assert "is nested too deeply" in str(error_of({"mcpServers": {"one": entry}}))


def test_a_place_that_cannot_be_printed_is_told_escaped() -> None:
    assert path_step("a\ud800\n\u202eé") == '["a\\ud800\\n\\u202eé"]'


def test_a_key_written_twice_is_reported_where_it_is(tmp_path: Path) -> None:
    text = """{"x": [{"k": 1, "k": 2}], "mcpServers": {
        "one": {"command": "a", "env": {"A": "1", "B": "2", "A": "3"}},
        "two": {}, "two": {"command": "b"}}}"""
    error = error_of(write(tmp_path, text))
    assert [problem.path for problem in error.details] == [
        "$.x[0].k",
        "$.mcpServers.two",
        "$.mcpServers.one.env.A",
    ]
    assert "more than once" in error.details[0].message


# Shapes that are wrong


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]", "$: must be an object with the key `mcpServers`, not a list"),
        ("null", "$: must be an object with the key `mcpServers`, not null"),
        ('{"mcpServers": []}', "$.mcpServers: must be an object with one entry for each server, not a list"),
        ('{"mcpServers": null}', "$.mcpServers: must be an object with one entry for each server, not null"),
        (
            '{"mcpServers": {"a": "npx"}}',
            "$.mcpServers.a: must be an object with `command` or `url`, not a string",
        ),
    ],
)
def test_a_document_of_the_wrong_shape_is_told_the_right_one(tmp_path: Path, text: str, problem: str) -> None:
    found = problem_of(write(tmp_path, text))
    assert (found.code, str(found)) == ("invalid_schema", problem)


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("", '$.mcpServers[""]: the name of a server must not be empty'),
        ("a:b", '$.mcpServers["a:b"]: the name of a server must not contain `:`'),
        (1, "$.mcpServers[1]: the name of a server must be a string, not a number"),
    ],
)
def test_a_server_key_must_be_a_string_that_is_not_empty_and_has_no_colon(key: Any, problem: str) -> None:
    assert str(problem_of({"mcpServers": {key: {"command": "npx"}}})).startswith(problem)


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("my-server_2", "$.mcpServers.my-server_2.command"),
        ("my server", '$.mcpServers["my server"].command'),
        ('say "hi"', '$.mcpServers["say \\"hi\\""].command'),
        ("2nd", '$.mcpServers["2nd"].command'),
        ("größe", '$.mcpServers["größe"].command'),
    ],
)
def test_a_key_that_is_no_plain_identifier_is_quoted_in_a_path(key: str, path: str) -> None:
    assert problem_of({"mcpServers": {key: {"command": ""}}}).path == path


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"comand": "x", "args": []}, ": has `comand`; did you mean `command`?"),
        ({}, ": has neither `command` nor `url`"),
        ({"args": ["x"]}, ": has neither `command` nor `url`"),
        ({"command": None}, ": has neither `command` nor `url`"),
        ({"command": "x", "url": "http://localhost/"}, ": has both `command` and `url`"),
        ({"command": ""}, ".command: must not be empty"),
        ({"command": " "}, ".command: must not be empty"),
        ({"command": "${NONE:-}"}, ".command: must not be empty"),
        (
            {"command": ["npx", "-y"]},
            ".command: must be a string, not a list; write the program as one string",
        ),
        ({"command": Path("x")}, f".command: must be a string, not a Python {type(Path()).__name__}"),
        ({"command": "x", "args": "-y"}, ".args: must be a list of strings such as"),
        (
            {"command": "x", "args": ["-p", 8080]},
            ".args[1]: must be a string, not a number; write it in quotes",
        ),
        ({"command": "x", "args": [["-y"]]}, ".args[0]: must be a string, not a list; write one string"),
        ({"command": "x", "env": []}, ".env: must be an object such as"),
        (
            {"command": "x", "env": {"PORT": 80}},
            ".env.PORT: must be a string, not a number; write it in quotes",
        ),
        (
            {"command": "x", "env": {"ON": True}},
            ".env.ON: must be a string, not true or false; write it in quotes",
        ),
        (
            {"command": "x", "env": {"N": None}},
            '.env.N: must be a string, not null; write "" for an empty value',
        ),
        ({"command": "x", "env": {"O": {}}}, ".env.O: must be a string, not an object"),
        ({"command": "x", "env": {"A=B": "c"}}, '.env["A=B"]: is not a name of an environment variable'),
        ({"command": "x", "env": {"": "c"}}, '.env[""]: is not a name of an environment variable'),
        ({"command": "x", "cwd": ""}, ".cwd: must not be empty"),
        ({"command": "x", "cwd": 1}, ".cwd: must be a string, not a number"),
        ({"command": "x", "timeout": 0}, ".timeout: must be a number of milliseconds above 0"),
        ({"command": "x", "timeout": -1}, ".timeout: must be a number of milliseconds above 0"),
        ({"command": "x", "timeout": float("nan")}, ".timeout: must be a number of milliseconds above 0"),
        ({"command": "x", "timeout": float("inf")}, ".timeout: must be a number of milliseconds above 0"),
        ({"command": "x", "timeout": 10**400}, ".timeout: must be a number of milliseconds above 0"),
        ({"command": "x", "timeout": "30"}, ".timeout: must be a number of milliseconds, without quotes"),
        ({"command": "x", "timeout": True}, ".timeout: must be a number of milliseconds, without quotes"),
        ({"command": "x", "description": 5}, ".description: must be a string, not a number"),
        ({"url": ""}, ".url: must not be empty"),
        ({"url": "ftp://host/"}, ".url: must begin with http:// or https://"),
        ({"url": "mcp.example.com"}, ".url: must begin with http:// or https://"),
        ({"url": "https:///mcp"}, ".url: has no host"),
        ({"url": "https://:80/mcp"}, ".url: has no host"),
        ({"url": "https://host:port/"}, ".url: is not a valid URL"),
        ({"url": "http://[::1/"}, ".url: is not a valid URL"),
        ({"url": "http://host/a b"}, ".url: has a space"),
        ({"url": "http://host/\n"}, ".url: has a space, a line break"),
        ({"url": "http://host/", "headers": "x"}, ".headers: must be an object such as"),
        ({"url": "http://host/", "headers": {"X-N": 1}}, ".headers.X-N: must be a string, not a number"),
        ({"url": "http://host/", "headers": {"X N": "1"}}, '.headers["X N"]: is not a header name'),
        ({"url": "http://host/", "headers": {"X": "a\nb"}}, ".headers.X: must be ASCII without line breaks"),
        ({"url": "http://host/", "headers": {"X": "a "}}, ".headers.X: must be ASCII without line breaks"),
        ({"url": "http://host/", "headers": {"X": "ä"}}, ".headers.X: must be ASCII without line breaks"),
    ],
)
def test_an_entry_that_cannot_be_used_says_where_and_why(entry: dict[str, Any], problem: str) -> None:
    assert problem_of_entry(entry).startswith(f"$.mcpServers.one{problem}")


@pytest.mark.parametrize("value", ["", "x", "a b\tc", "Bearer abc.def-ghi=="])
def test_header_values_that_clients_can_send_are_accepted(value: str) -> None:
    assert load_remote({"url": "http://host/", "headers": {"X": value}}).plain_headers() == {"X": value}


# Variables


def test_every_missing_variable_is_reported_at_each_place_where_it_is_used() -> None:
    error = error_of(
        {
            "mcpServers": {
                "files": {"command": "npx", "args": ["-y", "$ROOT"], "env": {"A": "$ROOT-$KEY-$ROOT"}},
                "docs": {"url": "https://$HOST/", "headers": {"Authorization": "Bearer ${env:KEY}"}},
            }
        }
    )
    assert error.code == "missing_env_var"
    assert {problem.code for problem in error.details} == {"missing_env_var"}
    assert [(problem.path, problem.message.split()[3]) for problem in error.details] == [
        ("$.mcpServers.files.args[1]", "ROOT"),
        ("$.mcpServers.files.env.A", "ROOT"),
        ("$.mcpServers.files.env.A", "KEY"),
        ("$.mcpServers.docs.url", "HOST"),
        ("$.mcpServers.docs.headers.Authorization", "KEY"),
    ]
    assert error.details[0].message == (
        "the environment variable ROOT is not set; set it, or write ${ROOT:-default}, or `$$` for a literal `$`"
    )


def test_a_missing_variable_is_reported_even_in_a_key_that_is_ignored() -> None:
    problem = problem_of({"mcpServers": {"one": {"command": "npx", "meta": {"deep": [{"x": "$NONE"}]}}}})
    assert (problem.code, problem.path) == ("missing_env_var", "$.mcpServers.one.meta.deep[0].x")


UNRESOLVED = {
    "good": {"command": "ls"},
    "process": {"command": "$DIR/run", "args": ["--key=$KEY"], "env": {"A": "hunter2", "K": "${KEY}"}, "timeout": 1000},
    "remote": {"url": "https://${HOST}/mcp?key=$KEY", "description": "Docs", "headers": {"X": "${X:-x}"}},
    "off": {"command": "$OFF", "disabled": True},
}


def test_without_strict_a_server_whose_variable_has_no_value_is_a_value_among_the_others() -> None:
    config = load_config({"mcpServers": UNRESOLVED}, environ={"DIR": "/hunter2"}, strict=False)
    assert list(config.servers) == ["good", "process", "remote"]
    assert isinstance(config.servers["good"], StdioServer)
    process, remote = config.servers["process"], config.servers["remote"]
    assert isinstance(process, UnresolvedServer)
    assert isinstance(remote, UnresolvedServer)
    assert (process.label, process.transport, process.missing) == ("${DIR}/run", "stdio", ("KEY",))
    assert (remote.label, remote.transport, remote.missing) == (
        "https://${HOST}/mcp?key=${KEY}",
        "http",
        ("HOST", "KEY"),
    )
    assert (process.description, remote.description) == (None, "Docs")
    todo = "give a value where this is started (for a hub, by the client that starts it) or in an --env-file, or write"
    assert process.reason == (
        f"the environment variable KEY is not set, which `args[0]`, `env.K` of its entry need: {todo} ${{KEY:-default}}"
    )
    assert remote.reason == (
        f"the environment variables HOST, KEY are not set, which `url` of its entry needs: {todo} ${{HOST:-default}}"
    )
    assert [problem.path for problem in config.problems] == [
        "$.mcpServers.process.args[0]",
        "$.mcpServers.process.env.K",
        "$.mcpServers.remote.url",
        "$.mcpServers.remote.url",
    ]
    assert "hunter2" not in spoken(config)


def test_of_a_server_that_lacks_a_variable_the_rest_is_known() -> None:
    entries = {
        "process": {"command": "run", "args": ["$KEY"], "env": {"A": "a", "B": "$B"}, "cwd": "/there"},
        "folder": {"command": "run", "cwd": "$DIR"},
        "remote": {"url": "https://example.com/mcp", "headers": {"X": "$KEY"}},
        "command": {"command": "$DIR/run"},
        "url": {"url": "https://$HOST/mcp"},
    }
    servers = load_config({"mcpServers": entries}, environ={}, strict=False).servers
    known = {key: server.known for key, server in servers.items() if isinstance(server, UnresolvedServer)}
    process, folder, remote = known["process"], known["folder"], known["remote"]
    assert isinstance(process, StdioServer)
    assert (process.command, process.args, process.environment(), process.cwd) == ("run", (), {"A": "a"}, "/there")
    assert isinstance(folder, StdioServer)
    assert folder.cwd is None
    assert isinstance(remote, RemoteServer)
    assert (remote.url, remote.headers) == ("https://example.com/mcp", {})
    assert (known["command"], known["url"]) == (None, None)


def test_a_config_that_was_loaded_without_strict_is_refused_with_it() -> None:
    lenient = load_config({"mcpServers": UNRESOLVED}, environ={}, strict=False)
    with pytest.raises(ConfigError) as caught:
        load_config(lenient)
    assert caught.value.details == error_of({"mcpServers": UNRESOLVED}).details
    assert load_config(lenient, strict=False) is lenient


def test_without_strict_an_entry_that_is_wrong_is_a_server_that_cannot_run() -> None:
    entries = {
        "good": {"command": "ls"},
        "typo": {"comand": "x", "description": SECRET},
        "kinds": {"command": "ls", "args": ["$NONE", 5], "env": [SECRET], "headers": {"X": 1}},
        "none": ["x"],
        "scheme": {"url": "ftp://x/", "headers": {"X": SECRET}},
        "switch": {"command": "ls", "disabled": "true"},
    }
    servers = load_config({"mcpServers": entries}, environ={}, strict=False).servers
    assert list(servers) == list(entries)
    assert isinstance(servers["good"], StdioServer)
    wrong = [server for server in servers.values() if isinstance(server, UnresolvedServer)]
    assert len(wrong) == len(entries) - 1
    assert [server.known for server in wrong] == [None] * len(wrong)
    assert [server.transport for server in wrong] == ["stdio", "stdio", "stdio", "http", "stdio"]
    typo, kinds, none, *_ = (server.reason for server in wrong)
    assert typo == "its entry cannot be used: has `comand`; did you mean `command`?"
    assert none == "its entry cannot be used: must be an object with `command` or `url`, not a list"
    for part in (
        "variable NONE is not set",
        "`args[1]`: must be a string",
        "`env`: must be an object",
        "`headers.X`: ",
    ):
        assert part in kinds
    assert SECRET not in repr(wrong) + "".join(server.reason for server in wrong)
    assert [problem.path for problem in error_of({"mcpServers": entries}).details] == [
        problem.path for server in wrong for problem in server.problems
    ]


@pytest.mark.parametrize(
    "document",
    [
        {"mcpServers": {"a": {"command": "$A"}, "b:c": {"command": "ls"}}},
        {"mcpServers": {"a": {"command": "$A"}, "b": {"command": 5, "disabled": True}}},
        {"mcpServers": []},
        {},
    ],
)
def test_without_strict_what_is_wrong_with_more_than_one_server_is_refused_with_all_there_is(document: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(document, environ={}, strict=False)
    assert "invalid_schema" in [problem.code for problem in caught.value.details]


def test_a_malformed_reference_says_how_to_write_a_literal_dollar() -> None:
    problem = problem_of({"mcpServers": {"one": {"command": "npx", "env": {"A": "${input:key}"}}}})
    assert (problem.code, problem.path) == ("invalid_schema", "$.mcpServers.one.env.A")
    assert "`$$` for a literal `$`" in problem.message


def test_a_field_with_a_missing_variable_has_no_further_problems() -> None:
    for entry in (
        {"command": "$NONE"},
        {"url": "$NONE"},
        {"url": "http://[$NONE/"},
        {"command": "npx", "type": "$NONE"},
    ):
        assert "NONE is not set" in problem_of_entry(entry)


def test_all_problems_of_all_entries_are_reported_at_once() -> None:
    error = error_of(
        {
            "mcpServers": {
                "both": {"command": "", "url": "ftp://x", "timeout": "1", "headers": {"A": 1}, "cwd": 2},
                "off": {"command": "x", "args": {}, "disabled": True},
                "list": [],
                "vars": {"command": "$NONE", "env": {"A": "${"}},
                "a:b": {},
            }
        }
    )
    assert error.code == "invalid_schema"
    assert {problem.path for problem in error.details} == {
        "$.mcpServers.both",
        "$.mcpServers.both.command",
        "$.mcpServers.both.url",
        "$.mcpServers.both.timeout",
        "$.mcpServers.both.headers.A",
        "$.mcpServers.both.cwd",
        "$.mcpServers.off.args",
        "$.mcpServers.list",
        "$.mcpServers.vars.command",
        "$.mcpServers.vars.env.A",
        '$.mcpServers["a:b"]',
    }
    assert len(error.details) == 12  # the last entry has two: its name, and no command
    assert str(error).startswith("<dict>: 12 problems\n  $.mcpServers.")


# Secrets


def spoken(config: McpConfig) -> str:
    values = [config, *config.servers.values()]
    return "\n".join(form for value in values for form in (repr(value), str(value), f"{value!r} {value}"))


def test_no_form_of_a_config_shows_a_secret() -> None:
    config = load_config(
        {
            "mcpServers": {
                "one": {
                    "command": "${RUN}",
                    "args": ["--key", SECRET, "$KEY"],
                    "env": {"KEY": SECRET, "OTHER": "$KEY"},
                    "cwd": "/srv/$KEY",
                    "description": "$KEY",
                    "apiKey": SECRET,
                },
                "two": {
                    "url": f"https://ada:{SECRET}@$KEY.example.com/mcp?key={SECRET}",
                    "headers": {"Authorization": f"Bearer {SECRET}", "X": "$KEY"},
                    "auth": {"token": ["$KEY"]},
                },
            }
        },
        environ={"KEY": SECRET, "RUN": f"/opt/{SECRET}/run"},
    )
    assert SECRET not in spoken(config)
    assert "label='${RUN}'" in repr(config)
    assert "label='https://•••:•••@${KEY}.example.com/mcp?key=•••'" in repr(config)


def secretive_entry(**fields: Any) -> dict[str, Any]:
    return {"command": "npx", "env": {"KEY": SECRET}, "args": [SECRET], **fields}


@pytest.mark.parametrize(
    "entry",
    [
        secretive_entry(timeout=SECRET),
        secretive_entry(url=f"https://u:{SECRET}@h/?k={SECRET}"),
        secretive_entry(env={"KEY": f"a${{{SECRET}", "B": f"${{x-{SECRET}}}"}),
        secretive_entry(env=SECRET),
        secretive_entry(env=[SECRET]),
        secretive_entry(args=SECRET),
        secretive_entry(args=[{"key": SECRET}]),
        secretive_entry(type="$KEY"),
        secretive_entry(disabled=SECRET),
        {"url": f"https://host:{SECRET}/", "headers": {"A": SECRET}},
        {"url": f"{SECRET}://host/"},
        {"url": f"https://{SECRET}\u2100@h/"},
        {"url": "https://$KEY:$KEY/"},
        {"url": "$KEY"},
        {"url": "http://h/", "headers": {"A": f"{SECRET}\n", "B": "$KEY\n"}},
        {"url": "http://h/", "headers": SECRET},
        {"token": SECRET},
        [SECRET],
        SECRET,
    ],
)
def test_no_form_of_an_error_shows_a_secret(entry: Any, tmp_path: Path) -> None:
    document = {"mcpServers": {"one": entry}}
    for source in (document, write(tmp_path, json.dumps(document))):
        assert_silent(error_of(source, KEY=SECRET))


@pytest.mark.parametrize(
    "text",
    [
        f'{{"mcpServers": {{"one": {{"env": {{"KEY": "{SECRET}" }}',
        f'{{"KEY": {SECRET}}}',
        f'{{"KEY": "{SECRET}", "KEY": "{SECRET}"}}',
        f'"{SECRET}"',
        f"{SECRET}\xff".encode("latin-1"),
    ],
)
def test_no_form_of_an_error_shows_a_secret_of_a_broken_file(text: str | bytes, tmp_path: Path) -> None:
    assert_silent(error_of(write(tmp_path, text)))


def assert_silent(error: ConfigError) -> None:
    assert error.__cause__ is None
    assert error.__context__ is None
    forms = [str(error), repr(error), repr(error.details), "".join(traceback.format_exception(error))]
    assert SECRET not in "\n".join(forms)


# The room


def test_the_config_imports_neither_fastmcp_nor_the_settings() -> None:
    imported = set()
    for file in Path(config_room.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(str(node.module))
    ours = {name for name in imported if name.startswith("fastmcp_aggregator.")}
    assert all(
        name.startswith(tuple(f"fastmcp_aggregator.{below}" for below in ("config.", "early.", "errors", "escaping")))
        for name in ours
    )
    assert not {name.partition(".")[0] for name in imported} & {"fastmcp", "mcp", "pydantic_settings"}


@pytest.mark.parametrize(
    "text", ['{"mcpServers":{"\\ud800":{"command":"x"}}}', '{"mcpServers":{"a":{"command":"\\uDFFF\\ud800"}}}']
)
def test_half_of_a_surrogate_pair_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match="half of a surrogate pair"):
        load_config(path)


def test_whole_surrogate_pairs_and_escaped_backslashes_are_text(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(r'{"mcpServers":{"\ud83d\ude00":{"command":"\\ud800"}}}')
    assert list(load_config(path).servers) == ["\U0001f600"]


def test_comments_and_commas_after_last_items_are_read_over(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('// mine\n{"mcpServers": {\n  "a": {"command": "x", "args": ["//", "/*",],}, /* one */\n},}\n')
    server = load_config(path).servers["a"]
    assert (server.command, server.args) == ("x", ("//", "/*"))  # type: ignore[union-attr]


def test_what_is_wrong_in_a_file_with_comments_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('// mine\n{"mcpServers": {"a": {"command": }}}\n')
    with pytest.raises(ConfigError, match=r"is not valid JSON at line 2, column 34: a value is missing"):
        load_config(path)
    path.write_text('// mine\n{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}\n')
    with pytest.raises(ConfigError, match="is written more than once"):
        load_config(path)


# A file that would be served by itself


@pytest.mark.parametrize(
    "line",
    [
        ["fastmcp-aggregator", "attach", "{}"],
        ["/usr/bin/fastmcp-aggregator", "{}", "--no-strict"],
        ["python", "-m", "fastmcp_aggregator", "serve", "--config={}"],
        ["uvx", "--from", "fastmcp-aggregator==1.0", "fastmcp-aggregator", "--config", "{}"],
        ["fastmcp-aggregator", "attach", "sub/../config.json"],
    ],
)
def test_a_server_that_serves_the_file_it_is_in_is_a_problem(line: list[str], tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    command, *args = [word.format(tmp_path / "config.json") for word in line]
    entry = {"command": command, "args": args, "cwd": str(tmp_path)}
    path = write(tmp_path, json.dumps({"mcpServers": {"a": {"command": "x"}, "hub": entry}}))
    with pytest.raises(ConfigError, match="starts the aggregator with this same file") as caught:
        load_config(path)
    assert [problem.path for problem in caught.value.details] == ["$.mcpServers.hub"]


@pytest.mark.parametrize(
    "line",
    [
        ["fastmcp-aggregator", "attach", "other.json"],
        ["mcp-server-filesystem", "{}"],
        ["mcp-server-filesystem", "/x\0y"],
    ],
)
def test_another_server_may_have_the_file_and_the_aggregator_another(line: list[str], tmp_path: Path) -> None:
    path = tmp_path / "fastmcp-aggregator.json"
    command, *args = [word.format(path) for word in line]
    path.write_text(json.dumps({"mcpServers": {"hub": {"command": command, "args": args}}}))
    assert list(load_config(path).servers) == ["hub"]
