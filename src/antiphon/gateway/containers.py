"""Where do programs of models run here? From the settings to a service of containers.

Which sandbox holds on this machine is found out when the first program is to run, once in the life
of the process: a gateway whose callers run no code never starts one.
"""

from __future__ import annotations

import logging
import time

from antiphon.gateway.config import Settings
from antiphon.server.ids import IdMint
from antiphon.store.base import Store
from antiphon.tools.base import ToolRunner
from antiphon.tools.code_interpreter import CodeInterpreter
from antiphon.tools.containers.service import ContainerService, FoundEngine
from antiphon.tools.programs.runner import ProgramRunner
from antiphon.tools.sandbox.probe import find_engine
from antiphon.tools.shell import HostedShell

__all__ = ["container_runners", "open_containers"]

_log = logging.getLogger(__name__)


def open_containers(settings: Settings, store: Store) -> ContainerService:
    """Return the containers of this process. Nothing is started."""

    async def find() -> FoundEngine:
        report = await find_engine(settings.sandbox)
        for line in report.lines:
            _log.info("sandbox %s", line)
        if report.engine is None:
            return FoundEngine(None, report.problem or "; ".join(report.lines))
        return FoundEngine(report.engine)

    return ContainerService(
        store,
        IdMint(settings.id_mark),
        lambda: int(time.time()),
        find_engine=find,
        settings=settings.containers,
        limits=settings.sandbox,
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
