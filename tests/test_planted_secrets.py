"""Secrets in every position of every client's config, which no command, error, log line or page shows."""

from __future__ import annotations

import base64
import json
import os
import random
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import tomlkit
from support.command_line import run_main
from support.harness import PATIENCE
from support.machines import machine, put

from fastmcp_aggregator.cli.running.given_files import variables_of
from fastmcp_aggregator.client_configs.known import CLIENT_CONFIGS, ClientConfig, Machine

ECHO = "import os, sys; print(sys.argv, dict(os.environ), os.getcwd(), file=sys.stderr); sys.exit(1)"
"""A server that tells all it has been given, and ends."""


class Plants:
    """Makes secrets of many shapes, and remembers them."""

    def __init__(self) -> None:
        self._random = random.Random(13)
        self.all: list[str] = []

    def one(self) -> str:
        data = self._random.randbytes(18)
        shapes: tuple[Callable[[], str], ...] = (
            data.hex,
            lambda: base64.b64encode(data).decode() + "==",
            lambda: base64.urlsafe_b64encode(data).decode(),
            lambda: "ghp_" + base64.b32encode(data).decode().strip("="),
            lambda: f"correct-Horse-{data.hex()[:6]}-battery",
            lambda: f"Pa55 word {data.hex()[:8]}!",
        )
        secret = shapes[len(self.all) % len(shapes)]()
        self.all.append(secret)
        return secret

    def in_url(self) -> str:
        self.all.append(secret := f"u{self._random.randbytes(12).hex()}")
        return secret


def process_entry(plant: Plants) -> dict[str, Any]:
    one = plant.one
    return {
        "command": "npx",
        "args": [
            *(
                "-y",
                "some-server",
                one(),
                "--api-key",
                one(),
                f"--token={one()}",
                "-k",
                one(),
                "-e",
                f"SESSION={one()}",
            ),
            *("--header", f"X-Auth-Value: {one()}", "--header", f"Authorization: Bearer {one()}", f"/srv/{one()}/x.js"),
            *(
                f"https://{plant.in_url()}:{plant.in_url()}@h.invalid/{plant.in_url()}/mcp?p={plant.in_url()}",
                f"-p{one()}",
            ),
            *(f"--{plant.in_url()}", f"{one()}:{one()}", plant.in_url().upper()),
        ],
        "env": {
            **{name: one() for name in ("GITHUB_TOKEN", "SESSION", "SIGNING", "LINEAR_API", "X", "HOME_DIR", "A_FILE")},
            "DATABASE_URL": f"postgres://me:{plant.in_url()}@db.invalid/{plant.in_url()}",
        },
        "cwd": f"/srv/{plant.in_url()}",
        "description": one(),
        "apiKey": one(),
        "settings": {"token": one()},
        "autoApprove": [one()],
    }


def remote_entry(plant: Plants, client: ClientConfig) -> dict[str, Any]:
    fields = {"windsurf": "serverUrl", "gemini-cli": "httpUrl"}
    user, path, query, bare, fragment = (plant.in_url() for _ in range(5))
    headers = "http_headers" if client.id == "codex" else "headers"
    url = f"http://{user}:{plant.in_url()}@127.0.0.1:1/mcp/s/{path}/mcp?profile={query}&{bare}#{fragment}"
    return {
        fields.get(client.id, "url"): url,
        headers: {"Authorization": f"Bearer {plant.in_url()}", "X-Value": plant.in_url(), "Accept": plant.in_url()},
        "oauth": {"clientSecret": plant.one()},
    }


def default_entry(plant: Plants) -> dict[str, Any]:
    secret = plant.in_url()
    return {
        "command": "x",
        "env": {"A": f"${{UNSET_VARIABLE:-{secret}}}", "B": f"pre{plant.in_url()}${{UNSET_VARIABLE}}"},
    }


def document(plant: Plants, client: ClientConfig) -> dict[str, Any]:
    name = client.id.replace("-", "")
    entries = {
        f"{name}p": process_entry(plant),
        f"{name}r": remote_entry(plant, client),
        f"{name}d": default_entry(plant),
    }
    return {client.servers_key: entries, "other": {"apiKey": plant.one(), "list": [plant.one()]}}


