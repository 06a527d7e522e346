"""What the log has about the sandbox at the start of a gateway."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from antiphon.gateway.config import Settings
from antiphon.gateway.containers import open_containers
from antiphon.store.memory import MemoryStore
from antiphon.tools.containers.settings import CodeSettings, ShellSettings
from antiphon.tools.programs.settings import ProgramSettings
from antiphon.tools.sandbox.settings import SandboxSettings


async def _probe(settings: Settings) -> str:
    service = open_containers(settings, MemoryStore())
    service.begin_probe()
    try:
        return await service.why_not()
    finally:
        await service.close()


@pytest.mark.parametrize(
    ("sandbox", "level"),
    [
        (SandboxSettings(), logging.INFO),
        (SandboxSettings(engine="bwrap"), logging.WARNING),
        (SandboxSettings(engine="bwrap+sandlock"), logging.WARNING),
        (SandboxSettings(engine="off"), logging.INFO),
    ],
)
async def test_missing_sandbox_is_a_warning_if_the_settings_ask_for_one(
    sandbox: SandboxSettings,
    level: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    caplog.set_level(logging.INFO)
    problem = await _probe(Settings(sandbox=sandbox))
    (record,) = caplog.records
    assert record.levelno == level
    tools = "code_interpreter, programmatic_tool_calling, shell"
    assert record.message == f"{tools} cannot be run here: {problem}"


async def test_interpreter_that_does_not_run_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    problem = await _probe(Settings(sandbox=SandboxSettings(python=str(tmp_path / "python"))))
    assert "does not run" in problem
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


async def test_nothing_is_probed_if_no_tool_runs_programs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    off = Settings(
        code_interpreter=CodeSettings(enabled=False),
        shell=ShellSettings(enabled=False),
        programs=ProgramSettings(enabled=False),
    )
    service = open_containers(off, MemoryStore())
    service.begin_probe()
    assert service.probe_state == "none"
    assert not caplog.records
