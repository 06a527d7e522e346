"""Does `kill -9` run a hosted call twice, or hide that it ran? Never.

A turn makes two calls with effects, together or one after the other. A gateway is killed at every
boundary: after each event that the client has read, before each batch of the log, just before and
just after each effect. Another gateway takes over: with SQLite one that is started then, with
PostgreSQL one that runs beside it. Then, for each kill:

- no effect happened twice;
- an effect that happened has its call in the log (streams), or is counted in the notes (whole);
- what the client has read is a prefix of the log, which the referee finds right;
- the response is terminal within ten seconds.

    python bench/hosted_kill.py [--kills 100] [--store sqlite|postgres] [--lanes 4] [--seed 1]

Exits with 1 if one rule was broken once. With `--no-barrier` calls start before their intent is
durable: that must break rules, which shows that they are checked.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import random
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp
import msgspec
from hosted_victim import CALLS, Plan, fork_servers
from kill_nodes import database
from processes import machine, scratch

from antiphon.protocol.codec import decode_event
from antiphon.protocol.events import Event, ResponseCreated, sequence_of
from antiphon.protocol.machines.referee import judge_stream
from antiphon.protocol.sse import SseDecoder

__all__ = ["main"]

_DEADLINE_SECONDS: Final = 10.0
_PATIENCE: Final = 60.0
_EVENTS: Final = 34
_BATCHES: Final = 8
_TERMINAL: Final = frozenset({"completed", "failed", "incomplete", "cancelled"})
_MCP: Final = {"type": "mcp", "server_label": "test", "require_approval": "never"}


class Kill(NamedTuple):
    """One kill: how the turn runs, and when the process dies."""

    how: str
    streams: bool
    at: str
    """`event-5` is a kill from outside, after so many events."""


class Seen(msgspec.Struct):
    """What the client has read of a turn."""

    name: str
    kill: Kill
    events: list[Event] = []
    response_id: str = ""
    killed_at: float = 0.0


class Verdict(msgspec.Struct):
    """What was found."""

    kills: int = 0
    broken: list[str] = []
    effects: int = 0
    seconds: list[float] = []


def every_kill() -> list[Kill]:
    """Return every boundary."""
    inside = [f"{when}-{call}" for call in CALLS for when in ("before", "after")]
    streamed = [*(f"event-{number}" for number in range(1, _EVENTS + 1)), *inside]
    streamed += [f"append-{number}" for number in range(1, _BATCHES + 1)]
    kills = [Kill(how, True, at) for how in ("together", "apart") for at in streamed]
    return kills + [Kill(how, False, at) for how in ("together", "apart") for at in inside]


class Forker:
    """A process that forks servers. Made before there is an event loop or a thread."""

    def __init__(self) -> None:
        self._orders, theirs = multiprocessing.Pipe()
        self._pid = os.fork()
        if not self._pid:
            self._orders.close()
            fork_servers(theirs)
            os._exit(0)
        theirs.close()
        self._one_at_a_time: asyncio.Lock | None = None

    async def start(self, plan: Plan) -> tuple[int, str]:
        """Return the process of a new server, and its address."""
        self._one_at_a_time = self._one_at_a_time or asyncio.Lock()
        async with self._one_at_a_time:
            self._orders.send(plan)
            pid, url = await asyncio.to_thread(self._orders.recv)
        return pid, url

    def end(self) -> None:
        """Let it end."""
        self._orders.close()
        os.waitpid(self._pid, 0)


async def main(given: argparse.Namespace, forker: Forker) -> int:
    """Kill so often, print the figures, and return how many rules were broken."""
    verdict = Verdict()
    kills, store, lanes = given.kills, given.store, given.lanes
    began = time.monotonic()
    boundaries = every_kill()
    if kills < len(boundaries):
        boundaries = random.Random(given.seed).sample(boundaries, kills)
    planned = list(islice(cycle(boundaries), kills))
    with scratch() as directory:
        async with AsyncExitStack() as stack:
            pids: list[int] = []
            work = []
            shared = survivor = ""
            if store == "postgres":
                shared = await stack.enter_async_context(database(store, directory))
                pid, survivor = await forker.start(Plan(shared, ""))
                pids.append(pid)
            for lane in range(min(lanes, kills)):
                folder = directory / f"lane-{lane}"
                folder.mkdir()
                url = shared or await stack.enter_async_context(database(store, folder))
                mine = Plan(url, str(folder / "effects"), has_barrier=not given.no_barrier)
                work.append(_run_lane(forker, mine, planned[lane::lanes], verdict, survivor))
            await asyncio.gather(*work)
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
    print(f"hosted calls under kill -9 ({machine()})")
    print(f"{verdict.kills} kills, {store}, {time.monotonic() - began:.0f} s")
    print(f"{verdict.effects} effects, terminal after {_spread(verdict.seconds)} s")
    print(f"broken: {len(verdict.broken)}")
    for line in verdict.broken[:20]:
        print(f"  {line}")
    return len(verdict.broken)


async def _run_lane(
    forker: Forker, plan: Plan, kills: list[Kill], verdict: Verdict, survivor: str
) -> None:
    """Kill one server after the other.

    A survivor ends what they have left, or, without one, the server that comes next.
    """
    checks: list[asyncio.Task[None]] = []
    effects = Path(plan.effects)
    left: Seen | None = None
    for number, kill in enumerate([*kills, None]):
        inside = "" if kill is None or kill.at.startswith("event-") else kill.at
        pid, url = await forker.start(msgspec.structs.replace(plan, kill=inside))
        try:
            if left is not None:
                check = asyncio.create_task(_check(survivor or url, left, effects, verdict))
                checks.append(check)
                if not survivor:
                    await check
            if kill is not None:
                left = Seen(f"{effects.parent.name}.{number}", kill)
                await _ask_until_killed(url, left, pid)
                verdict.kills += 1
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    await asyncio.gather(*checks)


async def _ask_until_killed(url: str, seen: Seen, pid: int) -> None:
    most = int(seen.kill.at.partition("-")[2]) if seen.kill.at.startswith("event-") else None
    body = {
        "model": "echo",
        "input": f"{seen.name} {seen.kill.how}",
        "tools": [_MCP],
        "stream": seen.kill.streams,
        "metadata": {"name": seen.name},
    }
    with suppress(aiohttp.ClientError, ConnectionError):
        async for event in _events(url, body):
            seen.events.append(event)
            if isinstance(event, ResponseCreated):
                seen.response_id = event.response.id
            if len(seen.events) == most:
                break
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    seen.killed_at = time.monotonic()


@asynccontextmanager
async def _asking(
    method: str, url: str, body: object = None
) -> AsyncIterator[aiohttp.ClientResponse]:
    timeout = aiohttp.ClientTimeout(total=_PATIENCE)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.request(method, url, json=body) as answer,
    ):
        yield answer


async def _events(url: str, body: dict[str, Any]) -> AsyncIterator[Event]:
    async with _asking("POST", f"{url}/responses", body) as answer:
        if not body["stream"]:
            await answer.read()
            return
        decoder = SseDecoder()
        async for data in answer.content.iter_any():
            for frame in decoder.feed(data):
                if frame.data.startswith(b"{"):
                    yield decode_event(frame.data)


async def _check(url: str, seen: Seen, effects: Path, verdict: Verdict) -> None:
    """Hold what is there now against what was seen."""
    done = _effects_of(seen.name, effects)
    verdict.effects += done.total()
    where = f"{seen.name} {seen.kill}"
    verdict.broken += [f"{where}: {call} ran {n} times" for call, n in done.items() if n > 1]
    if not seen.response_id:
        return  # whole answers have no id that the client knows, nor has one without an event
    response = await _terminal(url, seen, verdict, where)
    async with _asking("GET", f"{url}/responses/{seen.response_id}?stream=true") as answer:
        decoder = SseDecoder()
        data = await answer.read()
        log = [decode_event(one.data) for one in decoder.feed(data) if one.data.startswith(b"{")]
    verdict.broken += [f"{where}: {one.message}" for one in judge_stream(log)]
    numbers = [sequence_of(event) for event in log]
    if numbers != list(range(len(log))):
        verdict.broken.append(f"{where}: the log has a gap")
    if log[: len(seen.events)] != seen.events:
        verdict.broken.append(f"{where}: what was read is not in the log")
    shown = [item for item in response["output"] if item["type"] == "mcp_call"]
    calls = {msgspec.json.decode(item["arguments"])["call"]: item for item in shown}
    verdict.broken += [f"{where}: {call} ran unseen" for call in done if call not in calls]
    for item in calls.values():
        is_sure = item["status"] == "completed"
        is_cut = item["status"] == "failed" and "restarted" in item["error"]["message"]
        if not is_sure and not is_cut:
            verdict.broken.append(f"{where}: a call ended as {item['status']}")


async def _terminal(url: str, seen: Seen, verdict: Verdict, where: str) -> dict[str, Any]:
    """Wait until the response has ended, and note how long that took."""
    while True:
        async with _asking("GET", f"{url}/responses/{seen.response_id}") as answer:
            response: dict[str, Any] = await answer.json()
        seconds = time.monotonic() - seen.killed_at
        if response.get("status") in _TERMINAL:
            break
        if seconds > _PATIENCE:
            raise TimeoutError(f"{where}: it never ended: {response}")
        await asyncio.sleep(0.1)
    verdict.seconds.append(seconds)
    if seconds > _DEADLINE_SECONDS:
        verdict.broken.append(f"{where}: it ended after {seconds:.1f} s")
    return response


def _effects_of(name: str, effects: Path) -> Counter[str]:
    """Return how often each call of a turn had its effect."""
    lines = effects.read_text().splitlines() if effects.exists() else []
    return Counter(call for turn, call in map(str.split, lines) if turn == name)


def _spread(seconds: list[float]) -> str:
    if not seconds:
        return "no"
    return f"{statistics.median(seconds):.2f} (median), {max(seconds):.2f} (most)"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--lanes", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-barrier", action="store_true")
    zygote = Forker()
    found = asyncio.run(main(parser.parse_args(), zygote))
    zygote.end()
    sys.exit(bool(found))
