"""Streams of the real service: a legal response, the same as the vendor's own types read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.genai import types

from antiphon.protocol.deltas import (
    AnnotationAdded,
    CallMade,
    Delta,
    ItemPassed,
    NativeState,
    SummaryGrew,
    TextGrew,
    UsageKnown,
)
from antiphon.protocol.sse import SseDecoder
from antiphon.wires.gemini.signatures import read_state
from tests.wires.gemini.answers import Sealed, items_of, read
from tests.wires.gemini.recordings import RECORDINGS, needs_recordings

pytestmark = [
    needs_recordings,
    pytest.mark.parametrize("path", RECORDINGS or [Path("none")], ids=lambda path: path.stem),
]


def parsed(path: Path) -> list[types.GenerateContentResponse]:
    """Return the chunks as google-genai reads them."""
    decoder = SseDecoder()
    frames = [*decoder.feed(path.read_bytes()), *decoder.end()]
    values = [json.loads(frame.data) for frame in frames]
    for value in values:
        value.get("usageMetadata", {}).pop("serviceTier", None)  # which the types do not know yet
    return [types.GenerateContentResponse.model_validate(value) for value in values]


def parts_of(chunks: list[types.GenerateContentResponse]) -> list[types.Part]:
    return [
        part
        for chunk in chunks
        for candidate in (chunk.candidates or [])[:1]
        if candidate.content is not None
        for part in candidate.content.parts or ()
    ]


def test_builder_makes_a_legal_response_of_it(path: Path) -> None:
    deltas, reader = read(path.read_bytes())
    assert reader.fault is None
    assert items_of(deltas, Sealed()), "the referee accepts it, and there is output"
    assert items_of(deltas), "without a seal, too"


def test_texts_thoughts_and_calls_are_those_that_the_sdk_reads(path: Path) -> None:
    deltas, _ = read(path.read_bytes())
    parts = parts_of(parsed(path))
    texts = "".join(part.text or "" for part in parts if not part.thought)
    thoughts = "".join(part.text or "" for part in parts if part.thought)
    calls = [part.function_call for part in parts if part.function_call is not None]
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextGrew)) == texts
    assert "".join(delta.text for delta in deltas if isinstance(delta, SummaryGrew)) == thoughts
    assert [
        (delta.name, json.loads(delta.said), delta.call_id)
        for delta in deltas
        if isinstance(delta, CallMade)
    ] == [(call.name, call.args, call.id) for call in calls]


def test_usage_adds_up_to_the_total_of_the_vendor(path: Path) -> None:
    deltas, _ = read(path.read_bytes())
    [usage] = [delta.usage for delta in deltas if isinstance(delta, UsageKnown)]
    told = parsed(path)[-1].usage_metadata
    assert told is not None
    assert usage.total_tokens == told.total_token_count
    assert usage.input_tokens + usage.output_tokens == usage.total_tokens
    assert usage.output_tokens_details.reasoning_tokens == (told.thoughts_token_count or 0)


def test_every_signature_and_every_other_part_is_kept_as_it_came(path: Path) -> None:
    deltas, _ = read(path.read_bytes())
    raw = [json.loads(line[6:]) for line in path.read_bytes().splitlines() if line[:6] == b"data: "]
    parts: list[dict[str, Any]] = [
        part for one in raw for part in one["candidates"][0].get("content", {}).get("parts", ())
    ]
    others = [part for part in parts if "text" not in part and "functionCall" not in part]
    assert [delta.item["part"] for delta in deltas if isinstance(delta, ItemPassed)] == others
    signed = [part["thoughtSignature"] for part in parts if "thoughtSignature" in part]
    assert [*kept_signatures(deltas)] == signed


def kept_signatures(deltas: list[Delta]) -> list[str]:
    """Return the signatures in the order of the parts that they are of."""
    found: list[str] = []
    for delta in deltas:
        if isinstance(delta, NativeState):
            state = read_state(delta)
            assert state is not None
            found += [signed.signature for signed in state.parts]
        elif isinstance(delta, ItemPassed) and "thoughtSignature" in delta.item["part"]:
            found.append(delta.item["part"]["thoughtSignature"])
    return found


def test_citations_are_of_the_words_that_the_vendor_names(path: Path) -> None:
    deltas, _ = read(path.read_bytes())
    [*_, last] = [chunk.candidates[0] for chunk in parsed(path) if chunk.candidates]
    grounding = last.grounding_metadata
    wanted = [
        support.segment.text
        for support in (grounding.grounding_supports or [] if grounding else [])
        if support.segment is not None
        for _ in support.grounding_chunk_indices or ()
    ]
    text = "".join(delta.text for delta in deltas if isinstance(delta, TextGrew))
    notes = [delta.annotation for delta in deltas if isinstance(delta, AnnotationAdded)]
    assert [
        text[note["start_index"] : note["end_index"]] if "url" in note else None for note in notes
    ] == [words if "url" in note else None for words, note in zip(wanted, notes, strict=True)]
    assert len(notes) == len(wanted)
