"""What a scripted upstream answers, and how it misbehaves.

A `Script` and its faults are data. `wire` turns them into what goes over the socket, lazily: bytes
to send, and in between the faults that only the server can commit (`Act`). Nothing here does
I/O.
"""

from __future__ import annotations

import itertools
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

import antiphon.testing.faults as faults
from antiphon.testing.faults import Act, Fault

__all__ = ["Call", "Json", "Script", "echo", "whole", "wire"]

# A chat-completions object: Any is what JSON holds.
Json = dict[str, Any]

_BLOCK: Final = 64 * 1024
_ARGUMENT_PIECE: Final = 8
_ENDINGS: Final = (faults.Reset, faults.Cut, faults.Close, faults.ErrorChunk, faults.Endless)


class Call(msgspec.Struct, frozen=True):
    """A tool call of the scripted model."""

    name: str
    arguments: str = "{}"
    id: str | None = None


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """One answer. `text` is sent word by word, or in the given pieces.

    `interleave` mixes the arguments of several calls. `usage` is counted in words unless given;
    None leaves it out. `delay` is the pause before each chunk, in seconds.
    """

    text: str | Sequence[str] = ""
    reasoning: str = ""
    reasoning_as: Literal["reasoning_content", "reasoning", "think"] = "reasoning_content"
    refusal: str = ""
    calls: Sequence[Call] = ()
    interleave: bool = False
    finish_reason: str | None = None
    usage: Mapping[str, Any] | Literal["counted"] | None = "counted"
    model: str = "echo"
    delay: float = 0.0
    faults: Sequence[Fault] = ()

    def fault(self, kind: type[Fault]) -> Any:  # Any: the caller knows the kind it asked for
        """Return the fault of this kind, or None."""
        return next((fault for fault in self.faults if isinstance(fault, kind)), None)

    @property
    def stop(self) -> str:
        """Why the scripted model stops."""
        return self.finish_reason or ("tool_calls" if self.calls else "stop")

    def usage_of(self, body: Json) -> Mapping[str, Any] | None:
        """Return the usage to report for this request."""
        if self.usage != "counted":
            return self.usage
        prompt = sum(len(_text(m.get("content")).split()) for m in body.get("messages", ()))
        said = [*_pieces(self.reasoning), *_pieces(self.text), *_pieces(self.refusal)]
        completion = len(said) + sum(len(_pieces(call.arguments)) for call in self.calls)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        }


def echo(body: Json) -> Script:
    """Answer with the last user message, as far as max_tokens goes, a word each.

    A required tool is called with it if it is JSON.
    """
    users = [m for m in body.get("messages", ()) if m.get("role") == "user"]
    text = _text(users[-1].get("content")) if users else ""
    tools = body.get("tools") or ()
    if tools and body.get("tool_choice") not in (None, "auto", "none"):
        arguments = text if text.lstrip().startswith("{") else "{}"
        return Script(calls=[Call(tools[0]["function"]["name"], arguments)])
    words = _pieces(text)
    limit = body.get("max_tokens") or body.get("max_completion_tokens") or len(words)
    if limit < len(words):
        return Script(text=words[:limit], finish_reason="length")
    return Script(text=text)


def whole(script: Script, body: Json) -> Json:
    """Return the answer to a request that does not stream."""
    message: Json = {"role": "assistant", "content": None}
    for delta in _deltas(script):
        for field, value in delta.items():
            if field not in ("tool_calls", "role") and value:
                message[field] = (message.get(field) or "") + value
    if script.calls:
        message["tool_calls"] = [
            _opening(i, call, call.arguments) for i, call in enumerate(script.calls)
        ]
    answer = _envelope(script, "chat.completion")
    answer["choices"] = [{"index": 0, "message": message, "finish_reason": script.stop}]
    if usage := script.usage_of(body):
        answer["usage"] = usage
    return answer


def wire(script: Script, body: Json) -> Iterator[bytes | Act]:
    """Yield what a streamed answer puts on the socket, with the acts in their places."""
    pieces = _played(script, body)
    if script.fault(faults.Gzip):
        pieces = _zipped(pieces)
    if split := script.fault(faults.Split):
        pieces = _resplit(pieces, split.sizes)
    return pieces


def _played(script: Script, body: Json) -> Iterator[bytes | Act]:
    """Yield the frames of the answer, each fault just before the chunk it strikes."""
    frame = _framer(script)
    waiting = sorted(
        (fault for fault in script.faults if hasattr(fault, "after")),
        key=lambda fault: fault.after,
    )
    if script.fault(faults.Bom):
        yield b"\xef\xbb\xbf"
    frames = [frame(chunk) for chunk in _chunks(script, body)]
    if script.fault(faults.NoFinalBlank):
        frames[-1] = frames[-1].rstrip(b"\r\n")
    for sent in range(len(frames) + 1):
        last = sent == len(frames)
        while waiting and (last or waiting[0].after <= sent):
            fault = waiting.pop(0)
            yield from _strike(fault, frame, script)
            if isinstance(fault, _ENDINGS):
                return
        if not last:
            yield frames[sent]


