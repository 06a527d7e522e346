"""What does one owner's huge request do to all others, and to memory?

Starts a gateway and an upstream that keeps nothing, sends the attacks below one after the
other, and asks `GET /healthz` all the while from a process of its own. Prints for each attack
the longest wait of a small request (wall time, and the CPU time that the gateway used
meanwhile), what memory grew by at its peak and afterwards, the answers, how long the slowest took,
and the CPU time of the gateway.

    python bench/stalls.py                  all attacks
    python bench/stalls.py chain images     only those whose name begins so
    python bench/stalls.py --store memory: bodies
    python bench/stalls.py --address-limit 2500000000 bodies
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from processes import Process, Trouble, gateway, machine, pinging, run_loop, scratch, script

__all__ = ["ATTACKS", "Answer", "post"]

_PATH: Final = "/v1/responses"
_MIB: Final = 1 << 20
_SECONDS: Final = 120.0
_SETTLE_SECONDS: Final = 8.0  # freed memory is returned every five seconds


class Answer(NamedTuple):
    """The status of an answer, and its id or the code of its error."""

    status: int
    word: str
    seconds: float


async def post(port: int, body: bytes, path: str = _PATH) -> Answer:
    """Send one request; return what came back, also if the gateway does not read to the end."""
    began = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=64 * _MIB)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    sending = asyncio.create_task(_send(writer, head.encode(), body))
    try:
        async with asyncio.timeout(_SECONDS):
            answer = await reader.read()
    except (ConnectionError, TimeoutError) as error:
        return Answer(0, type(error).__name__, time.monotonic() - began)
    finally:
        sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending
        writer.close()
    return _read(answer, time.monotonic() - began)


async def _send(writer: asyncio.StreamWriter, head: bytes, body: bytes) -> None:
    with suppress(ConnectionError):
        writer.write(head)
        for start in range(0, len(body), _MIB):
            writer.write(body[start : start + _MIB])
            await writer.drain()


def _read(answer: bytes, seconds: float) -> Answer:
    head, _, data = answer.partition(b"\r\n\r\n")
    if not head:
        return Answer(0, "closed", seconds)
    status = int(head.split(b" ", 2)[1])
    try:
        body = json.loads(data)
    except ValueError:
        return Answer(status, "stream", seconds)
    return Answer(status, body.get("id") or body["error"]["code"], seconds)


def _body(items: object, **more: object) -> bytes:
    request = {"model": "short", "input": items, **more}
    return json.dumps(request, separators=(",", ":")).encode()


def _messages(count: int, text: str = "hi") -> list[object]:
    return [{"role": "user", "content": text} for _ in range(count)]


def _parts(count: int) -> list[object]:
    """Messages in the form in which they are stored: the most objects to a message."""
    part = {"type": "input_text", "text": "hi"}
    return [{"type": "message", "role": "user", "content": [part]} for _ in range(count)]


def _calls(count: int) -> list[object]:
    items: list[object] = []
    for number in range(count):
        call = f"call_{number}"
        items += [
            {"type": "function_call", "call_id": call, "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": call, "output": "ok"},
        ]
    return items


def _image(size: int) -> list[object]:
    part = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * size}
    return [{"role": "user", "content": [part]}]


async def _chain(port: int, body: Callable[[str | None], bytes], length: int) -> list[Answer]:
    """Send requests that continue each other, until one is refused."""
    answers: list[Answer] = []
    previous: str | None = None
    for _ in range(length):
        answer = await post(port, body(previous))
        answers.append(answer)
        if answer.status != 200:
            break
        previous = answer.word
    return answers


async def _follow(port: int, previous: str, times: int) -> list[Answer]:
    body = _body("and now?", previous_response_id=previous)
    return await asyncio.gather(*(post(port, body) for _ in range(times)))


async def _chained(port: int, items: list[object], times: int) -> list[Answer]:
    """Make a chain of ten, then continue its last response so many times at once."""
    body = partial(_continued, items)
    answers = await _chain(port, body, 10)
    heads = [answer.word for answer in answers if answer.status == 200]
    if heads:
        answers += await _follow(port, heads[-1], times)
    return answers


def _continued(items: list[object], previous: str | None) -> bytes:
    return _body(items, **({"previous_response_id": previous} if previous else {}))


async def _at_once(port: int, body: bytes, times: int) -> list[Answer]:
    return await asyncio.gather(*(post(port, body) for _ in range(times)))


async def _stalled(port: int, count: int) -> list[Answer]:
    """Ask for streams without end, read their beginning, and then nothing for a while."""
    writers = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        body = _body("go", stream=True, model="endless")
        writer.write(b"POST /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        writer.write(b"Content-Type: application/json\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        await reader.readexactly(12)
        writers.append(writer)
    await asyncio.sleep(8.0)
    for writer in writers:
        writer.close()
    return [Answer(200, "stalled", 8.0)] * count


async def _long(port: int, deltas: int, *, stored: bool) -> list[Answer]:
    """Read a stream of so many deltas to its end."""
    body = _body("go", stream=True, model=f"deltas-{deltas}", store=stored)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n")
    writer.write(b"Content-Type: application/json\r\n")
    writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    began, tail = time.monotonic(), b""
    while piece := await reader.read(_MIB):
        tail = (tail + piece)[-4096:]
    writer.close()
    is_whole = b"[DONE]" in tail
    return [Answer(200 if is_whole else 0, f"cut off: {tail[-200:]!r}", time.monotonic() - began)]


Attack = Callable[[int], Awaitable[list[Answer]]]

_LONG_BODY: Final = 31 * _MIB - 200_000

ATTACKS: Final[dict[str, Callable[[], Attack]]] = {
    "idle": lambda: lambda port: asyncio.sleep(3, [Answer(200, "idle", 3.0)]),
    "chain-30000x1": lambda: partial(_chained, items=_messages(30_000), times=1),
    "chain-30000x4": lambda: partial(_chained, items=_messages(30_000), times=4),
    "chain-largest x1": lambda: partial(_chained, items=_parts(1_900), times=1),
    "chain-largest x4": lambda: partial(_chained, items=_parts(1_900), times=4),
    "images x1": lambda: partial(_chained, items=_image(19 * 1000 * 1000), times=1),
    "images x6": lambda: partial(_chained, items=_image(19 * 1000 * 1000), times=6),
    "calls-10000 x1": lambda: partial(_at_once, body=_body(_calls(10_000)), times=1),
    "calls-10000 x4": lambda: partial(_at_once, body=_body(_calls(10_000)), times=4),
    "messages-33000 x1": lambda: partial(_at_once, body=_body(_messages(33_000)), times=1),
    "messages-33000 x4": lambda: partial(_at_once, body=_body(_messages(33_000)), times=4),
    "messages-19000 x1": lambda: partial(_at_once, body=_body(_parts(19_000)), times=1),
    "messages-19000 x4": lambda: partial(_at_once, body=_body(_parts(19_000)), times=4),
    "body-31MiB x1": lambda: partial(
        _at_once, body=_body(_messages(19_000, "word " * (_LONG_BODY // 19_000 // 5 - 8))), times=1
    ),
    "body-31MiB x4": lambda: partial(
        _at_once, body=_body(_messages(19_000, "word " * (_LONG_BODY // 19_000 // 5 - 8))), times=4
    ),
    "instructions-31MB x1": lambda: partial(
        _at_once, body=_body("hi", instructions="word " * 6_200_000), times=1
    ),
    "bodies-60x9MB": lambda: partial(
        _at_once, body=_body(_messages(9, "word " * 200_000)), times=60
    ),
    "stalled-readers x50": lambda: partial(_stalled, count=50),
    "deltas-10^6": lambda: partial(_long, deltas=1_000_000, stored=True),
    "deltas-10^6 not stored": lambda: partial(_long, deltas=1_000_000, stored=False),
}


def _peak(process: Process) -> float:
    """MiB of resident memory at most, since `_forget_peak`."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _forget_peak(process: Process) -> None:
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")


