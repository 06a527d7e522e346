"""What does the loop of hosted tools cost, in CPU per call?

A gateway with a scripted model and a scripted tool runs in a process of its own, with its store in
SQLite. Streamed turns make a few hosted calls or many; the difference in CPU time, divided by the
difference in calls, is what one call costs: gathering it, its item with five events, the barrier,
the result. Calls of one round share the next round of the model; otherwise each has its own.

    python bench/hosted.py [--turns 100]

The goal is 1.5 ms of CPU per call, and 20 ms from a call to its result.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Final

import aiohttp
from processes import cpu_seconds, machine, scratch

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import CallMade, Delta, Stopped, TextGrew
from antiphon.protocol.items import item_type, last_user_text
from antiphon.store.open import open_store
from antiphon.testing.gateway import serve_gateway
from antiphon.testing.tools import ScriptedTool

__all__ = ["main"]

_FEW, _MANY = 2, 14
_GOAL_MS: Final = 1.5
_GOAL_WALL_MS: Final = 20.0
_MCP: Final = {"type": "mcp", "server_label": "test", "require_approval": "never"}


def _script(plan: Plan) -> Iterator[Step]:
    """Make as many calls as the user says, in one round or one a round; then answer."""
    count, how = last_user_text(plan.items).split()
    done = sum(item_type(item) == "function_call_output" for item in plan.items)
    if done < int(count):
        numbers = range(done, int(count)) if how == "together" else range(done, done + 1)
        calls: list[Delta] = [CallMade("test__look", '{"q":"x"}', f"c{n}") for n in numbers]
        yield calls
    else:
        yield TextGrew("Done.")
    yield Stopped("stop")


async def _serve(store: str, ready: int) -> None:
    tool = ScriptedTool(lambda call: ["a result of some length " * 10])
    backend = ScriptedBackend(_script)
    async with serve_gateway(backend, store=open_store(store), tools=[tool]) as gateway:
        os.write(ready, f"{gateway.base_url}\n".encode())
        os.close(ready)
        await asyncio.Event().wait()


def _fork(store: str) -> tuple[int, str]:
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(read)
        try:
            asyncio.run(_serve(store, write))
        finally:
            os._exit(1)
    os.close(write)
    with os.fdopen(read) as answer:
        return pid, answer.readline().strip()


async def _turns(url: str, turns: int, calls: int, how: str) -> float:
    """Run turns one after the other; return how many seconds they took."""
    began = time.monotonic()
    body = {"model": "echo", "input": f"{calls} {how}", "tools": [_MCP], "stream": True}
    async with aiohttp.ClientSession() as session:
        for _ in range(turns):
            async with session.post(f"{url}/responses", json=body) as answer:
                data = await answer.read()
            assert data.count(b"event: response.mcp_call.completed\n") == calls, data
    return time.monotonic() - began


async def main(pid: int, url: str, turns: int) -> int:
    """Measure, print, and return how many goals were missed."""
    print(f"the loop of hosted tools ({machine()})")
    missed = 0
    for how in ("together", "apart"):
        await _turns(url, 5, _MANY, how)  # what is done once in a process
        spent: list[tuple[float, float]] = []
        for calls in (_FEW, _MANY):
            before = cpu_seconds(pid)
            wall = await _turns(url, turns, calls, how)
            spent.append((cpu_seconds(pid) - before, wall))
        more = turns * (_MANY - _FEW)
        cpu, wall = ((b - a) / more * 1000 for a, b in zip(*spent, strict=True))
        print(f"{how:9} {cpu:6.2f} ms CPU, {wall:6.2f} ms wall per call")
        missed += (how == "together" and cpu > _GOAL_MS) + (wall > _GOAL_WALL_MS)
    return missed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=100)
    given = parser.parse_args()
    with scratch() as directory:
        server, address = _fork(f"sqlite:{directory / 'store.db'}")
        try:
            found = asyncio.run(main(server, address, given.turns))
        finally:
            os.kill(server, signal.SIGKILL)
    sys.exit(bool(found))
