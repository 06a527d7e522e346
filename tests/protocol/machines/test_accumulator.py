"""The accumulator: a whole stream is told back, and a damaged one is repaired by its rules."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.protocol.codec import decode_event, read_event
from antiphon.protocol.errors import BrokenStream
from antiphon.protocol.events import Event, ResponseCompleted, ResponseCreated
from antiphon.protocol.items import Item
from antiphon.protocol.machines.accumulator import MAX_DEVIATIONS, ResponseAccumulator
from antiphon.protocol.response import Response

ARGUMENTS = '{"city":"Ulm"}'


def event(kind: str, **fields: Any) -> dict[str, Any]:
    """One event as a JSON object, not yet numbered."""
    return {"type": f"response.{kind}", **fields}


def created() -> dict[str, Any]:
    return event("created", response={"id": "r", "status": "in_progress"})


def end(*output: Item, kind: str = "completed", **fields: Any) -> dict[str, Any]:
    return event(kind, response={"id": "r", "status": kind, "output": list(output), **fields})


def message_item(text: str | None, item_id: str = "m", status: str = "completed") -> Item:
    part: Item = {"type": "output_text", "text": text, "annotations": []}
    content = [] if text is None else [part]
    return {
        "id": item_id,
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": content,
    }


def message(text: str = "hello", item_id: str = "m", index: int = 0) -> list[dict[str, Any]]:
    """A message from added to done, its text in two deltas."""
    place: dict[str, Any] = {"item_id": item_id, "output_index": index, "content_index": 0}
    part = {"type": "output_text", "text": "", "annotations": []}
    begun = message_item(None, item_id, "in_progress")
    return [
        event("output_item.added", output_index=index, item=begun),
        event("content_part.added", part=part, **place),
        event("output_text.delta", delta=text[:2], **place),
        event("output_text.delta", delta=text[2:], **place),
        event("output_text.done", text=text, **place),
        event("content_part.done", part=part | {"text": text}, **place),
        event("output_item.done", output_index=index, item=message_item(text, item_id)),
    ]


def call_item(
    call_id: str = "c", item_id: str = "fc", arguments: str = ARGUMENTS, **fields: Any
) -> Item:
    base = {"id": item_id, "type": "function_call", "status": "completed", "call_id": call_id}
    return base | {"name": "weather", "arguments": arguments} | fields


def call(call_id: str = "c", item_id: str = "fc", index: int = 0) -> list[dict[str, Any]]:
    """A call from added to done, its arguments in two deltas."""
    place: dict[str, Any] = {"item_id": item_id, "output_index": index}
    begun = call_item(call_id, item_id, "", status="in_progress")
    return [
        event("output_item.added", output_index=index, item=begun),
        event("function_call_arguments.delta", delta=ARGUMENTS[:3], **place),
        event("function_call_arguments.delta", delta=ARGUMENTS[3:], **place),
        event("function_call_arguments.done", arguments=ARGUMENTS, **place),
        event("output_item.done", output_index=index, item=call_item(call_id, item_id)),
    ]


def numbered(events: list[dict[str, Any]]) -> list[Event]:
    """The events, counted from 0 where they have no number yet."""
    return [read_event({"sequence_number": n} | fields) for n, fields in enumerate(events)]


def collect(*events: dict[str, Any]) -> ResponseAccumulator:
    """An accumulator that has seen these events."""
    accumulator = ResponseAccumulator()
    for told in numbered(list(events)):
        accumulator.feed(told)
    return accumulator


def output_of(*events: dict[str, Any]) -> list[Item]:
    return collect(*events).finish().output


def without(events: list[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    """The events but for those of some types."""
    return [told for told in events if told["type"] not in {f"response.{kind}" for kind in kinds}]


def test_a_whole_stream_is_told_back_without_a_word() -> None:
    whole = [created(), *message(), *call(index=1), end(message_item("hello"), call_item())]
    accumulator = collect(*whole)
    assert accumulator.finish().output == [message_item("hello"), call_item()]
    assert accumulator.deviations == []


def test_the_response_grows_while_it_is_told() -> None:
    accumulator = collect(created(), *message()[:3])
    response = accumulator.response
    assert response is not None
    assert response.output == [message_item("he", status="in_progress")]


def test_there_is_no_response_before_it_has_a_name() -> None:
    assert ResponseAccumulator().response is None


def test_what_was_handed_out_does_not_change_later() -> None:
    accumulator = collect(created(), *message()[:3])
    early = accumulator.response
    accumulator.feed(read_event(message()[3] | {"sequence_number": 4}))
    assert isinstance(early, Response)
    assert early.output_text == "he"


# The end.


def test_a_stream_without_an_end_is_broken() -> None:
    with pytest.raises(BrokenStream):
        collect(created(), *message()).finish()


def test_a_stream_that_ends_in_an_error_says_which() -> None:
    error = {"type": "error", "code": "overloaded", "message": "too much", "param": None}
    with pytest.raises(BrokenStream, match="too much") as caught:
        collect(created(), error).finish()
    assert caught.value.code == "overloaded"


@pytest.mark.parametrize("kind", ["failed", "incomplete"])
def test_a_response_that_ended_badly_is_still_a_response(kind: str) -> None:
    assert collect(created(), *message(), end(kind=kind)).finish().output_text == "hello"


def test_what_follows_the_end_is_passed_over() -> None:
    accumulator = collect(created(), end(), *message())
    assert accumulator.finish().output == []
    assert accumulator.deviations != []


@pytest.mark.parametrize(
    ("kind", "status", "counts"),
    [
        ("completed", "in_progress", "completed"),
        ("completed", "incomplete", "incomplete"),
        ("failed", "completed", "failed"),
        ("completed", "cancelled", "cancelled"),
        ("failed", "cancelled", "cancelled"),
        ("incomplete", "strange", "incomplete"),
    ],
)
def test_the_worse_of_name_and_status_counts(kind: str, status: str, counts: str) -> None:
    told = event(kind, response={"id": "r", "status": status})
    assert collect(created(), told).finish().status == counts


def test_a_cancelled_response_ends_as_an_incomplete_one_and_deviates_in_nothing() -> None:
    told = end(message_item("hello"), kind="incomplete")
    told["response"]["status"] = "cancelled"
    accumulator = collect(created(), *message(), told)

    assert accumulator.finish().status == "cancelled"
    assert accumulator.finish().output_text == "hello"
    assert accumulator.deviations == []


def test_an_open_item_of_a_cancelled_response_is_incomplete() -> None:
    told = event("incomplete", response={"id": "r", "status": "cancelled"})
    assert collect(created(), *message()[:3], told).finish().output[0]["status"] == "incomplete"


def test_the_last_id_of_the_response_wins_and_is_noted() -> None:
    accumulator = collect(created(), end() | {"response": {"id": "other", "status": "completed"}})
    assert accumulator.finish().id == "other"
    assert accumulator.deviations == ["response r goes on as other"]


# What is missing.


@pytest.mark.requirement("RFC22-item-events", "RFC22-part-events", "RFC22-text-events")
@pytest.mark.parametrize(
    "kinds",
    [
        ["output_item.added"],
        ["content_part.added"],
        ["output_text.delta"],
        ["output_text.done"],
        ["content_part.done"],
        ["output_item.done"],
        ["output_item.added", "content_part.added", "output_item.done"],
        ["output_item.added", "content_part.added", "output_text.done", "content_part.done"],
        ["output_text.done", "content_part.done", "output_item.done"],
        ["content_part.added", "output_text.delta", "output_text.done", "content_part.done"],
        ["output_text.delta", "content_part.done", "output_item.done"],
        ["output_text.delta", "output_text.done", "output_item.done"],
    ],
)
def test_a_message_survives_the_loss_of_events(kinds: list[str]) -> None:
    assert output_of(created(), *without(message(), *kinds), end()) == [message_item("hello")]


@pytest.mark.requirement("RFC22-item-events", "RFC22-call-events")
@pytest.mark.parametrize(
    "kinds",
    [
        ["output_item.added"],
        ["function_call_arguments.delta"],
        ["function_call_arguments.done"],
        ["output_item.done"],
        ["function_call_arguments.delta", "function_call_arguments.done"],
        ["function_call_arguments.delta", "output_item.done"],
        ["function_call_arguments.done", "output_item.done"],
        ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done"],
    ],
)
def test_a_call_survives_the_loss_of_events(kinds: list[str]) -> None:
    assert output_of(created(), *without(call(), *kinds), end()) == [call_item()]


def test_a_stream_without_created_is_read_and_noted() -> None:
    accumulator = collect(*message(), end())
    assert accumulator.finish().output == [message_item("hello")]
    assert "no response.created" in accumulator.deviations


def test_a_lone_terminal_event_is_a_response() -> None:
    assert output_of(end(message_item("hello"))) == [message_item("hello")]


def test_a_delta_before_its_item_is_kept() -> None:
    added, part, *rest = message()
    assert output_of(created(), rest[0], added, part, rest[1], end()) == [message_item("hello")]


@pytest.mark.requirement("RFC22-item-events")
def test_an_item_that_was_never_done_ends_as_the_response_did() -> None:
    [item] = output_of(created(), *call()[:2], end(kind="incomplete"))
    assert item["status"] == "incomplete"


def test_a_name_that_only_the_arguments_tell_is_taken() -> None:
    done = call()[3] | {"name": "weather"}
    [item] = output_of(created(), done, end())
    assert (item["name"], item["arguments"]) == ("weather", ARGUMENTS)


def test_a_call_without_call_id_is_called_by_its_id() -> None:
    done = call()[-1]
    del done["item"]["call_id"]
    [item] = output_of(created(), call()[1], done, end())
    assert item["arguments"] == ARGUMENTS


# What comes twice.


def test_every_event_told_twice_changes_nothing() -> None:
    whole = [created(), *message(), *call(index=1), end(message_item("hello"), call_item())]
    twice = [told for told in whole for _ in range(2)]
    assert output_of(*twice) == [message_item("hello"), call_item()]


def test_deltas_told_again_under_their_old_numbers_are_not_counted_twice() -> None:
    told = [created(), *without(message(), "output_text.done", "content_part.done")[:4]]
    again = [fields | {"sequence_number": n} for n, fields in enumerate(told)]
    assert output_of(*again, *again, end())[0]["content"][0]["text"] == "hello"


def test_equal_deltas_under_new_numbers_are_two_deltas() -> None:
    added, part, delta = message("hello")[:3]
    assert output_of(created(), added, part, delta, delta, end())[0]["content"][0]["text"] == "hehe"


def test_equal_deltas_of_a_server_that_numbers_all_alike_are_two_deltas() -> None:
    alike = [fields | {"sequence_number": 0} for fields in [created(), *message()[:3]]]
    assert output_of(*alike, alike[-1], end())[0]["content"][0]["text"] == "hehe"


@pytest.mark.parametrize("pieces", ["abaa", "aab", "aaaa"])
@pytest.mark.parametrize("number", [0, 7])
def test_deltas_that_all_have_one_number_are_all_counted(pieces: str, number: int) -> None:
    place: dict[str, Any] = {"item_id": "m", "output_index": 0, "content_index": 0}
    alike = {"sequence_number": number, **place}
    told = [event("output_text.delta", delta=piece, **alike) for piece in pieces]
    assert output_of(*told, end())[0]["content"][0]["text"] == pieces


def test_a_number_that_stands_for_two_deltas_tells_of_no_repetition() -> None:
    place: dict[str, Any] = {"item_id": "m", "output_index": 0, "content_index": 0}
    numbered = [(0, "a"), (1, "b"), (2, "c"), (0, "d"), (1, "b"), (2, "c")]
    told = [
        event("output_text.delta", delta=piece, sequence_number=number, **place)
        for number, piece in numbered
    ]
    assert output_of(*told, end())[0]["content"][0]["text"] == "abcdbc"


def test_deltas_after_the_text_is_done_are_not_counted() -> None:
    added, part, one, two, done, *_ = message()
    assert output_of(created(), added, part, one, two, done, one, two, end()) == [
        message_item("hello")
    ]


def test_a_call_confirmed_under_a_new_id_is_one_call() -> None:
    accumulator = collect(created(), *call(), *call(item_id="other", index=1), end())
    assert accumulator.finish().output == [call_item()]
    assert "call c came again as item other" in accumulator.deviations


def test_a_call_done_under_a_new_id_is_one_call() -> None:
    done = call(item_id="other")[-1]
    assert output_of(created(), *call()[:-1], done, end()) == [call_item()]


def test_a_call_that_the_terminal_response_holds_twice_is_one_call() -> None:
    told = end(call_item(), call_item(item_id="other"))
    assert output_of(created(), *call(), told) == [call_item()]


BONN = '{"city":"Bonn"}'


def test_calls_that_get_new_ids_and_call_ids_at_the_end_are_not_doubled() -> None:
    """vLLM makes the terminal response anew, with ids of its own."""
    told = end(call_item("c9", "fc9"), call_item("d9", "fd9"))
    accumulator = collect(created(), *call("c", "fc"), *call("d", "fd", 1), told)
    assert accumulator.finish().output == [call_item("c9", "fc9"), call_item("d9", "fd9")]
    assert [draft and draft.id for _, draft in accumulator.settled] == ["fc", "fd"]
    assert "call_id of item fc is not what was streamed" in accumulator.deviations


def test_calls_with_new_ids_at_the_end_are_told_apart_by_their_payload() -> None:
    second = call_item("d", "fd", BONN)
    stream = [*call(), event("output_item.done", output_index=1, item=second)]
    told = end(call_item("d9", "fd9", '{ "city": "Bonn" }'), call_item("c9", "fc9"))
    accumulator = collect(created(), *stream, told)
    assert [draft and draft.id for _, draft in accumulator.settled] == ["fd", "fc"]


@pytest.mark.parametrize("seen", [1, 2, 3])
def test_a_call_that_was_not_done_is_told_apart_by_how_it_begins(seen: int) -> None:
    told = end(call_item("c9", "fc9"))
    assert output_of(created(), *call()[:seen], told) == [call_item("c9", "fc9")]


@pytest.mark.parametrize("stated", [call(), call()[:4], [call()[-1]]])
def test_another_call_at_the_end_is_another_call(stated: list[dict[str, Any]]) -> None:
    other = call_item("d", "fd", BONN)
    assert output_of(created(), *stated, end(other)) == [call_item(), other]


def test_another_function_at_the_end_is_another_call() -> None:
    other = call_item("d", "fd", name="forecast")
    assert output_of(created(), *call(), end(other)) == [call_item(), other]


def test_two_equal_calls_of_which_one_was_not_streamed_are_two() -> None:
    both = [call_item(), call_item("d", "fd")]
    assert output_of(created(), *call(), end(*both)) == both


@pytest.mark.parametrize("item_id", ["fc", "x"])
@pytest.mark.parametrize("seen", [2, 3, 4])
def test_a_call_done_in_its_place_with_a_new_call_id_is_one_call(seen: int, item_id: str) -> None:
    done = event("output_item.done", output_index=0, item=call_item("c9", item_id))
    accumulator = collect(created(), *call()[:seen], done, end())
    assert accumulator.finish().output == [call_item("c9")]
    assert "call c goes on as c9" in accumulator.deviations


@pytest.mark.parametrize("ends", ["c", "c9"])
def test_a_call_whose_call_id_changes_may_change_it_back(ends: str) -> None:
    done = event("output_item.done", output_index=0, item=call_item("c9"))
    told = end(call_item(ends))
    assert output_of(created(), *call()[:4], done, told) == [call_item(ends)]


def test_a_call_done_under_the_id_of_another_with_its_own_payload_is_another() -> None:
    other = call_item("d", "fc", BONN)
    done = event("output_item.done", output_index=0, item=other)
    output = output_of(created(), *call()[:3], done, end())
    assert [item["arguments"] for item in output] == [ARGUMENTS, BONN]


def test_a_call_done_under_the_id_of_another_elsewhere_is_another() -> None:
    done = event("output_item.done", output_index=1, item=call_item("d"))
    output = output_of(created(), call()[0], done, call()[-1], end())
    assert [item["call_id"] for item in output] == ["c", "d"]


@pytest.mark.parametrize("has_index", [True, False])
def test_two_calls_side_by_side_under_one_item_id_keep_their_arguments(has_index: bool) -> None:
    one, two = call("c"), call("d", index=1)
    two[1]["delta"], two[2]["delta"], two[3]["arguments"] = BONN[:3], BONN[3:], BONN
    two[4]["item"] = call_item("d", arguments=BONN)
    mixed = [told for pair in zip(one, two, strict=True) for told in pair]
    if not has_index:
        mixed = [told | {"output_index": -1} if "item_id" in told else told for told in mixed]
    accumulator = collect(created(), *mixed, end())
    assert accumulator.finish().output == [call_item("c"), call_item("d", arguments=BONN)]
    assert [draft and draft.is_guessed for _, draft in accumulator.settled] == [
        False,
        not has_index,
    ]


def test_two_calls_under_one_item_id_stay_two() -> None:
    told = end(call_item("c"), call_item("d"))
    assert output_of(created(), *call("c"), *call("d", index=1), told) == [
        call_item("c"),
        call_item("d"),
    ]


def test_a_call_and_its_output_are_two_items() -> None:
    answer = {"id": "o", "type": "function_call_output", "call_id": "c", "output": "rain"}
    told = event("output_item.done", output_index=1, item=answer)
    assert output_of(created(), *call(), told, end()) == [call_item(), answer]


@pytest.mark.parametrize("ends", [(), ("fc", "other"), ("new", "newer"), ("other",)])
def test_one_call_id_with_two_payloads_is_two_calls(ends: tuple[str, ...]) -> None:
    rain = '{"city":"Bonn"}'
    twin = call(item_id="other", index=1)[0]
    place: dict[str, Any] = {"item_id": "other", "output_index": 1}
    second = [
        twin,
        event("function_call_arguments.delta", delta=rain, **place),
        event("output_item.done", output_index=1, item=call_item("c", "other", rain)),
    ]
    told = [
        call_item("c", item_id, rain if item_id in ("other", "newer") else ARGUMENTS)
        for item_id in ends
    ]
    accumulator = collect(created(), *call()[:2], *second, *call()[2:], end(*told))
    output = accumulator.finish().output
    assert [item["arguments"] for item in output] == [ARGUMENTS, rain]
    assert "call c came again as item other" in accumulator.deviations


def test_a_call_done_again_under_a_new_id_with_another_payload_is_another_call() -> None:
    other = call_item("c", "other", '{"city":"Bonn"}')
    done = event("output_item.done", output_index=0, item=other)
    assert output_of(created(), *call(), done, end()) == [call_item(), other]


def test_a_call_done_again_under_a_new_id_with_the_same_payload_is_one_call() -> None:
    other = call_item("c", "other", ARGUMENTS.replace(":", " : "))
    done = event("output_item.done", output_index=1, item=other)
    assert output_of(created(), *call(), done, end()) == [call_item()]


def test_a_call_announced_twice_and_told_once_is_one_call() -> None:
    again = call(item_id="other", index=1)[0]
    assert output_of(created(), again, *call(), end()) == [call_item()]


def test_a_call_announced_after_it_was_done_under_another_id_is_one_call() -> None:
    assert output_of(created(), call()[-1], call(item_id="other")[0], end()) == [call_item()]


def test_two_calls_without_arguments_under_one_call_id_are_one() -> None:
    one, two = call_item(arguments=""), call_item(item_id="other", arguments="")
    told = [
        event("output_item.done", output_index=n, item=item) for n, item in enumerate((one, two))
    ]
    assert output_of(created(), *told, end()) == [one]


# What counts.


def test_feed_says_whether_an_event_counted() -> None:
    events = numbered([created(), *message(), *call(index=1), end()])
    accumulator = ResponseAccumulator()
    assert all(accumulator.feed(told) for told in events)
    assert not any(accumulator.feed(told) for told in events)


@pytest.mark.parametrize("size", [1, 2, 4, 100])
def test_events_taken_in_batches_make_the_same_response(size: int) -> None:
    events = numbered([created(), *message(), *call(index=1), *message("later", "n", 2), end()])
    accumulator = ResponseAccumulator()
    for start in range(0, len(events), size):
        accumulator.feed_all(events[start : start + size])
    one_by_one = collect_events(events)
    assert accumulator.finish() == one_by_one.finish()
    assert accumulator.deviations == one_by_one.deviations


def collect_events(events: list[Event]) -> ResponseAccumulator:
    accumulator = ResponseAccumulator()
    for told in events:
        accumulator.feed(told)
    return accumulator


def test_an_unknown_event_does_not_count() -> None:
    assert not ResponseAccumulator().feed(read_event({"type": "acme.progress"}))


def test_a_delta_told_again_under_its_number_does_not_count() -> None:
    accumulator = collect(created(), *message()[:3])
    again = read_event(message()[2] | {"sequence_number": 3})
    other = read_event(message()[2] | {"sequence_number": 4})
    assert not accumulator.feed(again)
    assert accumulator.feed(other)


@pytest.mark.parametrize("final", [4, 5, 6], ids=["text", "part", "item"])
def test_a_delta_for_a_final_text_does_not_count(final: int) -> None:
    accumulator = collect(created(), *message()[:4], message()[final])
    late = message()[3] | {"sequence_number": 6, "logprobs": [{"token": "llo"}]}
    assert not accumulator.feed(read_event(late))
    assert "response.output_text.delta for a text that is done" in accumulator.deviations


def test_a_delta_still_counts_where_the_final_word_is_empty() -> None:
    empty = event("output_item.done", output_index=0, item=message_item(None))
    accumulator = collect(created(), *message()[:3], empty)
    assert accumulator.feed(read_event(message()[3] | {"sequence_number": 5}))
    accumulator.feed(read_event(end() | {"sequence_number": 6}))
    assert accumulator.finish().output == [message_item("hello")]


def test_an_annotation_at_the_place_of_another_does_not_count() -> None:
    place: dict[str, Any] = {"item_id": "m", "output_index": 0, "content_index": 0}
    note = event("output_text.annotation.added", annotation_index=0, annotation={"url": 1}, **place)
    accumulator = collect(created(), *message()[:4], note)
    assert not accumulator.feed(read_event(note | {"sequence_number": 6}))


def test_the_end_says_which_streamed_item_each_item_was() -> None:
    new = message_item("new", "n")
    accumulator = collect(created(), *message(), *call(index=1), end(new, call_item(item_id="x")))
    assert [(item["id"], draft and draft.id) for item, draft in accumulator.settled] == [
        ("n", "m"),
        ("x", "fc"),
    ]
    accumulator = collect(created(), end(new))
    assert accumulator.settled == [(new, None)]


# What is in the wrong place.


@pytest.mark.requirement("RFC22-call-events")
def test_calls_told_side_by_side_keep_their_arguments() -> None:
    one, two = call("c", "fc"), call("d", "fd", 1)
    mixed = [told for pair in zip(one, two, strict=True) for told in pair]
    assert output_of(created(), *mixed, end()) == [call_item("c"), call_item("d", "fd")]


def test_items_that_are_all_at_index_0_keep_their_order() -> None:
    told = [created(), *message(), *call(), *message("later", "n"), end()]
    assert [item["id"] for item in output_of(*told)] == ["m", "fc", "n"]


def test_items_are_sorted_by_their_index() -> None:
    told = [created(), *call(index=1), *message(index=0), end()]
    assert [item["id"] for item in output_of(*told)] == ["m", "fc"]


def test_deltas_under_a_foreign_id_go_to_the_item_at_their_index() -> None:
    foreign = [told | {"item_id": "x"} if "item_id" in told else told for told in message()]
    accumulator = collect(created(), *without(foreign, "output_item.done"), end())
    assert accumulator.finish().output == [message_item("hello")]
    assert accumulator.deviations != []


def test_a_foreign_id_at_a_crowded_index_is_an_item_of_its_own() -> None:
    crowd = [message()[0], message(item_id="n")[0]]
    told = message("other", "x")[2:4]
    output = output_of(created(), *crowd, *told, end())
    assert [item["id"] for item in output] == ["m", "n", "x"]
    assert output[2]["content"][0]["text"] == "other"


def test_reasoning_at_the_index_of_a_message_is_one_item_under_whatever_ids() -> None:
    """LiteLLM opens the message first, and gives every reasoning delta an id of its own."""
    thoughts = [
        event(
            "reasoning_summary_text.delta",
            delta=f"t{n} ",
            item_id=item_id,
            output_index=0,
            summary_index=0,
        )
        for n, item_id in enumerate(["rs_0", "rs_1", "m", "rs_3"])
    ]
    output = output_of(created(), *message()[:2], *thoughts, *message()[2:], end())
    assert [item["type"] for item in output] == ["message", "reasoning"]
    assert output[0] == message_item("hello")
    assert output[1]["summary"] == [{"type": "summary_text", "text": "t0 t1 t2 t3 "}]


def test_reasoning_at_the_index_of_a_message_goes_to_the_item_that_was_announced() -> None:
    begun = {"id": "rs", "type": "reasoning", "summary": []}
    stray = event("reasoning_text.delta", delta="hm", item_id="x", output_index=0)
    opened = event("output_item.added", output_index=1, item=begun)
    output = output_of(created(), message()[0], opened, stray, *message()[1:], end())
    assert output[0] == message_item("hello")
    assert output[1]["content"] == [{"type": "reasoning_text", "text": "hm"}]


def test_text_at_the_index_of_reasoning_is_a_message() -> None:
    begun = {"id": "rs", "type": "reasoning", "summary": []}
    opened = event("output_item.added", output_index=0, item=begun)
    assert output_of(created(), opened, *message()[2:4], end())[1] == message_item("hello")


def test_text_with_a_foreign_id_at_the_index_of_an_unknown_item_is_its_own() -> None:
    opened = event("output_item.added", output_index=0, item={"id": "x", "type": "acme:chart"})
    assert len(output_of(created(), opened, *message()[2:4], end())) == 1


def test_a_message_done_under_a_foreign_id_beside_reasoning_is_one_message() -> None:
    thought = event("reasoning_text.delta", delta="hm", item_id="rs", output_index=0)
    done = message(item_id="x")[-1]
    output = output_of(created(), *message()[:4], thought, done, end())
    assert [item["type"] for item in output] == ["message", "reasoning"]


def nameless_call() -> list[dict[str, Any]]:
    """A call as llama.cpp told it: the call_id in place of the id, and no index."""
    item = call_item("fc")
    del item["id"]
    deltas = [
        event("function_call_arguments.delta", item_id="fc", delta=piece)
        for piece in (ARGUMENTS[:3], ARGUMENTS[3:])
    ]
    begun = item | {"arguments": "", "status": "in_progress"}
    return [
        event("output_item.added", item=begun),
        *deltas,
        event("output_item.done", item=item),
    ]


@pytest.mark.parametrize("lost", [None, 0, 3])
def test_a_call_without_an_id_goes_by_its_call_id(lost: int | None) -> None:
    stream = [told for place, told in enumerate(nameless_call()) if place != lost]
    [item] = output_of(created(), *stream, end())
    assert (item["call_id"], item["arguments"]) == ("fc", ARGUMENTS)


def test_the_only_open_call_without_an_id_takes_an_unknown_one() -> None:
    opened, *deltas, _ = nameless_call()
    opened["item"]["call_id"] = "c"
    first = [told | {"item_id": "x"} for told in deltas]
    other = [told | {"item_id": "y"} for told in deltas]
    output = output_of(created(), opened, *first, *other, end())
    assert [(item["id"], item["arguments"]) for item in output] == [
        ("x", ARGUMENTS),
        ("y", ARGUMENTS),
    ]


def test_an_item_done_without_a_place_is_the_one_that_said_the_same() -> None:
    delta = event("output_text.delta", delta="hello")
    done = event("output_item.done", item=message_item("hello"))
    assert output_of(created(), delta, done, end()) == [message_item("hello")]
    other = event("output_item.done", item=message_item("bye"))
    assert len(output_of(created(), delta, other, end())) == 2


def test_arguments_that_name_no_call_beside_several_are_a_guess() -> None:
    opened = [call()[0], call("d", "fd", 1)[0]]
    lost = [{key: told[key] for key in told if key != "item_id"} for told in call()[1:4]]
    placeless = [told | {"output_index": -1} for told in lost]
    accumulator = collect(created(), *opened, *placeless, end())
    assert [draft and draft.is_guessed for _, draft in accumulator.settled] == [False, True]
    accumulator = collect(created(), *opened, *lost, end())
    assert [draft and draft.is_guessed for _, draft in accumulator.settled] == [False, False]


def test_an_item_done_under_a_foreign_id_is_the_one_at_its_index() -> None:
    done = message(item_id="x")[-1]
    assert output_of(created(), *message()[:-1], done, end()) == [message_item("hello")]


def test_another_message_done_at_a_taken_index_is_another_message() -> None:
    done = message("other text", item_id="x")[-1]
    output = output_of(created(), *message()[:4], done, end())
    assert [item["content"][0]["text"] for item in output] == ["hello", "other text"]


@pytest.mark.parametrize("absent", ["item_id", "output_index", "content_index"])
def test_events_without_a_place_go_to_the_latest_item(absent: str) -> None:
    lost = [{key: value for key, value in told.items() if key != absent} for told in message()]
    assert output_of(created(), *lost, end()) == [message_item("hello")]


def test_arguments_without_id_and_index_go_to_the_latest_call() -> None:
    deltas = [told | {"item_id": None, "output_index": None} for told in call(index=1)[1:4]]
    told = [created(), *message(), call(index=1)[0], *deltas, end()]
    assert output_of(*told) == [message_item("hello"), call_item()]


def test_parts_may_begin_at_any_index() -> None:
    shifted = [
        told | {"content_index": 3} if "content_index" in told else told for told in message()
    ]
    assert output_of(created(), *without(shifted, "output_item.done"), end()) == [
        message_item("hello")
    ]


def test_text_and_thought_at_one_index_of_a_message_are_two_parts() -> None:
    thought = message()[2] | {"type": "response.reasoning_text.delta", "delta": "hm"}
    [item] = output_of(created(), *message()[:2], thought, *message()[2:-1], end())
    assert [(part["type"], part["text"]) for part in item["content"]] == [
        ("output_text", "hello"),
        ("reasoning_text", "hm"),
    ]


def test_text_and_refusal_at_one_index_are_two_parts() -> None:
    refusal = event("refusal.done", refusal="no", item_id="m", output_index=0, content_index=0)
    [item] = output_of(created(), *message()[:-1], refusal, end())
    assert [part["type"] for part in item["content"]] == ["output_text", "refusal"]


# What disagrees.


def test_the_done_text_wins_over_its_deltas() -> None:
    done = message("hellO")[4]
    accumulator = collect(created(), *message()[:4], done, end())
    assert accumulator.finish().output_text == "hellO"
    assert accumulator.deviations != []


def test_the_terminal_response_wins_over_the_stream() -> None:
    accumulator = collect(created(), *message(), end(message_item("bye")))
    assert accumulator.finish().output == [message_item("bye")]
    assert "content of item m is not what was streamed" in accumulator.deviations


@pytest.mark.parametrize("told", [message_item(None), message_item("")])
def test_an_empty_word_never_wins_over_a_full_one(told: Item) -> None:
    assert output_of(created(), *message(), end(told)) == [message_item("hello")]


def test_an_empty_final_text_does_not_stop_the_deltas() -> None:
    added, part, one, two, done, *_ = message()
    empty = done | {"text": ""}
    assert output_of(created(), added, part, empty, one, empty, two, end()) == [
        message_item("hello")
    ]


def test_empty_arguments_at_the_end_do_not_erase_the_streamed_ones() -> None:
    assert output_of(created(), *call(), end(call_item(arguments=""))) == [call_item()]


def test_an_item_that_the_terminal_response_forgot_is_kept() -> None:
    accumulator = collect(created(), *message(), *call(index=1), end(call_item()))
    assert accumulator.finish().output == [message_item("hello"), call_item()]
    assert "the terminal response lacks item m" in accumulator.deviations


def test_an_item_that_said_nothing_and_is_forgotten_is_gone() -> None:
    told = [created(), message()[0], *call(index=1), end(call_item())]
    assert output_of(*told) == [call_item()]


def test_an_item_that_gets_a_new_id_at_the_end_is_not_doubled() -> None:
    accumulator = collect(created(), *message(), end(message_item("hello", "new")))
    assert accumulator.finish().output == [message_item("hello", "new")]
    assert accumulator.deviations == ["item m ends as new"]


def test_a_finished_response_is_the_response_so_far() -> None:
    accumulator = collect(created(), *message(), end())
    assert accumulator.response == accumulator.finish()


def test_a_part_told_again_is_noted_and_changes_nothing() -> None:
    added, part, *rest = message()
    done = rest[3]
    accumulator = collect(created(), added, part, part, *rest[:4], done | {"part": {}}, end())
    assert accumulator.finish().output == [message_item("hello")]
    assert "part 0 of item m added again" in accumulator.deviations
    assert "part 0 of item m done again" in accumulator.deviations


def test_a_part_that_is_done_and_empty_leaves_what_was_streamed() -> None:
    stream = message()
    empty = stream[5] | {"part": {"type": "output_text", "text": ""}}
    told = [created(), *stream[:4], empty, end()]
    assert output_of(*told)[0]["content"][0]["text"] == "hello"


def test_a_huge_gap_in_the_numbers_costs_no_memory() -> None:
    far = [fields | {"sequence_number": 10**12 + n} for n, fields in enumerate(message())]
    accumulator = collect(created(), *far, end())
    assert accumulator.finish().output == [message_item("hello")]
    assert len(accumulator._numbers.marks) < 100


# What has many names, or none.


@pytest.mark.requirement("RFC22-reasoning-events")
@pytest.mark.parametrize("name", ["reasoning", "reasoning_text"])
def test_raw_reasoning_is_read_under_each_name(name: str) -> None:
    place: dict[str, Any] = {"item_id": "rs", "output_index": 0, "content_index": 0}
    told = [event(f"{name}.delta", delta=piece, **place) for piece in ("th", "ink")]
    assert output_of(created(), *told, end()) == [
        {
            "id": "rs",
            "type": "reasoning",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "think"}],
        }
    ]


@pytest.mark.requirement("RFC22-reasoning-events")
@pytest.mark.parametrize("name", ["reasoning_summary", "reasoning_summary_text"])
def test_a_summary_is_read_under_each_name(name: str) -> None:
    place: dict[str, Any] = {"item_id": "rs", "output_index": 0, "summary_index": 0}
    told = event(f"{name}.delta", delta="short", **place)
    [item] = output_of(created(), told, end())
    assert item["summary"] == [{"type": "summary_text", "text": "short"}]


def test_reasoning_in_a_part_of_the_wrong_type_is_one_part() -> None:
    place: dict[str, Any] = {"item_id": "rs", "output_index": 0, "content_index": 0}
    begun = {"id": "rs", "type": "reasoning", "summary": []}
    part = {"type": "output_text", "text": "", "annotations": []}
    told = [
        event("output_item.added", output_index=0, item=begun),
        event("content_part.added", part=part, **place),
        event("reasoning.delta", delta="think", **place),
    ]
    [item] = output_of(created(), *told, end())
    assert item["content"] == [part | {"text": "think"}]


def test_custom_input_is_collected() -> None:
    place: dict[str, Any] = {"item_id": "ct", "output_index": 0}
    begun = {"id": "ct", "type": "custom_tool_call", "call_id": "c", "name": "sh", "input": ""}
    told = [
        event("output_item.added", output_index=0, item=begun),
        event("custom_tool_call_input.delta", delta="l", **place),
        event("custom_tool_call_input.delta", delta="s", **place),
    ]
    [item] = output_of(created(), *told, end())
    assert item["input"] == "ls"


@pytest.mark.requirement("RFC22-text-events")
def test_annotations_are_collected_in_order() -> None:
    place: dict[str, Any] = {"item_id": "m", "output_index": 0, "content_index": 0}
    notes = [
        event("output_text.annotation.added", annotation_index=n, annotation={"url": n}, **place)
        for n in (1, 0, 1)
    ]
    [item] = output_of(created(), *message()[:4], *notes, end())
    assert item["content"][0]["annotations"] == [{"url": 0}, {"url": 1}]


def test_logprobs_are_collected() -> None:
    delta = message()[2] | {"logprobs": [{"token": "he"}]}
    [item] = output_of(created(), *message()[:2], delta, end())
    assert item["content"][0]["logprobs"] == [{"token": "he"}]


def test_unknown_items_are_told_exactly_as_they_were_done() -> None:
    begun = {"id": "x", "type": "acme:search", "progress": 0}
    done = {"id": "x", "type": "acme:search", "hits": [{"deep": [1]}], "status": "completed"}
    told = [
        event("output_item.added", output_index=0, item=begun),
        event("acme.progress", item_id="x"),
        event("output_item.done", output_index=0, item=done),
    ]
    accumulator = collect(created(), *told, end())
    assert accumulator.finish().output == [done]


@pytest.mark.requirement("RFC22-part-events")
def test_unknown_parts_are_kept_as_they_are() -> None:
    part = {"type": "acme:chart", "points": [1, 2]}
    told = event("content_part.done", part=part, item_id="m", output_index=0, content_index=0)
    [item] = output_of(created(), message()[0], told, end())
    assert item["content"] == [part]


@pytest.mark.parametrize(
    "item",
    [None, {}, {"id": 5}, {"type": ["x"]}, {"type": "message", "content": "text"}],
)
def test_nonsense_for_an_item_does_no_harm(item: Item | None) -> None:
    told = [event(f"output_item.{step}", output_index=0, item=item) for step in ("added", "done")]
    collect(created(), *told, *call(), end(message_item("x"))).finish()


def test_an_emoji_in_two_halves_arrives_whole() -> None:
    frame = b'{"type":"response.output_text.delta","item_id":"m","output_index":0,"delta":"\\u%b"}'
    accumulator = collect(created())
    for half in (b"d83d", b"de00"):
        accumulator.feed(decode_event(frame % half))
    accumulator.feed(read_event(end()))
    assert accumulator.finish().output_text == "\U0001f600"


# What is too much.


def test_a_long_text_is_collected_whole() -> None:
    place: dict[str, Any] = {"item_id": "m", "output_index": 0, "content_index": 0}
    pieces = [event("output_text.delta", delta=f"{n} ", **place) for n in range(5000)]
    text = collect(created(), *pieces, end()).finish().output_text
    assert text == "".join(f"{n} " for n in range(5000))


def test_the_list_of_deviations_has_an_end() -> None:
    strays = [
        event("output_text.delta", delta="x", item_id=f"m{n}", output_index=n, content_index=0)
        for n in range(MAX_DEVIATIONS * 2)
    ]
    assert len(collect(created(), *strays).deviations) == MAX_DEVIATIONS


def test_a_response_that_ends_without_its_id_keeps_the_one_it_began_with() -> None:
    accumulator = ResponseAccumulator()
    accumulator.feed(ResponseCreated(sequence_number=0, response=Response(id="resp_1")))
    ended = Response(id="", status="completed")
    accumulator.feed(ResponseCompleted(sequence_number=1, response=ended))

    assert accumulator.finish().id == "resp_1"
    assert accumulator.deviations == []


def test_usage_without_a_total_is_given_the_sum_and_noted() -> None:
    usage = {"input_tokens": 5, "output_tokens": 3}
    accumulator = collect(created(), *message(), end(message_item("hello"), usage=usage))
    counted = accumulator.finish().usage
    assert counted is not None
    assert counted.total_tokens == 8
    assert "usage without total_tokens" in accumulator.deviations


# Items that a server runs itself.

HOSTED = {"item_id": "h", "output_index": 0}


def opened(kind: str, **fields: Any) -> dict[str, Any]:
    """The opening of a hosted item."""
    item = {"id": "h", "type": kind, "status": "in_progress", **fields}
    return event("output_item.added", output_index=0, item=item)


def test_a_stage_is_the_status_of_a_hosted_item_until_it_is_done() -> None:
    told = [created(), opened("web_search_call"), event("web_search_call.searching", **HOSTED)]
    accumulator = collect(*told)
    assert accumulator.response is not None
    assert accumulator.response.output[0]["status"] == "searching"
    done = {"id": "h", "type": "web_search_call", "status": "completed"}
    told += [event("output_item.done", output_index=0, item=done), end(done)]
    assert output_of(*told) == [done]


@pytest.mark.parametrize(
    ("kind", "stage", "status"),
    [
        ("web_search_call", "searching", "incomplete"),
        ("file_search_call", "completed", "completed"),
        ("mcp_call", "failed", "failed"),
        ("image_generation_call", "completed", "failed"),
    ],
)
def test_a_hosted_item_that_was_never_done_ends_as_its_last_stage_says(
    kind: str, stage: str, status: str
) -> None:
    (item,) = output_of(created(), opened(kind), event(f"{kind}.{stage}", **HOSTED), end())
    assert item["status"] == status


def test_a_list_of_tools_gets_no_status_from_its_stages() -> None:
    item = {"id": "h", "type": "mcp_list_tools", "tools": []}
    added = event("output_item.added", output_index=0, item=item)
    accumulator = collect(created(), added, event("mcp_list_tools.completed", **HOSTED))
    assert accumulator.response is not None
    assert accumulator.response.output == [item]


def test_a_preview_of_an_image_is_no_stage_and_is_not_kept() -> None:
    shown = event(
        "image_generation_call.partial_image",
        partial_image_index=0,
        partial_image_b64="AA",
        **HOSTED,
    )
    going = event("image_generation_call.generating", **HOSTED)
    accumulator = collect(created(), opened("image_generation_call"), going, shown)
    assert accumulator.response is not None
    item = {"id": "h", "type": "image_generation_call", "status": "generating"}
    assert accumulator.response.output == [item]
    assert accumulator.deviations == []


@pytest.mark.parametrize(
    ("kind", "field", "text"),
    [("mcp_call", "arguments", '{"a":1}'), ("code_interpreter_call", "code", "print(1)")],
)
def test_the_text_of_a_hosted_item_is_put_together(kind: str, field: str, text: str) -> None:
    deltas = [
        event(f"{kind}_{field}.delta", delta=text[:3], **HOSTED),
        event(f"{kind}_{field}.delta", delta=text[3:], **HOSTED),
    ]
    for told in ([opened(kind), *deltas], deltas):
        (item,) = output_of(created(), *told, end())
        assert (item["type"], item[field], item["status"]) == (kind, text, "incomplete")
    # An empty end does not take away what was streamed.
    done = {"id": "h", "type": kind, "status": "completed", field: ""}
    ends = [event("output_item.done", output_index=0, item=done), end(done)]
    (item,) = output_of(created(), opened(kind), *deltas, *ends)
    assert item == done | {field: text}


@pytest.mark.parametrize("told", [[], [opened("file_search_call")]], ids=["none", "another"])
def test_a_stage_of_an_item_that_is_not_there_counts_for_nothing(told: list[Any]) -> None:
    accumulator = collect(created(), *told)
    late = event("web_search_call.searching", **HOSTED)
    assert not accumulator.feed(numbered([created(), *told, late])[-1])
    assert "for unknown item 'h'" in accumulator.deviations[-1]
