"""The adapter: every flow of a stream as a chat application sees it, and the damaged ones."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from antiphon.host.adapter import AdapterSettings, StreamAdapter
from antiphon.host.data import ITEM_MIME
from antiphon.host.errors import (
    ChangedCall,
    DamagedText,
    MalformedCall,
    ResponseFailed,
    StreamCut,
)
from antiphon.protocol.codec import decode_event, read_event
from antiphon.protocol.items import Item
from antiphon.wires.host.parts import DataPart, TextPart, ThinkingPart, ToolCallPart
from tests.host.streams import (
    ARGUMENTS,
    CITY,
    Fields,
    added,
    call,
    call_item,
    created,
    data,
    done,
    end,
    event,
    message,
    message_item,
    tell,
    text,
    thoughts,
    tool_calls,
    without,
)

CALL = ToolCallPart("call_1", "weather", CITY)
BONN = '{"city":"Bonn"}'
THINKING = AdapterSettings(shows_thinking=True)
NOTE = {"type": "url_citation", "url": "https://a.example/", "title": "A"}
LINK = TextPart(" [A](https://a.example/)")
ERROR = {"type": "error", "code": "overloaded", "message": "too much", "param": None}


# The flows of the seed.


@pytest.mark.requirement("RFC22-text-flow", "RFC22-parts", "RFC016-adapter", "22-C2")
def test_each_text_delta_is_a_part_and_done_adds_nothing() -> None:
    told = tell(created(), *message("Hel", "lo"), end(message_item("Hello")))
    assert told.steps == [[], [], [], [TextPart("Hel")], [TextPart("lo")], [], [], [], []]
    assert told.finish().response.output_text == "Hello"


@pytest.mark.requirement(
    "RFC22-call-flow", "RFC22-atomic-calls", "22-D3", "22-C2", "RFC016-adapter"
)
def test_a_call_is_told_when_its_arguments_are_done_and_never_again() -> None:
    told = tell(created(), *call(), end(call_item()))
    assert told.steps == [[], [], [], [], [CALL], [], []]
    assert told.finish().meta.deviations == ()


@pytest.mark.requirement("RFC22-call-flow")
def test_a_call_without_arguments_done_is_told_when_its_item_is_done() -> None:
    told = tell(created(), *without(call(), "function_call_arguments.done"), end(call_item()))
    assert told.steps == [[], [], [], [], [CALL], []]


@pytest.mark.requirement("RFC22-call-flow")
def test_a_call_that_only_the_terminal_response_holds_is_told_at_the_end() -> None:
    told = tell(created(), end(call_item()))
    assert told.steps == [[], [CALL]]


@pytest.mark.requirement("RFC22-call-flow")
def test_a_call_that_was_only_streamed_is_told_at_the_end() -> None:
    told = tell(created(), *call()[:3], end())
    assert told.steps[-1] == [CALL]
    told.finish()


@pytest.mark.requirement("RFC22-parallel", "RFC22-order", "22-D3")
def test_parallel_calls_are_told_one_by_one_each_with_its_own_arguments() -> None:
    one = call("call_1", "fc_1", 0)
    two = call("call_2", "fc_2", 1, '{"city":"Bonn"}')
    mixed = [told for pair in zip(one, two, strict=True) for told in pair]
    told = tell(created(), *mixed, end())
    bonn = ToolCallPart("call_2", "weather", {"city": "Bonn"})
    assert told.steps[7:9] == [[CALL], [bonn]]
    assert told.parts == [CALL, bonn]
    told.finish()


@pytest.mark.requirement("RFC22-interleaved", "RFC22-order")
def test_text_beside_a_call_keeps_the_order_of_the_events() -> None:
    said = message("Let me ", "check that...")
    asked = call(index=1)
    told = tell(
        created(), *said[:3], asked[0], said[3], asked[1], said[4], *asked[2:4], *said[5:], asked[4]
    )
    assert told.parts == [TextPart("Let me "), TextPart("check that..."), CALL]


@pytest.mark.requirement("RFC22-namespacing")
def test_call_ids_carry_the_prefix_that_was_asked_for() -> None:
    told = tell(created(), *call(), end(), settings=AdapterSettings(call_prefix="gw-"))
    assert told.parts == [ToolCallPart("gw-call_1", "weather", CITY)]


@pytest.mark.requirement("RFC22-lifecycle", "RFC22-parts")
def test_lifecycle_and_unknown_events_cause_no_parts() -> None:
    stream = [
        created(),
        event("queued", response={"id": "resp_1"}),
        event("in_progress", response={"id": "resp_1"}),
        event("web_search_call.searching", item_id="ws_1", output_index=0),
        {"type": "acme.progress", "percent": 50},
        end(),
    ]
    assert tell(*stream).parts == []


@pytest.mark.requirement("RFC22-lifecycle", "RFC016-adapter", "REQ-002.3", "22-C2")
def test_the_outcome_has_the_id_to_go_on_from_and_the_usage() -> None:
    usage = {"input_tokens": 3, "output_tokens": 5, "total_tokens": 8}
    outcome = tell(created(), *message("Hi"), end(usage=usage)).finish()
    assert (outcome.response_id, outcome.status) == ("resp_1", "completed")
    assert outcome.usage is not None
    assert outcome.usage.total_tokens == 8
    assert outcome.incomplete_reason is None


@pytest.mark.requirement("22-D2")
def test_choices_that_the_chat_road_left_out_are_in_the_outcome() -> None:
    adapter = tell(created(), end()).adapter
    assert adapter.finish(skipped_choices=2).meta.skipped_choices == 2
    assert adapter.finish().meta.skipped_choices == 0


@pytest.mark.requirement("RFC22-trace")
def test_the_sequence_of_events_is_logged_without_a_word_of_content(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG, logger="antiphon.host"):
        tell(created(), *message("secret"), end())
    logged = [record.getMessage() for record in caplog.records]
    assert logged[3] == "event response.output_text.delta, number 3"
    assert "secret" not in caplog.text


@pytest.mark.requirement("RFC22-trace")
def test_without_debug_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="antiphon.host"):
        tell(created(), *message("Hi"), end())
    assert caplog.records == []


# Text that got damaged on the way.


@pytest.mark.requirement("RFC22-text-flow")
@pytest.mark.parametrize(
    "lost",
    [
        [],
        ["output_text.done"],
        ["output_text.done", "content_part.done"],
        ["output_text.done", "content_part.done", "output_item.done"],
    ],
)
def test_a_lost_tail_is_shown_by_the_next_word_that_has_it(lost: list[str]) -> None:
    stream = without(message("Hel", said="Hello"), *lost)
    told = tell(created(), *stream, end(message_item("Hello")))
    assert told.parts == [TextPart("Hel"), TextPart("lo")]
    told.finish()


def test_text_that_came_without_deltas_is_shown_once() -> None:
    told = tell(created(), *message(said="Hello"), end(message_item("Hello")))
    assert told.parts == [TextPart("Hello")]


def test_a_message_of_very_many_parts_is_shown_whole() -> None:
    place: Fields = {"item_id": "msg_1", "output_index": 0}
    parts = [{"type": "output_text", "text": f"{n} ", "annotations": []} for n in range(500)]
    stream = [
        event("output_text.done", text=part["text"], content_index=n, **place)
        for n, part in enumerate(parts)
    ]
    told = tell(
        created(), added(message_item("")), *stream, done(message_item("") | {"content": parts})
    )
    assert text(told.parts) == "".join(f"{n} " for n in range(500))


def test_text_that_lost_its_beginning_cannot_be_repaired() -> None:
    told = tell(created(), *message("lo", said="Hello"), end(message_item("Hello")))
    assert text(told.parts) == "lo"
    with pytest.raises(DamagedText) as caught:
        told.finish()
    assert (caught.value.shown, caught.value.said) == ("lo", "Hello")
    assert caught.value.response.output_text == "Hello"


def test_the_error_holds_text_that_was_never_shown_too() -> None:
    told = tell(
        created(),
        *message("lo", said="Hello"),
        end(message_item("Hello"), message_item("", "msg_2"), message_item("!", "msg_3")),
    )
    with pytest.raises(DamagedText) as caught:
        told.finish()
    assert (caught.value.shown, caught.value.said) == ("lo!", "Hello!")


def test_a_tail_whose_place_is_behind_us_is_not_put_elsewhere() -> None:
    first = without(message("Hel"), "output_text.done", "content_part.done", "output_item.done")
    told = tell(
        created(),
        *first,
        *message("World", item_id="msg_2", index=1),
        end(message_item("Hello"), message_item("World", "msg_2")),
    )
    assert text(told.parts) == "HelWorld"
    with pytest.raises(DamagedText):
        told.finish()


def test_the_last_tail_comes_before_a_message_that_nobody_has_heard() -> None:
    first = without(message("Hel"), "output_text.done", "content_part.done", "output_item.done")
    told = tell(
        created(), *first, end(message_item("New ", "msg_0"), message_item("Hello", "msg_1"))
    )
    assert [part.value for part in told.parts if isinstance(part, TextPart)] == [
        "Hel",
        "lo",
        "New ",
    ]
    assert told.finish().meta.deviations[-1].startswith("text was shown as it came")


def test_a_final_text_that_takes_something_back_is_an_error() -> None:
    with pytest.raises(DamagedText):
        tell(created(), *message("Hello"), end(message_item("Hell"))).finish()


def test_an_empty_final_text_takes_nothing_back() -> None:
    told = tell(created(), *message("Hello"), end())
    assert text(told.parts) == "Hello"
    told.finish()


def test_deltas_told_twice_under_one_number_are_shown_once() -> None:
    stream = [created(), *message("Hel", "lo")]
    twice = [fields | {"sequence_number": n} for n, fields in enumerate(stream) for _ in range(2)]
    told = tell(*twice, end())
    assert text(told.parts) == "Hello"
    told.finish()


def test_text_after_an_empty_done_is_shown() -> None:
    opened, part, one, two, closed, *_ = message("Hel", "lo")
    told = tell(created(), opened, part, closed | {"text": ""}, one, two, end())
    assert told.parts == [TextPart("Hel"), TextPart("lo")]
    told.finish()


def test_deltas_told_twice_under_new_numbers_are_an_error() -> None:
    stream = message("Hel", "lo")
    with pytest.raises(DamagedText):
        tell(created(), *stream[:3], *stream[2:], end()).finish()


@pytest.mark.parametrize("final", ["output_text.done", "content_part.done", "output_item.done"])
def test_deltas_for_a_text_that_is_final_are_not_shown(final: str) -> None:
    stream = message("Hello")
    place = next(n for n, told in enumerate(stream) if told["type"] == f"response.{final}")
    told = tell(created(), *stream[:3], stream[place], stream[2], end())
    assert text(told.parts) == "Hello"
    told.finish()


def test_messages_told_side_by_side_are_shown_as_they_come_and_that_is_noted() -> None:
    one = message("a1 ", "a2 ")
    two = message("b1 ", "b2 ", item_id="msg_2", index=1)
    mixed = [told for pair in zip(one, two, strict=True) for told in pair]
    told = tell(created(), *mixed, end())
    assert text(told.parts) == "a1 b1 a2 b2 "
    assert told.finish().meta.deviations != ()


def test_a_message_under_a_new_id_at_the_end_is_not_shown_again() -> None:
    told = tell(created(), *message("Hello"), end(message_item("Hello", "msg_9")))
    assert text(told.parts) == "Hello"
    told.finish()


def test_a_delta_before_its_item_is_shown_at_once() -> None:
    opened, part, first, *rest = message("Hel", "lo")
    told = tell(created(), first, opened, part, *rest, end())
    assert told.steps[1] == [TextPart("Hel")]
    assert text(told.parts) == "Hello"
    told.finish()


def test_an_emoji_in_two_halves_is_one_part() -> None:
    frame = b'{"type":"response.output_text.delta","item_id":"m","output_index":0,"delta":"\\u%b"}'
    adapter = StreamAdapter()
    assert adapter.feed(decode_event(frame % b"d83d")) == []
    assert adapter.feed(decode_event(frame % b"de00")) == [TextPart("\U0001f600")]
    adapter.feed(read_event(end()))
    adapter.finish()


def test_half_an_emoji_that_stays_alone_is_replaced() -> None:
    frame = (
        b'{"type":"response.output_text.delta","item_id":"m","output_index":0,"delta":"x\\ud83d"}'
    )
    adapter = StreamAdapter()
    parts = adapter.feed(decode_event(frame)) + adapter.feed(read_event(end()))
    assert parts == [TextPart("x"), TextPart("\ufffd")]
    adapter.finish()


@pytest.mark.requirement("REQ-003.2")
@pytest.mark.parametrize("settings", [AdapterSettings(), THINKING], ids=["hidden", "shown"])
def test_json_in_the_text_is_text_and_never_taken_for_reasoning(settings: AdapterSettings) -> None:
    said = '{"reasoning":"I think","type":"reasoning"}'
    told = tell(created(), *message(said), end(), settings=settings)
    assert told.parts == [TextPart(said)]


# Calls that got damaged on the way.


@pytest.mark.requirement("RFC22-gap-1")
def test_arguments_done_before_the_item_wait_for_it() -> None:
    opened, one, two, final, closed = call()
    told = tell(created(), one, two, final, opened, closed, end())
    assert told.steps[3:5] == [[], [CALL]]
    assert told.parts == [CALL]
    told.finish()


@pytest.mark.requirement("RFC22-gap-1")
def test_a_call_whose_item_was_never_added_is_told_when_it_is_done() -> None:
    told = tell(created(), *call()[1:], end())
    assert told.steps[-2] == [CALL]
    assert told.parts == [CALL]


def test_the_name_may_come_with_the_arguments() -> None:
    nameless = call_item(arguments="", name="")
    told = tell(created(), added(nameless), call()[3] | {"name": "weather"}, end())
    assert told.steps[2] == [CALL]


def test_an_empty_object_in_the_announcement_is_no_word_about_the_arguments() -> None:
    opened = added(call_item(arguments="{}"))
    told = tell(created(), opened, call()[3] | {"arguments": ""}, done(call_item()), end())
    assert told.parts == [CALL]
    told = tell(created(), opened, end())
    assert told.parts == []
    with pytest.raises(MalformedCall, match="never came"):
        told.finish()


def test_a_call_without_a_name_is_an_error_that_says_so() -> None:
    told = tell(created(), done(call_item(name="")), end())
    assert told.parts == []
    with pytest.raises(MalformedCall, match="no name"):
        told.finish()


def test_a_call_without_call_id_waits_for_the_end_and_goes_by_its_item_id() -> None:
    item = call_item()
    del item["call_id"]
    told = tell(created(), done(item), end())
    assert told.steps[1:] == [[], [ToolCallPart("fc_1", "weather", CITY)]]


def test_a_call_id_that_only_the_terminal_response_knows_is_the_one_told() -> None:
    item = call_item()
    del item["call_id"]
    assert tell(created(), done(item), end(call_item())).parts == [CALL]


def test_a_call_without_any_id_is_an_error_that_says_so() -> None:
    with pytest.raises(MalformedCall, match="no id"):
        tell(created(), done(call_item("", "")), end()).finish()


@pytest.mark.requirement("RFC22-atomic-calls")
@pytest.mark.parametrize("arguments", ['{"city":', "[1]", "null", '"{}"', "{} {}"])
def test_arguments_that_are_no_object_are_an_error_and_never_an_empty_object(
    arguments: str,
) -> None:
    told = tell(
        created(),
        *call(arguments=arguments),
        *call("call_2", "fc_2", 1),
        *message("Hi", index=2),
        end(),
    )
    assert told.parts == [ToolCallPart("call_2", "weather", CITY), TextPart("Hi")]
    with pytest.raises(MalformedCall) as caught:
        told.finish()
    assert (caught.value.call_id, caught.value.name) == ("call_1", "weather")
    assert caught.value.arguments == arguments
    assert caught.value.response.output_text == "Hi"


@pytest.mark.requirement("RFC22-call-flow")
def test_malformed_arguments_wait_for_a_more_final_word() -> None:
    stream = call(arguments='{"city":')
    told = tell(created(), *stream[:4], done(call_item()), end())
    assert told.steps[4:6] == [[], [CALL]]
    told.finish()
    told = tell(created(), *stream, end(call_item()))
    assert told.parts == [CALL]
    told.finish()


@pytest.mark.requirement("RFC22-atomic-calls")
def test_a_call_confirmed_under_a_new_item_id_is_not_run_twice() -> None:
    told = tell(created(), *call(), *call(item_id="fc_2", index=1), end(call_item()))
    assert told.parts == [CALL]
    assert told.finish().response.output == [call_item()]


@pytest.mark.requirement("RFC22-atomic-calls")
def test_the_same_arguments_in_other_words_are_the_same_call() -> None:
    again = call(item_id="fc_2", index=1, arguments='{ "city" : "Ulm" }')
    told = tell(created(), *call(), *again, end())
    assert told.parts == [CALL]
    told.finish()


@pytest.mark.requirement("RFC22-atomic-calls")
@pytest.mark.parametrize("ends", [(), ("fc_1", "fc_2"), ("new_1", "new_2")])
def test_one_call_id_for_two_payloads_makes_one_part_and_is_reported(ends: tuple[str, ...]) -> None:
    bonn = '{"city":"Bonn"}'
    output = [
        call_item(item_id=item_id, arguments=arguments)
        for item_id, arguments in zip(ends, (ARGUMENTS, bonn), strict=False)
    ]
    told = tell(created(), *call(), *call(item_id="fc_2", index=1, arguments=bonn), end(*output))
    assert told.parts == [CALL]
    outcome = told.finish()
    assert [item["arguments"] for item in outcome.response.output] == [ARGUMENTS, bonn]
    conflict = "call_id call_1 stands for several calls; only the first was handed over"
    assert outcome.meta.deviations.count(conflict) == 1


@pytest.mark.requirement("RFC22-atomic-calls")
def test_arguments_that_lost_a_piece_and_that_nothing_confirmed_are_an_error() -> None:
    opened, piece = call()[:2]
    pieces = [
        piece | {"delta": text, "sequence_number": number}
        for number, text in ((2, '{"city":"'), (4, 'm"}'))  # number 3 had the rest of the name
    ]
    told = tell(created(), opened, *pieces, end() | {"sequence_number": 5})
    assert told.parts == []
    with pytest.raises(MalformedCall, match="may have been lost"):
        told.finish()


@pytest.mark.requirement("RFC22-atomic-calls")
@pytest.mark.parametrize("where", ["done", "end", "both"])
def test_an_item_that_changes_after_it_was_told_is_an_error_and_not_told_again(where: str) -> None:
    changed = call_item(arguments=BONN)
    closed = call()[4] if where == "end" else done(changed)
    told = tell(created(), *call()[:4], closed, end() if where == "done" else end(changed))
    assert told.parts == [CALL]
    with pytest.raises(ChangedCall) as caught:
        told.finish()
    assert (caught.value.call_id, caught.value.name) == ("call_1", "weather")
    assert (caught.value.told, caught.value.said) == (ARGUMENTS, BONN)
    assert caught.value.response.output[0]["arguments"] == BONN


def test_a_call_that_cannot_be_run_is_the_error_before_one_that_changed() -> None:
    broken = call("call_2", "fc_2", 1, '{"city":')
    told = tell(created(), *call()[:4], done(call_item(arguments=BONN)), *broken, end())
    with pytest.raises(MalformedCall):
        told.finish()


@pytest.mark.requirement("RFC22-atomic-calls")
def test_calls_under_new_ids_at_the_end_are_not_told_again() -> None:
    """vLLM makes the terminal response anew, with ids of its own."""
    two = call("call_2", "fc_2", 1)
    anew = end(call_item("call_8", "fc_8"), call_item("call_9", "fc_9"))
    told = tell(created(), *call(), *two, anew)
    assert told.parts == [CALL, ToolCallPart("call_2", "weather", CITY)]
    assert len(told.finish().response.output) == 2


@pytest.mark.requirement("RFC22-atomic-calls")
def test_a_call_without_arguments_under_new_ids_at_the_end_is_told_once() -> None:
    anew = end(call_item("call_9", "fc_9", arguments=""))
    told = tell(created(), done(call_item(arguments="")), anew)
    assert [part.input for part in tool_calls(told.parts)] == [{}]
    told.finish()


@pytest.mark.requirement("RFC22-atomic-calls")
@pytest.mark.parametrize("has_done", [True, False])
@pytest.mark.parametrize("ends", [[], [call_item("call_9")], [call_item()]])
def test_a_call_done_under_a_new_call_id_is_told_once(has_done: bool, ends: list[Item]) -> None:
    stream = call()[:4] if has_done else call()[:3]
    told = tell(created(), *stream, done(call_item("call_9")), end(*ends))
    assert told.parts == [CALL if has_done else ToolCallPart("call_9", "weather", CITY)]
    told.finish()


def test_a_call_that_is_named_by_its_call_id_is_told_once() -> None:
    """llama.cpp gave calls no id, and its events no index."""
    item = call_item("fc_x")
    del item["id"]
    deltas = [
        event("function_call_arguments.delta", item_id="fc_x", delta=piece)
        for piece in (ARGUMENTS[:3], ARGUMENTS[3:])
    ]
    opened = event("output_item.added", item=item | {"arguments": ""})
    closed = event("output_item.done", item=item)
    for last in (end(), end(item)):
        told = tell(created(), opened, *deltas, closed, last)
        assert told.parts == [ToolCallPart("fc_x", "weather", CITY)]
        told.finish()


BOTH = [CALL, ToolCallPart("call_2", "weather", {"city": "Bonn"})]


@pytest.mark.requirement("RFC22-parallel")
def test_parallel_calls_under_one_item_id_keep_their_arguments() -> None:
    one, two = call(item_id="fc"), call("call_2", "fc", 1, BONN)
    mixed = [told for pair in zip(one, two, strict=True) for told in pair]
    told = tell(created(), *mixed, end())
    assert told.steps[7:9] == [[BOTH[0]], [BOTH[1]]]
    assert told.parts == BOTH
    told.finish()


@pytest.mark.requirement("RFC22-parallel")
@pytest.mark.parametrize("order", [[0, 5, 1, 2, 3, 4, 6, 7, 8, 9], [0, 1, 2, 5, 6, 7, 3, 4, 8, 9]])
def test_parallel_calls_that_no_event_names_wait_until_they_are_done(order: list[int]) -> None:
    stream = [*call(), *call("call_2", "fc_2", 1, BONN)]
    nameless = [
        {key: value for key, value in told.items() if key not in ("item_id", "output_index")}
        for told in stream
    ]
    told = tell(created(), *[nameless[place] for place in order], end())
    assert told.parts == BOTH
    told.finish()


def test_arguments_that_may_be_those_of_another_call_are_an_error() -> None:
    stray = {key: value for key, value in call()[3].items() if key == "type"}
    opened = [call()[0], call("call_2", "fc_2", 1)[0]]
    told = tell(created(), *opened, stray | {"arguments": ARGUMENTS}, end())
    assert told.parts == []
    with pytest.raises(MalformedCall):
        told.finish()


def test_a_call_that_was_told_is_not_malformed_because_it_ends_as_incomplete() -> None:
    cut = call_item(status="incomplete")
    anew = cut | {"id": "fc_9", "call_id": "call_9"}
    for last in (cut, anew):
        told = tell(created(), call()[0], done(cut), end(last, kind="incomplete"))
        assert told.parts == [CALL]
        assert told.finish().status == "incomplete"


def test_half_a_character_in_the_arguments_is_told() -> None:
    told = tell(created(), *call(arguments='{"id":"a\\ud83d"}'), end())
    assert told.parts == [ToolCallPart("call_1", "weather", {"id": "a\ud83d"})]
    told.finish()


def test_a_call_that_is_open_when_the_response_fails_is_not_told() -> None:
    told = tell(created(), *call(), *call("call_2", "fc_2", 1)[:3], end(kind="failed"))
    assert told.parts == [CALL]
    with pytest.raises(ResponseFailed):
        told.finish()


def test_a_call_that_is_open_when_the_response_is_cut_short_is_an_error() -> None:
    told = tell(created(), *call(), *call("call_2", "fc_2", 1)[:3], end(kind="incomplete"))
    assert told.parts == [CALL]
    with pytest.raises(MalformedCall, match="cut off") as caught:
        told.finish()
    assert caught.value.call_id == "call_2"


def test_the_first_of_several_items_does_not_end_the_stream() -> None:
    told = tell(created(), *call(), *call("call_2", "fc_2", 1), *message("Hi", index=2), end())
    assert len(tool_calls(told.parts)) == 2
    assert text(told.parts) == "Hi"


# Custom tools, and items of other kinds.


@pytest.mark.parametrize("status", ["completed", None])
def test_a_custom_call_is_told_when_its_item_is_done(status: str | None) -> None:
    item: Item = {"id": "ct_1", "type": "custom_tool_call", "call_id": "c", "name": "sh"}
    place: Fields = {"item_id": "ct_1", "output_index": 0}
    stream = [
        added(item | {"input": "", "status": "in_progress"}),
        event("custom_tool_call_input.delta", delta="ls", **place),
        event("custom_tool_call_input.done", input="ls", **place),
        done(item | {"input": "ls", "status": status}),
    ]
    told = tell(created(), *stream, end())
    assert told.steps[3:] == [[], [ToolCallPart("c", "sh", {"input": "ls"}, "custom")], []]
    told.finish()


@pytest.mark.requirement("RFC22-parts")
def test_items_of_other_types_are_data_and_come_once() -> None:
    search = {"id": "ws_1", "type": "web_search_call", "status": "completed", "query": "ulm"}
    told = tell(created(), added(search), done(search), done(search), end(search))
    [part] = told.steps[2]
    assert isinstance(part, DataPart)
    assert (json.loads(part.data), part.mime) == (search, ITEM_MIME)
    assert told.parts == [part]
    told.finish()


def test_an_item_that_only_the_terminal_response_holds_is_data() -> None:
    [part] = tell(created(), end({"id": "x", "type": "acme:chart"})).parts
    assert isinstance(part, DataPart)
    assert json.loads(part.data)["type"] == "acme:chart"


def test_text_inside_an_item_we_do_not_know_comes_with_the_item_only() -> None:
    chart = {"id": "x", "type": "acme:chart"}
    place: Fields = {"item_id": "x", "output_index": 0, "content_index": 0}
    told = tell(
        created(),
        added(chart),
        event("output_text.delta", delta="hid", **place),
        event("output_text.done", text="hid", **place),
        done(chart),
        end(),
    )
    [part] = told.parts
    assert isinstance(part, DataPart)
    told.finish()


@pytest.mark.parametrize("item", [None, {}, {"id": 5}, {"type": ["x"]}, {"type": "message"}])
def test_nonsense_for_an_item_does_no_harm(item: Item | None) -> None:
    stream = [event(f"output_item.{step}", output_index=0, item=item) for step in ("added", "done")]
    assert text(tell(created(), *stream, *message("Hi", index=1), end()).parts) == "Hi"


@pytest.mark.parametrize("content", ["Hi", [1, {"type": "output_text", "text": "Hi"}]])
def test_content_of_an_odd_shape_is_shown_as_far_as_it_is_text(content: Any) -> None:
    told = tell(created(), end(message_item("") | {"content": content}))
    assert told.parts == [TextPart("Hi")]
    assert told.finish().refusal == ""


# Reasoning.


def think(name: str, *pieces: str, item_id: str = "rs_1") -> list[Fields]:
    """Reasoning deltas under one of their names."""
    index = "summary_index" if "summary" in name else "content_index"
    place: Fields = {"item_id": item_id, "output_index": 0, index: 0}
    return [event(f"{name}.delta", delta=piece, **place) for piece in pieces]


def think_done(name: str, said: str) -> Fields:
    index = "summary_index" if "summary" in name else "content_index"
    return event(f"{name}.done", text=said, item_id="rs_1", output_index=0, **{index: 0})


def thought_item(summary: str = "", content: str = "", **fields: Any) -> Item:
    base: Item = {"id": "rs_1", "type": "reasoning", "summary": []}
    if summary:
        base["summary"] = [{"type": "summary_text", "text": summary}]
    if content:
        base["content"] = [{"type": "reasoning_text", "text": content}]
    return base | fields


SEALED = ThinkingPart("", "rs_1", {"encrypted_content": "sealed"})
NAMES = ["reasoning", "reasoning_text", "reasoning_summary", "reasoning_summary_text"]


@pytest.mark.requirement("RFC22-reasoning-flow", "RFC22-thinking", "REQ-003.3")
@pytest.mark.parametrize("name", NAMES)
def test_reasoning_is_shown_under_each_of_its_names(name: str) -> None:
    stream = [added(thought_item()), *think(name, "th", "ink"), think_done(name, "think")]
    told = tell(created(), *stream, end(), settings=THINKING)
    assert told.parts == [ThinkingPart("th", "rs_1"), ThinkingPart("ink", "rs_1")]
    told.finish()


@pytest.mark.requirement("REQ-003.1", "RFC22-thinking")
@pytest.mark.parametrize("name", NAMES)
def test_reasoning_is_not_shown_unless_asked_for(name: str) -> None:
    whole = thought_item("s", "c", encrypted_content="sealed")
    stream = [added(thought_item()), *think(name, "think"), think_done(name, "think"), done(whole)]
    assert tell(created(), *stream, end(whole)).parts == [SEALED]


@pytest.mark.requirement("RFC22-reasoning-flow")
@pytest.mark.parametrize(
    ("first", "second"),
    [("reasoning_text", "reasoning_summary_text"), ("reasoning_summary_text", "reasoning_text")],
)
def test_of_summary_and_raw_the_first_to_speak_is_the_only_one(first: str, second: str) -> None:
    stream = [
        added(thought_item()),
        *think(first, "one"),
        *think(second, "two"),
        think_done(first, "one"),
        think_done(second, "two"),
        done(thought_item("one", "two") if "summary" in first else thought_item("two", "one")),
    ]
    told = tell(created(), *stream, end(), settings=THINKING)
    assert told.parts == [ThinkingPart("one", "rs_1")]


def test_a_lost_tail_of_a_thought_is_shown() -> None:
    stream = [added(thought_item()), *think("reasoning", "th"), think_done("reasoning", "think")]
    told = tell(created(), *stream, end(), settings=THINKING)
    assert told.parts == [ThinkingPart("th", "rs_1"), ThinkingPart("ink", "rs_1")]


def test_a_thought_that_was_damaged_is_no_error() -> None:
    stream = [added(thought_item()), *think("reasoning", "ink"), think_done("reasoning", "think")]
    told = tell(created(), *stream, *message("Hi", index=1), end(), settings=THINKING)
    assert thoughts(told.parts) == [ThinkingPart("ink", "rs_1")]
    told.finish()


@pytest.mark.parametrize("where", ["done", "end"])
@pytest.mark.parametrize(
    ("item", "said"),
    [
        (thought_item("short", "long"), "short"),
        (thought_item("", "long"), "long"),
    ],
)
def test_a_thought_that_was_not_streamed_is_shown_whole(item: Item, said: str, where: str) -> None:
    stream = [done(item)] if where == "done" else []
    told = tell(created(), *stream, end(item), settings=THINKING)
    assert told.parts == [ThinkingPart(said, "rs_1")]


@pytest.mark.parametrize("settings", [THINKING, None])
def test_encrypted_reasoning_comes_once_for_the_next_turn(settings: AdapterSettings | None) -> None:
    whole = thought_item(encrypted_content="sealed")
    told = tell(created(), added(thought_item()), done(whole), end(whole), settings=settings)
    assert told.parts == [SEALED]


def summary_item(*parts: str) -> Item:
    return thought_item() | {"summary": [{"type": "summary_text", "text": part} for part in parts]}


def summary_part(said: str, index: int, *pieces: str) -> list[Fields]:
    """A part of a summary: deltas for the pieces, then done."""
    place: Fields = {"item_id": "rs_1", "output_index": 0, "summary_index": index}
    empty = {"type": "summary_text", "text": ""}
    return [
        event("reasoning_summary_part.added", part=empty, **place),
        *[event("reasoning_summary_text.delta", delta=piece, **place) for piece in pieces],
        event("reasoning_summary_text.done", text=said, **place),
    ]


@pytest.mark.requirement("RFC22-reasoning-flow")
@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("streamed", [(0, 1), (0,), (1,), ()])
def test_the_parts_of_a_summary_have_a_blank_line_between_them(
    streamed: tuple[int, ...], has_index: bool
) -> None:
    parts = ("One.", "Two.")
    stream = [added(thought_item())]
    for index, part in enumerate(parts):
        pieces = (part[:2], part[2:]) if index in streamed else ()
        stream += summary_part(part, index, *pieces)
    if not has_index:
        stream = [{key: told[key] for key in told if key != "summary_index"} for told in stream]
    whole = summary_item(*parts)
    told = tell(created(), *stream, done(whole), end(whole), settings=THINKING)
    assert "".join(part.value for part in thoughts(told.parts)) == "One.\n\nTwo."
    told.finish()


def test_a_summary_that_only_the_end_has_is_parted_too() -> None:
    told = tell(created(), end(summary_item("One.", "", "Two.")), settings=THINKING)
    assert told.parts == [ThinkingPart("One.\n\nTwo.", "rs_1")]


@pytest.mark.requirement("RFC22-reasoning-flow")
@pytest.mark.parametrize("name", ["reasoning_text", "reasoning_summary_text"])
def test_reasoning_at_the_place_of_the_message_is_shown_once(name: str) -> None:
    """LiteLLM opens the message first, and gives every reasoning delta an id of its own."""
    stream = message("Hi")
    pieces = ("t0 ", "t1 ", "t2 ")
    stray = [
        fields | {"item_id": f"rs_{n}"} for n, fields in enumerate(think(name, *pieces), start=4)
    ]
    thought = thought_item(*(("", "t0 t1 t2 ") if name == "reasoning_text" else ("t0 t1 t2 ",)))
    whole = end(thought | {"id": "rs_9"}, message_item("Hi"))
    told = tell(created(), *stream[:2], *stray, *stream[2:], whole, settings=THINKING)
    assert told.parts == [*[ThinkingPart(piece, "rs_4") for piece in pieces], TextPart("Hi")]
    assert [item["type"] for item in told.finish().response.output] == ["reasoning", "message"]


def test_a_summary_that_names_the_message_is_one_thought_without_an_id() -> None:
    stream = message("Hi")
    stray = think("reasoning_summary_text", "I ", "think", item_id="msg_1")
    told = tell(created(), *stream[:2], *stray, *stream[2:], end(), settings=THINKING)
    assert told.parts == [ThinkingPart("I "), ThinkingPart("think"), TextPart("Hi")]
    assert len(told.finish().response.output) == 2


def test_a_thought_inside_a_message_is_no_part_of_its_text() -> None:
    content = [{"type": "reasoning_text", "text": "hm"}, {"type": "output_text", "text": "Hi"}]
    told = tell(created(), end(message_item("") | {"content": content}))
    assert told.parts == [TextPart("Hi")]
    told.finish()


def test_text_inside_reasoning_is_a_thought() -> None:
    place: Fields = {"item_id": "rs_1", "output_index": 0, "content_index": 0}
    delta = event("output_text.delta", delta="hm", **place)
    told = tell(created(), added(thought_item()), delta, end(), settings=THINKING)
    assert told.parts == [ThinkingPart("hm", "rs_1")]
    told.finish()


def test_reasoning_that_names_a_message_leaves_its_text_alone() -> None:
    stream = message("Hi")
    stray = think("reasoning_text", "hm", item_id="msg_1")
    told = tell(created(), *stream[:2], *stray, *stream[2:], end(), settings=THINKING)
    assert told.parts == [ThinkingPart("hm"), TextPart("Hi")]
    told.finish()


def test_empty_and_half_deltas_show_nothing() -> None:
    stream = [*think("reasoning", "", "\ud83d"), message("")[2]]
    told = tell(created(), *stream, settings=THINKING)
    assert told.parts == []


# Refusals and annotations.


@pytest.mark.requirement("RFC22-refusal")
def test_a_refusal_is_shown_as_text_and_kept_in_the_outcome() -> None:
    place: Fields = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    part = {"type": "refusal", "refusal": "I can not"}
    stream = [
        added(message_item("")),
        event("refusal.delta", delta="I can", **place),
        event("refusal.delta", delta=" not", **place),
        event("refusal.done", refusal="I can not", **place),
        event("content_part.done", part=part, **place),
    ]
    told = tell(created(), *stream, end())
    assert told.parts == [TextPart("I can"), TextPart(" not")]
    outcome = told.finish()
    assert (outcome.refusal, outcome.is_refused) == ("I can not", True)


def test_an_answer_is_no_refusal() -> None:
    assert not tell(created(), *message("Hi"), end()).finish().is_refused


def annotate(note: Fields = NOTE, index: int = 0) -> Fields:
    place: Fields = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    return event("output_text.annotation.added", annotation=note, annotation_index=index, **place)


@pytest.mark.requirement("RFC22-gap-2")
def test_a_citation_is_a_link_where_it_comes_and_no_part_of_the_text() -> None:
    stream = message("Hel", "lo")
    told = tell(created(), *stream[:3], annotate(), *stream[3:], end())
    assert told.parts == [TextPart("Hel"), LINK, TextPart("lo")]
    told.finish()


@pytest.mark.requirement("RFC22-gap-2")
@pytest.mark.parametrize(("way", "count"), [("data", 1), ("none", 0)])
def test_a_citation_may_be_data_or_left_out(way: Any, count: int) -> None:
    stream = message("Hel", "lo")
    settings = AdapterSettings(annotations=way)
    told = tell(created(), *stream[:3], annotate(), *stream[3:], end(), settings=settings)
    assert text(told.parts) == "Hello"
    assert len(data(told.parts)) == count


def test_a_citation_told_again_by_later_words_is_shown_once() -> None:
    whole = message_item("Hi", annotations=[NOTE])
    stream = message("Hi")
    told = tell(created(), *stream[:3], annotate(), annotate(), done(whole), end(whole))
    assert told.parts == [TextPart("Hi"), LINK]


def test_a_citation_told_again_in_more_words_is_shown_once() -> None:
    whole = message_item("Hi", annotations=[NOTE | {"start_index": 0}])
    told = tell(created(), *message("Hi")[:3], annotate(), done(whole), end(whole))
    assert told.parts == [TextPart("Hi"), LINK]


def test_citations_that_only_the_end_knows_are_shown_once_each() -> None:
    other = NOTE | {"title": "B"}
    whole = message_item("Hi", annotations=[NOTE, other, other])
    told = tell(created(), *message("Hi")[:3], annotate(), end(whole))
    assert told.parts == [TextPart("Hi"), LINK, *[TextPart(" [B](https://a.example/)")] * 2]


# How it ends.


@pytest.mark.requirement("RFC22-error")
def test_a_stream_without_an_end_is_cut() -> None:
    with pytest.raises(StreamCut) as caught:
        tell(created(), *message("Hi")).finish()
    assert caught.value.partial is not None
    assert caught.value.partial.output_text == "Hi"


@pytest.mark.requirement("RFC22-error")
def test_a_stream_of_nothing_is_cut() -> None:
    with pytest.raises(StreamCut) as caught:
        StreamAdapter().finish()
    assert caught.value.partial is None


@pytest.mark.requirement("RFC22-error")
@pytest.mark.parametrize(
    "ends", [[], [end(kind="failed")], [end()]], ids=["nothing", "failed", "completed"]
)
def test_an_error_event_fails_the_answer_whatever_follows(ends: list[Fields]) -> None:
    told = tell(created(), *message("Hi"), ERROR, *ends)
    assert text(told.parts) == "Hi"
    with pytest.raises(ResponseFailed, match="too much") as caught:
        told.finish()
    assert (caught.value.code, caught.value.message) == ("overloaded", "too much")
    assert caught.value.response is not None
    assert caught.value.response.output_text == "Hi"


@pytest.mark.requirement("RFC22-error", "RFC22-lifecycle")
def test_a_failed_response_says_why() -> None:
    failure = {"code": "server_error", "message": "broke"}
    with pytest.raises(ResponseFailed, match="broke") as caught:
        tell(created(), end(kind="failed", error=failure)).finish()
    assert caught.value.code == "server_error"


@pytest.mark.parametrize(
    ("status", "why"), [("failed", "no reason given"), ("cancelled", "it was cancelled")]
)
def test_a_response_that_failed_without_a_reason_is_still_an_error(status: str, why: str) -> None:
    with pytest.raises(ResponseFailed, match=why) as caught:
        tell(created(), end() | {"response": {"id": "resp_1", "status": status}}).finish()
    assert caught.value.code == status


@pytest.mark.requirement("RFC22-lifecycle")
@pytest.mark.parametrize(
    ("details", "reason"),
    [({"reason": "max_output_tokens"}, "max_output_tokens"), (None, "unknown")],
)
def test_an_incomplete_response_says_why(details: Fields | None, reason: str) -> None:
    told = tell(created(), *message("Hi"), end(kind="incomplete", incomplete_details=details))
    outcome = told.finish()
    assert (outcome.status, outcome.incomplete_reason) == ("incomplete", reason)


def test_a_terminal_event_told_again_changes_nothing() -> None:
    told = tell(created(), *call(), end(), end(kind="failed"), end(message_item("late")))
    assert told.parts == [CALL]
    assert told.finish().status == "completed"
