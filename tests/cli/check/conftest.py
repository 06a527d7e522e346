"""A gateway in this process, whose model can do all that the cases ask for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from antiphon.backends.scripted import ScriptedBackend, Step, echo
from antiphon.cli.check.samples import TWO_CITIES
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import CallGrew, CallOpened
from antiphon.protocol.items import last_user_text
from antiphon.testing import serve_gateway
from tests.building import COUNTED, STOP


def _both_at_once(plan: Plan) -> Iterator[Step]:
    """Echo; but call twice, with the pieces of both calls mixed, where two are asked for."""
    if plan.policy.mode != "required" or last_user_text(plan.items) != TWO_CITIES:
        yield from echo(plan)
        return
    name = plan.toolbox.offers[0].alias
    for index in (0, 1):
        yield CallOpened(index, name)
    yield CallGrew(0, '{"city": ')
    yield CallGrew(1, '{"city": "Oslo"}')
    yield CallGrew(0, '"Paris"}')
    yield [COUNTED, STOP]


@pytest.fixture(scope="module")
def gateway_url() -> Iterator[str]:
    """The base URL of a gateway that runs in a thread until the tests of a module are over."""
    ready, over = threading.Event(), asyncio.Event()
    found: list[tuple[str, asyncio.AbstractEventLoop]] = []

    async def run() -> None:
        async with serve_gateway(ScriptedBackend(_both_at_once)) as gateway:
            found.append((gateway.base_url, asyncio.get_running_loop()))
            ready.set()
            await over.wait()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    assert ready.wait(60)
    [(base_url, loop)] = found
    yield base_url
    loop.call_soon_threadsafe(over.set)
    thread.join(60)
