"""The release: what `scripts/build` makes, and the workflow that publishes it.

GitHub and PyPI are not asked: the workflow is judged by its schema and by zizmor, which looks for
what makes a release unsafe.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import subprocess
import tarfile
import zipfile
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from antiphon import __version__
from tests.deploy.judges import ROOT, judge, judges

pytestmark = pytest.mark.heavy

WORKFLOWS: Final = ROOT / ".github/workflows"
_VALIDATE: Final = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
print(JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read()))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build once; the script itself builds twice and compares."""
    out = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [ROOT / "scripts/build", out], capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def wheel(built: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(built / f"antiphon-{__version__}-py3-none-any.whl") as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _sources() -> set[str]:
    listed = subprocess.run(
        ["git", "ls-files", "src/antiphon"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return {name.removeprefix("src/") for name in listed}


def test_the_wheel_has_every_file_of_the_package_and_no_other(wheel: dict[str, bytes]) -> None:
    info = f"antiphon-{__version__}.dist-info/"
    inside = {name for name in wheel if not name.startswith(info)}
    assert inside - {"antiphon/cli/connect/antiphon.vsix"} == _sources()
    assert "antiphon/ui/index.html" in inside and "antiphon/ui/vendor/preact.LICENSE" in inside
    assert {name.removeprefix(info) for name in wheel if name.startswith(info)} == {
        "METADATA",
        "WHEEL",
        "RECORD",
        "entry_points.txt",
        "licenses/LICENSE",
        "sboms/sbom.cdx.json",
    }


def test_the_record_has_the_hash_of_every_file(wheel: dict[str, bytes]) -> None:
    name = f"antiphon-{__version__}.dist-info/RECORD"
    rows = {row[0]: row[1] for row in csv.reader(io.StringIO(wheel[name].decode()))}
    assert rows.pop(name) == ""
    made = {
        path: "sha256=" + urlsafe_b64encode(hashlib.sha256(body).digest()).decode().rstrip("=")
        for path, body in wheel.items()
        if path != name
    }
    assert rows == made


def test_nothing_names_a_place_on_the_machine_that_built_it(
    built: Path, wheel: dict[str, bytes]
) -> None:
    places = [str(ROOT), str(Path.home()), str(built)]
    # Of the sources, none is written by the build.
    info = {name: body for name, body in wheel.items() if ".dist-info/" in name}
    with tarfile.open(built / f"antiphon-{__version__}.tar.gz") as archive:
        for name in ("PKG-INFO", "pyproject.toml", "sbom.cdx.json"):
            member = archive.extractfile(f"antiphon-{__version__}/{name}")
            assert member is not None
            info[f"sdist {name}"] = member.read()
        owners = {(one.uid, one.gid, one.uname) for one in archive.getmembers()}
    for name, body in info.items():
        found = [place for place in places if len(place) > 5 and place.encode() in body]
        assert found == [], name
    assert owners == {(0, 0, "")}


def test_the_bill_of_materials_is_valid_and_names_what_is_locked(wheel: dict[str, bytes]) -> None:
    body = wheel[f"antiphon-{__version__}.dist-info/sboms/sbom.cdx.json"]
    done = subprocess.run(
        [judges() / "python", "-c", _VALIDATE], input=body, capture_output=True, check=False
    )
    assert done.stdout.strip() == b"None", done.stdout + done.stderr
    bill = json.loads(body)
    assert bill["metadata"]["component"]["name"] == "antiphon"
    locked = re.findall(
        r"^([\w.-]+)(?:\[[\w,]+\])?==([\w.]+)", (ROOT / "requirements/image.txt").read_text(), re.M
    )
    named = {(part["name"].lower(), part["version"]) for part in bill["components"]}
    assert named == {(name.lower(), version) for name, version in locked}


def test_the_sums_are_those_of_the_files(built: Path) -> None:
    lines = (built / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split() for line in lines)}
    files = {path for path in built.iterdir() if path.name != "SHA256SUMS"}
    assert sums == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_build_that_differs_is_refused(tmp_path: Path) -> None:
    script = (ROOT / "scripts/build").read_text()
    planted = script.replace(
        '"$bin/python" -m hatchling', 'pwd >> src/antiphon/py.typed\n    "$bin/python" -m hatchling'
    )
    assert planted != script
    copy = ROOT / "scripts/.build-planted"
    copy.write_text(planted)
    copy.chmod(0o755)
    try:
        done = subprocess.run(
            [copy, tmp_path], capture_output=True, text=True, check=False, timeout=900
        )
    finally:
        copy.unlink()
    assert done.returncode == 1
    assert "The build is not reproducible: antiphon-" in done.stderr
    assert list(tmp_path.iterdir()) == []


def _workflow() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((WORKFLOWS / "release.yml").read_text())
    return found


def test_workflows_follow_their_schema() -> None:
    files = sorted(WORKFLOWS.glob("*.yml"))
    done = judge("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *files)
    assert done.returncode == 0, done.stdout


def test_zizmor_finds_nothing_unsafe_in_the_workflows() -> None:
    done = judge("zizmor", "--offline", "--no-progress", WORKFLOWS)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_release_publishes_without_a_token_what_was_tested_and_attested() -> None:
    jobs = _workflow()["jobs"]
    assert _workflow()["permissions"] == {}
    assert jobs["build"]["needs"] == "test"
    assert jobs["publish"]["needs"] == ["build", "attest"]
    assert jobs["image"]["needs"] == "publish"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    text = (WORKFLOWS / "release.yml").read_text()
    assert set(re.findall(r"secrets\.(\w+)", text)) == {"GITHUB_TOKEN"}


def test_actions_are_pinned_by_hash_but_one() -> None:
    used = {
        step["uses"]
        for path in WORKFLOWS.glob("*.yml")
        for job in yaml.safe_load(path.read_text())["jobs"].values()
        for step in job.get("steps", [])
        if "uses" in step
    }
    by_name = {use for use in used if not re.search(r"@[0-9a-f]{40}$", use)}
    assert by_name == {"pypa/gh-action-pypi-publish@v1.13.0"}