@pytest.fixture
def plant() -> Plants:
    return Plants()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Plants) -> Machine:
    """A machine with all clients."""
    here = machine(tmp_path, sys.platform)
    monkeypatch.setenv("HOME", str(here.home))
    for name in ("XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "CLINE_MCP_SETTINGS_PATH", "GITHUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(here.project)
    for client in CLIENT_CONFIGS.values():
        content = document(plant, client)
        if client.format == "toml":
            text = f"# {plant.one()}\n{tomlkit.dumps(content)}\nlong = '''\n{plant.one()}\nKEY = {plant.one()}\n'''\n"
        else:
            text = json.dumps(content, indent=2).replace("{\n", f"{{\n  // {plant.one()}\n", 1)
        put(client.user_files(here)[0], text)
    return here


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], here: Machine) -> Iterator[Callable[..., str]]:
    """Run a command; all it has said."""

    def run(*arguments: str) -> str:
        ended = run_main(capfd, arguments)
        return ended.out + ended.err

    return run


def found_in(text: str, plant: Plants) -> list[str]:
    """The secrets that stand in a text, however they are written there."""
    forms = ((s, json.dumps(s)[1:-1], quote(s), quote(s, safe=""), repr(s)[1:-1]) for s in plant.all)
    return [written[0] for written in forms if any(form in text for form in written)]


def served_config(here: Machine, run: Callable[..., str]) -> Path:
    """All servers in one config, with programs that tell what they are given."""
    run("import", "--output", "all.json")
    path = here.project / "all.json"
    config = json.loads(path.read_text())
    for entry in config["mcpServers"].values():
        if "command" in entry:
            entry.update(command=sys.executable, args=["-c", ECHO, *entry.get("args", [])], cwd=str(here.project))
        entry.get("env", {}).pop("B", None)
    path.write_text(json.dumps(config))
    path.chmod(0o600)
    return path


def test_over_two_hundred_are_planted_and_import_shows_none(
    run: Callable[..., str], here: Machine, plant: Plants
) -> None:
    assert len(plant.all) > 200
    assert len(set(plant.all)) == len(plant.all)
    said = run("import") + run("import", "--json")
    for client in CLIENT_CONFIGS.values():
        said += run("import", str(client.user_files(here)[0]))
    assert "some-server" in said
    assert "127.0.0.1:1/mcp" in said
    assert found_in(said, plant) == []


def test_as_variables_all_of_them_leave_the_file_and_mean_the_same(
    run: Callable[..., str], here: Machine, plant: Plants
) -> None:
    run("import", "--output", "plain.json")
    said = run("import", "--output", "v.json", "--secrets-as-variables", "--env-file", "v.env")
    said += run("import", "--output", "v2.json", "--secrets-as-variables", "--json")
    assert found_in(said, plant) == []
    plain, written = (here.project / name for name in ("plain.json", "v.json"))
    carried = found_in(plain.read_text(), plant)
    assert len(carried) > 200
    descriptions = [
        entry["description"] for entry in json.loads(plain.read_text())["mcpServers"].values() if "description" in entry
    ]
    assert set(found_in(written.read_text(), plant)) <= set(descriptions)
    values = "\n".join(variables_of("v.env").values())
    assert set(carried) - set(descriptions) == set(found_in(values, plant)) - set(descriptions)


@pytest.mark.parametrize("client", CLIENT_CONFIGS)
def test_what_install_and_uninstall_change_is_shown_without_them(
    client: str, run: Callable[..., str], here: Machine, plant: Plants
) -> None:
    put(here.project / "hub.json", '{"mcpServers": {}}')
    path = CLIENT_CONFIGS[client].user_files(here)[0]
    said = run("install", client, "--config", "hub.json")  # the difference; nobody is there to ask
    said += run("install", client, "--config", "hub.json", "--yes")
    changed = (
        path.read_text().replace('"PATH": "', f'"PATH": "{plant.one()}').replace('PATH = "', f'PATH = "{plant.one()}')
    )
    path.write_text(changed.replace('"hub": {', '"hub": {"apiKey": "' + plant.one() + '",'))
    said += run("uninstall", client)
    said += run("uninstall", client, "--yes")
    assert "hub" in said
    assert found_in(said, plant) == []


def test_check_shows_none(run: Callable[..., str], here: Machine, plant: Plants) -> None:
    run("import", "--output", "all.json")
    for arguments in (["all.json"], ["all.json", "--json"], ["all.json", "--no-strict"]):
        said = run("check", *arguments)
        assert "cursorp" in said
        assert found_in(said, plant) == []


