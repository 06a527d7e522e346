"""Tokens that nobody counted: an estimate over everything that was sent and said."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.plans.estimate import (
    ATTACHMENT_TOKENS,
    InputEstimate,
    contents_of,
    estimate_text,
    estimate_tokens,
    estimate_tools,
    estimate_usage,
    text_bytes,
    tool_text,
)
from antiphon.plans.plan import Plan
from antiphon.protocol.items import Item
from tests.building import plan_with

PICTURE = "data:image/png;base64," + "A" * 400_000


def _user(content: object) -> Item:
    return {"type": "message", "role": "user", "content": content}


def test_an_estimate_counts_tools_and_reasoning() -> None:
    plan = Plan(model="m", items=[_user("x" * 40)], instructions="y" * 20)
    tool = {"type": "function", "name": "f", "parameters": {"description": "z" * 400}}
    with_tool = plan_with([tool], items=[_user("x" * 40)], instructions="y" * 20)
    output: list[Item] = [
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "r" * 40}]},
        {"type": "message", "content": [{"type": "output_text", "text": "t" * 40}]},
    ]

    usage = estimate_usage(plan, output)
    assert usage.input_tokens == 15
    assert usage.output_tokens == 20
    assert usage.output_tokens_details.reasoning_tokens == 10
    assert estimate_usage(with_tool, []).input_tokens > 100


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_image", "image_url": PICTURE, "detail": "high"},
        {"type": "input_image", "file_id": "file_1"},
        {"type": "image_url", "image_url": {"url": PICTURE}},
        {"type": "image_generation_call", "result": "A" * 400_000},
        {"type": "computer_screenshot", "image_url": PICTURE},
        {"type": "code_interpreter_call", "outputs": [{"type": "image", "url": PICTURE}]},
        {"type": "input_file", "filename": "a.pdf", "file_data": PICTURE},
    ],
)
def test_a_picture_or_file_costs_a_fixed_amount_however_long_it_is(part: Item) -> None:
    assert estimate_tokens(_user([part])) == ATTACHMENT_TOKENS
    assert estimate_tokens(_user([part, {"type": "input_text", "text": "x" * 8}])) == (
        ATTACHMENT_TOKENS + 2
    )


def test_a_picture_that_a_tool_gave_back_is_a_picture_too() -> None:
    part = {"type": "input_image", "image_url": PICTURE}
    item = {"type": "function_call_output", "call_id": "c", "output": [part]}

    assert estimate_tokens(item) == ATTACHMENT_TOKENS


@pytest.mark.parametrize(
    ("item", "tokens"),
    [
        ({"type": "function_call", "call_id": "c" * 99, "name": "abcd", "arguments": "{}ab"}, 2),
        ({"type": "custom_tool_call", "call_id": "c", "name": "abcd", "input": "x" * 40}, 11),
        ({"type": "function_call_output", "call_id": "c", "output": "x" * 40}, 10),
        ({"type": "item_reference", "id": "msg_1"}, 0),
        ({"type": "message", "content": [{"type": "refusal", "refusal": "no" * 4}]}, 2),
        ({"type": ["odd"], "content": "abcd"}, 1),
        ("abcde", 2),
        (("abcd", None, 7), 1),
    ],
)
def test_only_what_a_model_reads_costs_anything(item: object, tokens: int) -> None:
    assert estimate_tokens(item) == tokens


def test_what_is_sealed_is_measured_but_not_taken_for_text() -> None:
    item = {"type": "reasoning", "summary": [], "encrypted_content": "z" * 4000}

    assert contents_of(item).sealed == 4000
    assert estimate_tokens(item) == 0
    assert contents_of({"type": "reasoning", "encrypted_content": None}).sealed == 0


def test_nesting_has_no_depth_that_breaks_it() -> None:
    value: object = "abcd"
    for _ in range(100_000):
        value = [value]

    assert estimate_tokens(value) == 1


def test_tools_cost_what_their_json_does() -> None:
    tools = [{"type": "web_search"}, {"type": "function", "name": "f", "parameters": {}}]

    size = sum(len(tool_text(tool)) for tool in tools)
    assert estimate_tools(tools) == -(-size // 4)
    assert tool_text(tools[0]) == '{"type":"web_search"}'


@given(st.text(st.characters()))
def test_a_text_costs_a_token_for_four_bytes_begun(text: str) -> None:
    assert text_bytes(text) == len(text.encode("utf-8", "surrogatepass"))
    assert estimate_text(text) == estimate_tokens(text) == -(-text_bytes(text) // 4)


_SOME: Final[list[Item]] = [
    _user("one"),
    _user([{"type": "input_text", "text": "twö"}, {"type": "input_image", "file_id": "file_1"}]),
    {"type": "function_call_output", "call_id": "c1", "output": "three or more"},
]


@given(st.lists(st.lists(st.sampled_from(_SOME), max_size=5), max_size=6), st.booleans())
def test_the_input_of_plans_is_estimated_as_one_by_one(plans: list[list[Item]], grow: bool) -> None:
    estimate, items = InputEstimate(), list[Item]()
    for some in plans:
        items = [*items, *some] if grow else some
        plan = Plan(model="m", items=items, instructions="Do it.")
        assert estimate.of(plan) == estimate_usage(plan, ()).input_tokens
