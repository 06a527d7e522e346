"""Bodies: a response without its output, and fields of newer versions."""

from __future__ import annotations

import json

from antiphon.store.encoding import decode_turn, encode_items, encode_turn
from tests.store.samples import message, opened


def test_the_output_is_not_stored_twice() -> None:
    response = opened("r1", status="completed", output=[message("o1", "the answer")])
    assert b"the answer" not in encode_turn(response)
    assert decode_turn(encode_turn(response), response.output) == response


def test_a_field_of_a_newer_antiphon_is_kept() -> None:
    body = json.loads(encode_turn(opened("r1", extra={"x": 1}))) | {"mood": "bright"}
    assert decode_turn(json.dumps(body).encode(), []).extra == {"x": 1, "mood": "bright"}


def test_an_item_without_a_usable_id_is_stored_without_one() -> None:
    assert [item.id for item in encode_items([{"type": "x"}, {"id": 5}, {"id": "i1"}])] == [
        None,
        None,
        "i1",
    ]
