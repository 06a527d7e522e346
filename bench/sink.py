"""A chat completions server for attacks: it counts what it is sent and keeps none of it.

The name of the model says what comes back:

    | short     | one JSON completion of one word                                        |
    | endless   | a stream of tokens, as fast as the reader reads, until it leaves         |
    | deltas-N  | a stream of N tokens, 64 in each write                                   |

Runs as a process of its own and prints the port it listens on.

    python bench/sink.py
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Final, cast

from upstream import json_answer, stream_writes

__all__ = ["serve"]

_AT_ONCE: Final = 64
_MODEL: Final = re.compile(rb'"model": ?"([a-z]+)(?:-(\d+))?"')
_LENGTH: Final = re.compile(rb"(?i)content-length: *(\d+)")
_MODELS: Final = json_answer(
    {"object": "list", "data": [{"id": name} for name in ("short", "endless", "deltas-1000000")]}
)
_SHORT: Final = json_answer(
    {
        "id": "chatcmpl-bench",
        "object": "chat.completion",
        "created": 1_760_000_000,
        "model": "bench",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "yes"},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
)


def _writes(kind: bytes, count: bytes | None) -> Iterator[bytes]:
    if kind == b"short":
        return iter([_SHORT])
    first, block, last = stream_writes(_AT_ONCE, _AT_ONCE)
    if kind == b"endless":
        return chain([first], repeat(block))
    return chain([first], repeat(block, int(count or 0) // _AT_ONCE), [last])


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._head = b""
        self._missing = 0
        self._writes: Iterator[bytes] = iter(())
        self._is_paused = False
        self._is_gone = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        if not self._missing:
            self._head += data
            # The name of the model stands at the beginning of the body.
            if len(self._head) < 200 and not self._head.startswith(b"GET "):
                return
            head, _, body = self._head.partition(b"\r\n\r\n")
            if head.startswith(b"GET "):
                self._head = b""
                self._transport.write(_MODELS)
                return
            length = _LENGTH.search(head)
            model = _MODEL.search(body[:400])
            assert length is not None and model is not None
            self._kind = model
            self._missing = int(length[1])
            data = body
        self._missing -= len(data)
        if not self._missing:
            self._head = b""
            self._writes = _writes(self._kind[1], self._kind[2])
            self._go_on()

    def _go_on(self) -> None:
        if self._is_paused or self._is_gone:
            return
        data = next(self._writes, None)
        if data is not None:
            self._transport.write(data)
            self._loop.call_soon(self._go_on)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._go_on()

    def connection_lost(self, _: BaseException | None) -> None:
        self._is_gone = True


async def serve() -> None:
    """Listen on a free port of this machine until the process is ended."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Connection, "127.0.0.1", 0, backlog=1024)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    from processes import run_loop

    run_loop(serve())
