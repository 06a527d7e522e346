"""The unit of systemd: systemd itself reads it and rates it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import debian
from tests.deploy.judges import DEPLOY, ROOT

UNIT = (DEPLOY / "antiphon.service").read_text("utf-8")


def _analyze(folder: Path, unit: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Let systemd-analyze read a unit; only the path of the program is another one."""
    program = shutil.which("systemd-analyze")
    if program is None:
        try:
            program = str(debian.install("systemd-analyze", "systemd", "systemd", "--version"))
        except debian.Missing as error:
            pytest.skip(str(error))
    path = folder / "antiphon.service"
    path.write_text(unit.replace("/opt/antiphon/bin/antiphon", sys.executable))
    command = [program, *arguments, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_systemd_finds_no_fault_in_the_unit(tmp_path: Path) -> None:
    done = _analyze(tmp_path, UNIT, "verify")
    assert (done.returncode, done.stderr) == (0, "")


def test_systemd_names_a_misspelt_line(tmp_path: Path) -> None:
    done = _analyze(tmp_path, UNIT.replace("ProtectSystem=", "ProtectSytem="), "verify")
    assert "ProtectSytem" in done.stderr


def test_systemd_rates_the_exposure_as_low(tmp_path: Path) -> None:
    """The scale ends at 10; a plain service has 9.6. The threshold is in tenths."""
    arguments = ("security", "--offline=true", "--no-pager", "--threshold=20")
    done = _analyze(tmp_path, UNIT, *arguments)
    assert done.returncode == 0, done.stdout
    plain = re.sub(r"^(Protect|Private|Restrict|SystemCall|Dynamic).*\n", "", UNIT, flags=re.M)
    assert _analyze(tmp_path, plain, *arguments).returncode != 0


def test_the_page_shows_this_unit() -> None:
    assert f"```ini\n{UNIT}```" in (ROOT / "docs/howto/team.md").read_text("utf-8")
