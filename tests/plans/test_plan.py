"""What a model is asked, made from what was requested."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.plans.plan import Plan, make_plan
from antiphon.protocol.items import Item
from antiphon.protocol.request import read_request
from tests.building import assessed

ITEMS: list[Item] = [{"type": "message", "role": "user", "content": "x"}]


def planned(**fields: Any) -> Plan:
    request = read_request({"input": "x", **fields})
    return make_plan(request, assessed(request), ITEMS, "m")


def test_what_was_not_asked_for_is_left_to_the_model() -> None:
    assert planned() == Plan(model="m", items=ITEMS, stream=False)


def test_plain_text_is_no_format_and_empty_instructions_are_none() -> None:
    plan = planned(text={"format": {"type": "text"}, "verbosity": "low"}, instructions="")

    assert (plan.format, plan.verbosity, plan.instructions) == (None, "low", None)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, False),
        ({"include": ["message.output_text.logprobs"]}, True),
        ({"top_logprobs": 2}, True),
        ({"top_logprobs": 0}, False),
    ],
)
def test_logprobs_are_asked_for_by_either_name(fields: dict[str, Any], expected: bool) -> None:
    assert planned(**fields).logprobs is expected


def test_fields_beyond_the_protocol_travel_along() -> None:
    assert planned(seed=3, reasoning={"mode": "x"}).extra == {"seed": 3, "reasoning.mode": "x"}
