"""What does an upstream connection cost: reading a stream over TLS, and being idle?

The client's transport alone, without a gateway: a process reads streams of prepared bytes from a
server on loopback, then opens many connections at once and lets them become idle. With `--before`
the transport of another checkout runs in turn with this one, so that the load of the machine
meets both alike; the ratios are those of neighbouring runs.

    python bench/connections.py [--rounds 5] [--before TREE]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import re
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from processes import Trouble, machine, run_loop, scratch, script

__all__ = ["main"]

_EVENTS: Final = 100_000
_LONE_EVENTS: Final = 5_000
_STREAMS: Final = 8
_IDLE: Final = 300
_SECONDS: Final = 300.0
_EVENT: Final = (
    b'data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1760000000,'
    b'"model":"bench","choices":[{"index":0,"delta":{"content":" token"}}]}\n\n'
)
_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
_CHUNK: Final = b"%x\r\n%b\r\n" % (len(_EVENT), _EVENT)
_END: Final = b"0\r\n\r\n"
_REQUEST: Final = re.compile(rb"POST /(\w+)/(\d+) ")
_FIGURES: Final = {
    "plain": "plain, 16 events to a write: CPU us an event",
    "tls": "TLS, 16 events to a write: CPU us an event",
    "lone": "TLS, one event to a write: CPU us an event",
    "idle": "idle connection, plain: KiB",
    "idle_tls": "idle connection, TLS: KiB",
}


def main(rounds: int, before: Path | None) -> None:
    """Measure in turns and print the medians."""
    trees = {"before": before.resolve()} if before else {}
    trees["now"] = Path(__file__).resolve().parent.parent
    print(f"The transport alone ({machine()})")
    print(f"medians of {rounds}; {_STREAMS} streams at once, {_IDLE} idle connections\n")
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
    with scratch() as directory:
        certificate = _make_certificate(directory)
        servers = script("connections.py", "--serve", certificate)
        with script("connections.py", "--serve") as plain, servers as secure:
            for _ in range(rounds):
                for name, tree in trees.items():
                    runs[name].append(_measure(tree, certificate, (plain.port, secure.port)))
    print(f"{'':46}" + "".join(f"{name:>10}" for name in trees) + f"{'ratio':>10}")
    for figure, title in _FIGURES.items():
        medians = [statistics.median(run[figure] for run in found) for found in runs.values()]
        line = f"{title:46}" + "".join(f"{value:10.2f}" for value in medians)
        if before:
            pairs = zip(runs["now"], runs["before"], strict=True)
            ratio = statistics.median(now[figure] / old[figure] for now, old in pairs)
            line += f"{ratio:10.2f}"
        print(line)


def _measure(tree: Path, certificate: Path, ports: tuple[int, int]) -> dict[str, float]:
    paths = {"PYTHONPATH": str(tree / "src"), "SSL_CERT_FILE": str(certificate)}
    done = subprocess.run(
        [sys.executable, __file__, "--read", *map(str, ports)],
        env={**os.environ, **paths},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode:
        raise Trouble(done.stderr.strip().splitlines()[-1])
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _make_certificate(directory: Path) -> Path:
    path = directory / "server.pem"
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1")
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    files = ("-keyout", str(path), "-out", str(directory / "certificate.pem"))
    command = ["openssl", "req", "-x509", *kind, *subject, *files]
    subprocess.run(command, check=True, capture_output=True)
    with path.open("ab") as file:
        file.write((directory / "certificate.pem").read_bytes())
    return path


# The reader, in a process of its own.


async def _read(plain: int, secure: int) -> None:
    from antiphon.transport.http import HttpClient, Limits

    client = HttpClient(limits=Limits(connect=_SECONDS))
    http, https = f"http://127.0.0.1:{plain}", f"https://127.0.0.1:{secure}"
    found = {
        "plain": await _cost(client, f"{http}/many", _EVENTS),
        "tls": await _cost(client, f"{https}/many", _EVENTS),
        "lone": await _cost(client, f"{https}/lone", _LONE_EVENTS),
    }
    await client.close()
    for name, url in (("idle", http), ("idle_tls", https)):
        client = HttpClient(limits=Limits(connect=_SECONDS))
        await _stream(client, f"{url}/many/16")
        before = _private_kib()
        streams = [_stream(client, f"{url}/wait/{_IDLE}") for _ in range(_IDLE)]
        await asyncio.gather(*streams)
        gc.collect()
        found[name] = (_private_kib() - before) / _IDLE
        await client.close()
    print(json.dumps(found))


async def _cost(client: object, url: str, events: int) -> float:
    """Return the CPU microseconds of this process for one event, the first run not counted."""
    each = events // _STREAMS
    await asyncio.gather(*(_stream(client, f"{url}/160") for _ in range(_STREAMS)))
    started = time.process_time()
    sizes = await asyncio.gather(*(_stream(client, f"{url}/{each}") for _ in range(_STREAMS)))
    cpu = time.process_time() - started
    if sizes != [each * len(_EVENT)] * _STREAMS:
        raise Trouble(f"streams of {sizes} bytes instead of {each * len(_EVENT)} each")
    return cpu * 1e6 / (each * _STREAMS)


async def _stream(client: object, url: str) -> int:
    from antiphon.transport.stream import open_stream

    sizes: list[int] = []

    def take(data: bytes) -> bool:
        sizes.append(len(data))
        return True

    async with await open_stream(client, url, b"{}") as stream:  # type: ignore[arg-type] # of any tree
        while data := await stream.read_or_hear(take):
            take(data)
    return sum(sizes)


def _private_kib() -> int:
    text = Path("/proc/self/smaps_rollup").read_text()
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Private_"))


# The server, in a process of its own.


class _Server:
    """Answers `/many/N` and `/lone/N` with N events, and `/wait/N` when N requests wait."""

    def __init__(self) -> None:
        self._waiting = 0
        self._go = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(2)
                found = _REQUEST.match(head)
                assert found is not None
                writer.write(_HEAD)
                if found[1] == b"wait":
                    await self._wait_for(int(found[2]))
                for part in _writes(found[1], int(found[2])):
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(0)
        writer.close()

    async def _wait_for(self, count: int) -> None:
        self._waiting += 1
        go = self._go
        if self._waiting == count:
            self._waiting, self._go = 0, asyncio.Event()
            go.set()
        await go.wait()


def _writes(kind: bytes, count: int) -> Iterator[bytes]:
    if kind == b"many":
        yield from (_CHUNK * 16 for _ in range(count // 16))
        yield _CHUNK * (count % 16)
    elif kind == b"lone":
        yield from (_CHUNK for _ in range(count))
    yield _END


async def _serve(certificate: str | None) -> None:
    context = None
    if certificate:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate)
    server = await asyncio.start_server(
        _Server().serve, "127.0.0.1", 0, ssl=context, backlog=2 * _IDLE
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--before", type=Path, help="another checkout, measured in turn")
    parser.add_argument("--serve", nargs="?", const="", help=argparse.SUPPRESS)
    parser.add_argument("--read", nargs=2, type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve is not None:
        run_loop(_serve(given.serve or None))
    elif given.read:
        run_loop(_read(*given.read))
    else:
        main(given.rounds, given.before)
