"""Can any request make the gateway answer with an error of its own, die, or stall?

Sends damaged requests of every route and damaged WebSocket frames to a real `antiphon serve` on
SQLite, over several connections, while `pinger.py` asks `GET /healthz`. The upstream answers
everything properly, so a 5xx is the gateway's own. Prints the answers by status, each 5xx body
once, and the longest stall that the pinger saw. A request whose length or headers are damaged may
have no answer: the server waits for the rest, and the client leaves. All others must have one.

    python bench/fuzz.py [--requests 100000] [--seed 1] [--clients 16]

The exit code is 1 on any 5xx, on a failure of the server's own inside a stream, on a request that
is left without an answer, or if the process died.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import time
from collections import Counter
from typing import Any, Final

from fuzz_cases import UPGRADE, Maker, Request
from load import without_chunks
from processes import Process, gateway, machine, pinging, run_loop, scratch, script

from antiphon.testing import Call, Script, ScriptedUpstream

__all__ = ["Fuzz", "main"]

_ANSWER_SECONDS: Final = 60.0
_BROKEN_SECONDS: Final = 0.3
_SOCKET_SHARE: Final = 20  # one of so many requests is a WebSocket
_FRAME_SECONDS: Final = 0.3
_MAX_IDS: Final = 200
_SILENCE: Final = "closed without an answer"
_SHOWN: Final = 1500
_ID: Final = re.compile(rb'"id":"((?:resp|conv|msg|fc)_[^"]{1,80})"')
_OUR_FAULT: Final = b"this is our fault"


class Fuzz:
    """The clients, and what they were answered."""

    def __init__(self, port: int, requests: int, seed: int) -> None:
        self.statuses: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        """What the gateway itself did wrong, each with the request that caused it first."""
        self.causes: dict[str, bytes] = {}
        self._port = port
        self._left = requests
        self._seed = seed
        self._ids: list[str] = []

    async def run(self, clients: int) -> None:
        """Send all requests."""
        await asyncio.gather(*(self._client(number) for number in range(clients)))

    async def _client(self, number: int) -> None:
        maker = Maker(self._seed * 1009 + number)
        wire: _Wire | None = None
        while self._left > 0:
            self._left -= 1
            maker.ids += self._ids[-5:]
            del maker.ids[3:-_MAX_IDS]
            if self._left % _SOCKET_SHARE == 0:
                await self._socket(maker.frames())
                continue
            request = maker.request()
            wire = wire or await _Wire.open(self._port)
            answer = await wire.ask(request)
            self._note(answer, request)
            if not answer or not wire.is_usable(request, answer):
                wire.close()
                wire = None
        if wire is not None:
            wire.close()

    async def _socket(self, frames: bytes) -> None:
        """Open a WebSocket, send the frames, and read what comes for a moment."""
        wire = await _Wire.open(self._port)
        answer = await wire.talk(frames)
        wire.close()
        errors = re.findall(rb'"type":"error","status":(\d+)', answer)
        self.statuses.update(f"WebSocket {status.decode()}" for status in errors)
        if not errors:
            self.statuses["WebSocket"] += 1
        for status in errors:
            if status.startswith(b"5"):
                self._blame(answer[answer.index(b'"type":"error"') :], frames)
        self._look_inside(answer, frames)

    def _note(self, answer: bytes, sent: Request) -> None:
        silence = _SILENCE if sent.has_sound_frame else "no answer, damaged length or headers"
        status, request = answer[9:12].decode("latin-1") or silence, sent.data
        self.statuses[status] += 1
        head, _, body = answer.partition(b"\r\n\r\n")
        if status.startswith("5") or status == _SILENCE:
            self._blame(head.split(b"\r\n")[0] + b" " + body, request)
        else:
            self._look_inside(body, request)
        self._ids += [found.decode() for found in _ID.findall(answer)[:2]]
        del self._ids[:-_MAX_IDS]

    def _look_inside(self, body: bytes, request: bytes) -> None:
        """A stream whose head is 200 can fail by the server's own fault too."""
        if (place := body.find(_OUR_FAULT)) >= 0:
            self._blame(body[max(0, place - 300) : place + 300], request)

    def _blame(self, what: bytes, request: bytes) -> None:
        text = re.sub(r"(resp|conv|msg|req|fc)_\w+", r"\1_…", what[:_SHOWN].decode("latin-1"))
        self.faults[text] += 1
        self.causes.setdefault(text, request)


