"""Does a noisy owner delay the first event of another?

Two gateways with keys and stores of their own run in processes of their own. A quiet owner sends
one request after the other to the first. Windows of time follow each other in which

    alone     nobody else sends anything
    machine   a noisy owner sends all it can to the second gateway, over many connections
    beside    a noisy owner does the same to the first gateway

so `machine` shows what the same load does to a neighbour that it shares only the machine with: its
processors, its disk. The noise comes from a process of its own with a low priority.

    python bench/neighbours.py [--noisy 64] [--rounds 7] [--store memory:]

Beside the wait for the first event, it prints the CPU time that the event loop of the first gateway
used meanwhile: work for the quiet request and for all that came between. Other programs do not
change it much. The goal: p99 beside is at most twice p99 on the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median, quantiles
from typing import Final, NamedTuple

import aiohttp
from processes import machine, run_loop, scratch

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.gateway.assemble import ServerSettings
from antiphon.gateway.serve import settle_interpreter
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Stopped, TextGrew
from antiphon.server.auth import new_key
from antiphon.store.open import open_store
from antiphon.testing.gateway import serve_gateway

__all__ = ["main"]

_KINDS: Final = ("alone", "machine", "beside")
_WINDOW: Final = 2.0
_SETTLE: Final = 0.5
_PAUSE: Final = 0.005
_TOKENS: Final = 20
_GOAL: Final = 2.0


class Place(NamedTuple):
    """A gateway: its process, its URL, and the keys of its owners."""

    pid: int
    url: str
    quiet: str
    noisy: str

    @property
    def loop_cpu(self) -> float:
        """CPU milliseconds of the thread of its event loop; 0 where the system does not tell."""
        try:
            return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[0]) / 1e6
        except OSError:
            return 0.0


class Ask(NamedTuple):
    """Milliseconds until the first event: on the clock, and of the gateway's event loop."""

    wait: float
    loop: float


def _script(_: Plan) -> Iterator[Step]:
    for _ in range(_TOKENS):
        yield TextGrew("word ")
    yield Stopped("stop")


async def _serve(store_url: str, ready: int) -> None:
    store = open_store(store_url)
    keys = []
    for owner in ("quiet", "noisy"):
        key, record = new_key(owner, int(time.time()))
        await store.add_key(record)
        keys.append(key)
    settings = ServerSettings(require_keys=True)
    async with serve_gateway(ScriptedBackend(_script), store=store, settings=settings) as gateway:
        settle_interpreter()
        os.write(ready, f"{gateway.base_url} {' '.join(keys)}\n".encode())
        os.close(ready)
        await asyncio.Event().wait()


@contextmanager
def _gateway(store_url: str) -> Iterator[Place]:
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(read)
        try:
            run_loop(_serve(store_url, write))
        finally:
            os._exit(1)
    os.close(write)
    try:
        with os.fdopen(read) as answer:
            yield Place(pid, *answer.readline().split())
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


async def _ask(session: aiohttp.ClientSession, place: Place, key: str) -> Ask | None:
    """Make one turn; return what its first event took, or None if it was refused."""
    headers = {"Authorization": f"Bearer {key}"}
    body = {"model": "echo", "input": "hello", "stream": True}
    cpu, began = place.loop_cpu, time.monotonic()
    async with session.post(f"{place.url}/responses", json=body, headers=headers) as answer:
        await answer.content.readany()
        first = Ask((time.monotonic() - began) * 1000, place.loop_cpu - cpu)
        async for _ in answer.content.iter_any():
            pass
        if answer.status == 200:
            return first
    await asyncio.sleep(0.05)
    return None


def _kind(began: float) -> str:
    return _KINDS[int((time.monotonic() - began) / _WINDOW) % len(_KINDS)]


async def _make_noise(places: dict[str, Place], count: int, began: float, end: float) -> None:
    made: dict[str, int] = dict.fromkeys(places, 0)
    refused = 0
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def run() -> None:
            nonlocal refused
            while time.monotonic() < end:
                kind = _kind(began)
                if kind not in places:
                    await asyncio.sleep(0.02)
                    continue
                with suppress(aiohttp.ClientError):
                    is_made = await _ask(session, places[kind], places[kind].noisy) is not None
                    made[kind] += is_made
                    refused += not is_made

        await asyncio.gather(*(run() for _ in range(count)))
    counts = ", ".join(f"{count} ({kind})" for kind, count in made.items())
    print(f"the noisy owner made {counts} requests, {refused} were refused")
    sys.stdout.flush()


async def _measure(
    place: Place, other: Place, noisy: int, rounds: int
) -> tuple[dict[str, list[Ask]], int]:
    """Ask for so many rounds of windows; return the waits, and the process that made noise."""
    waits: dict[str, list[Ask]] = {kind: [] for kind in _KINDS}
    async with aiohttp.ClientSession() as session:
        for _ in range(20):
            await _ask(session, place, place.quiet)
        began = time.monotonic()
        end = began + len(_KINDS) * rounds * _WINDOW
        child = os.fork()
        if not child:
            os.nice(10)  # these processes share what may be two cores
            try:
                noise = _make_noise({"machine": other, "beside": place}, noisy, began, end)
                asyncio.run(noise)
            finally:
                os._exit(0)
        while time.monotonic() < end:
            at, kind = time.monotonic(), _kind(began)
            asked = await _ask(session, place, place.quiet)
            assert asked is not None, "the quiet owner was refused"
            if (at - began) % _WINDOW > _SETTLE:
                waits[kind].append(asked)
            await asyncio.sleep(_PAUSE)
    return waits, child


def main(place: Place, other: Place, noisy: int, rounds: int) -> int:
    """Measure, print, and return whether the goal was missed."""
    print(f"a quiet owner beside {noisy} connections of a noisy one ({machine()})")
    sys.stdout.flush()
    waits, child = asyncio.run(_measure(place, other, noisy, rounds))
    os.waitpid(child, 0)
    last = {}
    for kind, asked in waits.items():
        wait, loop = ([getattr(one, field) for one in asked] for field in Ask._fields)
        last[kind] = quantiles(wait, n=100)[-1]
        print(
            f"{kind:8} first event p50 {median(wait):6.1f} ms, p99 {last[kind]:6.1f} ms; "
            f"event loop p50 {median(loop):5.1f} ms, p99 {quantiles(loop, n=100)[-1]:5.1f} ms; "
            f"{len(asked)} requests"
        )
    print(
        f"p99 beside is {last['beside'] / last['alone']:.1f} times p99 alone, and "
        f"{last['beside'] / last['machine']:.1f} times p99 on the same machine (goal {_GOAL}); "
        f"load average {os.getloadavg()[0]:.1f}"
    )
    return int(last["beside"] > _GOAL * last["machine"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--noisy", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--store", help="memory: instead of SQLite on the disk")
    given = parser.parse_args()
    with scratch() as directory:
        urls = [given.store or f"sqlite:{directory / name}" for name in ("first.db", "other.db")]
        with _gateway(urls[0]) as first, _gateway(urls[1]) as second:
            missed = main(first, second, given.noisy, given.rounds)
    sys.exit(missed)
