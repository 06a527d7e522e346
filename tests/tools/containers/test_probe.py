"""The probe of the sandbox begins with the gateway, and programs wait for it, never run without."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.server.ids import IdMint
from antiphon.store.memory import MemoryStore
from antiphon.testing.gateway import Gateway
from antiphon.tools.containers.service import ContainerService, FoundEngine
from antiphon.tools.sandbox.base import SandboxFailed
from tests.asking import ask, request
from tests.containers import Clock, FakeEngine, serve_code
from tests.tools.test_code_interpreter import AUTO, calls_of, cell, saying


class Finder:
    """A probe that ends when it is told to."""

    def __init__(self, found: FoundEngine) -> None:
        self.found = found
        self.has_begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.has_ended = asyncio.Event()
        self.begun = 0

    async def __call__(self) -> FoundEngine:
        self.begun += 1
        self.has_begun.set()
        try:
            await self.may_end.wait()
            return self.found
        finally:
            await asyncio.sleep(0)
            self.has_ended.set()

    def service(self) -> ContainerService:
        return ContainerService(MemoryStore(), IdMint(), Clock(), find_engine=self)


async def _states(gateway: Gateway) -> set[str]:
    answer = await request(gateway, "GET", "/../metrics")
    lines = answer.body.decode().splitlines()
    return {line for line in lines if line.startswith("antiphon_sandbox_workers{")}


async def _ready(gateway: Gateway) -> int:
    return (await request(gateway, "GET", "/../readyz")).status


async def test_gateway_probes_at_its_start_and_the_first_program_waits() -> None:
    finder = Finder(FoundEngine(FakeEngine()))
    backend = ScriptedBackend([cell("print(6 * 7)"), saying("42")])
    async with serve_code(backend, finder.service()) as gateway:
        async with asyncio.timeout(30):
            await finder.has_begun.wait()  # nothing was asked yet
        assert await _ready(gateway) == 200
        assert await _states(gateway) == {'antiphon_sandbox_workers{state="probing"} 1.0'}
        turn = asyncio.create_task(ask(gateway, tools=[AUTO]))
        assert await _ready(gateway) == 200  # others are served while it waits
        assert not turn.done() and not backend.plans
        finder.may_end.set()
        answer = await turn
        assert await _states(gateway) == {'antiphon_sandbox_workers{state="usable"} 1.0'}
    assert [call["status"] for call in calls_of(answer.json)] == ["completed"]
    assert finder.begun == 1


async def test_without_a_sandbox_code_is_reported_as_an_absent_tool() -> None:
    finder = Finder(FoundEngine(None, "no sandbox can be used: bwrap: does not hold"))
    finder.may_end.set()
    backend = ScriptedBackend([saying("I cannot run code.")] * 2)
    async with serve_code(backend, finder.service()) as gateway:
        response = (await ask(gateway, tools=[AUTO])).json
        strict = await ask(gateway, {"x-antiphon-strict": "1"}, tools=[AUTO])
        assert await _states(gateway) == {'antiphon_sandbox_workers{state="unusable"} 1.0'}
        assert await _ready(gateway) == 200
    assert calls_of(response) == []
    (note,) = response["antiphon"]["degraded"]
    assert "does not hold" in note
    assert backend.plans[0].toolbox.aliases == frozenset()
    assert strict.status == 400, strict.body


async def test_gateway_that_ends_ends_its_probe() -> None:
    finder = Finder(FoundEngine(FakeEngine()))
    async with serve_code(ScriptedBackend([]), finder.service()):
        await finder.has_begun.wait()
    assert finder.has_ended.is_set()


async def test_fault_of_the_probe_runs_nothing_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken() -> FoundEngine:
        raise ZeroDivisionError("a fault")

    service = ContainerService(MemoryStore(), IdMint(), Clock(), find_engine=broken)
    service.begin_probe()
    with pytest.raises(ZeroDivisionError):
        await service.engine()
    await asyncio.sleep(0)  # the callback of the task
    assert service.probe_state == "unusable"
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "no program is run" in record.message
    await service.close()


async def test_service_without_a_finder_probes_nothing() -> None:
    service: Any = ContainerService(MemoryStore(), IdMint(), Clock())
    service.begin_probe()
    assert service.probe_state == "none"
    assert await service.why_not() == "there is no sandbox here"
    with pytest.raises(SandboxFailed):
        await service.engine()
