"""Does a gateway under mixed load and upstream faults fail only where a fault was injected?

A real `antiphon serve` on SQLite, an upstream in a process of its own, and clients that send
turns in every mode: whole, streamed, in the background, over a WebSocket, in chains, in
conversations, with tools. The client decides which turns get an upstream fault and writes the
fault into the prompt, so it knows of each failure whether a fault explains it. After half of
its healthy answers the upstream closes the idle connection unannounced, half of these closes
cross the next request; that is not a fault and must not be seen. Each answer follows from its
prompt and is compared with it.

    python bench/soak.py [--seconds 300] [--clients 300] [--faults 0.1] [--pause 2] [--seed 1]

The exit code is 1 if a request failed without an injected fault, if an answer was wrong, or if
resident memory grew by more than 1 MB a minute after the first minute.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from typing import Final, NamedTuple

import aiohttp
from faulty import FAULTS, arguments_for, mark
from kill_load import MODEL, TERMINAL, Json, answer_to, events_in
from processes import Process, gateway, machine, run_loop, scratch, script

__all__ = ["Soak", "main"]

_MAX_SLOPE: Final = 1.0
_WARM_SECONDS: Final = 60.0
_READ_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.1
_TURNS: Final = 3
_TOOL: Final = {
    "type": "function",
    "name": "look",
    "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
}
_SETTINGS: Final = """
[providers.soak]
base_url = "{url}"

