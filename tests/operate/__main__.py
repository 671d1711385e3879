"""The walk: each step with what it showed, as a table in `docs/operating.md`. `--only WORD` takes some steps alone."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx2
from support.harness import free_port, running

from fastmcp_aggregator.access.keys import new_key
from fastmcp_aggregator.access.keys_file import change_keys
from operate.replicas import DEPLOY, Cluster, cluster
from operate.rolling import under_load

PAGE = Path(__file__).parents[2] / "docs" / "operating.md"
_BEGIN, _END = "<!-- the table of the last walk -->", "<!-- its end -->"
_SCRAPED_WITHIN = 30.0


class NotRun(Exception):
    """A step that needs a program which is not there."""


class Failed(Exception):
    """What a step showed is not what it should be."""


Step = Callable[[Cluster, Path], Awaitable[str]]


async def _tests(*arguments: str) -> str:
    """Run tests that others have too; how many passed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    told = re.findall(r"^(?:\d+ \w+, )*\d+ \w+ in .*$", out.decode(errors="replace"), re.MULTILINE)
    if process.returncode:
        raise Failed(out.decode(errors="replace")[-600:])
    return f"{told[-1].partition(' in ')[0]} tests" if told else "passed"


async def login(_: Cluster, __: Path) -> str:
    """Log in by oidc-provider at `/mcp` and a group, with FastMCP's client and the TypeScript SDK."""
    told = await _tests("tests/real/test_real_login.py")
    if "passed" not in told:
        raise NotRun("oidc-provider is not installed: python tests/real/install_servers.py")
    return told


async def roles(here: Cluster, folder: Path) -> str:
    """A key for the metrics reads them at a replica, and may call nothing."""
    key, kept = new_key("prometheus", None, None, {"metrics"})
    change_keys(folder / "keys.json", lambda known: (*known, kept))
    (folder / "prometheus.key").write_text(key)
    origin = f"http://127.0.0.1:{here.replicas[0].port}"
    async with httpx2.AsyncClient(trust_env=False, headers={"X-API-Key": key}) as http:
        statuses = [
            (await http.get(f"{origin}/metrics")).status_code,
            (await http.post(f"{origin}/mcp/tools/list")).status_code,
            (await http.get(f"{origin}/keys")).status_code,
        ]
    if statuses != [200, 403, 403]:
        raise Failed(f"{statuses}")
    return "metrics 200, calls 403, keys 403"


async def operating(here: Cluster, _: Path) -> str:
    """An operator stops a server at a replica, reads its stderr, and starts it again."""
    origin = f"http://127.0.0.1:{here.replicas[0].port}"
    async with httpx2.AsyncClient(trust_env=False, headers={"X-API-Key": here.keys[0]}, base_url=origin) as http:

        async def state(wanted: str) -> None:
            while (await http.get("/status")).json()["servers"]["a"]["state"] != wanted:
                await asyncio.sleep(0.05)

        await http.post("/wake/a")
        await asyncio.wait_for(state("running"), 20)
        await http.post("/stop/a")
        await asyncio.wait_for(state("stopped"), 20)
        refused = await http.post("/mcp/tools/call", json={"name": "a:echo"})
        lines = (await http.get("/stderr/a")).status_code
        await http.post("/restart/a")
        await asyncio.wait_for(state("running"), 20)
        answered = await http.post("/mcp/tools/call", json={"name": "a:echo"})
    if (refused.status_code, lines, answered.status_code) != (503, 200, 200):
        raise Failed(f"{refused.status_code}, {lines}, {answered.status_code}")
    return "stopped: calls 503; started: 200"


def rolling(balancer: str) -> Step:
    """Restart both replicas in turn, at 200 calls a second of both eras."""

    async def step(here: Cluster, _: Path) -> str:
        headers = [{"Authorization": f"Bearer {key}"} for key in here.keys]
        tally = await under_load(f"{here.balancers[balancer]}/mcp", headers, here.restart)
        if tally.failures:
            raise Failed(str(tally))
        return str(tally)

    return step


