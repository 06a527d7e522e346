"""Gateways are upgraded and put back under load: `bench/upgrade.py`, which says what is checked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.postgres import server

pytestmark = pytest.mark.heavy

_SCRIPT: Final = Path(__file__).parents[2] / "bench" / "upgrade.py"
_NO_OLD_VERSION: Final = 77
_WATCHDOG_SECONDS: Final = 600.0


def _upgrade(store: str, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, str(_SCRIPT), "--store", store, "--seconds", "1", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=_WATCHDOG_SECONDS,
        check=False,
    )
    if done.returncode == _NO_OLD_VERSION:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGTERM")
def test_no_turn_fails_while_nodes_are_upgraded_and_put_back() -> None:
    printed = _upgrade("postgres", DATABASE_URL=server().url)
    for phase in ("old old", "new old", "new new", "old new"):
        assert f"\n{phase} " in printed
    assert " turns, 0 failed" in printed


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGTERM")
def test_no_turn_fails_when_the_one_gateway_is_upgraded_and_put_back() -> None:
    assert " turns, 0 failed" in _upgrade("sqlite")


def test_a_clone_without_the_old_version_skips_the_test() -> None:
    with pytest.raises(pytest.skip.Exception, match="is not in this clone"):
        _upgrade("sqlite", "--old", "0" * 40)
