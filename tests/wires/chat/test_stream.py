"""The reader of chat completions: ends, faults, limits, whole answers.

What servers send in streams is in `tests/wire`; here is what needs a reason in words.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.protocol.deltas import (
    AnnotationAdded,
    CallClosed,
    CallGrew,
    CallOpened,
    Delta,
    ItemPassed,
    ReasoningGrew,
    RefusalGrew,
    Reported,
    Stopped,
    SummaryGrew,
    TextGrew,
    UsageKnown,
)
from antiphon.protocol.errors import BackendError
from antiphon.protocol.response import InputDetails, OutputDetails, Usage
from antiphon.wires.chat.stream import ChatStream
from antiphon.wires.media import MediaReader

NO_REASON = Reported("finish_reason: the upstream gave none; taken for 'stop'")


def event(value: object) -> bytes:
    return b"data: %b\n\n" % json.dumps(value).encode()


def chunk(finish_reason: str | None = None, **delta: object) -> bytes:
    return event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})


def completion(message: dict[str, Any], finish_reason: str | None = "stop", **more: Any) -> bytes:
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return json.dumps({"choices": [choice], **more}).encode()


DONE = b"data: [DONE]\n\n"


def read(data: bytes, **settings: Any) -> list[Delta]:
    reader = ChatStream(**settings)
    deltas = reader.feed(data)
    return deltas + reader.end()


# The end.


def test_words_behind_the_end_are_not_read() -> None:
    reader = ChatStream()
    assert reader.feed(chunk(content="a")) == [TextGrew("a")]
    assert reader.feed(DONE) == [NO_REASON, Stopped("stop")]
    assert reader.feed(chunk(content="b")) == []


def test_stopped_waits_for_the_usage_that_follows_the_reason() -> None:
    reader = ChatStream()
    assert reader.feed(chunk("stop", content="a")) == [TextGrew("a")]
    assert (reader.has_reason, reader.is_done) == (True, False)
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    assert reader.feed(event({"choices": [], "usage": usage}) + DONE) == [
        UsageKnown(Usage(input_tokens=1, output_tokens=2, total_tokens=3)),
        Stopped("stop"),
    ]
    assert reader.is_done
    assert reader.end() == []


def test_nothing_is_read_behind_the_end_mark() -> None:
    assert read(chunk("stop", content="a") + DONE + chunk(content="b") + DONE) == [
        TextGrew("a"),
        Stopped("stop"),
    ]


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("stop", "stop"),
        ("tool_calls", "stop"),
        ("function_call", "stop"),
        ("eos", "stop"),
        ("STOP", "stop"),
        ("something new", "stop"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("MAX_TOKENS", "length"),
        ("content_filter", "content_filter"),
        ("SAFETY", "content_filter"),
    ],
)
def test_reasons_to_stop(reason: str, stop: str) -> None:
    assert read(chunk(reason) + DONE)[-1] == Stopped(stop)  # type: ignore[arg-type]


@pytest.mark.parametrize("reason", ["error", "abort", "insufficient_system_resource", "cancelled"])
def test_reasons_that_are_faults(reason: str) -> None:
    reader = ChatStream()
    assert reader.feed(chunk(content="a") + chunk(reason)) == [TextGrew("a")]
    assert reader.fault is not None
    with pytest.raises(BackendError, match=reason):
        reader.feed(DONE)


def test_an_empty_answer_with_a_reason_is_an_answer() -> None:
    assert read(chunk("stop")) == [Stopped("stop")]


def test_an_end_mark_alone_is_no_answer() -> None:
    with pytest.raises(BackendError) as caught:
        read(DONE)
    assert caught.value.code == "upstream_closed"


@pytest.mark.parametrize("data", [b"", b": ping\n\n", b"<html>\n\n</html>"])
def test_a_stream_without_events_is_invalid(data: bytes) -> None:
    with pytest.raises(BackendError) as caught:
        read(data)
    assert caught.value.code == "upstream_invalid_response"


def test_a_broken_connection_gives_its_own_reason_and_what_was_held() -> None:
    reader = ChatStream()
    reset = BackendError("reset", code="upstream_closed")
    reader.feed(chunk(content="<think>a"))
    assert reader.feed(chunk(content="</th")) == []
    assert reader.end(reset) == [ReasoningGrew("</th")]
    assert reader.fault is reset


def test_a_connection_that_breaks_after_the_reason_has_said_enough() -> None:
    reader = ChatStream()
    reader.feed(chunk("length", content="a"))
    assert reader.end(BackendError("reset", code="upstream_closed")) == [Stopped("length")]
    assert reader.fault is None


def test_an_error_in_the_last_unfinished_event_is_heard() -> None:
    reader = ChatStream()
    reader.feed(chunk(content="a") + event({"error": {"message": "boom"}})[:-2])
    with pytest.raises(BackendError, match="boom"):
        reader.end()


# Faults.


def test_what_was_read_comes_before_the_fault() -> None:
    reader = ChatStream()
    assert reader.feed(chunk(content="a") + b"data: {nonsense\n\n") == [TextGrew("a")]
    for _ in range(2):
        with pytest.raises(BackendError) as caught:
            reader.feed(b"")
        assert caught.value.code == "upstream_invalid_response"


@pytest.mark.parametrize(
    "data",
    [b"nonsense", b"[1]", b"1", b"null", b'"text"', b'{"choices":1}', b"[" * 50_000, b"\xff\xfe"],
)
def test_what_is_no_chunk_is_invalid(data: bytes) -> None:
    with pytest.raises(BackendError) as caught:
        ChatStream().feed(b"data: %b\n\n" % data)
    assert caught.value.code == "upstream_invalid_response"


def test_an_error_of_another_shape_is_still_an_error() -> None:
    for value in ({"object": "error", "message": "boom"}, {"error": "boom", "choices": 3}):
        with pytest.raises(BackendError, match="boom"):
            ChatStream().feed(event(value))


# Limits.


def test_an_event_over_the_limit_is_a_fault() -> None:
    with pytest.raises(BackendError) as caught:
        ChatStream(max_line=1000).feed(b"data: " + b"x" * 2000)
    assert caught.value.code == "upstream_invalid_response"


@pytest.mark.parametrize("field", ["content", "reasoning", "refusal"])
def test_an_answer_without_end_is_a_fault(field: str) -> None:
    reader = ChatStream(max_output=1000)
    for _ in range(9):
        reader.feed(chunk(**{field: "x" * 100}))
    with pytest.raises(BackendError, match="does not end"):
        reader.feed(chunk(**{field: "x" * 101}))


def test_arguments_without_end_are_a_fault() -> None:
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "x" * 900}}
    reader = ChatStream(max_output=1000)
    reader.feed(chunk(tool_calls=[call]))
    with pytest.raises(BackendError, match="does not end"):
        reader.feed(chunk(tool_calls=[call]))


# Odd values.


def test_a_half_character_that_finds_no_other_half_is_replaced() -> None:
    data = chunk(content="a\ud83c") + chunk(content="b\ud83c") + chunk("stop") + DONE
    text = "".join(delta.text for delta in read(data) if isinstance(delta, TextGrew))
    assert text == "a\ufffdb\ufffd"


def test_halves_are_joined_in_reasoning_and_refusals_too() -> None:
    for field, grew in (("reasoning_content", ReasoningGrew), ("refusal", RefusalGrew)):
        data = chunk(**{field: "\ud83c"}) + chunk(**{field: "\udf0a"}) + chunk("stop")
        assert read(data) == [grew("\U0001f30a"), Stopped("stop")]


def test_an_infinite_logprob_becomes_the_least_there_is() -> None:
    tokens = [{"token": "a", "logprob": float("-inf")}]
    choice = {"index": 0, "delta": {"content": "a"}, "logprobs": {"content": tokens}}
    [delta] = ChatStream().feed(event({"choices": [choice]}))
    assert isinstance(delta, TextGrew)
    assert delta.logprobs == (
        {"token": "a", "logprob": -9999.0, "bytes": [97], "top_logprobs": []},
    )


def test_the_logprobs_of_reasoning_are_not_those_of_the_text() -> None:
    def weighed(token: str, **delta: str) -> bytes:
        logprobs = {"content": [{"token": token, "logprob": -1.0, "bytes": None}]}
        return event({"choices": [{"index": 0, "delta": delta, "logprobs": logprobs}]})

    deltas = ChatStream().feed(weighed("hm", reasoning="hm") + weighed("a", content="a"))
    assert deltas[0] == ReasoningGrew("hm")
    assert isinstance(deltas[1], TextGrew)
    assert [token["token"] for token in deltas[1].logprobs] == ["a"]


def test_tags_stay_in_the_text_where_the_profile_says_so() -> None:
    data = chunk("stop", content="<think>a</think>b")
    assert read(data, think_tags=False) == [TextGrew("<think>a</think>b"), Stopped("stop")]


def test_tags_stay_in_the_text_where_the_server_separates_reasoning_itself() -> None:
    data = chunk(reasoning_content="hm") + chunk("stop", content="<think> is a tag")
    assert read(data) == [ReasoningGrew("hm"), TextGrew("<think> is a tag"), Stopped("stop")]


def test_a_call_in_the_middle_of_held_text_comes_after_it() -> None:
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}
    assert read(chunk(content="<") + chunk(tool_calls=[call]) + chunk("tool_calls")) == [
        TextGrew("<"),
        CallOpened(0, "f", "a"),
        CallGrew(0, "{}"),
        Stopped("stop"),
    ]


@pytest.mark.parametrize(
    ("raw", "usage"),
    [
        (None, None),
        ({}, None),
        ({"prompt_tokens": 0, "completion_tokens": 0}, None),
        ({"prompt_tokens": 5}, Usage(input_tokens=5, total_tokens=5)),
        (
            {
                "prompt_tokens": 5,
                "completion_tokens": 7.0,
                "total_tokens": 99,
                "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 1},
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
            Usage(5, InputDetails(3, 1), 7, OutputDetails(2), 99),
        ),
        (
            {"prompt_tokens": 5, "prompt_cache_hit_tokens": 4},
            Usage(5, InputDetails(4), 0, total_tokens=5),
        ),
        ({"prompt_tokens": 1e999, "completion_tokens": -3}, None),
        ({"prompt_tokens": "5", "completion_tokens": None}, None),
        (
            {
                "prompt_tokens": 2.5,
                "completion_tokens": True,
                "total_tokens": 2**70,
                "prompt_tokens_details": [3],
                "completion_tokens_details": {"reasoning_tokens": -1, "other": {}},
                "reasoning_tokens": 1,
                "cost": "much",
            },
            Usage(2, InputDetails(), 1, OutputDetails(1), 2**53),
        ),
    ],
)
def test_usage(raw: dict[str, Any] | None, usage: Usage | None) -> None:
    deltas = ChatStream().feed(event({"choices": [], "usage": raw}) + chunk(content="a"))
    assert [d.usage for d in deltas if isinstance(d, UsageKnown)] == ([usage] if usage else [])


# Whole answers.


def test_a_whole_completion_says_what_a_stream_would() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
    message = {
        "role": "assistant",
        "reasoning_content": "hm",
        "content": "See.",
        "tool_calls": [call],
        "annotations": [{"type": "file_citation", "file_id": "f"}],
    }
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    assert ChatStream().whole(completion(message, "tool_calls", usage=usage)) == [
        ReasoningGrew("hm"),
        TextGrew("See."),
        CallOpened(0, "f", "a"),
        CallGrew(0, '{"x":1}'),
        AnnotationAdded({"type": "file_citation", "file_id": "f"}),
        UsageKnown(Usage(input_tokens=1, output_tokens=2, total_tokens=3)),
        Stopped("stop"),
    ]


def test_a_whole_completion_may_leave_the_reason_out() -> None:
    assert ChatStream().whole(completion({"content": "<think>a</think>b"}, None)) == [
        ReasoningGrew("a"),
        TextGrew("b"),
        NO_REASON,
        Stopped("stop"),
    ]


@pytest.mark.parametrize("reason", ["stop", "tool_calls", "length", "END_TURN", "content_filter"])
def test_a_reason_that_is_known_is_not_reported(reason: str) -> None:
    deltas = read(chunk(reason, content="a") + DONE)
    assert not any(isinstance(delta, Reported) for delta in deltas)


def test_a_reason_that_nobody_knows_is_a_stop_and_is_reported() -> None:
    assert read(chunk("tired", content="a") + DONE) == [
        TextGrew("a"),
        Reported("finish_reason: 'tired' is not known; taken for 'stop'"),
        Stopped("stop"),
    ]


def test_the_choices_of_a_chunk_without_an_index_are_told_apart_by_their_place() -> None:
    one, two = ({"delta": {"content": text}} for text in "ab")
    reader = ChatStream()
    deltas = reader.feed(event({"choices": [one, two]}) + event({"choices": [one]}) + DONE)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextGrew)) == "aa"
    assert reader.skipped_choices == 1


def test_the_choices_of_a_whole_answer_are_told_apart_by_their_place() -> None:
    body = {"choices": [{"message": {"content": text}, "finish_reason": "stop"} for text in "ab"]}
    reader = ChatStream()
    deltas = reader.whole(json.dumps(body).encode())
    assert [delta for delta in deltas if isinstance(delta, TextGrew)] == [TextGrew("a")]
    assert reader.skipped_choices == 1


# Images and sound.

IMAGE = "data:image/webp;base64,AAAA"


def image_url(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


@pytest.mark.parametrize(
    "message",
    [
        {"images": [image_url(IMAGE)]},
        {"images": [{"type": "image_url", "image_url": IMAGE}]},
        {"images": [IMAGE, IMAGE]},
        {"content": [image_url(IMAGE)]},
    ],
)
def test_an_image_of_an_answer_becomes_an_item(message: dict[str, Any]) -> None:
    item = {"type": "image_generation_call", "status": "completed", "result": "AAAA"}
    assert ChatStream().whole(completion(message)) == [
        ItemPassed(item | {"output_format": "webp"}),
        Stopped("stop"),
    ]


@pytest.mark.parametrize(
    ("image", "why"),
    [
        (
            "https://127.0.0.1/a.png",
            "images: one is only at https://127.0.0.1/a.png, and is left out",
        ),
        ("data:image/svg+xml,<svg/>", "images: one is not base64, and is left out"),
        ("data:image/png;base64,***", "images: one is not valid base64"),
        ("data:image/png;base64," + "A" * 40, "images: those over 32 MiB together are left out"),
        (None, "images: one has no address"),
    ],
)
def test_an_image_that_cannot_be_carried_is_reported(
    image: str | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = ChatStream()
    monkeypatch.setattr(reader, "_media", MediaReader(max_images=32))
    deltas = reader.whole(completion({"content": "so", "images": [{"image_url": {"url": image}}]}))
    reports = [delta.what for delta in deltas if isinstance(delta, Reported)]
    assert len(reports) == 1
    assert reports[0].startswith(why)
    assert deltas[0] == TextGrew("so")


def test_the_transcript_of_sound_is_the_text_unless_there_is_one() -> None:
    sound = {"id": "audio_1", "data": "UklGRg==", "transcript": "Good day"}
    for content, text in ((None, "Good day"), ("Hello", "Hello")):
        deltas = ChatStream().whole(completion({"content": content, "audio": sound}))
        assert [delta.text for delta in deltas if isinstance(delta, TextGrew)] == [text]
        assert [type(delta) for delta in deltas].count(Reported) == 1


def test_a_part_of_a_kind_that_we_do_not_know_is_reported() -> None:
    parts = [{"type": "text", "text": "see"}, *[{"type": "reference", "reference_ids": [1]}] * 2]
    assert ChatStream().whole(completion({"content": parts})) == [
        TextGrew("see"),
        Reported("content (reference): a part that is left out"),
        Stopped("stop"),
    ]


# OpenRouter's reasoning_details.

ENCRYPTED = Reported("reasoning_details: encrypted reasoning is not carried")
SIGNED = Reported("reasoning_details: signatures of reasoning are not carried")


def detail(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"reasoning.{kind}", "format": "some-v1", "index": 0, **fields}


def both(message: dict[str, Any]) -> list[list[Delta]]:
    """Return what a message tells whole, and in a stream."""
    whole = ChatStream().whole(completion(message | {"content": "so"}))
    streamed = read(chunk(**message) + chunk("stop", content="so") + DONE)
    return [whole, streamed]


def test_details_that_repeat_the_reasoning_are_not_told_twice() -> None:
    details = [detail("text", text="hm"), detail("summary", summary="hm")]
    for deltas in both({"reasoning": "hm", "reasoning_details": details}):
        assert deltas == [ReasoningGrew("hm"), TextGrew("so"), Stopped("stop")]


def test_details_without_reasoning_are_carried_as_reasoning_and_summary() -> None:
    details = [detail("text", text="hm"), detail("summary", summary="thinks")]
    for deltas in both({"reasoning_details": details}):
        assert deltas == [
            ReasoningGrew("hm"),
            SummaryGrew("thinks"),
            TextGrew("so"),
            Stopped("stop"),
        ]


def test_encrypted_reasoning_and_signatures_are_reported() -> None:
    details = [detail("text", text="hm", signature="c2ln"), detail("encrypted", data="ZGF0YQ==")]
    for deltas in both({"reasoning": "hm", "reasoning_details": details}):
        assert deltas[:3] == [ReasoningGrew("hm"), SIGNED, ENCRYPTED]


def test_what_is_lost_of_the_details_is_reported_once_for_a_stream() -> None:
    sealed = [detail("encrypted", data="ZGF0YQ==")] * 2
    begun = chunk(reasoning="hm", reasoning_details=sealed) * 3
    deltas = read(begun + chunk("stop", reasoning_details=sealed) + DONE)
    assert [delta for delta in deltas if isinstance(delta, Reported)] == [ENCRYPTED]


def test_text_of_details_that_comes_apart_from_the_reasoning_is_reported() -> None:
    late = [detail("text", text="hm, and more")]
    deltas = read(chunk(reasoning="hm") + chunk("stop", reasoning_details=late) + DONE)
    said, report, _ = deltas
    assert said == ReasoningGrew("hm")
    assert isinstance(report, Reported)
    assert "apart from `reasoning`" in report.what


@pytest.mark.parametrize("details", [[{"type": "reasoning.new", "x": 1}], ["hm"], "hm", [{}]])
def test_a_detail_of_a_kind_that_we_do_not_know_is_reported(details: object) -> None:
    for deltas in both({"reasoning_details": details}):
        assert [type(delta) for delta in deltas] == [Reported, TextGrew, Stopped]


def test_an_empty_detail_of_a_known_kind_says_nothing() -> None:
    details = [detail("text", text=""), detail("text", signature=None), detail("encrypted")]
    for deltas in both({"reasoning_details": details}):
        assert deltas == [TextGrew("so"), Stopped("stop")]


# A call that is sent again.


def test_equal_calls_under_one_id_in_one_chunk_are_one_call_and_reported() -> None:
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x":1}'}}
    opened, grown = CallOpened(0, "f", "a"), CallGrew(0, '{"x":1}')
    again = Reported("tool_calls: call a of 'f' came twice in one chunk; it is one call here")
    deltas = read(chunk(tool_calls=[call, call]) + chunk("stop") + DONE)
    assert deltas == [opened, grown, again, Stopped("stop")]


def test_a_call_that_a_later_chunk_sends_again_is_not_reported() -> None:
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x":1}'}}
    deltas = read(chunk(tool_calls=[call]) + chunk("stop", tool_calls=[call]) + DONE)
    assert deltas == [CallOpened(0, "f", "a"), CallGrew(0, '{"x":1}'), Stopped("stop")]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "upstream_invalid_response"),
        (b"<html>", "upstream_invalid_response"),
        (b"{}", "upstream_invalid_response"),
        (b'{"choices":[]}', "upstream_invalid_response"),
        (b'{"error":{"message":"no"}}', "upstream_error"),
        (b'{"choices":[{"message":{"content":null},"finish_reason":null}]}', "upstream_closed"),
    ],
)
def test_what_is_no_completion_is_a_fault(body: bytes, code: str) -> None:
    with pytest.raises(BackendError) as caught:
        ChatStream().whole(body)
    assert caught.value.code == code


def test_a_whole_answer_that_failed_still_gives_what_it_has() -> None:
    reader = ChatStream()
    assert reader.whole(completion({"content": "a"}, "error")) == [TextGrew("a")]
    assert reader.fault is not None


def test_names_and_ids_with_half_characters_are_cleaned() -> None:
    call = {"index": 0, "id": "a\ud83c", "function": {"name": "f", "arguments": "{}"}}
    assert ChatStream().feed(chunk(tool_calls=[call]))[0] == CallOpened(0, "f", "a\ufffd")


# Choices.


def _choices(*indexes: object, field: str = "delta") -> dict[str, Any]:
    return {"choices": [{"index": index, field: {"content": f"<{index}>"}} for index in indexes]}


@pytest.mark.requirement("22-D2")
def test_choices_beyond_the_first_of_a_stream_are_counted_once_each_and_not_read() -> None:
    reader = ChatStream()

    deltas = reader.feed(event(_choices(0, 1)) + event(_choices(2)) + event(_choices(1, 2, 0)))
    assert reader.skipped_choices == 2
    deltas += reader.feed(chunk("stop") + DONE)

    report = Reported("n: choices beyond the first are not returned; there were 2")
    assert deltas == [TextGrew("<0>"), TextGrew("<0>"), report, Stopped("stop")]
    assert reader.skipped_choices == 2


@pytest.mark.requirement("22-D2")
def test_choices_beyond_the_first_of_a_whole_answer_are_counted() -> None:
    reader = ChatStream()

    deltas = reader.whole(json.dumps(_choices(0, 1, 2, 3, field="message")).encode())

    report = Reported("n: choices beyond the first are not returned; there were 3")
    assert [delta for delta in deltas if delta != NO_REASON] == [
        TextGrew("<0>"),
        report,
        Stopped("stop"),
    ]
    assert reader.skipped_choices == 3


def test_an_answer_with_one_choice_skips_none() -> None:
    reader = ChatStream()
    reader.feed(chunk("stop", content="a") + DONE)
    assert reader.skipped_choices == 0


def test_an_index_that_is_no_number_is_another_choice() -> None:
    reader = ChatStream()
    reader.feed(event(_choices(0, "b", ["c"])) + chunk("stop") + DONE)
    assert reader.skipped_choices == 1


# Calls in the text.

FENCED = '```json\n{"name": "shell", "arguments": {"command": "ls"}}\n```'
FOUND = [CallOpened(1 << 20, "shell"), CallGrew(1 << 20, '{"command": "ls"}'), CallClosed(1 << 20)]


def test_a_call_in_the_text_is_found_streamed_and_whole() -> None:
    pieces = ["I will look.", "\n\n```", "json\n", *FENCED[8:]]
    data = b"".join(chunk(content=piece) for piece in pieces) + chunk("stop") + DONE
    wanted = [TextGrew("I will look."), *FOUND, Stopped("stop")]
    assert read(data, names={"shell"}) == wanted
    reader = ChatStream(names={"shell"})
    assert reader.whole(completion({"content": f"I will look.\n\n{FENCED}"})) == wanted


def test_a_call_in_the_text_stays_there_if_it_was_not_offered() -> None:
    for names in (set(), {"other"}):
        said = read(chunk("stop", content=FENCED) + DONE, names=names)
        assert said == [TextGrew(FENCED), Stopped("stop")]


def test_a_call_in_the_text_that_is_cut_short_is_text() -> None:
    cut = "<function=shell><parameter=command>ls</parameter>"
    said = read(chunk("length", content=cut) + DONE, names={"shell"})
    assert said == [TextGrew(cut), Stopped("length")]
    said = read(chunk("stop", content=cut) + DONE, names={"shell"})
    assert [type(delta) for delta in said[:-1]] == [CallOpened, CallGrew, CallClosed]


def test_text_is_text_once_the_server_sends_a_call_itself() -> None:
    call = {"index": 0, "id": "c", "function": {"name": "shell", "arguments": "{}"}}
    data = chunk(content="a\n```json\n{") + chunk(tool_calls=[call]) + chunk("stop", content=FENCED)
    assert read(data + DONE, names={"shell"}) == [
        TextGrew("a"),
        TextGrew("\n```json\n{"),
        CallOpened(0, "shell", "c"),
        CallGrew(0, "{}"),
        TextGrew(FENCED),
        Stopped("stop"),
    ]


def test_what_may_be_a_call_is_text_when_reasoning_or_a_fault_comes() -> None:
    reader = ChatStream(names={"shell"})
    data = chunk(content="```json\n{") + chunk(reasoning_content="hm") + chunk(content="[sh")
    assert reader.feed(data) == [TextGrew("```json\n{"), ReasoningGrew("hm")]
    assert reader.end() == [TextGrew("[sh")]
    assert reader.fault is not None and reader.fault.code == "upstream_closed"