async def prometheus(here: Cluster, folder: Path) -> str:
    """Prometheus with the files of `deploy/` scrapes both replicas, has loaded the rules and what Grafana asks."""
    program = shutil.which("prometheus")
    if program is None:
        raise NotRun("prometheus is not installed")
    place = folder / "monitoring"
    shutil.copytree(DEPLOY / "monitoring", place)
    text = (place / "prometheus.yml").read_text().replace("/etc/prometheus/key", str(folder / "prometheus.key"))
    for number, replica in enumerate(here.replicas, 1):
        text = text.replace(f"hub-{number}:8000", f"127.0.0.1:{replica.port}")
    (place / "prometheus.yml").write_text(text.replace("15s", "1s"))
    port = free_port()
    command = [program, f"--config.file={place}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb"]
    async with running(*command, f"--web.listen-address=127.0.0.1:{port}", handshake=False), _http(port) as http:
        ends = time.monotonic() + _SCRAPED_WITHIN
        up = 0
        while up < 2 and time.monotonic() < ends:
            with suppress(httpx2.TransportError, KeyError):
                found = (await http.get("/api/v1/query", params={"query": 'up{job="mcp-hub"} == 1'})).json()
                up = len(found["data"]["result"])
            await asyncio.sleep(0.2)
        rules = [
            each for group in (await http.get("/api/v1/rules")).json()["data"]["groups"] for each in group["rules"]
        ]
        bad = [each["name"] for each in rules if each["health"] == "err"]
        dashboard = json.loads((place / "grafana-dashboard.json").read_text())
        asked = [
            target["expr"].replace("$server", ".*") for panel in dashboard["panels"] for target in panel["targets"]
        ]
        empty = asked
        ends = time.monotonic() + _SCRAPED_WITHIN
        while empty and time.monotonic() < ends:
            await _use(here)
            empty = [expr for expr in empty if not await _has_data(http, expr)]
    if up != 2 or bad or empty:
        raise Failed(f"{up} replicas up, rules with errors: {bad}, panels without data: {empty}")
    return f"2 replicas up, {len(rules)} rules, all {len(asked)} queries of the Grafana dashboard have data"


async def _use(here: Cluster) -> None:
    """Call for a second, with a failure among the calls: the server ends in one, and is back at the end."""
    origin = f"http://127.0.0.1:{here.replicas[0].port}"
    async with httpx2.AsyncClient(trust_env=False, headers={"X-API-Key": here.keys[0]}, base_url=origin) as http:

        async def call(tool: str, **arguments: int) -> int:
            return (await http.post("/mcp/tools/call", json={"name": tool, "arguments": arguments})).status_code

        await call("a:leave", code=1)
        ends = time.monotonic() + 1
        while await call("a:echo") != 200 or time.monotonic() < ends:
            await asyncio.sleep(0.01)


async def _has_data(http: httpx2.AsyncClient, query: str) -> bool:
    """Whether Prometheus answers a query with numbers."""
    answer = (await http.get("/api/v1/query", params={"query": query})).json()
    return answer["status"] == "success" and any(each["value"][1] != "NaN" for each in answer["data"]["result"])


@asynccontextmanager
async def _http(port: int) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(trust_env=False, base_url=f"http://127.0.0.1:{port}") as http:
        yield http


def of_tests(*arguments: str) -> Step:
    async def step(_: Cluster, __: Path) -> str:
        return await _tests(*arguments)

    return step


STEPS: list[tuple[str, Step]] = [
    ("log in by an identity provider (oidc-provider), at `/mcp` and at a group", login),
    ("a key for metrics alone", roles),
    ("stop a server, read its stderr, start it", operating),
    ("Prometheus, with the files of `deploy/`", prometheus),
    ("rolling restart behind HAProxy, 200 calls/s of both eras", rolling("HAProxy")),
    ("rolling restart behind nginx, 200 calls/s of both eras", rolling("nginx")),
    ("the end of a replica under load", of_tests("tests/front/test_front_accepting.py", "-k", "reset")),
    ("the files of `deploy/`", of_tests("tests/replicas/test_deploy.py")),
    ("traces, to an OTLP receiver", of_tests("tests/observability/test_observability_telemetry.py")),
    ("the dashboard, in Chromium", of_tests("tests/dashboard/test_dashboard_browser.py")),
]


async def walk(only: str) -> list[tuple[str, str, str]]:
    """Each step: what it is, `yes`, `no` or `not run`, and what it showed."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with cluster(folder) as here:
            for what, step in STEPS:
                if only not in what:
                    continue
                try:
                    row = (what, "yes", await step(here, folder))
                except NotRun as missing:
                    row = (what, "not run", str(missing))
                except Exception as error:
                    row = (what, "no", f"{type(error).__name__}: {error}")
                print(*row, sep=" | ", flush=True)
                rows.append(row)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m operate")
    parser.add_argument("--only", default="", help="steps with this in their name")
    parser.add_argument("--write", action="store_true", help="write the table into docs/operating.md")
    options = parser.parse_args()
    rows = asyncio.run(walk(options.only))
    if options.write:
        table = ["| step | holds | what it showed |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
        before, _, rest = PAGE.read_text().partition(_BEGIN)
        PAGE.write_text("\n".join([before + _BEGIN, "", *table, "", _END + rest.partition(_END)[2]]))
    return int(any(row[1] == "no" for row in rows))


sys.exit(main())
