"""A whole gateway under load and under damaged requests: small versions of two commands.

`bench/soak.py` and `bench/fuzz.py` describe what they check, and fail with exit code 1.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

_BENCH: Final = Path(__file__).parents[2] / "bench"
_WATCHDOG_SECONDS: Final = 300.0

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")


def _run(name: str, *flags: str) -> str:
    """Run the script and return what it printed, if its goals were met."""
    done = subprocess.run(
        [sys.executable, str(_BENCH / name), *flags],
        capture_output=True,
        text=True,
        timeout=_WATCHDOG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.heavy
def test_no_turn_of_any_mode_fails_while_the_upstream_closes_idle_connections() -> None:
    # Faults that are injected can cost half a minute each, so the small version has none.
    flags = ("--seconds", "6", "--clients", "20", "--pause", "0.5", "--faults", "0")
    printed = _run("soak.py", *flags)
    assert "failed without an injected fault: 0" in printed
    assert "wrong answers: 0" in printed


def test_damaged_requests_of_every_route_are_never_an_error_of_the_gateway() -> None:
    printed = _run("fuzz.py", "--requests", "600")
    assert "5xx or left without one: 0" in printed
    assert "the gateway is alive" in printed
