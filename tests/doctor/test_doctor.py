"""What an examination finds in a config and on this machine, and where it says that it is."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.harness import config, free_port, lean
from support.machines import put

from fastmcp_aggregator.cli.main import main
from fastmcp_aggregator.config import load_config
from fastmcp_aggregator.doctor.examination import Examination, examined
from fastmcp_aggregator.doctor.findings import Finding
from fastmcp_aggregator.doctor.packages import unpinned
from fastmcp_aggregator.doctor.programs import programs_of
from fastmcp_aggregator.settings.model import AggregatorSettings
from fastmcp_aggregator.settings.sections import CallerSettings


def examine(folder: Path, *, port: int = 0, **servers: dict[str, Any]) -> Examination:
    path = put(folder / "config.json", json.dumps(config(**servers), indent=2))
    return examined(load_config(str(path), environ={"TOKEN": "s3cret-value"}), AggregatorSettings(port=port))


def test_a_config_that_has_all_it_needs_has_no_findings(tmp_path: Path) -> None:
    examination = examine(tmp_path, a=lean(), b={"url": "https://example.com/mcp", "headers": {"X-Key": "${TOKEN}"}})
    assert examination.findings == []
    (program,) = examination.programs
    assert (program.command, program.path) == (sys.executable, sys.executable)


def test_a_program_that_only_the_config_leads_to_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:./bin")
    for path in (tmp_path / "node", tmp_path / "bin" / "npx", tmp_path / "bin" / "bunx"):
        put(path, f"#!/bin/sh\necho 1.2.3\ntouch {tmp_path}/started\n").chmod(0o755)
    entries = {"a": {"command": "./node"}, "b": {"command": "npx", "env": {"PATH": f"{tmp_path}/bin"}}}
    examination = examine(tmp_path, **entries, c={"command": "bunx"})
    assert [program.version for program in examination.programs] == [None, None, None]
    assert not (tmp_path / "started").exists()


def test_a_program_that_says_too_much_is_not_heard_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "bin" / "npx", "#!/bin/sh\necho 1.2.3 $SECRET\nwhile true; do echo more; done\n").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("SECRET", "9.9.9")
    (program,) = examine(tmp_path, a={"command": "npx"}).programs
    assert program.version == "1.2.3"


def test_a_program_that_hangs_in_another_that_it_has_started_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "bin" / "npx", "#!/bin/sh\necho 1.2.3\nsleep 60\nexit 0\n").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    path = put(tmp_path / "config.json", json.dumps(config(a={"command": "npx"})))
    began = time.monotonic()
    programs_of(load_config(str(path)), timeout=0.2)
    assert time.monotonic() - began < 30


def test_programs_are_found_by_the_search_path_of_their_server_and_tell_their_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/bin:/usr/bin")
    runner = put(tmp_path / "bin" / "npx", "#!/bin/sh\necho npx 12.3.4-beta\n")
    runner.chmod(0o755)
    other = put(tmp_path / "bin" / "server", "#!/bin/sh\ntouch started\n")
    other.chmod(0o755)
    silent = put(tmp_path / "bin" / "uvx", "no program at all")
    silent.chmod(0o755)
    env = {"PATH": f"{tmp_path}/bin:/bin:/usr/bin"}
    entries = {name: {"command": name, "env": env} for name in ("npx", "server", "uvx")}
    relative = {"command": "./bin/server", "cwd": str(tmp_path)}
    examination = examine(tmp_path, **entries, relative=relative)
    assert [(program.path, program.version) for program in examination.programs] == [
        (str(runner), "12.3.4-beta"),
        (str(other), None),
        (str(silent), None),
        (f"{tmp_path}/bin/server", None),
    ]
    assert not (tmp_path / "started").exists()
    assert not Path("started").exists()


def test_keys_for_groups_that_are_not_there_and_a_keys_file_that_cannot_be_used_are_found(tmp_path: Path) -> None:
    keys, config_file = tmp_path / "keys.json", put(tmp_path / "mcp.json", json.dumps(config(a=lean())))
    settings = AggregatorSettings(keys_file=str(keys), port=free_port())

    def found() -> list[tuple[str, str]]:
        findings = examined(load_config(config_file), settings, groups={"web"}).findings
        return [(finding.severity, finding.message) for finding in findings]

    assert [severity for severity, _ in found()] == ["error"]
    for name, groups in (("eve", "webb"), ("bob", "web"), ("ann", None)):
        main(["keys", "create", name, "--file", str(keys), *(["--groups", groups] if groups else [])])
    ((severity, message),) = found()
    assert (severity, message.partition(" of ")[2]) == ("warning", "'eve' is for the group 'webb', which is not there")
    for name, days in (("ida", "3"), ("jon", "30"), ("leo", "never")):
        main(["keys", "create", name, "--file", str(keys), "--days", days])
    ((_, soon),) = found()[1:]
    assert soon.partition(" of ")[2].startswith("'ida' expires on ")
    advice = soon.partition("; to give it more days: fastmcp-aggregator ")[2]
    assert main(advice.replace(" N", " 30").split()) == 0
    assert len(found()) == 1
    keys.chmod(0o666)
    assert [severity for severity, _ in found()] == ["error"]
    keys.chmod(0o600)
    keys.write_text(keys.read_text().replace("eve", "e v e"))
    assert [(severity, message[: len(str(keys)) + 16]) for severity, message in found()] == [
        ("error", f"{keys} $.keys[0].name:")
    ]


def test_limits_of_callers_that_are_not_there_are_found(tmp_path: Path) -> None:
    keys, config_file = tmp_path / "keys.json", put(tmp_path / "mcp.json", json.dumps(config(a=lean())))
    main(["keys", "create", "ci", "--file", str(keys)])
    own = CallerSettings(rate_limit=5)
    callers = dict.fromkeys(("ci", "cj", "key:ci", "key:ck", "group:web", "group:webb", "jwt:https://idp#ann"), own)

    def found(**more: Any) -> list[tuple[str, str]]:
        settings = AggregatorSettings(callers=callers, port=free_port(), **more)
        findings = examined(load_config(config_file), settings, groups={"web"}).findings
        return [(finding.severity, finding.message) for finding in findings]

    group = ("warning", "the limit of 'group:webb' is for a group that is not there")
    assert found(keys_file=str(keys)) == [
        group,
        ("warning", "the limit of 'cj' is for a key that is not there"),
        ("warning", "the limit of 'key:ck' is for a key that is not there"),
    ]
    assert found() == [group]


def test_what_is_not_there_is_an_error_with_its_line(tmp_path: Path) -> None:
    found = examine(tmp_path, a={"command": "uvx-none"}, b={"command": "uvx", "env": {"PATH": "/none"}}).findings
    assert [(finding.severity, finding.server, finding.line, finding.written) for finding in found] == [
        ("error", "a", 4, "uvx-none"),
        ("error", "b", 7, "uvx"),
    ]
    assert "install it, or give its full path" in found[0].message
    assert "install it from https://docs.astral.sh/uv/" in found[1].message
    (folder,) = examine(tmp_path, a={**lean(), "cwd": "/none"}).findings
    assert (folder.message, folder.path) == ("its working directory (`cwd`) is not there", "$.mcpServers.a.cwd")


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        ("/none/bin/server", "install or build the server first, or correct the path"),
        ("server-none --zone UTC", "arguments belong into `args`, each as a string of its own"),
        ("sh server-none", "arguments belong into `args`, each as a string of its own"),
        ("/none/Some Program/server", "install or build the server first, or correct the path"),
    ],
)
def test_what_to_do_about_a_missing_command_depends_on_how_it_is_written(
    command: str, advice: str, tmp_path: Path
) -> None:
    (finding,) = examine(tmp_path, a={"command": command}).findings
    assert finding.message.endswith(advice)


def test_a_project_without_its_environment_is_to_be_synced(tmp_path: Path) -> None:
    entry = {"command": str(tmp_path / "notes" / ".venv" / "bin" / "notes")}
    (finding,) = examine(tmp_path, a=entry).findings
    assert finding.message.endswith("install or build the server first, or correct the path")
    put(tmp_path / "notes" / "pyproject.toml", "")
    (finding,) = examine(tmp_path, a=entry).findings
    assert finding.message.endswith("; run `uv sync` in its project")


def test_a_misspelt_field_is_an_error_with_its_line(tmp_path: Path) -> None:
    misspelt = lean() | {"evn": {}, "descripton": "x", "icon": "x"}
    found = examine(tmp_path, a=misspelt, b=lean()).findings
    ignored = "has `{}`, which is ignored; did you mean `{}`?".format
    assert [(finding.severity, finding.server, finding.path, finding.message) for finding in found] == [
        ("error", "a", "$.mcpServers.a.evn", ignored("evn", "env")),
        ("warning", "a", "$.mcpServers.a.descripton", ignored("descripton", "description")),
    ]
    assert all(finding.line for finding in found)


@pytest.mark.parametrize(
    ("line", "package"),
    [
        ("npx -y @x/server", "@x/server"),
        ("npx server@latest", "server"),
        ("npx --yes -p @x/server run", "@x/server"),
        ("npx --package=server run", "server"),
        ("/usr/bin/npx -y server --port 5", "server"),
        ("cmd /c npx -y server", "server"),
        ("bunx server", "server"),
        ("pnpm dlx server", "server"),
        ("uvx server", "server"),
        ("uvx --python 3.12 server[x]", "server[x]"),
        ("uvx --from server run", "server"),
        ("uv tool run server", "server"),
        ("pipx run server", "server"),
        ("pipx run --spec server run", "server"),
        ("npx -y @x/server@1.2.3", None),
        ("npx -y server@^1", None),
        ("npx -y ./server", None),
        ("npx -y github:x/server", None),
        ("npx -y ${SERVER}", None),
        ("uvx server@1.2", None),
        ("uvx server==1.2", None),
        ("uvx --from server==1.2 run", None),
        ("uvx --from git+https://example.com/x run", None),
        ("pipx run server==1", None),
        ("npx", None),
        ("uvx --from", None),
        ("uvx -q", None),
        ("uv run server.py", None),
        ("node server.js", None),
    ],
)
def test_packages_without_a_version_are_found(line: str, package: str | None) -> None:
    command, *arguments = line.split()
    found = unpinned(command, arguments)
    assert (found and found[1]) == package
    assert found is None or package in arguments[found[0]] or arguments[found[0]] == f"{package}@latest"  # type: ignore[operator]


def test_the_line_to_change_is_told_for_a_package(tmp_path: Path) -> None:
    python = {"PATH": os.environ["PATH"]}
    put(tmp_path / "uvx", "#!/bin/sh\n").chmod(0o755)
    env = {"PATH": f"{tmp_path}:{python['PATH']}"}
    (finding,) = examine(tmp_path, a={"command": "uvx", "env": env, "args": ["-q", "mcp-server"]}).findings
    assert finding == Finding(
        "warning",
        "a",
        "mcp-server has no version: each start may run another one; `pip index versions mcp-server` tells the newest",
        "$.mcpServers.a.args[1]",
        10,
        "mcp-server",
        "mcp-server@VERSION",
        finding.common,
    )


def test_a_server_of_this_machine_that_is_silent_is_found_and_others_are_not_asked(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        there = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        silent = f"http://localhost:{free_port()}/mcp"
        found = examine(tmp_path, a={"url": there}, b={"url": silent}, c={"url": "https://192.0.2.1/mcp"}).findings
    assert [(finding.severity, finding.server) for finding in found] == [("warning", "b")]


def test_a_port_that_is_taken_is_noted(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        (finding,) = examine(tmp_path, port=port, a=lean()).findings
    assert finding.message.startswith(f"port {port} is taken: ")
    assert finding.severity == "note"


def test_secrets_that_are_written_down_are_noted_and_not_shown(tmp_path: Path) -> None:
    examination = examine(
        tmp_path,
        a={**lean(), "env": {"API_KEY": "s3cret-one", "LEVEL": "debug", "T_TOKEN": "${TOKEN}"}},
        b={"url": "https://me:s3cret-two@example.com", "headers": {"Authorization": "Bearer s3cret-three"}},
    )
    assert [(finding.path, finding.change) for finding in examination.findings] == [
        ("$.mcpServers.a.env.API_KEY", "${API_KEY}"),
        ("$.mcpServers.b.headers.Authorization", "${B_AUTHORIZATION}"),
        ("$.mcpServers.b.url", "${VARIABLE} in place of the secret"),
    ]
    assert "s3cret" not in str(examination)


def test_findings_come_with_the_gravest_first(tmp_path: Path) -> None:
    entry = {"command": "uvx", "args": ["server"], "env": {"PATH": "/none", "API_KEY": "s3cret-one"}}
    assert [finding.severity for finding in examine(tmp_path, a=entry).findings] == ["error", "warning", "note"]


# As the command tells it


def test_a_home_that_nobody_replaces_is_noted(tmp_path: Path) -> None:
    (finding,) = examine(tmp_path, a={**lean(), "args": ["~", "a~/b", "~/notes"]}).findings
    assert (finding.severity, finding.path) == ("note", "$.mcpServers.a.args[2]")
    assert finding.message == "`~` in `args` is not replaced, as a shell would; write ${HOME}"
    assert "~" not in str(finding.written)


def check(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    return (main(["check", *arguments]), *capfd.readouterr())


def shown(out: str) -> Sequence[str]:
    return [line.rstrip() for line in out.partition("Findings:\n")[2].splitlines()]


def test_check_tells_what_was_found_with_file_and_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    entry = {"command": "none-such", "env": {"API_KEY": "s3cret-one"}}
    path = str(put(tmp_path / "c.json", json.dumps(config(a=entry), indent=2)))
    code, out, err = check(capfd, path, "--all")
    assert (code, err) == (2, "")
    assert "  none-such              not found\n" in out
    assert shown(out) == [
        "  error    a: command not found: 'none-such'; install it, or give its full path as `command`",
        f'             {path}:4: "none-such"',
        "  note     a: API_KEY looks like a secret that is written into the file; put it into a variable",
        f'             {path}:6: $.mcpServers.a.env.API_KEY → "${{API_KEY}}"',
    ]
    clean = str(put(tmp_path / "d.json", json.dumps(config(a=lean()))))
    assert check(capfd, clean, "--all")[1].endswith("\nNo problems found.\n")
    assert "\nNo problems found.\n" in check(capfd, clean)[1]


def test_check_as_json_has_everything_in_one_document(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = str(put(tmp_path / "c.json", json.dumps(config(**{"my.a": lean(), "b": {"command": "none-such"}}))))
    code, out, _ = check(capfd, path, "--json")
    document = json.loads(out)
    assert code == 2
    assert document["servers"]["my.a"] == {
        "transport": "stdio",
        "target": sys.executable,
        "isolation": "shared",
        "isolationReason": "nothing shows that it belongs to one client or one folder",
    }
    assert document["clients"][0]["names"]["my.a"]["pattern"] == "my_a__<tool>_<hash>"
    assert [finding["server"] for finding in document["findings"]] == ["b"]
    assert "connected" not in document
    code, out, _ = check(capfd, path, "--json", "--connect")
    connected = json.loads(out)["connected"]
    assert code == 2
    assert list(connected["failed"]) == ["b"]
    assert "my.a:echo" in connected["changedNames"]


def test_settings_for_tools_that_are_not_there_are_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = str(put(tmp_path / "c.json", json.dumps(config(a=lean()))))
    settings = put(
        tmp_path / "s.toml", "[servers.a.tools.ecko]\nhidden = true\n[servers.a.tools.fail]\nhidden = true\n"
    )
    out = check(capfd, path, "--connect", "--settings", str(settings))[1]
    assert out.partition("Settings for tools that no server has:\n")[2].splitlines()[0] == "  a:ecko"
    out = check(capfd, path, "--connect", "--json", "--settings", str(settings))[1]
    assert json.loads(out)["connected"]["strayTools"] == ["a:ecko"]


def test_extensions_that_are_not_passed_on_are_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    declared = {"tools": {}, "extensions": {"io.modelcontextprotocol/ui": {}, "example.org/own": {}}}
    servers = config(a=lean(capabilities=declared), b=lean(capabilities={"tools": {}}))
    path = str(put(tmp_path / "c.json", json.dumps(servers)))
    code, out, _ = check(capfd, path, "--connect")
    assert code == 0
    told = out.partition("Extensions of servers that are not passed on:\n")[2].splitlines()
    assert told[0] == "  a: example.org/own"
    assert told[1:2] in ([], [""])
    out = check(capfd, path, "--connect", "--json")[1]
    assert json.loads(out)["connected"]["withheldExtensions"] == {"a": ["example.org/own"]}


def test_problems_of_a_config_as_json_have_their_lines(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = str(put(tmp_path / "c.json", '{\n "mcpServers": {\n  "a": {"command": 5}\n}}'))
    code, out, err = check(capfd, path, "--json")
    (problem,) = json.loads(out)["problems"]
    assert (code, err, problem["line"], problem["path"]) == (2, "", 3, "$.mcpServers.a.command")
    broken = str(put(tmp_path / "d.json", "{"))
    code, out, _ = check(capfd, broken, "--json")
    assert (code, json.loads(out)["problems"][0]["code"]) == (2, "invalid_json")
