"""The Helm chart: Helm renders it, Kubernetes judges it, the gateway reads its settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from antiphon import __version__
from antiphon.gateway.config import load
from tests.cli.processes import command
from tests.deploy.judges import DEPLOY, judge
from tests.deploy.test_containers import load_yaml

pytestmark = pytest.mark.heavy  # the judges are 200 MB

CHART = DEPLOY / "helm/antiphon"
ALL = ("--set", "metrics.serviceMonitor=true", "--set", "drainSeconds=50")


def _render(folder: Path, *arguments: str) -> dict[str, dict[str, Any]]:
    done = judge("helm", "template", "demo", CHART, *arguments)
    assert done.returncode == 0, done.stderr
    path = folder / "rendered.yaml"
    path.write_text(done.stdout)
    return {document["kind"]: document for document in load_yaml(path)}


def test_helm_finds_no_fault() -> None:
    done = judge("helm", "lint", "--strict", CHART)
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout


def test_kubernetes_schemas_accept_every_document(tmp_path: Path) -> None:
    documents = _render(tmp_path, *ALL)
    done = judge("kubernetes-validate", "--strict", "-k", "1.30", tmp_path / "rendered.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    passed = (done.stdout + done.stderr).count(" passed for resource ")
    assert passed == len(documents) - 1, "all but the ServiceMonitor, which is not Kubernetes' own"


def test_kubernetes_schemas_refuse_a_misspelt_key(tmp_path: Path) -> None:
    _render(tmp_path)
    path = tmp_path / "rendered.yaml"
    path.write_text(path.read_text().replace("maxSurge", "maxSurg"))
    done = judge("kubernetes-validate", "--strict", "-k", "1.30", path)
    assert done.returncode != 0


def test_a_rollout_never_takes_a_gateway_away_early(tmp_path: Path) -> None:
    spec = _render(tmp_path, *ALL)["Deployment"]["spec"]
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    pod = spec["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 50 + 15
    (container,) = pod["containers"]
    assert container["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "5"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_containers_run_commands_that_exist_without_rights(tmp_path: Path) -> None:
    pod = _render(tmp_path)["Deployment"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsUser"] == 10001
    assert [container["name"] for container in pod["initContainers"]] == ["migrate"]
    for container in (*pod["initContainers"], *pod["containers"]):
        assert container["image"] == f"antiphon:{__version__}"
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert command(*container["args"], "--help", home=tmp_path).returncode == 0


def test_the_gateway_reads_the_settings_of_the_chart(tmp_path: Path) -> None:
    more = ("--set", "limits.turns=200", "--set", "limits.retention_days=7")
    documents = _render(tmp_path, *ALL, *more)
    path = tmp_path / "antiphon.toml"
    path.write_text(documents["ConfigMap"]["data"]["antiphon.toml"])
    settings = load({"config": str(path)}, {}, tmp_path).settings
    assert settings.require_keys
    assert settings.limits.drain_seconds == 50
    assert settings.limits.turns == 200
    assert settings.limits.retention_days == 7
    monitor = documents["ServiceMonitor"]["spec"]
    ports = {port["name"]: port for port in documents["Service"]["spec"]["ports"]}
    assert monitor["endpoints"][0]["port"] in ports
    assert ports["metrics"]["port"] == settings.metrics_port
    labels = documents["Service"]["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
