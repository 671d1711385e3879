"""The files of `deploy/`: what they say of the program holds. No container is built here."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.wire import PATIENCE

from fastmcp_aggregator import AggregatorSettings, build_aggregator, load_config, load_settings
from fastmcp_aggregator.cli.main import parse
from fastmcp_aggregator.concurrency.limiter import DRAIN_TIMEOUT
from fastmcp_aggregator.settings.sources import ENV_PREFIX

pytestmark = pytest.mark.replicas

PROJECT = Path(__file__).parents[2]
DEPLOY = PROJECT / "deploy"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
MANIFESTS = {path.name: yaml.safe_load(path.read_text()) for path in (DEPLOY / "kubernetes").glob("*.yaml")}
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
    assert seconds(COMPOSE["x-hub"]["stop_grace_period"]) >= DRAIN_TIMEOUT + CLOSING
    [_, pause] = container()["lifecycle"]["preStop"]["exec"]["command"]
    assert pod()["terminationGracePeriodSeconds"] >= int(pause) + DRAIN_TIMEOUT + CLOSING


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
    assert scaler["minReplicas"] > MANIFESTS["disruption-budget.yaml"]["spec"]["minAvailable"]


@pytest.mark.parametrize("place", ["compose", "kubernetes"])
def test_the_config_and_the_settings_can_be_read(place: str, tmp_path: Path) -> None:
    if place == "compose":
        texts = {name: (DEPLOY / "hub" / name).read_text() for name in ("mcp.json", "settings.toml")}
    else:
        texts = MANIFESTS["configmap.yaml"]["data"]
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    assert load_config(tmp_path / "mcp.json").servers
    settings = load_settings(tmp_path / "settings.toml")
    assert settings.strict is False
    assert tomllib.loads(texts["settings.toml"]).keys() <= AggregatorSettings.model_fields.keys()


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="needs haproxy")
def test_haproxy_accepts_its_file() -> None:
    done = subprocess.run(
        ["haproxy", "-c", "-f", str(DEPLOY / "haproxy.cfg")],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_load_balancer_knows_every_replica_of_the_compose_file() -> None:
    replicas = {name for name in COMPOSE["services"] if name.startswith("hub-")}
    known = re.findall(r"^    server (\S+) (\S+):8000", (DEPLOY / "haproxy.cfg").read_text(), re.MULTILINE)
    assert {name for name, _ in known} == {address for _, address in known} == replicas


def test_every_file_is_explained() -> None:
    page = (PROJECT / "docs" / "deployment.md").read_text()
    files = [path.relative_to(DEPLOY) for path in DEPLOY.rglob("*") if path.is_file()]
    assert [str(file) for file in files if f"`{file}`" not in page] == []
