"""What other MCP clients write: transports in every spelling, switches, and formats that are not ours."""

from pathlib import Path
from typing import Any

import pytest

from fastmcp_aggregator.config import RemoteServer, StdioServer, load_config
from fastmcp_aggregator.errors import ConfigError

URL = "https://mcp.example.com/mcp"


def load_one(entry: dict[str, Any]) -> StdioServer | RemoteServer:
    return load_config({"mcpServers": {"one": entry}}, environ={}).servers["one"]


def problem_of(document: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(document, environ={})
    (problem,) = caught.value.details
    assert problem.code == "invalid_schema"
    return str(problem)


@pytest.mark.parametrize("name", ["type", "transport"])
@pytest.mark.parametrize(
    ("spelling", "transport"),
    [
        ("http", "http"),
        ("HTTP", "http"),
        ("streamable-http", "http"),
        ("streamableHttp", "http"),
        ("streamable_http", "http"),
        ("streaming", "http"),
        ("sse", "sse"),
        ("SSE", "sse"),
    ],
)
def test_a_remote_transport_is_known_in_every_spelling(name: str, spelling: str, transport: str) -> None:
    server = load_one({"url": URL, name: spelling})
    assert isinstance(server, RemoteServer)
    assert server.transport == transport


@pytest.mark.parametrize("spelling", ["stdio", "STDIO", "local"])
def test_stdio_is_known_in_every_spelling(spelling: str) -> None:
    assert isinstance(load_one({"command": "npx", "type": spelling}), StdioServer)


@pytest.mark.parametrize(
    ("path", "transport"),
    [
        ("/sse", "sse"),
        ("/sse/", "sse"),
        ("/v1/sse/messages", "sse"),
        ("/sse?key=1", "sse"),
        ("/sse&key=1", "sse"),
        ("/mcp", "http"),
        ("", "http"),
        ("/assessment", "http"),
        ("/ssename", "http"),
        ("/mcp?next=/sse", "http"),
    ],
)
def test_a_url_without_a_type_is_http_unless_its_path_says_sse(path: str, transport: str) -> None:
    server = load_one({"url": f"https://mcp.example.com{path}"})
    assert isinstance(server, RemoteServer)
    assert server.transport == transport


def test_a_type_outweighs_the_path_of_the_url() -> None:
    server = load_one({"url": "https://mcp.example.com/sse", "type": "http"})
    assert isinstance(server, RemoteServer)
    assert server.transport == "http"


def test_a_type_may_come_from_a_variable() -> None:
    server = load_one({"url": URL, "type": "${KIND:-sse}"})
    assert isinstance(server, RemoteServer)
    assert server.transport == "sse"


def test_type_and_transport_may_say_the_same_in_two_spellings() -> None:
    server = load_one({"url": URL, "type": "streamableHttp", "transport": "streamable-http"})
    assert isinstance(server, RemoteServer)


@pytest.mark.parametrize(
    ("entry", "path", "words"),
    [
        ({"url": URL, "type": "http", "transport": "sse"}, "", "`type` and `transport` contradict"),
        ({"url": URL, "type": "websocket"}, ".type", "is not a known transport; write stdio, http or sse"),
        ({"url": URL, "transport": "carrier-pigeon"}, ".transport", "is not a known transport"),
        ({"url": URL, "type": 3}, ".type", "must be a string, not a number"),
        ({"url": URL, "type": " "}, ".type", "must not be empty"),
        ({"url": URL, "type": "stdio"}, "", "has the transport stdio and a `url`"),
        ({"command": "npx", "type": "http"}, "", "has the transport http and a `command`"),
        ({"command": "npx", "transport": "sse"}, "", "has the transport sse and a `command`"),
    ],
)
def test_a_transport_that_is_unknown_or_contradicts_is_a_problem(entry: dict[str, Any], path: str, words: str) -> None:
    assert problem_of({"mcpServers": {"one": entry}}).startswith(f"$.mcpServers.one{path}: {words}")


@pytest.mark.parametrize("switch", [{"disabled": True}, {"enabled": False}, {"disabled": True, "enabled": True}])
def test_a_server_that_is_switched_off_is_left_out(switch: dict[str, bool]) -> None:
    assert not load_config({"mcpServers": {"one": {"command": "npx", **switch}}}).servers


@pytest.mark.parametrize("switch", [{"disabled": False}, {"enabled": True}, {"disabled": None}, {}])
def test_a_server_that_is_not_switched_off_is_there(switch: dict[str, bool | None]) -> None:
    assert load_one({"command": "npx", **switch}).key == "one"


@pytest.mark.parametrize("name", ["disabled", "enabled"])
def test_a_switch_that_is_not_true_or_false_is_a_problem(name: str) -> None:
    problem = problem_of({"mcpServers": {"one": {"command": "npx", name: "true"}}})
    assert problem == f"$.mcpServers.one.{name}: must be true or false, without quotes, not a string"


@pytest.mark.parametrize(
    "fields",
    [
        {"env": {"A": "$NONE"}, "args": ["${NONE}", "${input:token}"]},
        {"command": "$NONE"},
        {"type": "$NONE"},
        {"command": None, "url": "$NONE", "headers": {"Authorization": "Bearer $NONE"}},
    ],
)
def test_a_server_that_is_switched_off_needs_no_variables(fields: dict[str, Any]) -> None:
    entry = {"command": "npx", "disabled": True, **fields}
    assert not load_config({"mcpServers": {"one": entry}}, environ={}).servers


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"args": "-y $NONE"}, ".args: must be a list"),
        ({"env": {"PORT": 1}}, ".env.PORT: must be a string, not a number; write it in quotes"),
        ({"type": "websocket"}, ".type: is not a known transport"),
        ({"url": "$NONE"}, ": has both `command` and `url`"),
        ({"command": None, "url": "ftp://x"}, ".url: must begin with http:// or https://"),
    ],
)
def test_a_wrong_shape_is_a_problem_even_in_a_server_that_is_switched_off(fields: dict[str, Any], words: str) -> None:
    entry = {"command": "npx", "disabled": True, **fields}
    assert problem_of({"mcpServers": {"one": entry}}).startswith(f"$.mcpServers.one{words}")


