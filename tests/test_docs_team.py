"""The page on running it for a team: its files are used and its commands run, in a directory.

What would change this machine has a stand-in: systemctl starts and stops what the page's unit
says, and the installing commands leave a command that runs this source. All else is real.
"""

from __future__ import annotations

import asyncio
import configparser
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from antiphon import __version__
from antiphon.server.limits import ServerLimits
from antiphon.testing import Script, ScriptedUpstream
from tests.cli.processes import WATCHDOG_SECONDS, environment

pytestmark = pytest.mark.slow  # each test starts and stops a service of several processes

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = (ROOT / "docs/howto/team.md").read_text()
_UNIT: Final = "/etc/systemd/system/antiphon.service"
_SETTINGS: Final = "/etc/antiphon/antiphon.toml"
_RUN: Final[set[str]] = {
    *("Install", "Configure", "A key for each person", "Watch it"),
    "When someone wants everything removed",
    *("Back up", "Restore", "Upgrade"),
}
_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _blocks(title: str, language: str) -> list[str]:
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


def _unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(_blocks("Configure", "ini")[1])
    return parser


class Machine:
    """A directory that stands for the machine of the page, and the service on it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._process: subprocess.Popen[str] | None = None
        self._addresses: dict[str, str] = {}

    def place(self, path: str) -> Path:
        """Return where a path of the page is here."""
        return Path(self._here(path))

    def write(self, path: str, text: str) -> None:
        """Write a file of the page."""
        self.place(path).parent.mkdir(parents=True, exist_ok=True)
        self.place(path).write_text(self._here(text))

    def run(self, block: str) -> str:
        """Run the commands of a block and return what they print."""
        printed, plain = "", ""
        for line in block.replace("\\\n", " ").splitlines():
            bare = line.removeprefix("sudo ")
            words = bare.split()
            match words:
                case ["systemctl" | "curl" | "journalctl" | "useradd", *_]:
                    printed += self._shell(plain) + self._stand_in(words)
                    plain = ""
                case ["python3", "-m", "venv", place] | [str() as place, "install", *_] if (
                    "/opt/antiphon" in place
                ):
                    self._install(words)
                case _:
                    plain += f"{bare}\n"
        return printed + self._shell(plain)

    def get(self, path: str, key: str = "") -> tuple[int, bytes]:
        """Send a GET request to the gateway, or for a whole URL of the page."""
        return self._request(path, key, None)

    def ask(self, key: str, text: str) -> str:
        """Ask the model and return the id of its response."""
        status, answer = self._request("/v1/responses", key, json.dumps({"input": text}).encode())
        assert status == 200, answer
        return str(json.loads(answer)["id"])

    def create_key(self, owner: str) -> str:
        """Create a key with the page's command."""
        create = _blocks("A key for each person", "sh")[0].splitlines()[0]
        (key,) = re.findall(r"ak_[\w-]+", self.run(create.replace("ann", owner)))
        return str(key)

    def stop(self) -> None:
        """End the service, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(WATCHDOG_SECONDS)
        self._process = None

    def _here(self, text: str) -> str:
        return re.sub(r"(?<![\w.])/(etc|var|opt)/", rf"{self._root}/\1/", text)

    def _install(self, words: list[str]) -> None:
        extras = re.findall(r"\.\[(.+?)\]", " ".join(words))
        known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        for extra in ",".join(extras).split(",") if extras else ():
            assert extra in known["optional-dependencies"]
        command = self.place("/opt/antiphon/bin/antiphon")
        command.parent.mkdir(parents=True, exist_ok=True)
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m antiphon "$@"\n')
        command.chmod(0o755)

    def _stand_in(self, words: list[str]) -> str:
        match words:
            case ["systemctl", "daemon-reload"]:
                return ""
            case ["systemctl", "start", "antiphon"] | ["systemctl", "enable", "--now", "antiphon"]:
                self._start()
                return ""
            case ["systemctl", "stop", "antiphon"]:
                self.stop()
                return ""
            case ["journalctl", "-u", "antiphon", "-o", "cat"]:
                return self.place("/var/stderr").read_text()
            case ["curl", url]:
                status, body = self.get(url)
                assert status == 200, body
                return body.decode() + "\n"
            case ["useradd", "--system", "--home-dir", "/var/lib/antiphon", user]:
                assert user == _unit()["Service"]["User"]
                return ""
        raise AssertionError(f"the page has a command that is not tested: {words}")

    def _start(self) -> None:
        service = _unit()["Service"]
        lines = self.place(service["EnvironmentFile"]).read_text().splitlines()
        extra = dict(line.split("=", 1) for line in lines)
        free_ports = {"ANTIPHON_PORT": "0", "ANTIPHON_METRICS_PORT": "0"}
        with self.place("/var/stderr").open("a") as log:
            self._process = subprocess.Popen(
                self._here(service["ExecStart"]).split(),
                cwd=self._root,
                env=environment(self._root, extra | free_ports),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._addresses = self._read_addresses(self._process)

    def _read_addresses(self, process: subprocess.Popen[str]) -> dict[str, str]:
        """Return the addresses of the page and those that the service took."""
        assert process.stdout is not None
        said = ""
        watchdog = threading.Timer(WATCHDOG_SECONDS, process.kill)
        watchdog.start()
        while (line := process.stdout.readline()).strip():  # to the first empty line, or the end
            said += line
        watchdog.cancel()
        process.stdout.close()
        found = re.findall(r"http://127\.0\.0\.1:\d+", said)
        metrics = re.findall(r"metrics (http://[\d.:]+)", said)
        assert found and metrics, said + self.place("/var/stderr").read_text()
        return {
            "http://127.0.0.1:4680": found[0],
            "http://127.0.0.1:9464": metrics[0],
            "https://gateway.example": found[0],
        }

    def _shell(self, script: str) -> str:
        """Run commands with sh, as the user who runs the tests."""
        text = script.replace("sudo -u antiphon ", "").replace("-u antiphon ", "")
        text = self._here(text.replace(" -o antiphon ", " "))
        for address, here in self._addresses.items():
            text = text.replace(address, here)
        path = f"{self.place('/opt/antiphon/bin')}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["sh", "-euc", text],
            cwd=self._root,
            env=environment(self._root, {"PATH": path, "LC_ALL": "C.UTF-8"}),
            capture_output=True,
            text=True,
            timeout=WATCHDOG_SECONDS,
            check=False,
        )
        assert done.returncode == 0, (text, done.stderr)
        return done.stdout

    def _request(self, path: str, key: str, body: bytes | None) -> tuple[int, bytes]:
        url = path if "://" in path else f"http://127.0.0.1:4680{path}"
        for address, here in self._addresses.items():
            url = url.replace(address, here)
        headers = {"Content-Type": "application/json"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(url, body, headers)
        try:
            with _OPENER.open(request, timeout=WATCHDOG_SECONDS) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()


@asynccontextmanager
async def _machine(tmp_path: Path) -> AsyncIterator[tuple[Machine, ScriptedUpstream]]:
    """Set the machine up as the page says, and start the service."""
    machine = Machine(tmp_path)
    (settings,) = _blocks("Configure", "toml")
    secrets, unit = _blocks("Configure", "ini")
    async with ScriptedUpstream(Script(text="I am here.")) as upstream:
        assert "http://127.0.0.1:8000/v1" in settings
        machine.write(_SETTINGS, settings.replace("http://127.0.0.1:8000/v1", upstream.base_url))
        machine.write("/etc/antiphon/environment", secrets)
        machine.write(_UNIT, unit)
        try:
            for title in ("Install", "Configure"):
                for block in _blocks(title, "sh"):
                    await asyncio.to_thread(machine.run, block)
            yield machine, upstream
        finally:
            await asyncio.to_thread(machine.stop)


def test_every_section_with_commands_is_run_here() -> None:
    titles = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    assert {title for title in titles if _blocks(title, "sh")} == _RUN


async def test_the_service_of_the_page_serves_with_its_keys_only(tmp_path: Path) -> None:
    async with _machine(tmp_path) as (machine, upstream):
        refused, _ = await asyncio.to_thread(machine.get, "/v1/models")
        key = await asyncio.to_thread(machine.create_key, "ann")
        await asyncio.to_thread(machine.ask, key, "hello")
        config = await asyncio.to_thread(machine.get, "/v1/models", key)
    assert refused == 401
    assert config[0] == 200
    assert upstream.requests[-1].headers["authorization"] == "Bearer change-me"


async def test_a_person_gets_a_key_uses_it_and_loses_it(tmp_path: Path) -> None:
    make, use, revoke = _blocks("A key for each person", "sh")
    async with _machine(tmp_path) as (machine, _):
        made = await asyncio.to_thread(machine.run, make)
        (key,) = re.findall(r"ak_[0-9a-f]{16}_[\w-]+", made)
        (name,) = re.findall(r"^([0-9a-f]{16})\b", made, re.MULTILINE)
        used = await asyncio.to_thread(machine.run, use.replace("ak_…", key))
        await asyncio.to_thread(machine.run, revoke.replace("ID", name))
        deadline = time.monotonic() + WATCHDOG_SECONDS
        while (await asyncio.to_thread(machine.get, "/v1/models", key))[0] != 401:
            assert time.monotonic() < deadline
    assert "I am here." in used
    assert 'OpenAI(base_url="http://127.0.0.1:' in used


async def test_everything_of_a_person_is_removed(tmp_path: Path) -> None:
    (purge,) = _blocks("When someone wants everything removed", "sh")
    async with _machine(tmp_path) as (machine, _):
        key = await asyncio.to_thread(machine.create_key, "ann")
        await asyncio.to_thread(machine.ask, key, "hello")
        count, remove = purge.strip().splitlines()
        counted = await asyncio.to_thread(machine.run, count)
        await asyncio.to_thread(machine.run, f"echo y | {remove}")
        again = await asyncio.to_thread(machine.get, "/v1/models", key)
    assert re.search(r"^responses +1$", counted, re.MULTILINE)
    assert again[0] == 401


async def test_the_metrics_and_the_log_of_the_page_are_there(tmp_path: Path) -> None:
    (watch,) = _blocks("Watch it", "sh")
    async with _machine(tmp_path) as (machine, _):
        key = await asyncio.to_thread(machine.create_key, "ann")
        await asyncio.to_thread(machine.ask, key, "hello")
        seen = await asyncio.to_thread(machine.run, watch)
        await asyncio.to_thread(machine.stop)
        log = machine.place("/var/stderr").read_text()
    assert "# TYPE antiphon_" in seen
    lines: list[dict[str, Any]] = [json.loads(line) for line in log.splitlines()]
    (asked,) = [line for line in lines if line.get("route") == "/v1/responses"]
    assert asked["status"] == 200 and asked["key"]
    assert "hello" not in log


async def test_a_backup_of_the_running_service_can_be_restored(tmp_path: Path) -> None:
    (backup,), (restore,) = _blocks("Back up", "sh"), _blocks("Restore", "sh")
    async with _machine(tmp_path) as (machine, _):
        old = machine.place("/var/backups/antiphon/2020-01-01")
        (old / "antiphon.db-blobs").mkdir(parents=True)
        (old / "antiphon.db").touch()
        os.utime(old, (0, 0))
        key = await asyncio.to_thread(machine.create_key, "ann")
        before = await asyncio.to_thread(machine.ask, key, "before")
        await asyncio.to_thread(machine.run, backup)
        after = await asyncio.to_thread(machine.ask, key, "after")
        (copy,) = old.parent.iterdir()  # the old one is gone
        await asyncio.to_thread(machine.run, restore.replace("2026-11-17", copy.name))
        kept = await asyncio.to_thread(machine.get, f"/v1/responses/{before}", key)
        lost = await asyncio.to_thread(machine.get, f"/v1/responses/{after}", key)
    assert kept[0] == 200
    assert lost[0] == 404


async def test_an_upgrade_keeps_what_was_stored(tmp_path: Path) -> None:
    (upgrade,) = _blocks("Upgrade", "sh")
    async with _machine(tmp_path) as (machine, _):
        key = await asyncio.to_thread(machine.create_key, "ann")
        name = await asyncio.to_thread(machine.ask, key, "before")
        printed = await asyncio.to_thread(machine.run, upgrade)
        kept = await asyncio.to_thread(machine.get, f"/v1/responses/{name}", key)
        assert machine.place("/var/backups/antiphon/before-upgrade/antiphon.db").is_file()
    assert f'"version":"{__version__}"' in printed
    assert kept[0] == 200


def test_the_unit_gives_turns_the_time_to_finish() -> None:
    service = _unit()["Service"]
    assert service["KillMode"] == "mixed"
    assert float(service["TimeoutStopSec"]) > ServerLimits().drain_seconds + 10
    assert service["RestartPreventExitStatus"] == "2"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    path = tmp_path / "antiphon.service"
    unit = _blocks("Configure", "ini")[1]
    path.write_text(unit.replace("/opt/antiphon/bin/antiphon", sys.executable))
    verify = ["systemd-analyze", "verify", str(path)]
    done = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
