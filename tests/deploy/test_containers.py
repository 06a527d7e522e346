"""Files for containers: linters and schemas of other projects read them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon import __version__
from tests import debian
from tests.cli.processes import command
from tests.deploy.judges import DEPLOY, judge, judges

pytestmark = pytest.mark.heavy  # the judges are 200 MB

COMPOSE = ("compose.yaml", "compose.postgres.yaml")


def load_yaml(path: Path) -> list[dict[str, Any]]:
    """Read the documents of a file with the judges' parser."""
    program = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(sys.stdin))))"
    with path.open() as file:
        done = subprocess.run(
            [judges() / "python", "-c", program], stdin=file, capture_output=True, check=True
        )
    return msgspec.json.decode(done.stdout, type=list[dict[str, Any]])


def test_hadolint_finds_nothing() -> None:
    done = judge("hadolint", DEPLOY / "Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")


def test_hadolint_sees_a_fault(tmp_path: Path) -> None:
    bad = (DEPLOY / "Dockerfile").read_text().replace("WORKDIR /build", "RUN cd /build")
    (tmp_path / "Dockerfile").write_text(bad)
    assert "DL3003" in judge("hadolint", tmp_path / "Dockerfile").stdout


@pytest.mark.parametrize("name", COMPOSE)
def test_compose_files_match_the_schema_of_compose(name: str) -> None:
    done = judge("check-jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / name)
    assert done.returncode == 0, done.stdout


def test_the_schema_of_compose_refuses_a_misspelt_key(tmp_path: Path) -> None:
    bad = (DEPLOY / "compose.yaml").read_text().replace("read_only:", "readonly:")
    (tmp_path / "compose.yaml").write_text(bad)
    done = judge(
        "check-jsonschema", "--builtin-schema", "vendor.compose-spec", tmp_path / "compose.yaml"
    )
    assert done.returncode == 1
    assert "readonly" in done.stdout


@pytest.mark.parametrize("name", COMPOSE)
def test_compose_files_are_locked_down_and_name_what_exists(name: str, tmp_path: Path) -> None:
    (document,) = load_yaml(DEPLOY / name)
    services = document["services"]
    ours = {key: value for key, value in services.items() if "antiphon" in value["image"]}
    assert ours
    for service in ours.values():
        assert service["image"] == f"antiphon:{__version__}"
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
        words = service.get("command", ["serve"])
        assert command(*words, "--help", home=tmp_path).returncode == 0
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert source in document["volumes"] or (DEPLOY / source).is_file()


def test_nginx_accepts_the_configuration_of_compose(tmp_path: Path) -> None:
    """The names of containers become addresses; all else stays."""
    try:
        nginx = debian.install("nginx", "nginx", "proxies", "-v")
    except debian.Missing as error:
        pytest.skip(str(error))
    server = re.sub(r"gateway-\d", "127.0.0.1", (DEPLOY / "nginx.conf").read_text())
    server = server.replace("listen 4680", "listen 127.0.0.1:4680")
    places = "".join(
        f"{kind}_temp_path {tmp_path}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config = tmp_path / "nginx.conf"
    config.write_text(
        f"pid {tmp_path}/pid;\nevents {{}}\nhttp {{\naccess_log off;\n{places}{server}}}\n"
    )
    done = subprocess.run(
        [nginx, "-t", "-e", "stderr", "-p", tmp_path, "-c", config],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
