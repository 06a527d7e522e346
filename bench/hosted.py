"""What does the loop of hosted tools cost, in CPU per call?

A gateway with a scripted model and a scripted tool runs in a process of its own, with its store in
SQLite. Streamed turns make a few hosted calls or many; the difference in CPU time, divided by the
difference in calls, is what one call costs: gathering it, its item with five events, the barrier,
the result. Calls of one round share the next round of the model; otherwise each has its own.

    python bench/hosted.py [--turns 100]
    python bench/hosted.py --beside [--pairs 18]

The goal is 1.5 ms of CPU per call, and 20 ms from a call to its result.

With `--beside` it measures the others: 20 streams get an event every 20 ms, with the time at which
the model made it. In every second window of time, 4 turns make one hosted call of 100 ms after the
other. The goal is a p95 of the way from model to client that is at most 5 % longer there. Windows
are short and compared with their neighbours, because the machine may have other work.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from statistics import median, quantiles
from typing import Final

import aiohttp
from processes import cpu_seconds, machine, scratch

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import CallMade, Delta, Stopped, TextGrew
from antiphon.protocol.items import item_type, last_user_text
from antiphon.store.open import open_store
from antiphon.testing.gateway import serve_gateway
from antiphon.testing.tools import ScriptedTool, ToolStep
from antiphon.tools.base import HostedCall

__all__ = ["main", "measure_beside"]

_FEW, _MANY = 2, 14
_GOAL_MS: Final = 1.5
_GOAL_WALL_MS: Final = 20.0
_STREAMS, _EVENTS, _EVERY = 20, 150, 0.02
_BESIDE, _CALL_SECONDS = 4, 0.1
_WINDOW, _SETTLE = 1.5, 0.5
_GOAL_RATIO: Final = 1.05
_MCP: Final = {"type": "mcp", "server_label": "test", "require_approval": "never"}


def _script(plan: Plan) -> Iterator[Step]:
    """Make as many calls as the user says, in one round or one a round; then answer."""
    count, how = last_user_text(plan.items).split()
    if how == "stream":
        yield from _ticks(int(count))
        return
    done = sum(item_type(item) == "function_call_output" for item in plan.items)
    if done < int(count):
        numbers = range(done, int(count)) if how == "together" else range(done, done + 1)
        asked = '{"q":"slow"}' if how == "slow" else '{"q":"x"}'
        calls: list[Delta] = [CallMade("test__look", asked, f"c{n}") for n in numbers]
        yield calls
    else:
        yield TextGrew("Done.")
    yield Stopped("stop")


def _ticks(count: int) -> Iterator[Step]:
    """Yield an event at a time, with the time at which it is made.

    The pauses vary as those of real models do. Streams in step would all meet the same moment
    between two commits of the store, and the figure would depend on which one.
    """
    for _ in range(count):
        yield _after(random.uniform(0.5, 1.5) * _EVERY)
        yield TextGrew(f"{time.monotonic():.6f} ")
    yield Stopped("stop")


def _after(seconds: float) -> asyncio.Event:
    """Return an event that happens in so many seconds."""
    happens = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, happens.set)
    return happens


def _result(call: HostedCall) -> Iterator[ToolStep]:
    if "slow" in call.arguments:
        yield _after(_CALL_SECONDS)
    yield "a result of some length " * 10


async def _serve(store: str, ready: int) -> None:
    tool = ScriptedTool(_result)
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
        missed += (cpu > _GOAL_MS) + (wall > _GOAL_WALL_MS)
    return missed


class _Windows:
    """The ways of events in windows of time, every second one beside hosted calls."""

    def __init__(self, count: int) -> None:
        self._began = time.monotonic()
        self.ways: list[list[float]] = [[] for _ in range(count)]
        self.calls = 0

    @property
    def has_ended(self) -> bool:
        return self._place(time.monotonic())[0] >= len(self.ways)

    @property
    def is_beside(self) -> bool:
        """Whether hosted calls run now."""
        return self._place(time.monotonic())[0] % 2 == 1

    def note(self, made: float) -> None:
        """Note an event that has arrived; the beginning of a window does not count."""
        number, since = self._place(made)
        if number < len(self.ways) and since >= _SETTLE:
            self.ways[number].append(time.monotonic() - made)

    def _place(self, at: float) -> tuple[int, float]:
        number, since = divmod(at - self._began, _WINDOW)
        return int(number), since


async def _read(session: aiohttp.ClientSession, url: str, windows: _Windows) -> None:
    """Read one stream after the other."""
    body = {"model": "echo", "input": f"{_EVENTS} stream", "stream": True}
    while not windows.has_ended:
        async with session.post(f"{url}/responses", json=body) as answer:
            async for line in answer.content:
                if line.startswith(b"data: ") and b'"response.output_text.delta"' in line:
                    windows.note(float(json.loads(line[6:])["delta"]))


def _fork_callers(url: str, windows: _Windows) -> tuple[int, int]:
    """Run the hosted calls in a process of its own, so that reading them delays no stream."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            asyncio.run(_call_all(url, windows))
            os.write(write, str(windows.calls).encode())
        finally:
            os._exit(0)
    os.close(write)
    return pid, read


async def _call_all(url: str, windows: _Windows) -> None:
    await asyncio.gather(*(_call(url, windows, number) for number in range(_BESIDE)))


async def _call(url: str, windows: _Windows, number: int) -> None:
    """Run turns with hosted calls in every second window."""
    await asyncio.sleep(number * _CALL_SECONDS / _BESIDE)
    while not windows.has_ended:
        if windows.is_beside:
            await _turns(url, 1, _FEW, "slow")
            windows.calls += _FEW
        else:
            await asyncio.sleep(_EVERY)


async def measure_beside(url: str, pairs: int) -> int:
    """Measure the streams alone and beside hosted calls; return whether the goal was missed."""
    print(f"streams beside hosted calls ({machine()})")
    await _turns(url, 5, _MANY, "together")  # what is done once in a process
    windows = _Windows(2 * pairs)
    callers, calls = _fork_callers(url, windows)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(_read(session, url, windows) for _ in range(_STREAMS)))
    await asyncio.to_thread(os.waitpid, callers, 0)
    made = os.read(calls, 99).decode()
    p95 = [quantiles(ways, n=20)[-1] * 1000 for ways in windows.ways]
    alone, beside = p95[::2], p95[1::2]
    # A window is compared with the one before it and the one after it.
    around = [(a + b) / 2 for a, b in zip(alone, [*alone[1:], alone[-1]], strict=True)]
    ratio = median(b / a for a, b in zip(around, beside, strict=True))
    print(f"p95 alone {median(alone):.2f} ms, beside {made} calls {median(beside):.2f} ms")
    print(f"median of {pairs} pairs of windows: {100 * (ratio - 1):+.1f} %")
    return int(ratio > _GOAL_RATIO)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--beside", action="store_true")
    parser.add_argument("--pairs", type=int, default=18)
    given = parser.parse_args()
    with scratch() as directory:
        server, address = _fork(f"sqlite:{directory / 'store.db'}")
        try:
            if given.beside:
                found = asyncio.run(measure_beside(address, given.pairs))
            else:
                found = asyncio.run(main(server, address, given.turns))
        finally:
            os.kill(server, signal.SIGKILL)
    sys.exit(bool(found))
