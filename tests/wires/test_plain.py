"""Plain messages are found where a conversation has them, and nowhere else."""

from __future__ import annotations

from typing import Any, Final

import pytest

from antiphon.protocol.items import Item
from antiphon.wires.plain import find_plain
from antiphon.wires.texts import PART_FIELDS
from antiphon.wires.turns import MESSAGE_FIELDS

_USER: Final[Item] = {"type": "message", "role": "user", "content": "hi"}
_PART: Final = {"type": "output_text", "text": "yes", "annotations": []}
_ANSWER: Final[Item] = {"type": "message", "role": "assistant", "id": "m", "content": [_PART]}
_MANY: Final = [_USER, _ANSWER] * 64


def test_messages_that_are_one_text_are_plain() -> None:
    plain = find_plain([*_MANY, _USER], 0, 129)
    assert plain.roles == ["user", "assistant"] * 63 + ["user"]
    assert plain.texts == ["hi", "yes"] * 63 + ["hi"]


def test_fields_that_mean_nothing_to_a_model_may_hold_anything() -> None:
    part = _PART | {name: object() for name in PART_FIELDS - _PART.keys()}
    item = {name: object() for name in MESSAGE_FIELDS} | _USER | {"content": [part]}
    assert find_plain([item] * 64, 0, 64).texts == ["yes"] * 64


def test_only_items_between_the_places_are_looked_at() -> None:
    assert find_plain([{}, _USER, *_MANY, {}], 1, 66).texts == ["hi", "hi", "yes"] + [
        "hi",
        "yes",
    ] * 30 + ["hi"]
    assert find_plain(_MANY, 0, 63).roles == []


def _with(item: Item, **fields: Any) -> Item:
    return {**item, **fields}


@pytest.mark.parametrize(
    "other",
    [
        _with(_USER, type="function_call", call_id="c"),
        {"role": "user", "content": "no type"},
        _with(_USER, type=None),
        _with(_USER, role="system"),
        _with(_USER, role=["user"]),
        _with(_USER, role="\ud800"),
        _with(_USER, odd=1),
        _with(_USER, **{"\ud800": 1}),
        _with(_USER, content=None),
        _with(_USER, content=[]),
        _with(_USER, content=[_PART, _PART]),
        _with(_USER, content=["text"]),
        _with(_USER, content=[_PART | {"odd": 1}]),
        _with(_USER, content=[_PART | {"type": "refusal"}]),
        _with(_USER, content=[_PART | {"type": ["text"]}]),
        _with(_USER, content=[_PART | {"text": 1}]),
        _with(_USER, content=[{"type": "input_image", "image_url": "u"}]),
        _ANSWER,  # after another one
    ],
)
def test_nothing_is_plain_from_an_odd_item_on(other: Item) -> None:
    assert len(find_plain([*_MANY, other, *_MANY], 0, 257).roles) == 127
    assert find_plain([_ANSWER, other, *_MANY], 0, 130).roles == []
