"""Where do programs of models run here? From the settings to a service of containers.

Which sandbox holds on this machine is found out once in the life of the process, beside the first
requests, if a tool is enabled that runs programs. The log has the result: a warning if a sandbox
is here but cannot be used, or if the settings ask for one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from antiphon.gateway.config import Settings
from antiphon.server.ids import IdMint
from antiphon.store.base import Store
from antiphon.tools.base import ToolRunner
from antiphon.tools.code_interpreter import CodeInterpreter
from antiphon.tools.containers.service import ContainerService, FoundEngine
from antiphon.tools.programs.runner import ProgramRunner
from antiphon.tools.sandbox.probe import SandboxReport, find_engine
from antiphon.tools.sandbox.settings import SandboxSettings
from antiphon.tools.shell import HostedShell

__all__ = ["container_runners", "open_containers"]

_log = logging.getLogger(__name__)


def open_containers(settings: Settings, store: Store) -> ContainerService:
    """Return the containers of this process. Nothing is started before `begin_probe`."""
    tools = _code_tools(settings)

    async def find() -> FoundEngine:
        report = await find_engine(settings.sandbox)
        _log_report(report, settings.sandbox, tools)
        return FoundEngine(report.engine, report.problem)

    return ContainerService(
        store,
        IdMint(settings.id_mark),
        lambda: int(time.time()),
        find_engine=find if tools else None,
        settings=settings.containers,
        limits=settings.sandbox,
    )


def _code_tools(settings: Settings) -> list[str]:
    """Return the tools that run programs, as far as the settings want them."""
    choices = {
        "code_interpreter": settings.code_interpreter.enabled,
        "programmatic_tool_calling": settings.programs.enabled,
        "shell": settings.shell.enabled,
    }
    return [name for name, is_enabled in choices.items() if is_enabled]


def _log_report(report: SandboxReport, settings: SandboxSettings, tools: Sequence[str]) -> None:
    if report.engine is not None:
        for line in report.lines:
            _log.info("sandbox %s", line)
        return
    # That an optional part is not installed is no fault, as long as nothing asks for it.
    is_wanted = settings.engine in ("bwrap", "bwrap+sandlock") or settings.python is not None
    is_fault = is_wanted or any(one.attacks for one in report.reports)
    _log.log(
        logging.WARNING if is_fault else logging.INFO,
        "%s cannot be run here: %s",
        ", ".join(tools),
        report.problem,
    )


def container_runners(settings: Settings, service: ContainerService) -> list[ToolRunner]:
    """Return what runs programs, as far as the settings want it."""
    runners: list[ToolRunner] = []
    if settings.code_interpreter.enabled:
        runners.append(CodeInterpreter(service, settings.code_interpreter))
    if settings.programs.enabled:
        runners.append(ProgramRunner(service, settings.programs))
    if settings.shell.enabled:
        runners.append(HostedShell(service, settings.shell))
    return runners
