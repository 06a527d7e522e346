"""A Responses server that costs next to nothing: every answer is encoded beforehand.

The name of the model says what comes back, so there is nothing to configure:

    | fast     | a stream of 10,000 text deltas, as fast as the reader reads                   |
    | single   | the same, one event in each write, with a turn of the event loop in between   |
    | whole    | a response of 150 tokens, a thought, a tool call and two tools, as JSON       |

As real servers send them, each event is an HTTP chunk of its own. Runs as a process of its own
and prints the port it listens on.

    python bench/native.py
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final, cast

__all__ = [
    "DELTAS",
    "EVENTS",
    "MESSAGE_ID",
    "serve",
    "stream_frames",
    "whole_message",
    "whole_response",
]

DELTAS: Final = 10_000
EVENTS: Final = DELTAS + 8
MESSAGE_ID: Final = "msg_bench00000000"
_WORDS: Final = 150
_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n%b\r\n"
_PLACE: Final = {"item_id": MESSAGE_ID, "output_index": 0, "content_index": 0}
_TOOLS: Final = [
    {
        "type": "function",
        "name": name,
        "description": "What a lighthouse needs to know before the night begins.",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string"}, "hour": {"type": "integer"}},
            "required": ["place", "hour"],
            "additionalProperties": False,
        },
    }
    for name in ("get_weather", "get_tide")
]

Json = dict[str, Any]


def _response(status: str, output: list[Json], tokens: int) -> Json:
    usage = {
        "input_tokens": 25,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 25 + tokens,
    }
    return {
        "id": "resp_bench",
        "object": "response",
        "created_at": 1_760_000_000,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "model": "bench",
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": {"effort": None, "summary": None},
        "safety_identifier": None,
        "service_tier": "default",
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": usage if status == "completed" else None,
        "user": None,
        "metadata": {},
    }


def _message(status: str, parts: list[Json]) -> Json:
    return {
        "id": MESSAGE_ID,
        "type": "message",
        "status": status,
        "content": parts,
        "role": "assistant",
    }


def _part(text: str) -> Json:
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


def _words(count: int) -> list[str]:
    return [f" w{number:04}" for number in range(count)]


def _events(words: Sequence[str]) -> Iterator[Json]:
    """Yield the events of a stream, as api.openai.com writes them."""
    text = "".join(words)
    message = _message("completed", [_part(text)])
    yield {"type": "response.created", "response": _response("in_progress", [], 0)}
    yield {"type": "response.in_progress", "response": _response("in_progress", [], 0)}
    added = _message("in_progress", [])
    yield {"type": "response.output_item.added", "output_index": 0, "item": added}
    yield {"type": "response.content_part.added", **_PLACE, "part": _part("")}
    for word in words:
        delta = {"delta": word, "logprobs": [], "obfuscation": "x7Qm2aB"}
        yield {"type": "response.output_text.delta", **_PLACE, **delta}
    yield {"type": "response.output_text.done", **_PLACE, "text": text, "logprobs": []}
    yield {"type": "response.content_part.done", **_PLACE, "part": _part(text)}
    yield {"type": "response.output_item.done", "output_index": 0, "item": message}
    yield {"type": "response.completed", "response": _response("completed", [message], len(words))}


def _encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _chunk(payload: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def stream_frames(words: Sequence[str]) -> list[bytes]:
    """Return the SSE events of a stream of these words."""
    return [
        b"event: %b\ndata: %b\n\n"
        % (event["type"].encode(), _encode({**event, "sequence_number": number}))
        for number, event in enumerate(_events(words))
    ]


def _stream() -> list[bytes]:
    """Return the head and the chunks of the stream, one for each event."""
    head = _HEAD % (b"text/event-stream", b"Transfer-Encoding: chunked\r\n")
    return [head, *map(_chunk, stream_frames(_words(DELTAS))), _chunk(b"")]


def whole_message(words: Sequence[str]) -> Json:
    """Return a response of these words alone."""
    return _response("completed", [_message("completed", [_part("".join(words))])], len(words))


def whole_response() -> bytes:
    """Return a typical response as JSON."""
    thought = {
        "id": "rs_bench",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "The keeper wants to know the tide."}],
        "encrypted_content": "x" * 400,
    }
    call = {
        "id": "fc_bench",
        "type": "function_call",
        "status": "completed",
        "call_id": "call_bench",
        "name": "get_tide",
        "arguments": '{"place":"the cape","hour":21}',
    }
    message = _message("completed", [_part("".join(_words(_WORDS)))])
    return _encode(_response("completed", [thought, message, call], _WORDS) | {"tools": _TOOLS})


def _whole() -> bytes:
    data = whole_response()
    return _HEAD % (b"application/json", b"Content-Length: %d\r\n" % len(data)) + data


@cache
def _answers() -> dict[bytes, list[bytes]]:
    stream = _stream()
    return {
        b'"model":"fast"': [b"".join(stream)],
        b'"model":"single"': stream,
        b'"model":"whole"': [_whole()],
    }


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._received = bytearray()
        self._writes: Iterator[bytes] = iter(())
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
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(rest) >= length:
            self._received = rest[length:]
            self._answer(bytes(rest[:length]).replace(b": ", b":"))

    def _answer(self, body: bytes) -> None:
        self._writes = iter(next(writes for name, writes in _answers().items() if name in body))
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
    _answers()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Connection, "127.0.0.1", 0, backlog=1024)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    from processes import run_loop

    run_loop(serve())
