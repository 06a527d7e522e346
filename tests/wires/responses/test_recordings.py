"""Streams of real services: what we make of them is what they said themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from antiphon.protocol.items import Item
from tests.wires.responses.upstream import Json, built, read, recordings


def terminal(path: Path) -> Json:
    lines = path.read_text().splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    response: Json = events[-1]["response"]
    return response


def said(item: Item) -> Any:
    """Return what an item says, without ids, ciphers and labels that servers may choose."""
    match item["type"]:
        case "message":
            parts = item["content"]
            return item["type"], item.get("phase"), [said_part(part) for part in parts]
        case "reasoning":
            texts = [part["text"] for part in item.get("summary") or ()]
            raw = [part["text"] for part in item.get("content") or ()]
            return item["type"], texts, raw, bool(item.get("encrypted_content"))
        case "function_call":
            return item["type"], item["name"], item["call_id"], item["arguments"]
    chosen = ("id", "encrypted_content")
    return {name: value for name, value in item.items() if name not in chosen and value is not None}


def said_part(part: Json) -> Any:
    return part["type"], part.get("text"), part.get("annotations"), part.get("refusal")


@pytest.mark.parametrize("path", recordings())
def test_an_answer_is_what_the_service_itself_ends_with(path: Path) -> None:
    own = terminal(path)
    response = built(read(path.read_bytes()))
    assert [said(item) for item in response.output] == [said(item) for item in own["output"]]


@pytest.mark.parametrize("path", recordings())
def test_usage_is_what_the_service_counted(path: Path) -> None:
    own = terminal(path)["usage"]
    usage = built(read(path.read_bytes())).usage
    assert usage is not None
    assert usage.total_tokens == own["total_tokens"] == usage.input_tokens + usage.output_tokens
    assert usage.input_tokens_details.cached_tokens == own["input_tokens_details"]["cached_tokens"]
    thought = own["output_tokens_details"]["reasoning_tokens"]
    assert usage.output_tokens_details.reasoning_tokens == thought


@pytest.mark.parametrize("path", recordings())
def test_a_recording_gives_the_same_deltas_in_pieces_of_any_size(path: Path) -> None:
    from tests.wires.responses.test_stream import split_read

    data = path.read_bytes()
    assert split_read(data, 997) == read(data)


@pytest.mark.parametrize("path", recordings())
def test_a_recording_that_breaks_off_is_a_fault(path: Path) -> None:
    from tests.wires.responses.upstream import answer

    data = path.read_bytes()
    cut = data[: data.rindex(b'data: {"type":"response.completed"')]
    _, fault = answer(cut)
    assert fault is not None
    assert fault.code == "upstream_closed"
