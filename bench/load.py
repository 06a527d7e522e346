"""So many requests over so many connections, and were the answers whole?

Raw sockets and no JSON: an answer is complete when its Content-Length or its last chunk is
there, and right when its body holds `marker` exactly `times` times. One wrong answer ends the
run. Runs as a process of its own; reads a job as JSON from stdin and prints a result.

    echo '{"port": 4680, …}' | python bench/load.py
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any, Final, cast

__all__ = ["Failed", "run", "without_chunks"]

_MAX_SECONDS: Final = 120.0
_LAST_CHUNK: Final = b"\r\n0\r\n\r\n"


class Failed(Exception):
    """An answer that is not what was asked for."""


class _Run:
    """What all connections share: how many requests are left, and when all are done."""

    def __init__(self, job: dict[str, Any]) -> None:
        body = json.dumps(job["body"], separators=(",", ":")).encode()
        self.request = (
            f"POST {job['path']} HTTP/1.1\r\nHost: 127.0.0.1:{job['port']}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body
        self.left: int = job["requests"]
        self.open: int = job["requests"]
        self.marker: bytes = job["marker"].encode()
        self.times: int = job["times"]
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(self, why: str) -> None:
        if not self.done.done():
            self.done.set_exception(Failed(why))

    def note_end(self) -> None:
        self.open -= 1
        if not self.open and not self.done.done():
            self.done.set_result(None)


class _Client(asyncio.Protocol):
    def __init__(self, run: _Run) -> None:
        self._run = run
        self._pieces: list[bytes] = []
        self._tail = b""
        self._missing: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._ask()

    def _ask(self) -> None:
        if self._run.left:
            self._run.left -= 1
            self._transport.write(self._run.request)

    def data_received(self, data: bytes) -> None:
        if not self._pieces:
            self._missing = _missing(data)
        elif self._missing is not None:
            self._missing -= len(data)
        self._pieces.append(data)
        if self._missing is None:
            self._tail = (self._tail + data)[-len(_LAST_CHUNK) :]
        if self._missing == 0 or self._tail == _LAST_CHUNK:
            answer = b"".join(self._pieces)
            self._pieces, self._tail, self._missing = [], b"", None
            self._check(answer)

    def _check(self, answer: bytes) -> None:
        head, _, body = answer.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            self._run.fail(f"an answer begins with {answer[:300]!r}")
        if b"chunked" in head.lower():
            body = without_chunks(body)
        count = body.count(self._run.marker)
        if count != self._run.times:
            self._run.fail(f"an answer has {count} of {self._run.times} {self._run.marker!r}")
        self._run.note_end()
        self._ask()

    def connection_lost(self, _: BaseException | None) -> None:
        self._run.fail("a connection was closed")


def _missing(data: bytes) -> int | None:
    """Return how many bytes of the answer are still to come, or None if it has no length."""
    head, _, body = data.partition(b"\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
    return int(length) - len(body) if length else None


def without_chunks(body: bytes) -> bytes:
    """Return a chunked body without its framing; of one that was cut off, what is there."""
    parts = []
    start = 0
    while (line := body.find(b"\r\n", start)) > 0:
        size = int(body[start:line], 16)
        parts.append(body[line + 2 : line + 2 + size])
        start = line + 2 + size + 2
    return b"".join(parts)


async def run(job: dict[str, Any]) -> dict[str, float]:
    """Do the job; return its wall seconds and what it cost us. Raise Failed."""
    loop = asyncio.get_running_loop()
    state = _Run(job)
    began, cpu = time.monotonic(), time.process_time()
    transports = []
    for _ in range(job["connections"]):
        transport, _ = await loop.create_connection(
            lambda: _Client(state), "127.0.0.1", job["port"]
        )
        transports.append(transport)
    async with asyncio.timeout(_MAX_SECONDS):
        await state.done
    result = {"seconds": time.monotonic() - began, "cpu": time.process_time() - cpu}
    for transport in transports:
        transport.abort()
    return result


async def _main() -> None:
    sys.stdout.write(json.dumps(await run(json.load(sys.stdin))) + "\n")


if __name__ == "__main__":
    from processes import run_loop

    run_loop(_main())
