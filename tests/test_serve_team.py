"""`scripts/serve-team` in a copy of the tree, as a new operator starts it.

The environment is made beforehand, from packages that are installed here: what is tested is the
script. PostgreSQL does not run as root, so root runs the script as `nobody`, with the Python of the
system.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from antiphon.testing import Script, ScriptedUpstream
from tests.cli.processes import WATCHDOG_SECONDS

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(sys.platform == "win32", reason="there is no sh"),
]


def _can_run_as_nobody() -> bool:
    """Return whether the Python of the system can use the packages of this one."""
    done = subprocess.run(
        ["/usr/bin/python3", "-c", "import aiohttp, asyncpg, msgspec"],
        env={"PYTHONPATH": sysconfig.get_path("purelib")},
        user="nobody",
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


_IS_ROOT: Final = sys.platform != "win32" and os.getuid() == 0
if _IS_ROOT and not _can_run_as_nobody():
    pytest.skip("root cannot run this as another user here", allow_module_level=True)

ROOT: Final = Path(__file__).parent.parent
_PYTHON: Final = "/usr/bin/python3" if _IS_ROOT else sys.executable
_PACKAGES: Final = f"{ROOT / 'src'}:{sysconfig.get_path('purelib')}"
_KEY: Final = re.compile(r"^    (ak_[\w-]+)$", re.MULTILINE)
_COMMANDS: Final = r"^    (export ANTIPHON_STORE.*|/.* keys create .*)$"
_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Operator:
    """A user with a clone, an empty home, and the programs of the system."""

    def __init__(self, folder: Path, *, path: str) -> None:
        self._folder = folder
        self._path = path
        self._tree = folder / "antiphon"
        self.team = folder / "home/.local/share/antiphon/team"
        for name in ("scripts", "requirements", "pyproject.toml"):
            source, target = ROOT / name, self._tree / name
            target.parent.mkdir(exist_ok=True)
            shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
        (folder / "home").mkdir()
        self._make_environment()
        for one in (folder, *folder.rglob("*")):
            if _IS_ROOT:
                shutil.chown(one, "nobody")

    def start(self, upstream: str) -> tuple[subprocess.Popen[str], str]:
        """Start the script; return it with what it prints until it serves."""
        process = subprocess.Popen(
            ["scripts/serve-team", "--port", "0", "--upstream", upstream],
            cwd=self._tree,
            env=self._environment(),
            stdout=subprocess.PIPE,
            text=True,
            **self._user(),
        )
        assert process.stdout is not None
        watchdog = threading.Timer(WATCHDOG_SECONDS, process.kill)
        watchdog.start()
        printed = ""
        while "Try it:" not in printed and (line := process.stdout.readline()):
            printed += line
        watchdog.cancel()
        if "Try it:" not in printed:
            _stop(process)
            raise AssertionError(printed)
        return process, printed

    def run(self, command: str) -> str:
        """Run what the script told the operator to run."""
        done = subprocess.run(
            ["sh", "-euc", command],
            cwd=self._tree,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=WATCHDOG_SECONDS,
            check=True,
            **self._user(),
        )
        return str(done.stdout)

    def _make_environment(self) -> None:
        commands = self._tree / ".venvs/serve/bin"
        commands.mkdir(parents=True)
        for name, arguments in {"antiphon": "-m antiphon", "python": ""}.items():
            (commands / name).write_text(
                f'#!/bin/sh\nPYTHONPATH={_PACKAGES} exec {_PYTHON} {arguments} "$@"\n'
            )
            (commands / name).chmod(0o755)
        mark = (
            "for python in python3 python3.13 python3.12 python3.11; do"
            " $python -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))'"
            " 2>/dev/null && break; done;"
            ' { "$python" --version; pwd -P; cat requirements/serve.txt pyproject.toml; } | cksum'
            " > .venvs/serve/made-from"
        )
        subprocess.run(["sh", "-c", mark], cwd=self._tree, env={"PATH": self._path}, check=True)

    def _environment(self) -> dict[str, str]:
        return {"PATH": self._path, "HOME": str(self._folder / "home"), "LC_ALL": "C.UTF-8"}

    def _user(self) -> dict[str, Any]:  # Any: arguments of subprocess
        return {"user": "nobody"} if _IS_ROOT else {}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that `nobody` can enter, with a short path: the socket of PostgreSQL is in it."""
    made = Path(tempfile.mkdtemp(prefix="team-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


def _stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(WATCHDOG_SECONDS)
    assert process.stdout is not None
    process.stdout.close()


def _status(url: str, key: str = "") -> int:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        with _OPENER.open(urllib.request.Request(url, headers=headers), timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


async def _serve_twice(operator: Operator) -> tuple[str, str]:
    """Follow the script from its first start to its second; return what both printed."""
    async with ScriptedUpstream(Script(text="hello")) as upstream:
        return await asyncio.to_thread(_follow, operator, upstream.base_url)


def _follow(operator: Operator, upstream: str) -> tuple[str, str]:
    process, first = operator.start(upstream)
    try:
        (address,) = re.findall(r"serves (http://[\d.:]+)", first)
        (admin,) = _KEY.findall(first)
        export, create = re.findall(_COMMANDS, first, re.M)
        (key,) = re.findall(r"ak_[\w-]+", operator.run(f"{export}\n{create}"))
        assert _status(f"{address}/v1/models") == 401
        assert _status(f"{address}/v1/models", key) == 200
        assert _status(f"{address}/v1/organization/projects", admin) == 200
        assert _status(f"{address}/v1/organization/projects", key) == 403
        assert _status(f"{address}/ui") == 200
    finally:
        _stop(process)
    process, second = operator.start(upstream)
    try:
        (address,) = re.findall(r"serves (http://[\d.:]+)", second)
        assert _status(f"{address}/v1/models", key) == 200
    finally:
        _stop(process)
    return first, second


async def test_a_team_is_served_with_sqlite_where_there_is_no_postgres(folder: Path) -> None:
    programs = folder / "bin"
    programs.mkdir()
    system = shutil.which("python3", path="/usr/bin:/bin:/usr/local/bin")
    assert system is not None
    names = ("sh", "id", "mkdir", "dirname", "cat", "cksum", "tr", "awk", "grep", "head")
    for name in names:
        (programs / name).symlink_to(str(shutil.which(name)))
    (programs / "python3").symlink_to(system)
    # PostgreSQL is found also outside of PATH; this folder is too long for its socket.
    deep = folder / ("a-long-name-" * 8)
    deep.mkdir()
    operator = Operator(deep, path=str(programs))
    first, second = await _serve_twice(operator)
    assert "The store is SQLite in " in first
    assert len(_KEY.findall(first)) == 1 and not _KEY.findall(second)
    assert (operator.team / "antiphon.db").stat().st_mode & 0o077 == 0


@pytest.mark.skipif(
    not (shutil.which("initdb") or list(Path("/usr/lib/postgresql").glob("*/bin/initdb"))),
    reason="PostgreSQL is not installed",
)
async def test_a_team_is_served_with_postgres_where_it_is_installed(folder: Path) -> None:
    operator = Operator(folder, path="/usr/local/bin:/usr/bin:/bin")
    first, second = await _serve_twice(operator)
    assert "The store is PostgreSQL in " in first
    assert len(_KEY.findall(first)) == 1 and not _KEY.findall(second)
    # It stops with the gateway.
    assert not (operator.team / "postgres/postmaster.pid").exists()
