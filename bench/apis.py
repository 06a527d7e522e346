"""What does a server of each API write for the same tokens?

An answer is a beginning, an SSE event for each token, and an end, in the shape in which the
vendor's own server writes them. `read_request` finds out which API and which model a request
is for: Gemini names the model in the path, all others in the body.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from native import stream_frames

__all__ = ["APIS", "Answer", "Api", "read_request"]

Api = Literal["chat", "responses", "messages", "gemini"]

_PATHS: Final[dict[bytes, Api]] = {
    b"/responses": "responses",
    b"/messages": "messages",
    b":streamGenerateContent": "gemini",
    b":generateContent": "gemini",
}
_MODEL: Final = re.compile(rb'"model": ?"(\w+)"')
_MODEL_IN_PATH: Final = re.compile(rb"/models/(\w+):")
_PROMPT_TOKENS: Final = 20


class Answer(NamedTuple):
    """The events of a streamed answer."""

    begin: bytes
    tokens: list[bytes]
    end: bytes


def read_request(head: bytes, body: bytes) -> tuple[Api, str]:
    """Return the API and the model of a request, `whole` if it names none."""
    target = head.split(b" ", 2)[1].partition(b"?")[0]
    api = next((api for end, api in _PATHS.items() if target.endswith(end)), "chat")
    found = _MODEL_IN_PATH.search(target) or _MODEL.search(body)
    return api, found[1].decode() if found else "whole"


def _data(value: object) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode()


def _chat(words: Sequence[str]) -> Answer:
    def event(choices: list[object], **more: object) -> bytes:
        body = {
            "id": "chatcmpl-bench",
            "object": "chat.completion.chunk",
            "created": 1_760_000_000,
            "model": "bench",
            "choices": choices,
        }
        return _data(body | more) + b"\n\n"

    def choice(delta: dict[str, str], reason: str | None = None) -> list[object]:
        return [{"index": 0, "delta": delta, "finish_reason": reason}]

    count = len(words)
    usage = {"prompt_tokens": _PROMPT_TOKENS, "completion_tokens": count}
    usage["total_tokens"] = _PROMPT_TOKENS + count
    return Answer(
        event(choice({"role": "assistant"})),
        [event(choice({"content": word})) for word in words],
        event(choice({}, "stop")) + event([], usage=usage) + b"data: [DONE]\n\n",
    )


def _responses(words: Sequence[str]) -> Answer:
    """Return the answer of native.py: four events before the first token, four after the last."""
    frames = stream_frames(words)
    return Answer(b"".join(frames[:4]), frames[4:-4], b"".join(frames[-4:]))


def _messages(words: Sequence[str]) -> Answer:
    def event(kind: str, **fields: object) -> bytes:
        return b"event: %b\n%b\n\n" % (kind.encode(), _data({"type": kind, **fields}))

    message = {
        "id": "msg_bench",
        "type": "message",
        "role": "assistant",
        "model": "bench",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": _PROMPT_TOKENS, "output_tokens": 1},
    }
    stop = {"stop_reason": "end_turn", "stop_sequence": None}
    return Answer(
        event("message_start", message=message)
        + event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        [
            event("content_block_delta", index=0, delta={"type": "text_delta", "text": word})
            for word in words
        ],
        event("content_block_stop", index=0)
        + event("message_delta", delta=stop, usage={"output_tokens": len(words)})
        + event("message_stop"),
    )


def _gemini(words: Sequence[str]) -> Answer:
    """Return a chunk for each token. Gemini's own have twenty to sixty of them."""

    def chunk(text: str, made: int, **more: object) -> bytes:
        content = {"parts": [{"text": text}], "role": "model"}
        counts = {
            "promptTokenCount": _PROMPT_TOKENS,
            "candidatesTokenCount": made,
            "totalTokenCount": _PROMPT_TOKENS + made,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": _PROMPT_TOKENS}],
        }
        fields = {
            "candidates": [{"content": content, "index": 0, **more}],
            "usageMetadata": counts,
            "modelVersion": "bench",
            "responseId": "bench",
        }
        return _data(fields) + b"\r\n\r\n"

    tokens = [chunk(word, number) for number, word in enumerate(words, 1)]
    return Answer(b"", tokens, chunk("", len(words), finishReason="STOP"))


APIS: Final[Mapping[Api, Callable[[Sequence[str]], Answer]]] = MappingProxyType(
    {"chat": _chat, "responses": _responses, "messages": _messages, "gemini": _gemini}
)