def _show(answers: list[Answer]) -> str:
    """Count the answers by status and error."""
    words = Counter(
        f"{one.status}" if one.status == 200 else f"{one.status} {one.word}" for one in answers
    )
    slowest = max(one.seconds for one in answers)
    return ", ".join(f"{count} x {what}" for what, count in words.items()) + f", {slowest:.1f} s"


async def _run(name: str, process: Process, attack: Attack) -> dict[str, Any]:
    _forget_peak(process)
    before, cpu = process.memory, process.cpu
    with pinging(process) as pings:
        await asyncio.sleep(0.3)
        answers = await attack(process.port)
    try:
        peak, cpu = _peak(process), process.cpu - cpu
        await asyncio.sleep(_SETTLE_SECONDS)
        after = process.memory
    except (OSError, IndexError):  # it is gone, or a zombie without memory
        return {"name": name, "dead": True, "answers": _show(answers)}
    return {
        "name": name,
        "pings": pings,
        "peak": peak - before,
        "after": after - before,
        "answers": f"{_show(answers)}, {cpu:.1f} s of CPU",
    }


def _line(result: dict[str, Any]) -> str:
    if result.get("dead"):
        return f"{result['name']:24} the gateway died; {result['answers']}"
    pings = result["pings"]
    stall = (
        "no pings"
        if not pings
        else (f"{pings['longest'] * 1000:6.0f} ms {pings['longest_cpu'] * 1000:6.0f} ms")
    )
    return (
        f"{result['name']:24} {stall} {result['peak']:+8.0f} MiB {result['after']:+8.0f} MiB  "
        f"{result['answers']}"
    )


async def _main(options: argparse.Namespace) -> None:
    chosen = [
        name
        for name in ATTACKS
        if not options.names or any(name.startswith(start) for start in options.names)
    ]
    if not chosen:
        raise Trouble(f"the attacks are {', '.join(ATTACKS)}")
    sys.stdout.write(f"{machine()}\n{'':24} {'longest wait, of CPU':>19} {'peak, after':>22}\n")
    with script("sink.py") as sink:
        for name in chosen:
            with scratch() as directory:
                flags = ["--log-level", "error", "--upstream", f"http://127.0.0.1:{sink.port}/v1"]
                if options.config:
                    flags += ["--config", options.config]
                with _gateway(flags, directory / "store.db", options) as process:
                    attack = ATTACKS[name]()
                    sys.stdout.write(_line(await _run(name, process, attack)) + "\n")
                    sys.stdout.flush()


@contextmanager
def _gateway(flags: list[str], store: Path, options: argparse.Namespace) -> Iterator[Process]:
    if options.store:
        flags = [*flags, "--store", options.store]
    before = resource.getrlimit(resource.RLIMIT_AS)
    if options.address_limit:
        resource.setrlimit(resource.RLIMIT_AS, (options.address_limit, before[1]))
    with gateway(*flags, store=store) as process:
        resource.setrlimit(resource.RLIMIT_AS, before)
        yield process


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Attack a gateway and measure what others feel.")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--store", default="")
    parser.add_argument("--config", default="")
    parser.add_argument("--address-limit", type=int, default=0)
    try:
        run_loop(_main(parser.parse_args()))
    except Trouble as trouble:
        sys.exit(str(trouble))
