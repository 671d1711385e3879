"""The files of `deploy/`: what they say of the program holds. No container is built here."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from packaging.requirements import Requirement
from support.harness import free_port, running
from support.wire import PATIENCE, until_answered
from test_load_balancer import balancer_file

from fastmcp_aggregator import AggregatorSettings, build_aggregator, load_config, load_settings
from fastmcp_aggregator.cli.main import parse
from fastmcp_aggregator.concurrency.limiter import DRAIN_TIMEOUT
from fastmcp_aggregator.front.http.connection import BODY_LIMIT
from fastmcp_aggregator.groups import load_groups
from fastmcp_aggregator.settings.sources import ENV_PREFIX

pytestmark = pytest.mark.replicas

PROJECT = Path(__file__).parents[2]
DEPLOY = PROJECT / "deploy"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
MANIFESTS = {path.name: yaml.safe_load(path.read_text()) for path in (DEPLOY / "kubernetes").glob("*.yaml")}
UNIT = (DEPLOY / "systemd" / "fastmcp-aggregator.service").read_text()
CLOSING = 5
"""Seconds in which servers are closed, at most."""


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = MANIFESTS["deployment.yaml"]["spec"]["template"]["spec"]
    return spec


def container() -> dict[str, Any]:
    [found] = pod()["containers"]
    return dict(found)


def instructions(name: str) -> list[str]:
    """What an instruction of the container file is given, in the last stage."""
    last = CONTAINERFILE.replace("\\\n", " ").rpartition("\nFROM ")[2]
    return re.findall(rf"^\s*{name} +(.+)$", last, re.MULTILINE)


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


def settings_of(place: str) -> str:
    """The settings file of compose or Kubernetes."""
    text: str = MANIFESTS["configmap.yaml"]["data"]["settings.toml"]
    return (DEPLOY / "hub" / "settings.toml").read_text() if place == "compose" else text


def environment_of_all() -> dict[str, str]:
    """The variables that the files set, in all places."""
    image = dict(word.split("=", 1) for text in instructions("ENV") for word in shlex.split(text))
    pods = {entry["name"]: entry.get("value", "") for entry in container()["env"]}
    return {**image, **COMPOSE["x-hub"]["environment"], **pods}


def test_the_image_runs_as_a_user_that_is_not_root_and_asks_the_program_whether_it_lives() -> None:
    assert instructions("USER") == ["10001:10001"]
    assert "/health" in instructions("HEALTHCHECK")[0]
    assert "useradd --uid 10001" in CONTAINERFILE


def test_the_image_starts_what_the_command_line_takes() -> None:
    *_, program = json.loads(instructions("ENTRYPOINT")[0])
    arguments = json.loads(instructions("CMD")[-1])
    options = parse(arguments)
    assert program == "fastmcp-aggregator"
    assert (options.command, options.transport) == ("serve", "http")
    mounted = {mount["mountPath"] for mount in container()["volumeMounts"]}
    assert {str(Path(options.config).parent), str(Path(options.settings).parent)} <= mounted
    assert all("/config:ro" in volume for volume in COMPOSE["x-hub"]["volumes"])


def test_every_variable_is_a_setting_and_none_has_a_secret() -> None:
    variables = environment_of_all()
    names = {name.removeprefix(ENV_PREFIX).lower() for name in variables if name.startswith(ENV_PREFIX)}
    assert names <= AggregatorSettings.model_fields.keys()
    assert {"redis_url", "keys_file", "allowed_hosts"} <= names
    for text in [path.read_text() for path in DEPLOY.rglob("*") if path.is_file()]:
        assert not re.search(r"(?i)(password|requirepass|secret)[=: ]+['\"]?[a-z0-9]{6,}['\"]?$", text, re.MULTILINE)


def test_compose_has_no_password_of_its_own() -> None:
    for variables in (COMPOSE["x-hub"]["environment"], COMPOSE["services"]["redis"]["environment"]):
        given = [value for value in variables.values() if "REDIS_PASSWORD" in value]
        assert given
        assert all("${REDIS_PASSWORD:?" in value for value in given)


def test_what_is_ended_has_the_time_to_finish_its_calls() -> None:
    [of_service] = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE)
    graces = {
        "compose": seconds(COMPOSE["x-hub"]["stop_grace_period"]),
        "kubernetes": pod()["terminationGracePeriodSeconds"],
        "systemd": int(of_service),
    }
    for place, grace in graces.items():
        wait = 5.0 if place == "systemd" else tomllib.loads(settings_of(place))["drain_wait"]
        assert grace >= wait + DRAIN_TIMEOUT + CLOSING
    assert "lifecycle" not in container(), "the replica would be ready during a preStop"


def test_the_probes_ask_for_what_is_served() -> None:
    app = build_aggregator({"mcpServers": {}}).http_app()
    served = {getattr(route, "path", "") for route in app.routes}
    paths = {kind: container()[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}
    assert paths == {"startup": "/health", "liveness": "/health", "readiness": "/ready"}
    assert set(paths.values()) <= served
    [asked] = re.findall(r"http-check send meth GET uri (\S+)", (DEPLOY / "haproxy.cfg").read_text())
    assert asked in served
    ports = {port["name"]: port["containerPort"] for port in container()["ports"]}
    assert ports == {"http": int(environment_of_all()[f"{ENV_PREFIX}PORT"])}
    assert container()["startupProbe"]["httpGet"]["port"] == "http"


def test_the_pod_has_no_rights_and_no_variables_that_it_does_not_need() -> None:
    assert pod()["enableServiceLinks"] is False
    assert pod()["automountServiceAccountToken"] is False
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_manifests_belong_together() -> None:
    listed = set(MANIFESTS["kustomization.yaml"]["resources"])
    assert listed == MANIFESTS.keys() - {"kustomization.yaml"}
    label = {"app.kubernetes.io/name": "mcp-hub"}
    deployment = MANIFESTS["deployment.yaml"]["spec"]
    assert deployment["selector"]["matchLabels"] == deployment["template"]["metadata"]["labels"] == label
    assert MANIFESTS["service.yaml"]["spec"]["selector"] == label
    assert MANIFESTS["disruption-budget.yaml"]["spec"]["selector"]["matchLabels"] == label
    assert MANIFESTS["network-policy.yaml"]["spec"]["podSelector"]["matchLabels"] == label
    scaler = MANIFESTS["autoscaler.yaml"]["spec"]
    assert scaler["scaleTargetRef"]["name"] == MANIFESTS["deployment.yaml"]["metadata"]["name"]
    assert "replicas" not in deployment, "or each `apply` would undo what the autoscaler has done"
    assert MANIFESTS["disruption-budget.yaml"]["spec"]["maxUnavailable"] == 1
    [pods] = [each["pods"]["metric"]["name"] for each in scaler["metrics"] if each["type"] == "Pods"]
    assert pods in metrics()


@pytest.mark.parametrize("file", [*(DEPLOY / "kubernetes").rglob("*.yaml")], ids=lambda file: file.stem)
def test_kubernetes_takes_the_manifests(file: Path) -> None:
    schemas = pytest.importorskip("kubernetes_validate")
    for document in yaml.safe_load_all(file.read_text()):
        if document["apiVersion"].partition("/")[0] not in ("kustomize.config.k8s.io", "monitoring.coreos.com"):
            schemas.validate(document, schemas.latest_version(), strict=True)


def test_what_is_optional_fits_the_rest() -> None:
    monitor, ingress, redis, service = [
        document
        for path in sorted((DEPLOY / "kubernetes" / "optional").glob("*.yaml"), reverse=True)
        for document in yaml.safe_load_all(path.read_text())
    ]
    found = {each["kind"]: each for each in (monitor, ingress, redis, service)}
    assert found.keys() == {"ServiceMonitor", "Ingress", "Deployment", "Service"}
    of_hub = MANIFESTS["service.yaml"]
    assert found["ServiceMonitor"]["spec"]["selector"]["matchLabels"] == of_hub["metadata"]["labels"]
    ports = {port["name"] for port in of_hub["spec"]["ports"]}
    assert {each["port"] for each in found["ServiceMonitor"]["spec"]["endpoints"]} <= ports
    [path] = found["Ingress"]["spec"]["rules"][0]["http"]["paths"]
    assert (path["backend"]["service"]["name"], path["backend"]["service"]["port"]["name"] in ports) == (
        "mcp-hub",
        True,
    )
    [redis_rule] = [
        rule for rule in MANIFESTS["network-policy.yaml"]["spec"]["egress"] if rule["ports"][0]["port"] == 6379
    ]
    assert redis_rule["to"][0]["podSelector"]["matchLabels"] == found["Deployment"]["metadata"]["labels"]


def test_the_pods_reach_no_address_at_which_a_cloud_hands_out_credentials() -> None:
    blocks = [
        to["ipBlock"]
        for rule in MANIFESTS["network-policy.yaml"]["spec"]["egress"]
        for to in rule["to"]
        if "ipBlock" in to
    ]
    assert blocks
    for address in ("169.254.169.254", "fd00:ec2::254"):
        for block in blocks:
            if ip_address(address) in ip_network(block["cidr"]):
                assert any(ip_address(address) in ip_network(each) for each in block["except"])


def metrics() -> set[str]:
    """The names of all metrics, as the page of metrics has them."""
    page = (PROJECT / "docs" / "observability.md").read_text()
    names = {
        name
        for line in re.findall(r"^\| (`[a-z_`, ]+`) \|", page, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", line)
    }
    return {f"fastmcp_aggregator_{name}" for name in names}


def test_rules_and_panels_ask_for_metrics_that_there_are() -> None:
    texts = [(DEPLOY / "monitoring" / name).read_text() for name in ("alerts.yml", "grafana-dashboard.json")]
    for text in texts:
        asked = {name.removesuffix("_bucket") for name in re.findall(r"fastmcp_aggregator_\w+", text)}
        assert len(asked) > 8
        assert asked <= metrics()


def test_the_grafana_dashboard_has_one_source_and_panels_that_do_not_overlap() -> None:
    dashboard = json.loads((DEPLOY / "monitoring" / "grafana-dashboard.json").read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(taken) == len(set(taken))
    assert {panel["datasource"]["uid"] for panel in panels} == {"${datasource}"}
    assert {each["name"] for each in dashboard["templating"]["list"]} == {"datasource", "server"}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_prometheus_accepts_its_files(tmp_path: Path) -> None:
    shutil.copytree(DEPLOY / "monitoring", tmp_path, dirs_exist_ok=True)
    (tmp_path / "key").touch()
    dashboard = json.loads((tmp_path / "grafana-dashboard.json").read_text())
    asked = [target["expr"].replace("$server", "a") for panel in dashboard["panels"] for target in panel["targets"]]
    rules = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(asked)]
    (tmp_path / "panels.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    checked("promtool", "check", "config", "--syntax-only", str(tmp_path / "prometheus.yml"))
    checked("promtool", "check", "rules", str(tmp_path / "alerts.yml"), str(tmp_path / "panels.yml"))


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_shares_of_failed_calls_are_nought_while_none_has_failed(tmp_path: Path) -> None:
    dashboard = json.loads((DEPLOY / "monitoring" / "grafana-dashboard.json").read_text())
    asked = [target["expr"].replace("$server", "a") for panel in dashboard["panels"] for target in panel["targets"]]
    shares = [expr for expr in asked if 'outcome="error"' in expr]
    assert len(shares) == 2
    nought = [{"labels": "{}", "value": 1}]
    case = {
        "interval": "1m",
        "input_series": [{"series": 'fastmcp_aggregator_calls_total{server="a", outcome="ok"}', "values": "0+60x10"}],
        "promql_expr_test": [
            {"expr": f"count(({expr}) == 0)", "eval_time": "10m", "exp_samples": nought} for expr in shares
        ],
    }
    (tmp_path / "tests.yml").write_text(yaml.safe_dump({"rule_files": [], "tests": [case]}))
    checked("promtool", "test", "rules", str(tmp_path / "tests.yml"))


@pytest.mark.skipif(shutil.which("nginx") is None, reason="needs nginx")
def test_nginx_accepts_its_file(tmp_path: Path) -> None:
    text = (DEPLOY / "nginx" / "hub.conf").read_text()
    (tmp_path / "hub.conf").write_text(re.sub(r"hub-\d:8000", "127.0.0.1:9", text))
    (tmp_path / "nginx.conf").write_text(f"pid {tmp_path}/pid; events {{}} http {{ include {tmp_path}/hub.conf; }}")
    checked("nginx", "-t", "-c", str(tmp_path / "nginx.conf"), "-p", str(tmp_path), "-e", "stderr")


def test_the_service_of_systemd_starts_what_the_command_line_takes() -> None:
    [line] = re.findall(r"^ExecStart=(.+)$", UNIT, re.MULTILINE)
    _, *arguments = shlex.split(line)
    options = parse(arguments)
    assert (options.command, options.transport) == ("serve", "http")
    names = re.findall(rf"^Environment={ENV_PREFIX}(\w+)=", UNIT, re.MULTILINE)
    assert {name.lower() for name in names} <= AggregatorSettings.model_fields.keys()


def test_the_lock_has_every_dependency_of_the_image() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *project["optional-dependencies"]["redis"],
        *project["optional-dependencies"]["otel"],
    ]
    locked = dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", (DEPLOY / "requirements.lock").read_text(), re.MULTILINE))
    for each in map(Requirement, wanted):
        assert each.specifier.contains(locked[each.name.lower()])
    assert "--no-deps --require-hashes" in CONTAINERFILE


def test_the_proxies_that_are_trusted_are_the_network_of_the_load_balancer() -> None:
    [subnet] = [each["subnet"] for each in COMPOSE["networks"]["front"]["ipam"]["config"]]
    assert json.loads(COMPOSE["x-hub"]["environment"][f"{ENV_PREFIX}TRUSTED_PROXIES"]) == [subnet]
    assert COMPOSE["services"]["balancer"]["networks"] == ["front"]


@pytest.mark.parametrize("place", ["compose", "kubernetes"])
def test_the_config_and_the_settings_can_be_read(place: str, tmp_path: Path) -> None:
    if place == "compose":
        texts = {name: (DEPLOY / "hub" / name).read_text() for name in ("mcp.json", "settings.toml", "groups.json")}
    else:
        texts = MANIFESTS["configmap.yaml"]["data"]
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    servers = load_config(tmp_path / "mcp.json").servers
    assert {group.id for group in load_groups(tmp_path / "groups.json", servers)} == {"default", "readers"}
    settings = load_settings(tmp_path / "settings.toml")
    assert (settings.strict, settings.audit, settings.drain_wait) == (False, "stdout", 5.0)
    assert tomllib.loads(texts["settings.toml"]).keys() <= AggregatorSettings.model_fields.keys()


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="needs haproxy")
def test_haproxy_accepts_its_file() -> None:
    checked("haproxy", "-c", "-f", str(DEPLOY / "haproxy.cfg"))


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="needs haproxy")
async def test_replicas_are_told_by_haproxy_alone_who_asks_and_how(tmp_path: Path) -> None:
    heads: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode().lower())
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()

    async with (
        await asyncio.start_server(serve, "127.0.0.1", 0) as replica,
        httpx2.AsyncClient(trust_env=False) as http,
    ):
        address, port = f"127.0.0.1:{replica.sockets[0].getsockname()[1]}", free_port()
        (tmp_path / "haproxy.cfg").write_text(balancer_file(port, [address] * 2))
        claims = {"x-forwarded-proto": "https", "x-forwarded-for": "203.0.113.9"}

        async def ask() -> int | None:
            with suppress(httpx2.TransportError):
                return (await http.post(f"http://127.0.0.1:{port}/mcp", headers=claims)).status_code
            return None

        async with running("haproxy", "-db", "-f", str(tmp_path / "haproxy.cfg"), handshake=False):
            await until_answered(ask, lambda status: status == 200)
    [head] = [each for each in heads if each.startswith("post")][:1]
    assert re.findall(r"^x-forwarded-proto: (.*)\r$", head, re.MULTILINE) == ["http"]
    assert re.findall(r"^x-forwarded-for: (.*)\r$", head, re.MULTILINE)[-1] == "127.0.0.1"


def checked(*command: str) -> None:
    """Run a program that checks a file."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_nginx_takes_no_longer_bodies_than_the_program() -> None:
    [megabytes] = re.findall(r"client_max_body_size (\d+)m;", (DEPLOY / "nginx" / "hub.conf").read_text())
    assert int(megabytes) * 1024**2 == BODY_LIMIT


