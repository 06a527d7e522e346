"""Does a healthy upstream that closes idle connections unannounced cost a caller anything?

The upstream runs in a process of its own. It answers every request, and closes each connection
that has been idle for a random time, without `Connection: close` (`--announced` sends that
header instead, for comparison). Of the reused connections a share is closed at the worst moment:
when the next request is on its way. Clients send requests with random pauses, so that the
gateway's pool always holds connections that are about to be closed. Printed are the statuses and
latencies that the clients saw.

    python bench/stale.py [--requests 10000] [--clients 32] [--idle-ms 4] [--crossed 0.5]
                          [--announced]
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from typing import Final, cast

from processes import gateway, machine, run_loop, scratch, script
from upstream import json_answer, whole_answer

__all__ = ["main"]

_BODY: Final = b'{"model":"whole","input":"Good morning.","store":false}'
_MODELS: Final = json_answer({"object": "list", "data": [{"id": "whole"}]})
_WAIT_SECONDS: Final = 120.0


def main(
    requests: int, clients: int, idle_ms: float, crossed: float, *, is_announced: bool
) -> None:
    """Measure and print."""
    how = "announced" if is_announced else "unannounced"
    print(f"Upstream closes idle connections, {how} ({machine()})")
    flags = ["--upstream-side", "--idle-ms", idle_ms, "--crossed", crossed]
    flags += ["--announced"] if is_announced else []
    with scratch() as directory, script("stale.py", *flags) as upstream:
        url = f"http://127.0.0.1:{upstream.port}/v1"
        with gateway("--upstream", url, store=directory / "store.db") as process:
            load = _Load(process.port, requests, idle_ms / 1000)
            run_loop(load.run(clients))
    load.report()


class _Load:
    """Requests of several clients, and what they were answered."""

    def __init__(self, port: int, requests: int, pause: float) -> None:
        self._port = port
        self._left = requests
        self._pause = pause
        self._statuses: Counter[str] = Counter()
        self._seconds: list[float] = []

    async def run(self, clients: int) -> None:
        """Send all requests."""
        await asyncio.gather(*(self._client() for _ in range(clients)))

    async def _client(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        head = (
            f"POST /v1/responses HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(_BODY)}\r\n\r\n"
        ).encode()
        try:
            while self._left > 0:
                self._left -= 1
                await asyncio.sleep(random.random() * self._pause)
                started = time.perf_counter()
                writer.write(head + _BODY)
                self._statuses[await _status(reader)] += 1
                self._seconds.append(time.perf_counter() - started)
        finally:
            writer.close()

    def report(self) -> None:
        """Print what was seen."""
        total = sum(self._statuses.values())
        bad = total - self._statuses["200"]
        times = sorted(self._seconds)
        statuses = ", ".join(f"{count} x {status}" for status, count in self._statuses.items())
        print(f"{total} answers: {statuses}; not 200: {bad} ({100 * bad / total:.2f} %)")
        print(
            f"latency: p50 {1000 * times[len(times) // 2]:.1f} ms, "
            f"p99 {1000 * times[int(len(times) * 0.99)]:.1f} ms, longest {1000 * times[-1]:.1f} ms"
        )


async def _status(reader: asyncio.StreamReader) -> str:
    """Read an answer; return its status."""
    async with asyncio.timeout(_WAIT_SECONDS):
        head = await reader.readuntil(b"\r\n\r\n")
        size = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
        await reader.readexactly(int(size))
    return head.split(b" ", 2)[1].decode()


class _Closing(asyncio.Protocol):
    """Answers every request, and closes the connection when it was idle for a random time."""

    def __init__(self, idle: float, crossed: float, *, is_announced: bool) -> None:
        self._idle = idle
        self._crossed = crossed
        self._is_announced = is_announced
        self._data = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._timer is not None:
            self._timer.cancel()
            if random.random() < self._crossed:
                self._transport.abort()
                return
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        size = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
        if not found or len(body) < int(size or 0):
            return
        self._data = b""
        answer = _MODELS if head.startswith(b"GET") else whole_answer(len(body))
        if self._is_announced:
            answer = answer.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n", 1)
        self._transport.write(answer)
        if self._is_announced:
            self._transport.close()
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(random.random() * 2 * self._idle, self._transport.close)


async def _serve(idle: float, crossed: float, *, is_announced: bool) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: _Closing(idle, crossed, is_announced=is_announced), "127.0.0.1", 0
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--idle-ms", type=float, default=4.0)
    parser.add_argument("--crossed", type=float, default=0.5)
    parser.add_argument("--announced", action="store_true")
    parser.add_argument("--upstream-side", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.upstream_side:
        run_loop(_serve(given.idle_ms / 1000, given.crossed, is_announced=given.announced))
        sys.exit()
    main(
        given.requests,
        given.clients,
        given.idle_ms,
        given.crossed,
        is_announced=given.announced,
    )