def test_nothing_of_the_settings_is_shown(
    run: Callable[..., str], here: Machine, plant: Plants, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, in_url = plant.one, plant.in_url
    url = f"http://127.0.0.1:1/{in_url()}/mcp?key={in_url()}"
    put(here.project / "c.json", json.dumps({"mcpServers": {"crm": {"url": url, "headers": {"X-Key": one()}}}}))
    monkeypatch.setenv("CRM_SECRET", one())
    oauth = {
        "client_id": one(),
        "client_secret_env": "CRM_SECRET",
        "issuer": f"https://127.0.0.1:1/{in_url()}",
        "authorization_query": f"hint={in_url()}",
        "audience": one(),
    }
    settings = {
        "redis_url": f"redis://user:{in_url()}@127.0.0.1:1/0?password={in_url()}",
        "redis_key": f"{one()}{one()}",
        "jwt_issuer": f"https://127.0.0.1:1/{in_url()}",
        "jwt_audience": "hub",
        "jwt_jwks_url": f"https://127.0.0.1:1/keys?token={in_url()}",
        "servers": {"crm": {"oauth": oauth}},
    }
    put(here.project / "s.toml", tomlkit.dumps(settings))
    files = ["c.json", "--settings", "s.toml"]
    said = run("check", *files) + run("check", *files, "--json") + run("check", *files, "--connect", "--debug")
    said += run("login", *files, "crm") + run("accounts", "list", *files) + run("list", *files, "--debug")
    said += run("serve", *files, "--transport", "http", "--port", "0", "--debug")
    assert "Redis" in said
    assert "crm" in said
    assert found_in(said, plant) == []
    put(here.project / "s.toml", tomlkit.dumps({"redis_urls": one(), "redis_url": one(), "servers": {"crm": one()}}))
    said = run("check", *files) + run("serve", *files)
    assert "redis_urls" in said
    assert found_in(said, plant) == []


@pytest.mark.process
@pytest.mark.parametrize("profile", ["development", "production"])
def test_commands_that_start_servers_show_none(
    profile: str, run: Callable[..., str], here: Machine, plant: Plants, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTMCP_AGGREGATOR_PROFILE", profile)
    path = str(served_config(here, run))
    said = run("check", path, "--connect", "--debug") + run("check", path, "--connect", "--json")
    said += run("list", path) + run("list", path, "--json") + run("pin", path, "--file", "pins.json")
    said += run("call", path, "cursorp:x") + run("call", path, "cursorr:x") + run("login", path, "cursorr")
    assert "cursorr" in said
    assert found_in(said, plant) == []


@pytest.mark.process
def test_serving_shows_none_in_the_log_the_audit_errors_and_pages(
    run: Callable[..., str], here: Machine, plant: Plants
) -> None:
    path = served_config(here, run)
    line = [
        sys.executable,
        "-m",
        "fastmcp_aggregator",
        str(path),
        "--transport",
        "http",
        "--port",
        "0",
        "--no-strict",
        "--debug",
    ]
    settings = {"FASTMCP_AGGREGATOR_AUDIT": str(here.project / "audit.log"), "FASTMCP_AGGREGATOR_METRICS": "true"}
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True, env={**os.environ, **settings})
    assert process.stderr is not None
    log, url = "", ""
    while not url:
        log += (told := process.stderr.readline())
        url = told.partition("serving on ")[2].strip()
    pages = ""
    try:
        base = url.removesuffix("/mcp")
        for page in ("/status", "/health", "/metrics", "/openapi.json", "/"):
            pages += read(base + page)
        for key in ("cursorp", "cursorr", "codexr", "zedp"):
            pages += read(f"{base}/mcp/tools/call", {"name": f"{key}:tool", "arguments": {"a": plant.one()}})
        pages += read(f"{base}/dashboard/state") + read(f"{base}/dashboard/names")
        status = subprocess.run(
            [*line[:3], "status", base], capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        pages += status.stdout + status.stderr
    finally:
        process.terminate()
        log += process.communicate(timeout=PATIENCE)[1]
    assert "cursorr" in pages
    assert found_in(log + pages + (here.project / "audit.log").read_text(), plant) == []


def read(url: str, body: Any = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=PATIENCE) as response:
            return str(response.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()