def test_the_load_balancer_knows_every_replica_of_the_compose_file() -> None:
    replicas = {name for name in COMPOSE["services"] if name.startswith("hub-")}
    known = re.findall(r"^    server (\S+) (\S+):8000", (DEPLOY / "haproxy.cfg").read_text(), re.MULTILINE)
    assert {name for name, _ in known} == {address for _, address in known} == replicas


def test_every_file_is_explained() -> None:
    page = (PROJECT / "docs" / "deployment.md").read_text()
    files = [path.relative_to(DEPLOY) for path in DEPLOY.rglob("*") if path.is_file()]
    assert [str(file) for file in files if f"`{file}`" not in page] == []


def test_every_image_has_a_tag_or_a_digest_and_none_a_placeholder_of_one() -> None:
    files = [path for path in DEPLOY.rglob("*") if path.is_file() and path.name != "requirements.lock"]
    texts = {path.name: path.read_text() for path in files}
    for name, text in texts.items():
        for digest in re.findall(r"@?sha256:([^\s\"'}]*)", text):
            assert re.fullmatch("[0-9a-f]{64}", digest), name
        for image in re.findall(r"^\s*(?:- )?(?:image: |ARG BASE=)([^\s$]+)", text, re.MULTILINE):
            assert image == "fastmcp-aggregator" or re.search(r":[\w.-]+$|@sha256:[0-9a-f]{64}$", image), (name, image)
            assert not image.endswith(":latest"), name
    [base] = re.findall(r"^ARG BASE=(\S+)$", CONTAINERFILE, re.MULTILINE)
    assert COMPOSE["x-hub"]["build"]["args"] == {"BASE": f"${{BASE:-{base}}}"}


def test_the_types_of_grafana_read_its_dashboard_and_lose_nothing() -> None:
    models = pytest.importorskip("grafana_foundation_sdk.models.dashboard")
    encoder = pytest.importorskip("grafana_foundation_sdk.cog.encoder").JSONEncoder
    pytest.importorskip("grafana_foundation_sdk.cog.plugins").register_default_plugins()
    given = json.loads((DEPLOY / "monitoring" / "grafana-dashboard.json").read_text())
    dashboard = models.Dashboard.from_json(given)
    assert list(lost(given, json.loads(encoder().encode(dashboard)))) == []
    for panel in dashboard.panels:
        assert all("Unknown" not in type(target).__name__ for target in panel.targets or [])


def lost(given: Any, kept: Any, path: str = "") -> Iterator[str]:
    """What is not in the second document as it is in the first."""
    if isinstance(given, dict) and isinstance(kept, dict):
        for name, value in given.items():
            yield from lost(value, kept.get(name), f"{path}/{name}")
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for number, pair in enumerate(zip(given, kept, strict=True)):
            yield from lost(*pair, f"{path}/{number}")
    elif given != kept:
        yield path