@pytest.mark.parametrize(
    ("key", "client"),
    [("servers", "VS Code"), ("context_servers", "Zed"), ("mcp", "opencode"), ("mcp_servers", "Codex")],
)
def test_the_format_of_another_client_is_named(key: str, client: str) -> None:
    problem = problem_of({key: {"one": {"command": "npx"}}})
    assert problem.startswith(f"$: has `{key}`, which is the format of {client}; the key must be `mcpServers`")
    assert problem.endswith("fastmcp-aggregator import FILE --output mcp.json") is (client != "opencode")


def test_servers_at_the_root_are_told_where_to_go() -> None:
    assert "put them into an object under the key `mcpServers`" in problem_of({"one": {"command": "npx"}})


def test_a_document_without_servers_is_told_what_to_write() -> None:
    for key in ("mcpServer", "mcpservers", "mcp-servers", "mcpSevers"):
        assert problem_of({key: {"a": {"command": "x"}}}) == f"$: has `{key}`; did you mean `mcpServers`?"
    assert problem_of({"theme": "dark"}).startswith('$: has no `mcpServers`; write {"mcpServers": ')


@pytest.mark.parametrize(("key", "client"), [("serverUrl", "Windsurf"), ("httpUrl", "Gemini CLI")])
def test_the_spelling_that_another_client_has_for_url_is_named(key: str, client: str) -> None:
    problem = problem_of({"mcpServers": {"one": {key: URL}}})
    assert problem == f"$.mcpServers.one: has `{key}`, which is the spelling of {client}; the key must be `url`"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("arg", "args"),
        ("Args", "args"),
        ("ARGS", "args"),
        ("agrs", "args"),
        ("args ", "args"),
        ("evn", "env"),
        ("Env", "env"),
        ("envs", "env"),
        ("cdw", "cwd"),
        ("disable", "disabled"),
        ("enable", "enabled"),
        ("timout", "timeout"),
        ("descripton", "description"),
    ],
)
def test_a_field_that_is_nearly_one_of_ours_is_kept_with_the_one_that_was_meant(written: str, meant: str) -> None:
    assert load_one({"command": "npx", written: None}).misspelt == {}
    assert load_one({"command": "npx", written: "x"}).misspelt == {written: meant}


def test_a_misspelt_field_is_told_of_remote_servers_and_of_those_without_a_variable() -> None:
    assert load_one({"url": URL, "header": {}, "arg": []}).misspelt == {"header": "headers"}
    lacking = {"one": {"command": "$NONE", "arg": []}, "two": {"url": "$NONE", "Headers": {}, "evn": {}}}
    servers = load_config({"mcpServers": lacking}, environ={}, strict=False).servers
    assert [server.misspelt for server in servers.values()] == [{"arg": "args"}, {"Headers": "headers"}]


@pytest.mark.parametrize(
    "name",
    [
        *("autoApprove", "alwaysAllow", "icon", "trust", "gallery", "version", "settings", "source", "name", "title"),
        *("envFile", "env_vars", "env_http_headers", "http_headers", "bearer_token_env_var", "tool_timeout_sec"),
        *("disabledTools", "disabled_tools", "enabledTools", "includeTools", "tools", "transportType", "dev", "auth"),
        *("startup_timeout_ms", "timeoutMs", "serverUrl", "httpUrl", "oauth", "headersHelper", "alwaysLoad", "sandbox"),
        *("_args", "//env", "#disabled", "args2", "", "meta", "inputs", "roots", "required", "enviroment"),
    ],
)
def test_fields_of_others_and_what_was_put_out_of_use_are_not_taken_for_mistakes(name: str) -> None:
    assert load_one({"command": "npx", name: "x"}).misspelt == {}
    assert load_one({"url": URL, name: "x"}).misspelt == {}


def test_a_field_beside_the_one_that_it_looks_like_is_not_taken_for_a_mistake() -> None:
    assert load_one({"command": "npx", "args": [], "arg": []}).misspelt == {}


def test_a_config_in_toml_is_to_be_translated(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[mcp_servers.a]\ncommand = "x"\n')
    with pytest.raises(ConfigError, match="is TOML; to translate it: fastmcp-aggregator import FILE"):
        load_config(path)