def _strike(
    fault: Any,  # one of the faults with `after`
    frame: Callable[[bytes], bytes],
    script: Script,
) -> Iterator[bytes | Act]:
    match fault:
        case faults.Garbage():
            yield frame(b'{"choices": [{"delta": {"cont')
        case faults.BadUtf8():
            yield frame(b'{"choices":[{"index":0,"delta":{"content":"\xff\xfe"}}]}')
        case faults.HugeLine(size=size):
            yield b"data: "
            for start in range(0, size, _BLOCK):
                yield b"x" * min(_BLOCK, size - start)
            yield b"\n\n"
        case faults.Endless():
            again = frame(_encode(script, {"content": "again "}))
            while True:
                yield again
        case faults.ErrorChunk(error=error):
            yield frame(msgspec.json.encode({"error": dict(error)}))
        case faults.Reset() | faults.Cut() | faults.Close() | faults.Stall():
            yield fault


def _chunks(script: Script, body: Json) -> Iterator[bytes]:
    for delta in _deltas(script):
        yield _encode(script, delta)
    yield _encode(script, {}, script.stop)
    usage = script.usage_of(body)
    if usage and (body.get("stream_options") or {}).get("include_usage"):
        chunk = _envelope(script, "chat.completion.chunk")
        yield msgspec.json.encode({**chunk, "choices": [], "usage": usage})
    if not script.fault(faults.NoDone):
        yield b"[DONE]"


def _deltas(script: Script) -> Iterator[Json]:
    yield {"role": "assistant", "content": None}
    thoughts = _pieces(script.reasoning)
    if thoughts and script.reasoning_as == "think":
        thoughts = ["<think>", *thoughts, "</think>"]
    field: str = "content" if script.reasoning_as == "think" else script.reasoning_as
    yield from ({field: piece} for piece in thoughts)
    yield from ({"content": piece} for piece in _pieces(script.text))
    yield from ({"refusal": piece} for piece in _pieces(script.refusal))
    yield from ({"tool_calls": [piece]} for piece in _call_pieces(script))


def _call_pieces(script: Script) -> Iterator[Json]:
    runs = [[_opening(i, call), *_growth(i, call)] for i, call in enumerate(script.calls)]
    if not script.interleave:
        yield from itertools.chain.from_iterable(runs)
        return
    for row in itertools.zip_longest(*runs):
        yield from (piece for piece in row if piece is not None)


def _opening(index: int, call: Call, arguments: str = "") -> Json:
    function = {"name": call.name, "arguments": arguments}
    call_id = call.id or f"call_{index}"
    return {"index": index, "id": call_id, "type": "function", "function": function}


def _growth(index: int, call: Call) -> Iterator[Json]:
    for start in range(0, len(call.arguments), _ARGUMENT_PIECE):
        piece = call.arguments[start : start + _ARGUMENT_PIECE]
        yield {"index": index, "function": {"arguments": piece}}


def _encode(script: Script, delta: Json, finish: str | None = None) -> bytes:
    chunk = _envelope(script, "chat.completion.chunk")
    chunk["choices"] = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return msgspec.json.encode(chunk)


def _envelope(script: Script, kind: str) -> Json:
    return {"id": "chatcmpl-scripted", "object": kind, "created": 0, "model": script.model}


def _framer(script: Script) -> Callable[[bytes], bytes]:
    """Return how this script writes one event."""
    ends = script.fault(faults.LineEnds)
    end = ends.value.encode() if ends else b"\n"
    field = b"data:" if script.fault(faults.NoSpace) else b"data: "
    noise = b": comment" + end + b"event: ping" + end * 2 if script.fault(faults.Comments) else b""
    return lambda data: noise + field + data + end * 2


def _zipped(pieces: Iterator[bytes | Act]) -> Iterator[bytes | Act]:
    packer = zlib.compressobj(wbits=31)
    for piece in pieces:
        if isinstance(piece, bytes):
            yield packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH)
        else:
            yield piece
    yield packer.flush()


def _resplit(pieces: Iterator[bytes | Act], sizes: Sequence[int]) -> Iterator[bytes | Act]:
    turns = itertools.cycle(sizes)
    size, buffer = next(turns), b""
    for piece in pieces:
        if not isinstance(piece, bytes):
            if buffer:
                yield buffer
            buffer = b""
            yield piece
            continue
        buffer += piece
        while len(buffer) >= size:
            yield buffer[:size]
            buffer, size = buffer[size:], next(turns)
    if buffer:
        yield buffer


def _pieces(text: str | Sequence[str]) -> list[str]:
    """Return the given pieces, or the words with the spaces before them."""
    return re.findall(r"\s*\S+|\s+$", text) if isinstance(text, str) else list(text)


def _text(content: object) -> str:
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content)
    return content if isinstance(content, str) else ""
