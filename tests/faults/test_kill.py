"""A gateway dies under load: the small version of `bench/kill.py`, which says what is checked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.postgres import server

_SCRIPT: Final = Path(__file__).parents[2] / "bench" / "kill.py"
_WATCHDOG_SECONDS: Final = 300.0


def _kill(store: str, rounds: int, **environment: str) -> str:
    """Run the script and return what it printed, if it found nothing wrong."""
    done = subprocess.run(
        [sys.executable, str(_SCRIPT), "--rounds", str(rounds), "--store", store],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=_WATCHDOG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="there is no kill -9")
def test_nothing_that_was_told_is_lost_when_the_gateway_is_killed() -> None:
    assert "broken: lost 0, gap 0, twice 0, late 0, changed 0, fault 0" in _kill("sqlite", 3)


@pytest.mark.heavy
@pytest.mark.skipif(sys.platform == "win32", reason="there is no kill -9")
def test_another_node_takes_over_when_one_is_killed() -> None:
    printed = _kill("postgres", 2, DATABASE_URL=server().url)
    assert "2 kills, 2 node(s), postgres" in printed
    assert "broken: lost 0, gap 0, twice 0, late 0, changed 0, fault 0" in printed
