"""Does an engine hold here? It is attacked before it is used, once in the life of the process.

The attacks run in processes of their own; the event loop only starts them and reads. An engine
that fails one attack is not used. Without an engine nothing runs, and the reason is kept for the
log, for `antiphon tools` and for callers.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from antiphon.tools.sandbox.attacks import LIMITS, PROBES, Attack, Scene
from antiphon.tools.sandbox.base import CellOutput, SandboxFailed
from antiphon.tools.sandbox.box import RunningSandbox
from antiphon.tools.sandbox.engines import ENGINES, EngineName, LocalEngine, make_engine
from antiphon.tools.sandbox.locked_folder import LockedFolder, make_folder
from antiphon.tools.sandbox.pythons import Interpreter, read_interpreter
from antiphon.tools.sandbox.settings import SandboxSettings

__all__ = ["EngineReport", "SandboxReport", "attack_engine", "find_engine", "scene", "try_attack"]


class EngineReport(msgspec.Struct, frozen=True):
    """How an engine did: `failed` names the attacks it did not hold against."""

    name: str
    attacks: int = 0
    failed: tuple[str, ...] = ()
    problem: str = ""
    """Why it could not be attacked at all."""

    @property
    def holds(self) -> bool:
        """Whether it may be used."""
        return self.attacks > 0 and not self.failed and not self.problem

    def __str__(self) -> str:
        if self.problem:
            return f"{self.name}: {self.problem}"
        if self.failed:
            return f"{self.name}: does not hold here against: {', '.join(self.failed)}"
        return f"{self.name}: held against {self.attacks} attacks"


class SandboxReport(msgspec.Struct, frozen=True):
    """The engine that is used, if there is one, and what was found out on the way."""

    engine: LocalEngine | None
    reports: tuple[EngineReport, ...] = ()
    problem: str = ""

    @property
    def lines(self) -> tuple[str, ...]:
        """For people: one line for each engine, or why there is none."""
        return tuple(map(str, self.reports)) or (self.problem,)


async def find_engine(settings: SandboxSettings) -> SandboxReport:
    """Return the strongest engine that holds here. Never raises: the report has the reason."""
    if settings.engine == "off":
        return SandboxReport(None, problem="switched off by the settings")
    try:
        python = await asyncio.to_thread(_interpreter, settings)
    except SandboxFailed as error:
        return SandboxReport(None, problem=str(error))
    names = ENGINES if settings.engine == "auto" else (settings.engine,)
    reports: list[EngineReport] = []
    for name in names:
        report, engine = await _try_engine(name, python)
        reports.append(report)
        if engine is not None:
            return SandboxReport(engine, tuple(reports))
    problem = "; ".join(map(str, reports))
    return SandboxReport(None, tuple(reports), f"no sandbox can be used: {problem}")


def _interpreter(settings: SandboxSettings) -> Interpreter | None:
    return read_interpreter(settings.python) if settings.python else None


async def _try_engine(
    name: EngineName, python: Interpreter | None
) -> tuple[EngineReport, LocalEngine | None]:
    try:
        engine = make_engine(name, python)
        report = await attack_engine(engine)
    except (SandboxFailed, OSError) as error:
        return EngineReport(name, problem=str(error)), None
    return report, engine if report.holds else None


async def attack_engine(engine: LocalEngine) -> EngineReport:
    """Run the attacks in one sandbox, one after the other. Raise SandboxFailed."""
    folder = await _make_folder()
    try:
        sandbox = await engine.start(folder.path / "data", LIMITS)
        try:
            failed = await _run_attacks(sandbox, folder.path)
        finally:
            await sandbox.close()
    finally:
        folder.remove()
    return EngineReport(engine.name, len(PROBES), tuple(failed))


async def _make_folder() -> LockedFolder:
    """Return a folder for one probe. Cancelled meanwhile, it is removed again."""
    making = asyncio.ensure_future(asyncio.to_thread(make_folder, None))
    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:
        (await making).remove()
        raise


async def _run_attacks(sandbox: RunningSandbox, folder: Path) -> list[str]:
    """Return the names of the attacks that succeeded."""
    failed = []
    for attack in PROBES:
        with scene(sandbox, folder) as place:
            if "LEAK" in await try_attack(sandbox, attack, place):
                failed.append(attack.name)
    return failed


async def try_attack(sandbox: RunningSandbox, attack: Attack, place: Scene) -> str:
    """Run an attack. Return what it printed: LEAK is in it if it succeeded."""
    words: list[str] = []
    async for output in sandbox.run(place.fill(attack), attack.seconds):
        if isinstance(output, CellOutput):
            words.append(output.text)
        elif output.outcome == "timeout" and not attack.is_endless:
            words.append("LEAK? it was not stopped in time")
    return "".join(words)


@contextmanager
def scene(sandbox: RunningSandbox, place: Path | None = None) -> Iterator[Scene]:
    """Put up what the attacks try to reach, in `place` or where temporary files are."""
    name = f"antiphon-{secrets.token_hex(8)}"
    with (
        tempfile.TemporaryDirectory(prefix="outside-", dir=place) as folder,
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX) as file,
    ):
        Path(folder, "secret").write_text("outside")
        abstract.bind(f"\0{name}")
        file.bind(f"{folder}/socket")
        for listener in (abstract, file):
            listener.listen()
        yield Scene(folder, tcp.getsockname()[1], name, sandbox.pid)
