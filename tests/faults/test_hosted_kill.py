"""A gateway dies while hosted tools run: the small version of `bench/hosted_kill.py`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.postgres import server

_SCRIPT: Final = Path(__file__).parents[2] / "bench" / "hosted_kill.py"
_WATCHDOG_SECONDS: Final = 300.0

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no kill -9")


def _kill(*arguments: str, **environment: str) -> str:
    """Run the script; return what it printed."""
    done = subprocess.run(
        [sys.executable, str(_SCRIPT), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=_WATCHDOG_SECONDS,
        check=False,
    )
    assert "broken: " in done.stdout, done.stdout + done.stderr
    return done.stdout


def test_no_hosted_call_runs_twice_or_unseen_when_the_gateway_is_killed() -> None:
    printed = _kill("--kills", "20", "--lanes", "2")
    assert "20 kills, sqlite" in printed
    assert "broken: 0" in printed, printed


@pytest.mark.heavy
def test_another_node_never_runs_a_hosted_call_again() -> None:
    printed = _kill(
        "--kills", "8", "--lanes", "2", "--store", "postgres", DATABASE_URL=server().url
    )
    assert "8 kills, postgres" in printed
    assert "broken: 0" in printed, printed


def test_a_call_that_starts_before_its_intent_is_durable_is_noticed() -> None:
    printed = _kill("--kills", "30", "--lanes", "2", "--no-barrier")
    (broken,) = re.findall(r"broken: (\d+)", printed)
    assert int(broken) > 0, printed
    assert "ran unseen" in printed
