"""A model server that costs next to nothing: every answer is encoded beforehand.

Streams are in the API that the path asks for (`apis.py`), whole answers in chat completions or
Responses.

The name of the model says what comes back, so there is nothing to configure:

    | whole   | one JSON completion of 100 tokens                                          |
    | burst   | a stream of 512 tokens, 16 in each write, as fast as the reader reads      |
    | paced   | a stream of 100 tokens, one in each write, 25 a second                     |

The usage of `whole` counts four bytes of request to a token, so that a caller can see how much
was sent. Runs as a process of its own and prints the port it listens on.

    python bench/upstream.py
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from typing import Final, cast

from apis import APIS, Api, read_request
from native import whole_message

__all__ = [
    "BURST_TOKENS",
    "LAST_WORD",
    "PACED_TOKENS",
    "WHOLE_TOKENS",
    "json_answer",
    "serve",
    "stream_writes",
    "whole_answer",
]

WHOLE_TOKENS: Final = 100
BURST_TOKENS: Final = 512
PACED_TOKENS: Final = 100
LAST_WORD: Final = f"w{WHOLE_TOKENS - 1:04}"

_TOKENS_A_WRITE: Final = 16
_PACE_SECONDS: Final = 0.04
_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n%b\r\n"


def _frame(payload: bytes) -> bytes:
    """Return the bytes as one chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def stream_writes(
    tokens: int, tokens_a_write: int, text: str = " w{:04}", api: Api = "chat"
) -> list[bytes]:
    """Return the writes of a whole streamed answer, head and end included.

    `text` is what a token says, as a format of its number.
    """
    head = _HEAD % (b"text/event-stream", b"Transfer-Encoding: chunked\r\n")
    begin, words, end = APIS[api]([text.format(number) for number in range(tokens)])
    blocks = [
        _frame(b"".join(words[start : start + tokens_a_write]))
        for start in range(0, tokens, tokens_a_write)
    ]
    return [head + (_frame(begin) if begin else b""), *blocks, _frame(end) + _frame(b"")]


def json_answer(body: object) -> bytes:
    """Return a whole answer with this body."""
    data = json.dumps(body, separators=(",", ":")).encode()
    return _HEAD % (b"application/json", b"Content-Length: %d\r\n" % len(data)) + data


def whole_answer(request_bytes: int, api: Api = "chat") -> bytes:
    """Return an answer of 100 tokens to a request of that size: chat completions or Responses."""
    words = [f" w{number:04}" for number in range(WHOLE_TOKENS)]
    if api == "responses":
        return json_answer(whole_message(words))
    message = {"role": "assistant", "content": "".join(words)}
    sent = request_bytes // 4
    return json_answer(
        {
            "id": "chatcmpl-bench",
            "object": "chat.completion",
            "created": 1_760_000_000,
            "model": "bench",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {
                "prompt_tokens": sent,
                "completion_tokens": WHOLE_TOKENS,
                "total_tokens": sent + WHOLE_TOKENS,
            },
        }
    )


_PACES: Final = {"burst": 0.0, "paced": _PACE_SECONDS}
_STREAMS: Final = {
    (api, model): stream_writes(tokens, size, api=api)
    for model, tokens, size in (
        ("burst", BURST_TOKENS, _TOKENS_A_WRITE),
        ("paced", PACED_TOKENS, 1),
    )
    for api in APIS
}
_NAMES: Final = ("whole", "burst", "paced")
_MODELS: Final = json_answer({"object": "list", "data": [{"id": name} for name in _NAMES]})
_GEMINI_MODELS: Final = json_answer(
    {
        "models": [
            {"name": f"models/{name}", "supportedGenerationMethods": ["generateContent"]}
            for name in _NAMES
        ]
    }
)


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._received = bytearray()
        self._writes: Iterator[bytes] = iter(())
        self._pace = 0.0
        self._is_paused = False
        self._is_gone = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, rest = self._received.partition(b"\r\n\r\n")
        if not found:
            return
        if head.startswith(b"GET "):
            self._received = rest
            self._transport.write(_GEMINI_MODELS if b" /v1beta/" in head else _MODELS)
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(rest) >= length:
            self._received = rest[length:]
            self._answer(bytes(head), bytes(rest[:length]))

    def _answer(self, head: bytes, body: bytes) -> None:
        api, model = read_request(head, body[:400])
        writes = _STREAMS.get((api, model))
        if writes is None:
            self._transport.write(whole_answer(len(body), api))
            return
        self._writes, self._pace = iter(writes), _PACES[model]
        self._go_on()

    def _go_on(self) -> None:
        """Write once, then let the other streams have their turn."""
        if self._is_paused or self._is_gone:
            return
        data = next(self._writes, None)
        if data is None:
            return
        self._transport.write(data)
        if self._pace:
            self._loop.call_later(self._pace, self._go_on)
        else:
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
