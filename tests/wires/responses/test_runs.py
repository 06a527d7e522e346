"""Which events only go on with the open text, and which must be decoded as a whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.wires.responses.runs import read_pieces

NAME = "response.output_text.delta"


def event(text: object, *, head: str = f"event: {NAME}\n", **fields: Any) -> bytes:
    body = {"type": NAME, "output_index": 1, "content_index": 0, "delta": text, "logprobs": []}
    return f"{head}data: {json.dumps(body | fields)}".encode()


@pytest.mark.parametrize("head", [f"event: {NAME}\n", ""])
def test_pieces_of_the_open_text_are_read_with_and_without_their_name(head: str) -> None:
    lines = b"\n\n".join(event(text, head=head) for text in (" a", "", '"\n', "é"))
    assert read_pieces(lines, 1, 0) == [" a", '"\n', "é"]


@pytest.mark.parametrize(
    "other",
    [
        event("b", output_index=2),
        event("b", content_index=1),
        event("b", logprobs=[{"token": "b"}]),
        event("b", type="response.refusal.delta"),
        event(None),
        event("b") + b"\ndata: more",
        b": a comment\n" + event("b"),
        b"event: response.completed\ndata: {}",
        b"data: [DONE]",
    ],
)
def test_an_event_of_any_other_form_is_left_to_the_whole_reader(other: bytes) -> None:
    assert read_pieces(other, 1, 0) is None
    assert read_pieces(event("a") + b"\n\n" + other, 1, 0) is None


def test_events_with_and_without_a_name_in_one_read_are_left_to_the_whole_reader() -> None:
    assert read_pieces(event("a") + b"\n\n" + event("b", head=""), 1, 0) is None