class _Wire:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> _Wire:
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=2**24))

    async def ask(self, request: Request) -> bytes:
        """Return the answer, unchunked; empty if there was none in time."""
        patience = _ANSWER_SECONDS if request.has_sound_frame else _BROKEN_SECONDS
        try:
            self._writer.write(request.data)
            async with asyncio.timeout(patience):
                head = await self._reader.readuntil(b"\r\n\r\n")
                while head[9:12] == b"100":
                    head = await self._reader.readuntil(b"\r\n\r\n")
                return head + await self._body(head.lower(), is_head=request.is_head)
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError) as error:
            if request.has_sound_frame and isinstance(error, TimeoutError):
                raise
            return b""

    async def _body(self, head: bytes, *, is_head: bool) -> bytes:
        if is_head or head[9:12] in (b"204", b"304", b"101"):
            return b""
        size = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
        if size:
            return await self._reader.readexactly(int(size))
        if b"transfer-encoding: chunked" in head:
            return without_chunks(await self._reader.readuntil(b"\r\n0\r\n\r\n"))
        return await self._reader.read()

    def is_usable(self, request: Request, answer: bytes) -> bool:
        """Whether the next request can go over the same connection."""
        head = answer.partition(b"\r\n\r\n")[0].lower()
        closes = b"\r\nconnection: close" in head or head.startswith(b"http/1.0")
        return request.has_sound_frame and not closes and not self._reader.at_eof()

    async def talk(self, frames: bytes) -> bytes:
        """Become a WebSocket, send the frames; return what came back in a moment."""
        received = b""
        try:
            self._writer.write(UPGRADE)
            async with asyncio.timeout(_ANSWER_SECONDS):
                await self._reader.readuntil(b"\r\n\r\n")
            self._writer.write(frames)
            async with asyncio.timeout(_FRAME_SECONDS):
                while piece := await self._reader.read(2**16):
                    received += piece
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
            pass
        return received

    def close(self) -> None:
        self._writer.transport.abort()


def main(options: argparse.Namespace) -> bool:
    """Measure and print; return whether all is well."""
    print(f"Fuzz: {options.requests} requests, seed {options.seed} ({machine()})", flush=True)
    with scratch() as directory, script("fuzz.py", "--upstream-side") as upstream:
        url = f"http://127.0.0.1:{upstream.port}/v1"
        flags = ("--upstream", url, "--log-level", "error")
        with gateway(*flags, store=directory / "store.db") as process:
            fuzz = Fuzz(process.port, options.requests, options.seed)
            began = time.monotonic()
            with pinging(process) as pings:
                run_loop(fuzz.run(options.clients))
            seconds = time.monotonic() - began
            is_alive = _is_alive(process)
    return _report(fuzz, pings, seconds, is_alive=is_alive)


def _is_alive(process: Process) -> bool:
    try:
        return process.memory > 0
    except (OSError, IndexError):  # it is gone, or a zombie without memory
        return False


def _report(fuzz: Fuzz, pings: dict[str, float], seconds: float, *, is_alive: bool) -> bool:
    for status, count in sorted(fuzz.statuses.items()):
        print(f"{count:8} x {status}")
    total, wrong = sum(fuzz.statuses.values()), fuzz.faults.total()
    print(f"{total} answers in {seconds:.0f} s; 5xx or left without one: {wrong} (goal 0)")
    for what, count in fuzz.faults.items():
        print(f"{count} x {what}\n   first caused by {fuzz.causes[what][:_SHOWN]!r}")
    if pings:
        longest, cpu = 1000 * pings["longest"], 1000 * pings["longest_cpu"]
        print(f"longest stall of {pings['count']} pings: {longest:.0f} ms, of CPU {cpu:.0f} ms")
    else:
        print("the pinger lost the gateway")
    print("the gateway is alive" if is_alive else "the gateway died")
    return not fuzz.faults and bool(pings) and is_alive


def _play(body: dict[str, Any]) -> Script:
    """Answer as a sound model would: call what must be called, and give JSON for JSON."""
    tools, choice = body.get("tools"), body.get("tool_choice")
    if isinstance(tools, list) and tools and choice not in (None, "auto", "none"):
        named = choice if isinstance(choice, dict) else tools[0]
        return Script(calls=[Call(named["function"]["name"], "{}")])
    return Script(text="{}" if body.get("response_format") else "All is well.")


async def _serve() -> None:
    async with ScriptedUpstream(_play, remember=False) as upstream:
        print(upstream.base_url.rpartition(":")[2].removesuffix("/v1"), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Damaged requests for every route.")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--upstream-side", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.upstream_side:
        run_loop(_serve())
        sys.exit()
    sys.exit(not main(given))
