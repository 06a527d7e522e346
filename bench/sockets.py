"""How much memory do idle WebSockets take?

A gateway with the scripted model in one process, the clients in others. Each client opens its
sockets and keeps them; then each has one short turn with `store: false`, so that the gateway
remembers it, and is idle again. The figures are the resident memory of the gateway's process.

    python bench/sockets.py [--sockets 10000] [--clients 4]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, cast

from processes import Process, Trouble, gateway, machine, run_loop, scratch

__all__ = ["main"]

_GOAL: Final = 250
_OPEN_AT_ONCE: Final = 100
_STEP_SECONDS: Final = 120.0
_SETTLE_SECONDS: Final = 2.0
_SPARE_FILES: Final = 200
_TURN: Final = json.dumps(
    {"type": "response.create", "model": "echo", "input": "Good morning.", "store": False}
).encode()
_MASK: Final = bytes(4)  # masking with zeros changes nothing, and is allowed
_PONG: Final = b"\x8a\x80" + _MASK


def main(sockets: int, clients: int) -> None:
    """Measure and print."""
    _allow_files(sockets + _SPARE_FILES)
    print(f"Idle WebSockets ({machine()})")
    with scratch() as directory:
        settings = directory / "antiphon.toml"
        settings.write_text('[providers.echo]\nwire_api = "scripted"\n')
        with gateway("--config", str(settings), store=directory / "store.db") as process:
            _measure(process, sockets, clients)


def _measure(process: Process, sockets: int, clients: int) -> None:
    with _holding(process.port, 1, 1) as warm:
        _tell(warm, "turn")
    before = process.memory
    print(f"{'before':<34}{before:8.1f} MiB")
    started, cpu = time.monotonic(), process.cpu
    with _holding(process.port, sockets, clients) as holders:
        seconds, cpu = time.monotonic() - started, process.cpu - cpu
        opened = _print_step(f"{sockets:,} open", process, before, sockets)
        print(f"{'':<34}{seconds:8.1f} s to open them, {cpu / sockets * 1e6:.0f} us of CPU each")
        _tell(holders, "turn")
        spoken = _print_step("the same, after a turn on each", process, before, sockets)
    verdict = "met" if max(opened, spoken) <= _GOAL else "missed"
    print(f"\ngoal: {sockets:,} in at most {_GOAL} MiB of the whole process: {verdict}")


def _print_step(name: str, process: Process, before: float, sockets: int) -> float:
    time.sleep(_SETTLE_SECONDS)
    memory = process.memory
    each = (memory - before) * 1024 / sockets
    print(f"{name:<34}{memory:8.1f} MiB {each:8.1f} KiB each")
    return memory


@contextmanager
def _holding(port: int, sockets: int, clients: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Run clients that together hold so many sockets open."""
    shares = [sockets // clients + (index < sockets % clients) for index in range(clients)]
    command = [sys.executable, __file__, "--hold", str(port), "--sockets"]
    holders = [
        subprocess.Popen(
            [*command, str(share)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for share in shares
    ]
    try:
        for holder in holders:
            _await_word(holder)
        yield holders
    finally:
        for holder in holders:
            holder.kill()
            holder.wait()


def _tell(holders: list[subprocess.Popen[str]], word: str) -> None:
    for holder in holders:
        assert holder.stdin is not None
        holder.stdin.write(f"{word}\n")
        holder.stdin.flush()
    for holder in holders:
        _await_word(holder)


def _await_word(holder: subprocess.Popen[str]) -> None:
    assert holder.stdout is not None
    if holder.stdout.readline() != "done\n":
        raise Trouble("a client could not open its sockets or have its turns")


def _allow_files(count: int) -> None:
    """Let this process, and so its children, have so many files open."""
    if sys.platform == "win32":
        raise Trouble("this needs the limits of a Unix system")
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise Trouble(f"the system allows {hard} open files; {count} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))


class _Client(asyncio.Protocol):
    """One socket: it shakes hands, answers pings, and can have a turn."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._tail = b""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        head = (
            f"GET /v1/responses HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nUser-Agent: bench\r\n"
            "Authorization: Bearer x\r\nOpenAI-Beta: responses_websockets=2026-02-06\r\n\r\n"
        )
        self._transport.write(head.encode())

    def ask(self) -> asyncio.Future[None]:
        """Begin a turn; the future is done when it has ended."""
        self.done = asyncio.get_running_loop().create_future()
        self._transport.write(b"\x81" + bytes([0x80 | len(_TURN)]) + _MASK + _TURN)
        return self.done

    def data_received(self, data: bytes) -> None:
        if data == b"\x89\x00":
            self._transport.write(_PONG)
            return
        self._tail = self._tail[-64:] + data
        is_over = self._tail.startswith(b"HTTP/1.1 101") or b'"response.completed"' in self._tail
        if is_over and not self.done.done():
            self._tail = b""
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(Trouble("the gateway hung up"))


def _itself(client: _Client) -> _Client:
    return client


async def _hold(port: int, count: int) -> None:
    """Open sockets, then do what the lines of stdin say, until it ends."""
    assert len(_TURN) < 126
    loop = asyncio.get_running_loop()
    clients: list[_Client] = []
    async with asyncio.timeout(_STEP_SECONDS):
        while len(clients) < count:
            some = [_Client(port) for _ in range(min(_OPEN_AT_ONCE, count - len(clients)))]
            for client in some:
                await loop.create_connection(partial(_itself, client), "127.0.0.1", port)
            await asyncio.gather(*(client.done for client in some))
            clients += some
    print("done", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        async with asyncio.timeout(_STEP_SECONDS):
            for start in range(0, count, _OPEN_AT_ONCE):
                some = clients[start : start + _OPEN_AT_ONCE]
                await asyncio.gather(*(client.ask() for client in some))
        print("done", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sockets", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--hold", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.hold is not None:
        run_loop(_hold(options.hold, options.sockets))
    else:
        main(options.sockets, options.clients)
