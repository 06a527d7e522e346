"""Which engine is used: the strongest that holds, or none with a reason."""

from __future__ import annotations

import os
import sys
import venv
from pathlib import Path

import pytest

from antiphon.tools.sandbox.base import Engine, Sandbox, SandboxLimits
from antiphon.tools.sandbox.engines import ENGINES
from antiphon.tools.sandbox.probe import EngineReport, find_engine
from antiphon.tools.sandbox.pythons import read_interpreter
from antiphon.tools.sandbox.settings import SandboxSettings
from tests.sandboxes import engine, run, shell


async def test_strongest_engine_that_holds_is_used(tmp_path: Path) -> None:
    engine("bwrap+sandlock")
    report = await find_engine(SandboxSettings())
    found: Engine | None = report.engine
    assert found is not None, report
    assert found.name == "bwrap+sandlock"
    assert report.lines == ("bwrap+sandlock: held against 12 attacks",)
    sandbox: Sandbox = await found.start(tmp_path, SandboxLimits())
    assert sandbox.is_alive
    await found.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="the system limits the processes of others")
async def test_engine_that_fails_an_attack_is_not_used() -> None:
    engine("bwrap")
    report = await find_engine(SandboxSettings(engine="bwrap"))
    assert report.engine is None
    assert report.reports == (EngineReport("bwrap", 12, ("fork again and again",)),)
    assert "does not hold here against: fork again and again" in report.problem


async def test_missing_programs_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    report = await find_engine(SandboxSettings())
    assert report.engine is None
    assert [one.name for one in report.reports] == list(ENGINES)
    assert "apt install bubblewrap" in report.problem


async def test_programs_can_be_switched_off() -> None:
    report = await find_engine(SandboxSettings(engine="off"))
    assert (report.engine, report.lines) == (None, ("switched off by the settings",))


async def test_interpreter_that_does_not_run_is_reported(tmp_path: Path) -> None:
    report = await find_engine(SandboxSettings(python=str(tmp_path / "python")))
    assert report.engine is None
    assert "does not run" in report.problem


async def test_packages_of_a_virtual_environment_can_be_used(tmp_path: Path) -> None:
    place = tmp_path / "venv"
    venv.create(place, symlinks=True)
    (site,) = place.glob("lib/python*/site-packages")
    (site / "calculator.py").write_text("answer = 42")
    (tmp_path / "data").mkdir()
    python = read_interpreter(str(place / "bin" / "python"))
    maker = engine("bwrap+sandlock", python)
    sandbox = await maker.start(tmp_path / "data", SandboxLimits())
    ran = await run(sandbox, "import sys, calculator\nprint(calculator.answer, sys.prefix)")
    command = await shell(sandbox, "python -c 'import calculator; print(calculator.answer)'")
    await maker.close()
    assert ran.stdout == f"42 {place}\n", ran.end
    assert command.stdout == "42\n"


@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="the system has no Python")
async def test_interpreter_of_the_system_can_be_used(tmp_path: Path) -> None:
    maker = engine("bwrap+sandlock", read_interpreter("/usr/bin/python3"))
    sandbox = await maker.start(tmp_path, SandboxLimits())
    ran = await run(sandbox, "import sys\nsys.prefix")
    await maker.close()
    assert ran.stdout == "'/usr'\n", ran.end


async def test_packages_of_the_gateway_are_hidden(tmp_path: Path) -> None:
    maker = engine("bwrap+sandlock")
    sandbox = await maker.start(tmp_path, SandboxLimits())
    for name in ("antiphon", "msgspec"):
        assert "ModuleNotFoundError" in (await run(sandbox, f"import {name}")).end.traceback
    folders = [sys.prefix, *(path for path in sys.path if path.endswith("site-packages"))]
    code = f"import os\nfor path in {folders}: print(os.path.exists(path) and os.listdir(path))"
    seen = (await run(sandbox, code)).stdout.split()
    await maker.close()
    assert set(seen) <= {"False", "[]"}


async def test_figures_of_matplotlib_become_images(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    maker = engine("bwrap+sandlock", read_interpreter(sys.executable))
    sandbox = await maker.start(tmp_path, SandboxLimits())
    shown = await run(
        sandbox, "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\nprint('shown')"
    )
    left_open = await run(sandbox, "plt.figure(); plt.plot([1]); plt.figure(); plt.plot([2]);")
    none = await run(sandbox, "plt.get_fignums()")
    await maker.close()
    assert (len(shown.images), shown.stdout, shown.stderr) == (1, "shown\n", ""), shown.end
    assert len(left_open.images) == 2
    assert all(image.startswith(b"\x89PNG") for image in shown.images + left_open.images)
    assert (none.images, none.stdout) == ([], "[]\n")
