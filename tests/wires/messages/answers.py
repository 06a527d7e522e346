"""Answers of a Messages server, made from the message that they lead to.

`stream` writes a message as Anthropic streams it: content in deltas, a ping, spaces at the end of
events. `TWINS` are messages of the kinds that its servers send, in our own words.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

__all__ = ["RECORDINGS", "TWINS", "event", "message", "recordings", "stream"]

Block = Mapping[str, Any]

RECORDINGS: Final = Path(__file__).parents[4] / "shared" / "recordings" / "messages"
_GROWS: Final = {
    "text": ("text", "text_delta", "text"),
    "thinking": ("thinking", "thinking_delta", "thinking"),
}


def recordings() -> list[Any]:
    """Return the recorded streams of real services, or one that is skipped if there are none."""
    found = sorted(RECORDINGS.glob("*.sse"))
    if found:
        return [pytest.param(path.read_bytes(), id=path.stem[:30]) for path in found]
    skip = pytest.mark.skip(reason="shared/recordings is not beside the project")
    return [pytest.param(b"", id="recordings", marks=skip)]


def message(
    *content: Block, stop: str = "end_turn", usage: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """Return a whole message."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-test",
        "content": list(content),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5, **(usage or {})},
        **more,
    }


def event(kind: str, padding: int = 0, **fields: Any) -> bytes:
    """Return one event."""
    data = json.dumps({"type": kind, **fields}, separators=(",", ":"), ensure_ascii=False)
    return f"event: {kind}\ndata: {data[:-1]}{' ' * padding}}}\n\n".encode()


def stream(whole: Mapping[str, Any], size: int = 3) -> bytes:
    """Return the message as a stream, its texts in pieces of so many characters."""
    return b"".join(_events(whole, size))


def _events(whole: Mapping[str, Any], size: int) -> Iterator[bytes]:
    first = {"input_tokens": whole["usage"].get("input_tokens", 0), "output_tokens": 1}
    begin = {**whole, "content": [], "stop_reason": None, "usage": first}
    yield event("message_start", message=begin)
    for index, block in enumerate(whole["content"]):
        yield from _block(index, block, size)
        yield event("ping")
    names = ("stop_reason", "stop_sequence", "stop_details")
    stop = {name: whole[name] for name in names if name in whole}
    yield event("message_delta", 3, delta=stop, usage=whole["usage"])
    yield event("message_stop")


def _block(index: int, block: Block, size: int) -> Iterator[bytes]:
    start, deltas = _unfold(block, size)
    yield event("content_block_start", index=index, content_block=start)
    for number, delta in enumerate(deltas):
        yield event("content_block_delta", number % 4, index=index, delta=delta)
    yield event("content_block_stop", index=index)


def _unfold(block: Block, size: int) -> tuple[Block, list[Block]]:
    """Return how a block starts, and how it grows."""
    kind = block["type"]
    if kind in _GROWS:
        field, delta, name = _GROWS[kind]
        grown: list[Block] = [{"type": delta, name: text} for text in _cut(block[field], size)]
        start = {**block, field: ""}
        if "signature" in block:
            start["signature"] = ""
            grown.append({"type": "signature_delta", "signature": block["signature"]})
        for citation in start.pop("citations", []):
            grown.append({"type": "citations_delta", "citation": citation})
        return start, grown
    if kind.endswith("tool_use"):
        text = json.dumps(block["input"], separators=(",", ":")) if block["input"] else ""
        pieces = [{"type": "input_json_delta", "partial_json": one} for one in _cut(text, size)]
        return {**block, "input": {}}, [*pieces]
    if kind == "compaction":
        return {**block, "content": None}, [
            {"type": "compaction_delta", "content": block["content"]}
        ]
    return block, []


def _cut(text: str, size: int) -> Sequence[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def _search(number: int) -> list[Block]:
    found = {
        "type": "web_search_result",
        "title": "Rain",
        "url": "https://weather.example/rain",
        "encrypted_content": "opaque==",
        "page_age": None,
    }
    call = {"type": "server_tool_use", "id": f"srvtoolu_{number}", "name": "web_search"}
    return [
        {**call, "input": {"query": "rain — tomorrow"}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": f"srvtoolu_{number}",
            "content": [found],
            "caller": {"type": "direct"},
        },
    ]


_CITED: Final[Block] = {
    "type": "web_search_result_location",
    "cited_text": "It rains.",
    "url": "https://weather.example/rain",
    "title": "Rain",
    "encrypted_index": "opaque==",
}
_THOUGHT: Final[Block] = {"type": "thinking", "thinking": "They ask “why”.", "signature": "c2ln"}


def _text(text: str, *citations: Block) -> Block:
    block = {"type": "text", "text": text}
    return {**block, "citations": list(citations)} if citations else block


TWINS: Final[Mapping[str, dict[str, Any]]] = {
    "text": message(_text('Grüße, "you" \\ 👋\n')),
    "thinking": message(_THOUGHT, _text("Because.")),
    "thinking-omitted": message({**_THOUGHT, "thinking": ""}, _text("Because.")),
    "redacted": message(
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
        {"type": "redacted_thinking", "data": "YWdhaW4="},
        _text("No."),
    ),
    "calls": message(
        _THOUGHT,
        _text("I look."),
        {"type": "tool_use", "id": "toolu_01", "name": "look", "input": {"at": "sky", "n": [1, 2]}},
        {"type": "tool_use", "id": "toolu_02", "name": "now", "input": {}},
        stop="tool_use",
    ),
    "search": message(
        *_search(1),
        _text("Tomorrow "),
        _text("it rains", _CITED, _CITED),
        _text(". "),
        *_search(2),
        _text("Bring boots.", _CITED),
        usage={"cache_read_input_tokens": 7, "server_tool_use": {"web_search_requests": 2}},
    ),
    "documents": message(
        _text(
            "As the paper says",
            {
                "type": "page_location",
                "cited_text": "so",
                "document_index": 0,
                "document_title": "paper.pdf",
                "file_id": None,
                "start_page_number": 1,
                "end_page_number": 2,
            },
        ),
    ),
    "mcp": message(
        {
            "type": "mcp_tool_use",
            "id": "mcptoolu_1",
            "name": "ask",
            "server_name": "wiki",
            "input": {"q": 1},
        },
        {
            "type": "mcp_tool_result",
            "tool_use_id": "mcptoolu_1",
            "is_error": False,
            "content": [{"type": "text", "text": "Forty."}],
        },
        _text("Forty."),
    ),
    "compaction": message(
        {"type": "compaction", "content": "They spoke of boots."},
        _text("On we go."),
        usage={
            "iterations": [
                {"type": "compaction", "input_tokens": 50, "output_tokens": 9},
                {"type": "message", "input_tokens": 10, "output_tokens": 5},
            ]
        },
    ),
    "pause": message(_THOUGHT, *_search(1), stop="pause_turn"),
    "length": message(_text("It goes on and"), stop="max_tokens"),
    "refusal": message(
        stop="refusal",
        stop_details={"type": "refusal", "category": "bio", "explanation": "I will not."},
    ),
}
