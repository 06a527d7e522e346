"""`antiphon host`: its flags, its key and its end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from antiphon.protocol.deltas import TextGrew
from tests.building import COUNTED, STOP
from tests.cli.processes import command, environment
from tests.client.native import native, response
from tests.host.bridge.bridging import raw_bridge

ASK = {
    "type": "respond",
    "id": 1,
    "model": "m",
    "messages": [{"role": "user", "content": [{"type": "text", "value": "hi"}]}],
}


def test_it_ends_with_its_input(tmp_path: Path) -> None:
    ran = command("host", home=tmp_path)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_every_line_on_stdout_is_a_message(tmp_path: Path) -> None:
    ran = command("host", home=tmp_path, stdin='{"type":"hello","version":1}\nnonsense\n')
    kinds = [msgspec.json.decode(line)["type"] for line in ran.stdout.splitlines()]
    assert (ran.returncode, kinds, ran.stderr) == (0, ["welcome", "error"], "")


def test_it_starts_without_loading_the_http_server(tmp_path: Path) -> None:
    ran = command("host", home=tmp_path, extra={"PYTHONPROFILEIMPORTTIME": "1"})
    assert "antiphon.host.bridge.process" in ran.stderr
    assert "aiohttp" not in ran.stderr


def test_it_needs_no_stderr(tmp_path: Path) -> None:
    ran = subprocess.run(
        ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-m", "antiphon", "host"],
        input=b'{"type":"hello","version":1}\n',
        env=environment(tmp_path),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        check=True,
    )
    assert msgspec.json.decode(ran.stdout)["type"] == "welcome"


@pytest.mark.parametrize(
    ("flags", "words"),
    [(["--key-env", "NO_SUCH_KEY"], "NO_SUCH_KEY is not set"), (["--base-url", "x"], "--base-url")],
)
def test_flags_that_cannot_be_used_are_refused(
    tmp_path: Path, flags: list[str], words: str
) -> None:
    ran = command("host", *flags, home=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert words in ran.stderr


async def test_url_and_key_of_the_command_hold_without_settings(tmp_path: Path) -> None:
    async with native(response(TextGrew("ok"), COUNTED, STOP)) as server:
        flags = ("--base-url", server.base_url, "--key-env", "TEAM_KEY")
        async with raw_bridge(tmp_path, *flags, environ={"TEAM_KEY": "sk-team-12345"}) as raw:
            await raw.send({"type": "hello", "version": 1}, ASK)
            got = await raw.read_to_end(1)
    assert got[1][-1]["type"] == "done"
    assert server.requests[0].headers["authorization"] == "Bearer sk-team-12345"
