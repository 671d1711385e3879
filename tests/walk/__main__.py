"""Walks: `PYTHONPATH=tests python -m walk [FOLDER] [--markdown docs/real-servers.md]`. FOLDER keeps the servers."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from support.harness import free_port

from fastmcp_aggregator.cli.terminal.console import counted
from fastmcp_aggregator.client_configs.known import CLIENT_CONFIGS, Machine
from walk import handshake
from walk.clients import write_files
from walk.handshake import PROGRAM
from walk.servers import NPM, PYPI, entries, install, key_of

FIRST_ANSWER = 1.0
"""Seconds from the start to the answer to `initialize`, as the median of each command."""


class Wrong(Exception):
    """A step did not do what a newcomer is promised."""


def require(condition: object, what: str) -> None:
    if not condition:
        raise Wrong(what)


@dataclass
class Ended:
    code: int
    out: str
    err: str


@dataclass
class Walk:
    """One newcomer: a home with nine clients, and what has been found out so far."""

    folder: Path
    home: Path
    servers: dict[str, dict[str, Any]]
    listed: dict[str, Any] = field(default_factory=dict)

    @property
    def environ(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        return {**kept, "HOME": str(self.home), "XDG_CACHE_HOME": str(self.home / "cache"), "NO_COLOR": "1"}

    @property
    def machine(self) -> Machine:
        return Machine(self.home, sys.platform, {}, self.home)

    def run(self, *arguments: str, timeout: float = 200) -> Ended:
        ended = subprocess.run(
            [*PROGRAM, *arguments],
            cwd=self.home,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    # The steps, in order. Each returns what there is to tell.

    def import_shows(self) -> str:
        ended = self.run("import")
        require(ended.code == 0, ended.err)
        missing = [key for key in self.servers if key not in ended.out]
        require(not missing, f"not shown: {missing}")
        require("0123456789abcdefgh" not in ended.out + ended.err, "a secret is shown")
        require(
            "docs-token" in ended.out + ended.err and "DOCS_TOKEN has no value" in ended.err, "DOCS_TOKEN not named"
        )
        return f"{len(self.servers) + 1} servers of {len(CLIENT_CONFIGS)} clients, secrets hidden"

    def import_writes(self) -> str:
        ended = self.run(
            "import", "--output", "mcp.json", "--rename", "--secrets-as-variables", "--env-file", "mcp.env"
        )
        require(ended.code == 0, ended.err)
        config = json.loads((self.home / "mcp.json").read_text())
        require(config["mcpServers"].keys() == {*self.servers, "docs"}, "a server is lost")
        require("DOCS_TOKEN=" in (self.home / "mcp.env").read_text(), "no line to fill in")
        modes = {oct((self.home / name).stat().st_mode & 0o777) for name in ("mcp.json", "mcp.env")}
        require(modes == {"0o600"}, f"modes {modes}")
        return "one config, secrets in a file of their own, a line to fill in for what has no value"

    def check_fits(self) -> str:
        ended = self.run("check", "mcp.json", "--env-file", "mcp.env")
        lines = ended.out.splitlines()
        require(ended.code == 2 and len(lines) <= 24, f"code {ended.code}, {len(lines)} lines")
        require("DOCS_TOKEN is not set" in ended.out, "the variable is not named")
        require(self.run("check", "mcp.json", "--env-file", "mcp.env", "--no-strict").code == 0, "--no-strict fails")
        return f"{len(lines)} lines; the server without a value is named"

    def everything_is_listed(self) -> str:
        ended = self.run("list", "mcp.json", "--env-file", "mcp.env", "--no-strict", "--json", timeout=300)
        self.listed = json.loads(ended.out)["servers"]
        running = [key for key, server in self.listed.items() if server["state"] == "running"]
        tools = sum(len(server["tools"]) for server in self.listed.values())
        failed = {key: server["error"] for key, server in self.listed.items() if server["error"]}
        require("docs" in failed, "the server without a value runs")
        require(all(failed.values()), f"without a reason: {failed}")
        require(len(running) >= 30 or len(running) >= len(self.servers) - 2, f"failed: {failed}")
        return f"{len(running)} servers run, {tools} tools; each that does not says why"

    def handshake_is_first(self) -> str:
        times = handshake.times(self.home, ["mcp.json", "--env-file", "mcp.env", "--no-strict"], self.environ)
        medians = {start: statistics.median(seconds) for start, seconds in times.items()}
        told = ", ".join(f"{start} {median:.2f} s" for start, median in medians.items())
        require(max(medians.values()) <= FIRST_ANSWER, f"initialize took {told}")
        return f"`initialize` answered, while {os.cpu_count()} other processes have the cores: {told}"

    def clients_are_given_it(self) -> str:
        for client in CLIENT_CONFIGS.values():
            path = client.user_files(self.machine)[0]
            before = path.read_bytes()
            line = ["install", client.id, "--config", "mcp.json", "--env-file", "mcp.env", "--yes"]
            require(self.run(*line).code == 0, f"install {client.id}")
            require("has it already" in self.run(*line).out, f"install {client.id} again")
            require(path.read_bytes() != before, f"{client.id} was not changed")
            require(self.run("uninstall", client.id, "--yes").code == 0, f"uninstall {client.id}")
            require(path.read_bytes() == before, f"{client.id} is not what it was, byte for byte")
        return f"{len(CLIENT_CONFIGS)} clients: `install`, again, `uninstall`: byte for byte as before"

    def a_client_calls(self) -> str:
        return asyncio.run(self._call())

    async def _call(self) -> str:
        arguments = [*PROGRAM[1:], "mcp.json", "--env-file", "mcp.env", "--no-strict"]
        log = self.home / "stderr.log"
        transport = StdioTransport(PROGRAM[0], arguments, env=self.environ, cwd=str(self.home), log_file=log)
        async with Client(transport, init_timeout=60) as client:
            config = json.loads((self.home / "mcp.json").read_text())
            result = await client.call_tool("mcp-server-time:get_current_time", {"timezone": "Europe/Paris"})
            require("Paris" in str(result.content), "no time")
            names = {tool.name.partition(":")[0] for tool in await client.list_tools()}
            gone = config["mcpServers"].pop("server-memory")
            (self.home / "mcp.json").write_text(json.dumps(config))
            await self._until(client, lambda keys: "server-memory" not in keys)
            config["mcpServers"]["server-memory"] = gone
            (self.home / "mcp.json").write_text(json.dumps(config))
            await self._until(client, lambda keys: "server-memory" in keys)
        return f"a call, when {len(names)} servers were up; one removed from the file and back while connected"

    async def _until(self, client: Client[Any], holds: Callable[[set[str]], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds({tool.name.partition(":")[0] for tool in await client.list_tools()}):
                await asyncio.sleep(0.2)

    def one_server_is_restarted(self) -> str:
        port = free_port()
        config = {"mcpServers": {"time": self.servers["mcp-server-time"]}}
        (self.home / "one.json").write_text(json.dumps(config))
        line = [*PROGRAM, "one.json", "--transport", "http", "--port", str(port)]
        hub = subprocess.Popen(line, cwd=self.home, env=self.environ, stderr=subprocess.DEVNULL)
        url = f"http://127.0.0.1:{port}"
        try:
            before = self._pid(url)
            require(self.run("restart", "time", url).code == 0, "restart fails")
            deadline = time.monotonic() + 30
            while self._pid(url) == before and time.monotonic() < deadline:
                time.sleep(0.2)
            require(self._pid(url) not in (None, before), "not restarted")
        finally:
            hub.terminate()
            hub.wait(30)
        return "`restart` gives it a new process"

    def _pid(self, url: str) -> int | None:
        import urllib.request

        for _ in range(150):
            try:
                with urllib.request.urlopen(f"{url}/status", timeout=5) as answer:
                    server = json.load(answer)["servers"]["time"]
                if server["state"] == "running":
                    return int(server["pid"])
            except OSError:
                pass
            time.sleep(0.2)
        return None

    def shells_complete(self) -> str:
        told = []
        for shell, line in {
            "bash": 'source "$1"; complete -p fastmcp-aggregator >/dev/null && echo good',
            "zsh": 'autoload -Uz compinit && compinit -u && source "$1" 2>&1 && echo good',
            "fish": 'source $argv[1]; complete -C "fastmcp-aggregator unin"',
        }.items():
            if shutil.which(shell) is None:
                continue
            script = self.home / f"completion.{shell}"
            script.write_text(self.run("completion", shell).out)
            flags = ["-f"] if shell == "zsh" else []
            begin = [shell, *flags, "-c", line] + ([] if shell == "fish" else [shell])
            ended = subprocess.run(
                [*begin, str(script)], env=self.environ, capture_output=True, text=True, timeout=60, check=False
            )
            said = ended.stdout + ended.stderr
            require(re.search(r"\bgood\b|uninstall", said) and "rror" not in said, f"{shell}: {said}")
            told.append(shell)
        return f"loaded without a complaint by {', '.join(told)}"

    def mistakes_are_answered(self) -> str:
        for wrong, right in {"chekc": "check", "doctor": "check", "lst": "list"}.items():
            require(f"did you mean `{right}`?" in self.run(wrong, "mcp.json").err, f"{wrong} is not understood")
        require("nothing is written" in self.run("install", "cursor", "--config", "mcp.json").err, "written unasked")
        return "wrong commands suggest the right one; nothing is written unasked"


STEPS: dict[str, Callable[[Walk], str]] = {
    "`import`": Walk.import_shows,
    "`import --output`": Walk.import_writes,
    "`check`": Walk.check_fits,
    "`list`": Walk.everything_is_listed,
    "a client starts it": Walk.handshake_is_first,
    "`install`, `uninstall`": Walk.clients_are_given_it,
    "a client calls": Walk.a_client_calls,
    "`restart`": Walk.one_server_is_restarted,
    "completion": Walk.shells_complete,
    "mistakes": Walk.mistakes_are_answered,
}


@dataclass(frozen=True)
class Result:
    step: str
    seconds: float
    told: str
    is_good: bool


def walked(walk: Walk) -> Iterator[Result]:
    for step, take in STEPS.items():
        began = time.monotonic()
        try:
            told, is_good = take(walk), True
        except (Wrong, subprocess.TimeoutExpired, TimeoutError, KeyError, ValueError) as error:
            told, is_good = f"**{error!r}**", False
        result = Result(step, time.monotonic() - began, told, is_good)
        print(f"{'ok ' if is_good else 'BAD'} {result.seconds:6.1f} s  {step}: {told}", flush=True)
        yield result


def tables(walk: Walk, results: list[Result], load: float) -> str:
    lines = ["| step | s | what came of it |", "|---|---:|---|"]
    lines += [f"| {result.step} | {result.seconds:.1f} | {result.told} |" for result in results]
    lines += ["", f"*{date.today()}, {os.cpu_count()} cores, load {load:.1f} at the start*"]
    lines += ["", "| server | version | offers |", "|---|---|---|"]
    for package, (version, _, _) in {**NPM, **PYPI}.items():
        server = walk.listed.get(key_of(package))
        if server is None or server["error"]:
            why = "does not install here" if server is None else server["error"].splitlines()[0].replace("|", "/")[:120]
            lines.append(f"| `{package}` | {version} | {why} |")
            continue
        kinds = {"tools": "tool", "resources": "resource", "resourceTemplates": "template", "prompts": "prompt"}
        counts = [counted(len(server[kind]), name) for kind, name in kinds.items() if server[kind]]
        lines.append(f"| `{package}` | {version} | {', '.join(counts)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default=".walk", help="where the servers are kept (default .walk)")
    parser.add_argument("--markdown", metavar="FILE", help="write the tables into this page")
    options = parser.parse_args()
    folder = Path(options.folder).absolute()
    uv = shutil.which("uv")
    if uv is None or shutil.which("npm") is None:
        print("the walk needs uv and npm")
        return 2
    install(folder, uv)
    with tempfile.TemporaryDirectory() as place:
        home, files = Path(place) / "home", Path(place) / "files"
        home.mkdir()
        files.mkdir()
        walk = Walk(folder, home, entries(folder, files))
        write_files(walk.machine, walk.servers)
        load = os.getloadavg()[0]
        results = list(walked(walk))
        if options.markdown:
            page = Path(options.markdown)
            begin, end = "<!-- begin: walk -->", "<!-- end: walk -->"
            before, _, rest = page.read_text(encoding="utf-8").partition(begin)
            after = rest.partition(end)[2]
            page.write_text(f"{before}{begin}\n\n{tables(walk, results, load)}\n\n{end}{after}", encoding="utf-8")
    return 0 if all(result.is_good for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
