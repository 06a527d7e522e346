"""The image, as far as it can be tried without a container engine.

The steps of the Dockerfile run in a directory. Its entry point then starts as the image's user,
who may write nowhere but in the place of the data, and the health check of the image succeeds.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.processes import ECHO, WATCHDOG_SECONDS
from tests.deploy.judges import DEPLOY, ROOT
from tests.deploy.steps import Image

pytestmark = pytest.mark.heavy  # installs everything that the image holds

UID = 10001


def _python() -> str:
    """Return a Python that the user of the image can run here."""
    if os.geteuid() != 0:
        pytest.skip("only root can start a process as another user")
    for name in ("/usr/bin/python3", "/usr/local/bin/python3"):
        probe = [name, "-c", "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))"]
        if Path(name).exists() and not subprocess.run(probe, user=UID, check=False).returncode:
            return name
    pytest.skip("no Python 3.11 or newer outside of root's home: apt install python3-venv")


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """A directory that every user may read, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="antiphon-image-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(scope="module")
def image(root: Path) -> Image:
    return Image(DEPLOY / "Dockerfile", ROOT, root, _python())


def _free_port() -> int:
    """Return a port that no outgoing connection gets: the server is started later, and twice."""
    for port in range(20_000, 30_000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
    raise AssertionError("every port is in use")


def _start(image: Image, words: list[str], **extra: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        words,
        cwd=image.here("/var/lib/antiphon"),
        env=image.environment() | extra,
        user=UID,
        group=UID,
        extra_groups=[],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _finish(image: Image, words: list[str], **extra: str) -> tuple[int, str]:
    process = _start(image, words, **extra)
    printed, errors = process.communicate(timeout=WATCHDOG_SECONDS)
    return process.returncode, printed + errors


def test_the_image_serves_as_its_user_and_is_healthy(image: Image, root: Path) -> None:
    assert image.stages == ["python:3.13-slim"] * 2
    assert image.user == f"{UID}:{UID}"
    assert any(f"--uid {UID} --gid {UID}" in line for line in image.users)
    data = Path(image.here("/var/lib/antiphon"))
    shutil.chown(data, UID, UID)
    (root / "antiphon.toml").write_text(ECHO)
    entry = image.commands["ENTRYPOINT"]
    port = str(_free_port())
    extra = {"ANTIPHON_PORT": port, "ANTIPHON_CONFIG": str(root / "antiphon.toml")}
    check = image.commands["HEALTHCHECK"]

    refused, why = _finish(image, [*entry, *image.commands["CMD"]], **extra)
    assert (refused, "antiphon keys create" in why) == (2, True), why  # no key: only loopback
    made, key = _finish(image, [*entry, "keys", "create", "--role", "admin"], **extra)
    assert made == 0 and "ak_" in key
    before = _files(root, data)
    assert _finish(image, check, **extra)[0] == 1, "nothing runs yet"
    server = _start(image, [*entry, *image.commands["CMD"]], **extra)
    try:
        assert server.stdout is not None
        while port not in server.stdout.readline():
            assert server.poll() is None, server.communicate()
        assert _finish(image, check, **extra)[0] == 0
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=WATCHDOG_SECONDS)
    assert server.returncode == 0
    assert _files(root, data) == before, "something outside of the data was written"


def _files(root: Path, data: Path) -> dict[Path, int]:
    """Return every file outside of the data, with the time of its last change."""
    return {
        path: path.stat().st_mtime_ns
        for path in root.rglob("*")
        if path.is_file() and not path.is_relative_to(data)
    }


def test_the_image_has_the_extras_that_a_team_needs(image: Image) -> None:
    names = "asyncpg cryptography jwt llguidance mcp pypdf selectolax"
    program = f"import {', '.join(names.split())}"
    assert _finish(image, ["python", "-c", program]) == (0, "")


def test_the_environment_of_the_image_stays_below_160_megabytes(image: Image) -> None:
    place = Path(image.here("/opt/antiphon"))
    size = sum(path.lstat().st_size for path in place.rglob("*") if path.is_file())
    assert size < 160e6, f"{size / 1e6:.0f} MB"
