"""Which chunks hold a piece of text and nothing else that has to be reported."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.wires.gemini.chunks import read_plain

USAGE = {"totalTokenCount": 16}


def chunk(part: dict[str, Any], more: Any = None, **fields: Any) -> dict[str, Any]:
    candidate = {"content": {"parts": [part], "role": "model"}, **(more or {})}
    return {"candidates": [candidate], "usageMetadata": USAGE, "responseId": "r", **fields}


@pytest.mark.parametrize("more", [{}, {"index": 0}, {"finishReason": None}, {"safetyRatings": []}])
def test_a_piece_of_text_is_read_with_its_usage(more: dict[str, Any]) -> None:
    found = read_plain(json.dumps(chunk({"text": " é"}, more)).encode())
    assert found is not None
    text, usage = found
    assert (text, json.loads(bytes(usage))) == (" é", USAGE)


@pytest.mark.parametrize(
    "other",
    [
        chunk({"text": "a", "thought": True}),
        chunk({"text": "a", "thoughtSignature": "s"}),
        chunk({"text": "a", "functionCall": {"name": "f"}}),
        chunk({"functionCall": {"name": "f"}}),
        chunk({"inlineData": {}}),
        chunk({"text": "a"}, {"index": 1}),
        chunk({"text": "a"}, {"finishReason": "STOP"}),
        chunk({"text": "a"}, {"groundingMetadata": {}}),
        chunk({"text": "a"}, {"citationMetadata": {}}),
        chunk({"text": "a"}, {"logprobsResult": {}}),
        chunk({"text": "a"}, error={"code": 500}),
        chunk({"text": "a"}, promptFeedback={"blockReason": "OTHER"}),
        {"candidates": [*chunk({"text": "a"})["candidates"]] * 2},
        {"candidates": [{"content": {"parts": [{"text": "a"}, {"text": "b"}]}}]},
        {"candidates": []},
        {"usageMetadata": USAGE},
        [],
    ],
)
def test_a_chunk_with_anything_else_is_left_to_the_whole_reader(other: Any) -> None:
    assert read_plain(json.dumps(other).encode()) is None


@pytest.mark.parametrize(
    "data", [b"", b"{", b'{"candidates":[{"content":{"parts":[{"text":"\xff"}]}}]}']
)
def test_what_is_no_json_is_left_to_the_whole_reader(data: bytes) -> None:
    assert read_plain(data) is None
