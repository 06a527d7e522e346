"""The watchdog: which processes it ends when the pipe to its parent ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.cli.run.watchdog import read_ward
from tests.cli.processes import ECHO, WATCHDOG_SECONDS, environment


@pytest.mark.parametrize(
    ("sent", "ward"),
    [(b"", 0), (b"17\n", 17), (b"17\n0\n", 0), (b"17\n18\n", 18), (b"1\n" * 1000 + b"19\n", 19)],
)
def test_the_last_number_on_the_pipe_counts(sent: bytes, ward: int) -> None:
    end, start = os.pipe()
    os.write(start, sent)
    os.close(start)
    assert read_ward(end) == ward
    os.close(end)


@pytest.mark.skipif(sys.platform == "win32", reason="there it ends at once, with another code")
def test_a_command_stops_cleanly_when_the_pipe_ends(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text(ECHO)
    with subprocess.Popen(
        [sys.executable, "-m", "antiphon.cli.run.watchdog", "serve", "--port", "0"],
        cwd=tmp_path,
        env=environment(tmp_path, {"ANTIPHON_STORE": "memory:"}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert "serves http://" in process.stdout.readline()
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(WATCHDOG_SECONDS) in (0, -15)  # -15: before it could listen to signals


def test_a_command_that_ends_by_itself_needs_no_pipe(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "antiphon.cli.run.watchdog", "--version"],
        env=environment(tmp_path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read().startswith("antiphon")
        assert process.wait(WATCHDOG_SECONDS) == 0