[upstream_limits]
first_byte = 30
idle = 30
"""


class Outcome(NamedTuple):
    """One request: how long it took, the fault that was injected, and how it failed, if it did."""

    mode: str
    seconds: float
    fault: str
    failure: str


class _Failed(Exception):
    """A request that did not succeed."""


class _Wrong(Exception):
    """An answer that claims success and is not what the model said."""


class Soak:
    """The clients, and what became of their requests."""

    def __init__(self, process: Process, until: float, options: argparse.Namespace) -> None:
        self.outcomes: list[Outcome] = []
        self.memory: list[tuple[float, float]] = []
        """Seconds since the start, and MiB of resident memory."""
        self._process = process
        self._began = time.monotonic()
        self._until = self._began + until
        self._options = options

    async def run(self) -> None:
        """Let all clients work until the time is over."""
        timeout = aiohttp.ClientTimeout(total=_READ_SECONDS)
        connector = aiohttp.TCPConnector(limit=0)
        base = f"http://127.0.0.1:{self._process.port}/v1"
        watching = asyncio.create_task(self._watch())
        async with aiohttp.ClientSession(
            timeout=timeout, connector=connector, read_bufsize=2**20
        ) as session:
            clients = (
                _Client(session, base, number, self.outcomes, self._options)
                for number in range(self._options.clients)
            )
            await asyncio.gather(*(client.run(self._until) for client in clients))
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching

    async def _watch(self) -> None:
        """Sample memory until cancelled, or until the gateway is gone, which its clients report."""
        with suppress(OSError, IndexError):
            while True:
                self.memory.append((time.monotonic() - self._began, self._process.memory))
                await asyncio.sleep(1.0)


class _Client:
    """Sends one kind of turns after the other, with pauses, until the time is over."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        base: str,
        number: int,
        outcomes: list[Outcome],
        options: argparse.Namespace,
    ) -> None:
        self._session = session
        self._base = base
        self._name = f"{number}"
        self._outcomes = outcomes
        self._dice = random.Random(options.seed * 100_003 + number)
        self._fault_share = options.faults
        self._pause = options.pause
        self._count = 0

    async def run(self, until: float) -> None:
        modes = [
            self._whole,
            self._stream,
            self._background,
            self._websocket,
            self._chain,
            self._conversation,
            self._tools,
        ]
        while True:
            await asyncio.sleep(self._dice.random() * 2 * self._pause)
            if time.monotonic() > until:
                return
            await self._dice.choice(modes)()

    def _prompt(self) -> tuple[str, str]:
        """Return the next prompt, and the name of the fault that it asks for, or nothing."""
        self._count += 1
        prompt = f"{self._name}-{self._count} please"
        if self._dice.random() >= self._fault_share:
            return prompt, ""
        fault = self._dice.choice(list(FAULTS))
        once = self._dice.choice(["", " once"])
        return f"{prompt} {mark(fault, self._dice.randrange(8), once)}", fault + once

    async def _note(self, mode: str, fault: str, work: Coroutine[None, None, Json]) -> Json | None:
        """Do the work; record how it went. Return its response, or None if it failed."""
        began, response, failure = time.monotonic(), None, ""
        try:
            response = await work
        except _Wrong as error:
            failure = f"WRONG {error}"
        except (_Failed, aiohttp.ClientError, TimeoutError, OSError) as error:
            failure = str(error) or type(error).__name__
        self._outcomes.append(Outcome(mode, time.monotonic() - began, fault, failure))
        return response

    async def _turn(self, mode: str, *, stream: bool, **more: object) -> Json | None:
        """Have one turn over HTTP."""
        prompt, fault = self._prompt()
        body: Json = {"model": MODEL, "input": prompt, "stream": stream, **more}
        work = self._streamed(body, prompt) if stream else self._posted(body, prompt)
        return await self._note(mode, fault, work)

    async def _posted(self, body: Json, prompt: str) -> Json:
        response = await self._call("POST", "/responses", body)
        _check(response, prompt)
        return response

    async def _streamed(self, body: Json, prompt: str) -> Json:
        async with self._session.post(f"{self._base}/responses", json=body) as reply:
            if reply.status != 200:
                raise _Failed(f"{reply.status} {(await reply.text())[:200]}")
            events = [event async for event in events_in(reply)]
        return _end_of(events, prompt)

    async def _call(self, method: str, path: str, body: Json | None = None) -> Json:
        async with self._session.request(method, self._base + path, json=body) as reply:
            if reply.status != 200:
                raise _Failed(f"{method} {reply.status} {(await reply.text())[:200]}")
            answer: Json = await reply.json()
            return answer

    async def _whole(self) -> None:
        await self._turn("whole", stream=False, store=self._dice.random() < 0.5)

    async def _stream(self) -> None:
        await self._turn("stream", stream=True, store=self._dice.random() < 0.5)

    async def _background(self) -> None:
        prompt, fault = self._prompt()
        await self._note("background", fault, self._polled(prompt))

    async def _polled(self, prompt: str) -> Json:
        body: Json = {"model": MODEL, "input": prompt, "background": True}
        response = await self._call("POST", "/responses", body)
        while response["status"] in ("queued", "in_progress"):
            await asyncio.sleep(_POLL_SECONDS)
            response = await self._call("GET", f"/responses/{response['id']}")
        _check(response, prompt)
        return response

    async def _websocket(self) -> None:
        try:
            async with self._session.ws_connect(f"{self._base}/responses") as socket:
                for _ in range(_TURNS):
                    prompt, fault = self._prompt()
                    await self._note("websocket", fault, _spoken(socket, prompt))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._outcomes.append(Outcome("websocket", 0.0, "", f"no socket: {error}"))

    async def _chain(self) -> None:
        more: Json = {}
        for _ in range(_TURNS):
            response = await self._turn("chain", stream=True, **more)
            if response is not None:
                more = {"previous_response_id": response["id"]}

    async def _conversation(self) -> None:
        made = await self._note("conversation", "", self._call("POST", "/conversations", {}))
        if made is None:
            return
        path, succeeded = f"/conversations/{made['id']}", 0
        for _ in range(_TURNS):
            response = await self._turn(
                "conversation", stream=self._dice.random() < 0.5, conversation=made["id"]
            )
            succeeded += response is not None
        await self._note("conversation", "", self._counted(f"{path}/items", 2 * succeeded))
        await self._note("conversation", "", self._call("DELETE", path))

    async def _counted(self, path: str, expected: int) -> Json:
        items = await self._call("GET", path)
        if len(items["data"]) != expected:
            raise _Wrong(f"a conversation has {len(items['data'])} items instead of {expected}")
        return items

    async def _tools(self) -> None:
        prompt, fault = self._prompt()
        body: Json = {"model": MODEL, "input": prompt, "tools": [_TOOL]}
        response = await self._note("tools", fault, self._called(body, prompt))
        if response is None:
            return
        prompt, fault = self._prompt()
        item = {
            "type": "function_call_output",
            "call_id": response["output"][-1]["call_id"],
            "output": prompt,
        }
        body = {"model": MODEL, "input": [item], "tools": [_TOOL]}
        body |= {"previous_response_id": response["id"]}
        await self._note("tools", fault, self._posted(body, prompt))

    async def _called(self, body: Json, prompt: str) -> Json:
        response = await self._call("POST", "/responses", body)
        if response["status"] != "completed":
            raise _Failed(f"{response['status']} {response['error']}")
        calls = [item for item in response["output"] if item["type"] == "function_call"]
        if [call["arguments"] for call in calls] != [arguments_for(prompt)]:
            raise _Wrong(f"the calls of {prompt!r} are {calls}")
        return response


async def _spoken(socket: aiohttp.ClientWebSocketResponse, prompt: str) -> Json:
    """Have one turn over a WebSocket."""
    await socket.send_json({"type": "response.create", "model": MODEL, "input": prompt})
    events: list[Json] = []
    async with asyncio.timeout(_READ_SECONDS):
        while not events or events[-1]["type"] not in (*TERMINAL, "error"):
            message = await socket.receive()
            if message.type is not aiohttp.WSMsgType.TEXT:
                raise _Failed(f"the socket was closed: {socket.close_code}")
            events.append(message.json())
    return _end_of(events, prompt)


