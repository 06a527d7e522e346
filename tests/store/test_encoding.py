"""Bodies: a response without its output, and fields of newer versions."""

from __future__ import annotations

import json

from antiphon.protocol.response import IncompleteDetails
from antiphon.store.base import Batch
from antiphon.store.encoding import (
    compress_log,
    decode_turn,
    encode_items,
    encode_turn,
    end_log,
    expand_log,
)
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


def test_a_status_that_changed_is_told() -> None:
    body = encode_turn(opened("r1", status="queued"))
    assert decode_turn(body, []).status == "queued"
    assert decode_turn(body, [], "in_progress") == opened("r1", status="in_progress")


def test_a_cancelled_response_of_an_older_version_is_read_without_its_reason() -> None:
    old = opened("r1", status="cancelled", incomplete_details=IncompleteDetails("cancelled"))
    assert decode_turn(encode_turn(old), []) == opened("r1", status="cancelled")
    cut = opened("r1", status="incomplete", incomplete_details=IncompleteDetails("content_filter"))
    assert decode_turn(encode_turn(cut), []) == cut


def test_a_log_is_compressed_and_comes_back() -> None:
    batches = [Batch(n, n, b"the same words again and again" * 3) for n in range(50)]
    body = compress_log(batches)
    assert len(body) < sum(len(batch.body) for batch in batches) / 5
    assert expand_log(body) == batches
    assert expand_log(body, 47) == batches[48:]
    assert expand_log(compress_log([])) == []


def test_the_end_of_a_log_may_say_again_what_is_there() -> None:
    first, second, last = Batch(0, 1, b"a"), Batch(2, 3, b"b"), Batch(2, 5, b"c")

    assert end_log([first, second], last) == [first, last]
    assert end_log([first], last) == [first, last]
    assert end_log([first, second], None) == [first, second]
