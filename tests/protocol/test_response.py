"""The response object: its text, whatever its items look like."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.protocol.items import text_of
from antiphon.protocol.response import Response


def text_in(*items: dict[str, Any]) -> str:
    return Response(output=list(items)).output_text


def said(content: object) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": content}


def test_the_text_is_that_of_all_messages_and_no_refusal() -> None:
    parts = [
        {"type": "output_text", "text": "a"},
        {"type": "refusal", "refusal": "no"},
        {"type": "output_text", "text": "b"},
    ]
    call = {"type": "function_call", "name": "f", "arguments": "{}"}
    assert text_in(said(parts), call, said(parts)) == "abab"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Hello", "Hello"),
        (None, ""),
        (3, ""),
        ({"type": "output_text", "text": "a"}, ""),
        ([None, "x", 3, {"type": "output_text", "text": "a"}], "a"),
        ([{"type": "output_text", "text": None}], ""),
        ([{"type": "output_text", "text": ["a"]}], ""),
        ([{"type": "output_text"}], ""),
        ([{"type": ["output_text"], "text": "a"}], ""),
        ([{"type": "text", "text": "a"}], "a"),
        ([{"text": "a"}], "a"),
        ([{"type": "refusal", "refusal": "no"}], ""),
        ([{"type": "refusal", "text": "no"}], ""),
        ([{"type": "acme:part", "text": "x"}], ""),
    ],
)
def test_the_text_of_any_content_is_read(content: object, text: str) -> None:
    assert text_in(said(content)) == text


@pytest.mark.parametrize(
    "item",
    [{}, {"type": None}, {"type": 3, "content": "x"}, {"type": "reasoning", "content": "x"}],
)
def test_what_is_no_message_has_no_text(item: dict[str, Any]) -> None:
    assert text_in(item) == ""


def test_a_message_may_leave_out_its_type() -> None:
    assert text_in({"role": "assistant", "content": "a"}) == "a"


def test_content_may_hold_what_is_no_part() -> None:
    assert text_of([None, 3, {"type": "output_text", "text": "a"}, {"refusal": "no"}]) == "ano"


def test_a_response_needs_no_id() -> None:
    assert Response().id == ""
