"""How many machine instructions does an event take, stage by stage, without any I/O?

Counted by valgrind, so the figures hardly depend on the machine or on what else it does, and
they see what `pytest tests/speed` cannot: the work of C code. Each stage runs in a process of its
own, for some reads and for twice as many; the difference, by the events between them, is the cost
of one. An event comes alone, or 16 to a read.

    python bench/instructions.py        # two to three minutes; needs valgrind

| read    | the bytes of a chat model to deltas                                               |
| build   | deltas to events                                                                  |
| log     | events to a row of the log                                                        |
| write   | events to the bytes of a Responses stream                                         |
| listen  | these bytes to the response, as the client does it                                |
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from antiphon.protocol.codec import decode_events, encode_all_sse
from antiphon.protocol.events import Event
from antiphon.protocol.machines.accumulator import ResponseAccumulator
from antiphon.protocol.machines.builder import ResponseBuilder
from antiphon.protocol.machines.log import pack_events
from antiphon.protocol.response import Response
from antiphon.protocol.sse import SseDecoder
from antiphon.wires.chat.stream import ChatStream

__all__ = ["main"]

_READS: Final = 1000
_SIZES: Final = (1, 16)
_SECONDS: Final = 300.0
_COLLECTED: Final = re.compile(rb"Collected : (\d+)")


def _chunk(text: str) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice]}
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


def _builder() -> ResponseBuilder:
    return ResponseBuilder(Response(id="resp_1", model="m"), lambda prefix: f"{prefix}_1")


def _events(size: int) -> tuple[list[Event], list[Event]]:
    """Return the events that begin a stream, and those of one read."""
    builder, reader = _builder(), ChatStream()
    beginning = builder.start() + builder.feed_all(reader.feed(_chunk("A")))
    return beginning, builder.feed_all(reader.feed(_chunk(" word") * size))


def _read(reads: int, size: int) -> None:
    reader, data = ChatStream(), _chunk(" word") * size
    for _ in range(reads):
        reader.feed(data)


def _build(reads: int, size: int) -> None:
    builder, deltas = _builder(), ChatStream().feed(_chunk(" word") * size)
    builder.start()
    for _ in range(reads):
        builder.feed_all(deltas)


def _log(reads: int, size: int) -> None:
    events = _events(size)[1]
    for _ in range(reads):
        pack_events(events)


def _write(reads: int, size: int) -> None:
    events = _events(size)[1]
    for _ in range(reads):
        encode_all_sse(events)


def _listen(reads: int, size: int) -> None:
    decoder, accumulator, builder = SseDecoder(), ResponseAccumulator(), _builder()
    deltas = ChatStream().feed(_chunk(" word") * size)
    told = [builder.start(), *(builder.feed_all(deltas) for _ in range(reads))]
    for data in map(encode_all_sse, told):
        events: list[Event] = []
        decode_events(decoder.feed_lines(data), events)
        accumulator.feed_all(events)


_STAGES: Final[dict[str, Callable[[int, int], None]]] = {
    "read": _read,
    "build": _build,
    "log": _log,
    "write": _write,
    "listen": _listen,
}
# What a stage does besides itself, to have something to do, is counted and taken off.
_BESIDES: Final = {"listen": ("build", "write")}


def _count(stage: str, reads: int, size: int) -> int:
    """Return the instructions of a process that does this and nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={Path(folder) / 'out'}"]
        child = [sys.executable, __file__, stage, str(reads), str(size)]
        done = subprocess.run(
            [*command, *child],
            env=os.environ | {"PYTHONHASHSEED": "0"},
            capture_output=True,
            timeout=_SECONDS,
            check=True,
        )
    found = _COLLECTED.search(done.stderr)
    if found is None:
        raise SystemExit("valgrind did not say what it counted")
    return int(found[1])


def _cost(stage: str, size: int) -> float:
    return (_count(stage, 2 * _READS, size) - _count(stage, _READS, size)) / (_READS * size)


def main() -> None:
    """Count and print."""
    if shutil.which("valgrind") is None:
        raise SystemExit("this needs valgrind; `pytest -s tests/speed` counts without it")
    print("machine instructions for each event" + "".join(f"{size:>9} a read" for size in _SIZES))
    costs = {(stage, size): _cost(stage, size) for stage in _STAGES for size in _SIZES}
    for stage in _STAGES:
        besides = [[costs[other, size] for other in _BESIDES.get(stage, ())] for size in _SIZES]
        own = [costs[stage, size] - sum(besides[n]) for n, size in enumerate(_SIZES)]
        print(f"  {stage:<33}" + "".join(f"{cost:16,.0f}" for cost in own))


if __name__ == "__main__":
    if len(sys.argv) == 4:
        _STAGES[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