def _end_of(events: list[Json], prompt: str) -> Json:
    """Return the response at the end of a stream. Raise if it failed, or is not in order."""
    if not events or events[-1]["type"] == "error":
        raise _Failed(f"the stream ended with {events[-1:]}")
    numbers = [event["sequence_number"] for event in events]
    if numbers != list(range(len(events))):
        raise _Wrong(f"sequence numbers {numbers}")
    if events[-1]["type"] not in TERMINAL:
        raise _Failed(f"the stream was cut off after {events[-1]['type']}")
    response: Json = events[-1]["response"]
    said = "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
    _check(response, prompt)
    if said != answer_to(prompt):
        raise _Wrong(f"the deltas of {prompt!r} are {said!r}")
    return response


def _check(response: Json, prompt: str) -> None:
    """Raise if a response failed, or says something else than the model did."""
    if response["status"] != "completed":
        raise _Failed(f"{response['status']} {response['error']}")
    parts = [part for item in response["output"] for part in item.get("content") or ()]
    text = "".join(part["text"] for part in parts)
    if text != answer_to(prompt):
        raise _Wrong(f"the answer to {prompt!r} is {text!r}")


def slope(samples: list[tuple[float, float]]) -> float:
    """Return by how much memory grows in a minute: the line of least squares."""
    count = len(samples)
    mean_x = sum(x for x, _ in samples) / count
    mean_y = sum(y for _, y in samples) / count
    spread = sum((x - mean_x) ** 2 for x, _ in samples)
    return 60 * sum((x - mean_x) * (y - mean_y) for x, y in samples) / spread


def _report(soak: Soak, seconds: float) -> bool:
    """Print what was seen; return whether the goals are met."""
    outcomes = soak.outcomes
    faulted = [one for one in outcomes if one.fault]
    healthy = [one for one in outcomes if not one.fault]
    wrong = [one for one in outcomes if one.failure.startswith("WRONG")]
    failed = [one for one in healthy if one.failure]
    modes = Counter(one.mode for one in outcomes)
    print(f"{len(outcomes)} requests: " + ", ".join(f"{n} {m}" for m, n in sorted(modes.items())))
    with_fault = sum(bool(one.failure) for one in faulted)
    print(f"with an injected fault: {len(faulted)}, of these failed: {with_fault}")
    print(f"failed without an injected fault: {len(failed)} (goal 0)")
    print(f"wrong answers: {len(wrong)} (goal 0)")
    for line, count in Counter(f"{o.mode}: {o.failure[:300]}" for o in [*failed, *wrong]).items():
        print(f"  {count} x {line}")
    for name, chosen in (("without a fault", healthy), ("all", outcomes)):
        times = sorted(one.seconds for one in chosen) or [0.0]
        p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
        print(f"latency, {name}: p50 {1000 * p50:.0f} ms, p99 {1000 * p99:.0f} ms")
    return _report_memory(soak, seconds) and not failed and not wrong


def _report_memory(soak: Soak, seconds: float) -> bool:
    long_enough = seconds >= 2 * _WARM_SECONDS
    start = _WARM_SECONDS if long_enough else seconds / 3
    samples = [(x, y) for x, y in soak.memory if x >= start]
    if len(samples) < 2:
        print("RSS: no samples; the gateway died, or the run is too short")
        return False
    growth = slope(samples) * 1.048576
    first, last = samples[0][1], samples[-1][1]
    goal = f"goal at most {_MAX_SLOPE:.0f}" if long_enough else "too short a run to judge"
    print(f"RSS after {start:.0f} s: {growth:+.2f} MB/min ({goal}); {first:.0f} to {last:.0f} MiB")
    print("MiB every 30 s: " + ", ".join(f"{y:.0f}" for _, y in soak.memory[::30]))
    return growth <= _MAX_SLOPE or not long_enough


def main(options: argparse.Namespace) -> bool:
    """Measure and print; return whether the goals are met."""
    print(f"Soak: {options.seconds:.0f} s, {options.clients} clients ({machine()})", flush=True)
    with scratch() as directory, script("faulty.py", options.seed) as upstream:
        settings = directory / "antiphon.toml"
        settings.write_text(_SETTINGS.format(url=f"http://127.0.0.1:{upstream.port}/v1"))
        flags = ("--config", str(settings), "--log-level", "error")
        with gateway(*flags, store=directory / "store.db") as process:
            soak = Soak(process, options.seconds, options)
            run_loop(soak.run())
    return _report(soak, options.seconds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Mixed load with upstream faults.")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--clients", type=int, default=300)
    parser.add_argument("--faults", type=float, default=0.1, help="share of turns with a fault")
    parser.add_argument("--pause", type=float, default=2.0, help="mean seconds between turns")
    parser.add_argument("--seed", type=int, default=1)
    sys.exit(not main(parser.parse_args()))
