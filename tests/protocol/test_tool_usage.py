"""Tool usage: calls add up, and what a server does not state is not made up."""

from __future__ import annotations

import pytest
from openai.types.responses.response import ToolUsage as SdkToolUsage

from antiphon.protocol.deltas import Delta, ItemClosed, ItemOpened, TextGrew
from antiphon.protocol.events import ResponseCompleted
from antiphon.protocol.tool_usage import SEARCHED, add_tool_usage, image_usage
from tests.building import STOP, build

STATED = {
    "input_tokens": 5,
    "output_tokens": 7,
    "total_tokens": 12,
    "input_tokens_details": {"image_tokens": 1, "text_tokens": 4},
}


def test_calls_add_up_in_the_shape_of_the_sdk() -> None:
    image = image_usage(STATED)
    assert image is not None
    total = add_tool_usage(add_tool_usage(add_tool_usage(None, SEARCHED), image), SEARCHED)
    read = SdkToolUsage.model_validate(total, strict=True)
    assert read.web_search.num_requests == 2
    assert (read.image_gen.total_tokens, read.image_gen.input_tokens_details.text_tokens) == (12, 4)
    assert SEARCHED == {"web_search": {"num_requests": 1}}


@pytest.mark.parametrize("found", [None, 3, {}, {**STATED, "input_tokens": "5"}, {"x": 1}])
def test_usage_that_is_not_stated_is_unknown(found: object) -> None:
    assert image_usage(found) is None


def test_the_builder_adds_what_closed_items_took() -> None:
    item = {"type": "web_search_call", "status": "completed", "action": {"type": "search"}}
    deltas: list[Delta] = [
        ItemOpened("a", item),
        ItemClosed("a", item, SEARCHED),
        ItemOpened("b", item),
        ItemClosed("b", item, SEARCHED),
    ]
    end = build([*deltas, TextGrew("x"), STOP])[-1]
    assert isinstance(end, ResponseCompleted)
    assert isinstance(end.response.tool_usage, dict)
    assert end.response.tool_usage["web_search"] == {"num_requests": 2}


def test_without_tools_there_is_no_such_field() -> None:
    end = build([TextGrew("x"), STOP])[-1]
    assert isinstance(end, ResponseCompleted)
    assert not end.response.tool_usage
