"""The programs that are printed run as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.cli.connect.programs import PROGRAMS, program
from tests.cli.processes import WATCHDOG_SECONDS, Served, environment


@pytest.mark.parametrize(("client", "package"), [("openai-python", "openai"), ("agents", "agents")])
@pytest.mark.parametrize("key_env", [None, "SOME_KEY"])
def test_a_program_says_hello(
    echo: Served, tmp_path: Path, client: str, package: str, key_env: str | None
) -> None:
    pytest.importorskip(package)
    ran = subprocess.run(
        [sys.executable, "-c", program(client, echo.base_url, "echo", key_env)],
        env=environment(tmp_path, {"SOME_KEY": "none"}) | {"PYTHONWARNINGS": "default"},
        capture_output=True,
        text=True,
        timeout=WATCHDOG_SECONDS,
    )
    assert (ran.returncode, ran.stdout) == (0, "Say hello.\n"), ran.stderr


@pytest.mark.parametrize("client", PROGRAMS)
def test_a_program_holds_the_name_of_the_key_and_any_model(client: str) -> None:
    text = program(client, "http://h/v1", 'we"ird\\model', "SOME_KEY")
    assert '"http://h/v1"' in text and r'"we\"ird\\model"' in text and "SOME_KEY" in text
    assert "unused" not in text
    assert '"unused"' in program(client, "http://h/v1", "m")
    if PROGRAMS[client].is_python:
        compile(text, client, "exec")
