"""What is read of a Gemini answer, part by part."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.protocol.deltas import (
    AnnotationAdded,
    CallGrew,
    CallMade,
    CallOpened,
    Delta,
    ItemPassed,
    NativeState,
    RefusalGrew,
    Reported,
    Stopped,
    SummaryGrew,
    TextGrew,
    TierUsed,
    UsageKnown,
)
from antiphon.protocol.response import InputDetails, OutputDetails, Usage
from antiphon.wires.gemini.signatures import SignedState, read_state
from antiphon.wires.gemini.stream import GeminiStream
from tests.wires.gemini.answers import Sealed, body, chunk, finish, items_of, read, sse, whole

CALL = {"functionCall": {"name": "look", "args": {"at": [1, 2.5], "é": "ü"}}}
PNG = "iVBORw0KGgo="


def told(*chunks: Any) -> list[Delta]:
    """Return what the chunks tell, without the usage and the end."""
    deltas, reader = read(sse(*chunks))
    assert reader.fault is None
    return [delta for delta in deltas if not isinstance(delta, UsageKnown | Stopped)]


def state_in(deltas: list[Delta]) -> tuple[NativeState, SignedState]:
    [delta] = [delta for delta in deltas if isinstance(delta, NativeState)]
    state = read_state(delta)
    assert state is not None
    return delta, state


def test_thoughts_are_a_summary_and_text_is_text() -> None:
    thought = {"text": "hm", "thought": True}
    assert told(chunk(thought), chunk({"text": "yes"}), finish()) == [
        SummaryGrew("hm"),
        TextGrew("yes"),
    ]


def test_call_is_whole_and_its_arguments_are_compact_json() -> None:
    arguments = '{"at":[1,2.5],"é":"ü"}'
    [made] = told(finish(CALL))
    assert isinstance(made, CallMade)
    assert (made.name, json.loads(made.said), made.call_id) == ("look", json.loads(arguments), None)
    assert " " not in made.said


def test_parallel_calls_keep_their_order_and_ids_and_only_the_first_has_a_signature() -> None:
    one = {"functionCall": {"name": "a", "args": {}, "id": "x1"}, "thoughtSignature": "S+/="}
    two = {"functionCall": {"name": "b", "id": "x2"}}
    deltas = told(chunk(one), chunk(two), finish({"text": ""}))
    delta, state = state_in(deltas)
    assert (delta.attach, state.call_id, state.parts[0].signature) == ("next", "x1", "S+/=")
    assert deltas[1:] == [CallMade("a", "{}", "x1"), CallMade("b", "{}", "x2")]


def test_signature_of_a_text_follows_it_also_if_it_came_on_an_empty_part() -> None:
    deltas = told(
        chunk({"text": "a"}), chunk({"text": "bc"}), finish({"text": "", "thoughtSignature": "S"})
    )
    delta, state = state_in(deltas)
    assert deltas[:2] == [TextGrew("a"), TextGrew("bc")]
    assert (delta.attach, state.kind) == ("previous", "text")
    assert [(one.size, one.behind) for one in state.parts] == [(0, 0)]


def test_text_goes_on_behind_its_signed_part_in_the_same_message() -> None:
    data = sse(
        chunk({"text": "ab", "thoughtSignature": "S"}), chunk({"text": "cde"}), finish({"text": ""})
    )
    seal = Sealed()
    deltas, _ = read(data)
    message, reasoning = items_of(deltas, seal)
    assert message["content"][0]["text"] == "abcde"
    assert reasoning["encrypted_content"]
    assert [(one.size, one.behind) for one in state_in(deltas)[1].parts] == [(2, 3)]


def test_signature_of_a_thought_ends_its_reasoning_item() -> None:
    seal = Sealed()
    deltas = [
        *told(
            chunk({"text": "hm", "thought": True, "thoughtSignature": "S"}),
            finish({"text": "yes"}),
        ),
        Stopped("stop"),
    ]
    reasoning, message = items_of(deltas, seal)
    assert reasoning["summary"][0]["text"] == "hm"
    assert reasoning["encrypted_content"]
    assert message["type"] == "message"


def test_signature_without_any_text_stands_alone() -> None:
    deltas = told(chunk(CALL), finish({"thoughtSignature": "S"}))
    assert state_in(deltas)[0].attach is None


def test_call_in_pieces_is_made_when_it_is_whole() -> None:
    def piece(**fields: Any) -> dict[str, Any]:
        return chunk({"functionCall": fields})

    text = [{"jsonPath": "$.text", "stringValue": word, "willContinue": True} for word in "ab"]
    deltas = told(
        piece(name="write", id="c", willContinue=True),
        piece(partialArgs=text[:1], willContinue=True),
        piece(partialArgs=text[1:], willContinue=True),
        piece(
            partialArgs=[
                {"jsonPath": "$.list[1].n", "numberValue": 2.0},
                {"jsonPath": "$.list[0]", "boolValue": True},
                {"jsonPath": "$.no", "nullValue": "NULL_VALUE"},
            ],
            willContinue=True,
        ),
        piece(),
        finish(),
    )
    assert deltas == [CallMade("write", '{"text":"ab","list":[true,{"n":2}],"no":null}', "c")]


def test_call_in_pieces_that_is_cut_short_is_never_complete() -> None:
    data = sse(
        chunk({"functionCall": {"name": "write", "willContinue": True}}),
        chunk(
            {
                "functionCall": {
                    "partialArgs": [{"jsonPath": "$.a", "stringValue": "x"}],
                    "willContinue": True,
                }
            }
        ),
        finish(reason="MAX_TOKENS"),
    )
    deltas, _ = read(data)
    assert deltas[:2] == [CallOpened(0, "write"), CallGrew(0, '{"a":"x"')]
    assert items_of(deltas)[0]["status"] == "incomplete"


@pytest.mark.parametrize("path", ["", "$", "$[0]", "$.a..b", "$.a[x]", "$.a[999999999]"])
def test_path_of_an_argument_that_is_none_is_a_fault(path: str) -> None:
    piece = {"functionCall": {"name": "f", "partialArgs": [{"jsonPath": path, "stringValue": "x"}]}}
    _, reader = read(sse(chunk(piece), finish()))
    assert reader.fault is not None
    assert reader.fault.code == "upstream_invalid_response"


@pytest.mark.parametrize(
    "part",
    [
        {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "S"},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "id": "t"}, "thoughtSignature": "S"},
        {"toolResponse": {"toolType": "GOOGLE_SEARCH_WEB", "id": "t"}},
        {"inlineData": {"mimeType": "audio/wav", "data": "AAAA"}},
        {"somethingNew": {"deep": [1, None]}},
    ],
)
def test_part_of_another_kind_is_an_item_that_keeps_it_as_it_came(part: dict[str, Any]) -> None:
    deltas = told(chunk({"text": "a"}), chunk(part, {"text": ""}), finish({"text": "b"}))
    item = {"type": "google:part", "status": "completed", "part": part}
    assert deltas == [TextGrew("a"), ItemPassed(item), TextGrew("b")]
    made = items_of([*deltas, Stopped("stop")])
    assert [one["type"] for one in made] == ["message", "google:part", "message"]


def test_image_is_an_image_generation_call_behind_its_signature() -> None:
    part = {"inlineData": {"mimeType": "image/png", "data": PNG}, "thoughtSignature": "S"}
    state, passed = told(finish(part))
    assert isinstance(state, NativeState)
    assert isinstance(passed, ItemPassed)
    assert state.attach == "next"
    assert (passed.item["type"], passed.item["result"]) == ("image_generation_call", PNG)


def test_image_among_the_thoughts_is_reported() -> None:
    part = {"inlineData": {"mimeType": "image/png", "data": PNG}, "thought": True}
    [reported] = told(finish(part))
    assert isinstance(reported, Reported)


def test_sources_become_citations_of_characters_not_bytes() -> None:
    grounding = {
        "groundingChunks": [
            {"web": {"uri": "https://a.example", "title": "A"}},
            {"retrievedContext": {"title": "notes.txt", "documentName": "docs/1"}},
        ],
        "groundingSupports": [
            {"segment": {"startIndex": 4, "endIndex": 7}, "groundingChunkIndices": [0, 1]}
        ],
    }
    deltas = told(chunk({"text": "éü"}), finish({"text": "abc"}, groundingMetadata=grounding))
    assert deltas[2:] == [
        AnnotationAdded(
            {
                "type": "url_citation",
                "url": "https://a.example",
                "title": "A",
                "start_index": 2,
                "end_index": 5,
            }
        ),
        AnnotationAdded(
            {"type": "file_citation", "file_id": "docs/1", "filename": "notes.txt", "index": 5}
        ),
    ]


def test_citations_come_before_the_signature_so_that_they_are_in_the_message() -> None:
    citation = {"startIndex": 0, "endIndex": 2, "uri": "https://a.example"}
    deltas, _ = read(
        sse(
            chunk({"text": "ab"}),
            finish(
                {"text": "", "thoughtSignature": "S"},
                citationMetadata={"citationSources": [citation]},
            ),
        )
    )
    message, _ = items_of(deltas, Sealed())
    assert message["content"][0]["annotations"][0]["url"] == "https://a.example"


@pytest.mark.parametrize(
    "grounding",
    [
        {"groundingChunks": [{"web": {"uri": "https://a.example"}}]},
        {
            "groundingChunks": [{"web": {}}],
            "groundingSupports": [
                {"segment": {"endIndex": 900}, "groundingChunkIndices": [0, 7, None]}
            ],
        },
    ],
)
def test_sources_of_no_words_are_reported(grounding: dict[str, Any]) -> None:
    deltas = told(finish({"text": "ab"}, groundingMetadata=grounding))
    assert [type(delta) for delta in deltas] == [TextGrew, Reported]


def test_citations_of_a_message_that_is_over_are_reported() -> None:
    citation = {"startIndex": 0, "endIndex": 2, "uri": "https://a.example"}
    deltas = told(
        chunk({"text": "ab"}), finish(CALL, citationMetadata={"citationSources": [citation]})
    )
    assert [type(delta) for delta in deltas] == [TextGrew, CallMade, Reported]


# Ends.


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        *(
            (name, "content_filter")
            for name in (
                *("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE"),
                *("IMAGE_SAFETY", "IMAGE_RECITATION", "MODEL_ARMOR", "SOMETHING_NEW", "OTHER"),
            )
        ),
    ],
)
def test_reason_of_the_end(reason: str, stop: str) -> None:
    deltas, _ = read(sse(finish({"text": "a"}, reason=reason)))
    assert deltas[-1] == Stopped(stop)  # type: ignore[arg-type]  # it is one of them
    notes = [delta for delta in deltas if isinstance(delta, Reported)]
    assert bool(notes) == (stop == "content_filter"), "why it was filtered is reported"


def test_calls_do_not_change_the_reason() -> None:
    deltas, _ = read(sse(finish(CALL)))
    assert deltas[-1] == Stopped("stop")


@pytest.mark.parametrize(
    "reason",
    ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"],
)
def test_slip_of_the_model_is_a_fault_after_all_that_came(reason: str) -> None:
    deltas, reader = read(sse(chunk({"text": "a"}), finish(reason=reason, finishMessage="bad")))
    assert reader.fault is not None
    assert (reader.fault.code, reader.fault.is_slip) == ("upstream_invalid_response", True)
    assert [type(delta) for delta in deltas] == [TextGrew, UsageKnown]


def test_slip_before_any_output_tells_nothing() -> None:
    deltas, reader = read(sse(finish(reason="MALFORMED_FUNCTION_CALL")))
    assert deltas == []
    assert reader.fault is not None


def test_pause_can_be_resumed() -> None:
    deltas, _ = read(
        sse(finish({"text": "a"}, reason="CONTINUATION", continuationToken="dG8=")), account="me"
    )
    assert deltas[-1] == Stopped("length", NativeState("gemini", b"dG8=", account="me"))


def test_blocked_prompt_is_the_callers_error_before_any_output() -> None:
    feedback = {"promptFeedback": {"blockReason": "SAFETY", "blockReasonMessage": "no"}}
    for deltas, reader in (read(sse(feedback)), whole(json.dumps(feedback).encode())):
        assert deltas == []
        assert reader.fault is not None
        assert (reader.fault.status, reader.fault.code) == (400, "content_policy")


def test_blocked_prompt_after_output_is_a_refusal() -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}}
    deltas, reader = read(sse(chunk({"text": "hm", "thought": True}), blocked))
    assert reader.fault is None
    assert [type(delta) for delta in deltas] == [SummaryGrew, RefusalGrew, Stopped]
    assert deltas[-1] == Stopped("content_filter")


def test_stream_that_ends_without_a_reason_is_broken() -> None:
    deltas, reader = read(sse(chunk({"text": "a"})))
    assert deltas == [TextGrew("a")]
    assert reader.fault is not None
    assert reader.fault.code == "upstream_closed"


@pytest.mark.parametrize(
    "error",
    [
        {"error": {"code": 503, "status": "UNAVAILABLE", "message": "busy"}},
        [{"error": {"code": 503, "status": "UNAVAILABLE", "message": "busy"}}],
    ],
)
def test_error_in_mid_stream_is_a_fault_after_what_came(error: Any) -> None:
    deltas, reader = read(sse(chunk({"text": "a"}), error))
    assert deltas == [TextGrew("a")]
    assert reader.fault is not None
    assert (reader.fault.status, reader.fault.code) == (503, "upstream_overloaded")


@pytest.mark.parametrize(
    "data",
    [
        b"data: {\r\n\r\n",
        b"data: []\r\n\r\n",
        b'data: {"candidates":[{"content":{"parts":[{"text":7}]}}]}\r\n\r\n',
        b'data: {"candidates":[{"content":{"parts":[{"functionCall":{}}]}}]}\r\n\r\n',
        b"",
    ],
)
def test_nonsense_is_a_fault(data: bytes) -> None:
    _, reader = read([data] if data else [])
    assert reader.fault is not None
    assert reader.fault.code == "upstream_invalid_response"


def test_answer_without_an_end_has_a_limit() -> None:
    reader = GeminiStream(max_output=10)
    reader.feed(sse(chunk({"text": "a" * 8})))
    reader.feed(sse(chunk({"text": "b" * 8})))
    assert reader.fault is not None
    assert "does not end" in reader.fault.message


# What is counted.


def test_usage_is_the_last_word_in_the_normal_form() -> None:
    usage = {
        "promptTokenCount": 10,
        "toolUsePromptTokenCount": 5,
        "cachedContentTokenCount": 4,
        "candidatesTokenCount": 7,
        "thoughtsTokenCount": 3,
        "totalTokenCount": 25,
        "trafficType": "ON_DEMAND_FLEX",
    }
    early = chunk({"text": "a"}, usage={"promptTokenCount": 99, "totalTokenCount": 99})
    deltas, _ = read(sse(early, finish(usage=usage)))
    assert deltas[1:] == [
        TierUsed("flex"),
        UsageKnown(
            Usage(
                input_tokens=15,
                input_tokens_details=InputDetails(4),
                output_tokens=10,
                output_tokens_details=OutputDetails(3),
                total_tokens=25,
            )
        ),
        Stopped("stop"),
    ]


def test_total_that_is_no_sum_is_kept_and_reported() -> None:
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 9}
    deltas, _ = read(sse(finish({"text": "a"}, usage=usage)))
    [known] = [delta for delta in deltas if isinstance(delta, UsageKnown)]
    assert known.usage.total_tokens == 9
    assert any(isinstance(delta, Reported) and "9" in delta.what for delta in deltas)


def test_further_candidates_are_reported() -> None:
    other = {"candidates": [{"index": 1, "content": {"parts": [{"text": "other"}]}}]}
    deltas = told(chunk({"text": "a"}, index=0), other, finish(index=0))
    assert [type(delta) for delta in deltas] == [TextGrew, Reported]


def test_tokens_come_with_the_text() -> None:
    token = {"token": "a", "logProbability": -0.5}
    result = {"chosenCandidates": [token], "topCandidates": [{"candidates": [token]}]}
    [text] = told(finish({"text": "a"}, logprobsResult=result))
    assert isinstance(text, TextGrew)
    weighed = {"token": "a", "logprob": -0.5, "bytes": [97]}
    assert text.logprobs == (weighed | {"top_logprobs": [weighed]},)


# The same answer in another form.

ANSWERS = [
    [chunk({"text": "hm", "thought": True}), chunk({"text": "é"}), finish({"text": "a"})],
    [chunk(CALL | {"thoughtSignature": "S"}), chunk(CALL), finish({"text": ""})],
    [
        chunk({"executableCode": {"code": "1"}}),
        chunk({"text": "one"}),
        finish({"text": "", "thoughtSignature": "S"}),
    ],
    [finish({"text": "no"}, reason="SAFETY")],
]


@pytest.mark.parametrize("chunks", ANSWERS)
def test_whole_answer_makes_the_same_items_as_the_stream(chunks: list[Any]) -> None:
    streamed, _ = read(sse(*chunks))
    at_once, _ = whole(body(*chunks))
    listed, _ = whole(json.dumps(chunks, indent=1).encode())
    assert items_of(at_once, Sealed()) == items_of(streamed, Sealed())
    assert at_once[-2:] == streamed[-2:]
    assert listed == streamed


def test_a_part_is_found_whatever_its_candidate_says_of_its_index() -> None:
    sound = {"inlineData": {"mimeType": "audio/wav", "data": "AAAA"}}
    passed = ItemPassed({"type": "google:part", "status": "completed", "part": sound})
    assert told({"candidates": [{"index": None, "content": {"parts": [sound]}}]}, finish()) == [
        passed
    ]
    twice = [{"index": 0, "content": {"parts": parts}} for parts in ([{"text": "a"}], [{}, sound])]
    assert told({"candidates": twice}, finish()) == [TextGrew("a"), passed]


@pytest.mark.parametrize("path", ["$" + ".a" * 5000, "$.a[99999]", "$.a[0]" + "[0]" * 5000])
def test_a_path_that_is_out_of_proportion_is_a_fault(path: str) -> None:
    piece = {"name": "f", "partialArgs": [{"jsonPath": path, "stringValue": "x"}]}
    _, reader = read(sse(chunk({"functionCall": piece}), finish()))
    assert reader.fault is not None
    assert reader.fault.code == "upstream_invalid_response"


def test_a_number_that_is_too_large_to_be_exact_stays_as_it_is() -> None:
    piece = {"name": "f", "partialArgs": [{"jsonPath": "$.a", "numberValue": 1e300}]}
    assert told(chunk({"functionCall": piece}), finish()) == [CallMade("f", '{"a":1e300}', None)]


@pytest.mark.parametrize("nothing", [{}, None])
def test_counts_stay_if_a_later_chunk_has_none(nothing: Any) -> None:
    last = finish() | {"usageMetadata": nothing}
    counted = {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5}
    deltas, _ = read(sse(chunk({"text": "a"}, usage=counted), last))
    [usage] = [one.usage for one in deltas if isinstance(one, UsageKnown)]
    assert usage.total_tokens == 5


def test_text_after_a_signature_alone_counts_as_an_answer_that_has_begun() -> None:
    counted = {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5}
    signed = chunk({"text": "", "thoughtSignature": "S"})
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}}
    deltas, reader = read(sse(signed, chunk({"text": "a"}, usage=counted), blocked))
    assert reader.fault is None
    assert TextGrew("a") in deltas
    assert deltas[-1] == Stopped("content_filter")
    cut, _ = read(sse(signed, chunk({"text": "a"}, usage=counted)))
    assert [one.usage.total_tokens for one in cut if isinstance(one, UsageKnown)] == [5]


@pytest.mark.parametrize("odd", [b'"\xff"', b"[" * 100_000 + b"]" * 100_000])
def test_a_part_that_holds_no_json_is_a_fault(odd: bytes) -> None:
    part = b'{"newPart":' + odd + b"}"
    data = b'{"candidates":[{"content":{"parts":[' + part + b']},"finishReason":"STOP"}]}'
    _, reader = whole(data)
    assert reader.fault is not None
    assert reader.fault.code == "upstream_invalid_response"


def test_half_a_character_anywhere_but_in_a_text_is_replaced() -> None:
    call = {"functionCall": {"name": "f", "args": {"a": "\ud83d", "b": "x"}}}
    deltas, reader = read(sse(finish({"newPart": "\ud83d"}, call, {"text": "a\ud83d"})))
    assert reader.fault is None
    part = {"type": "google:part", "status": "completed", "part": {"newPart": "\ufffd"}}
    assert ItemPassed(part) in deltas
    assert CallMade("f", '{"a":"\ufffd","b":"x"}') in deltas
    assert [one.text for one in deltas if isinstance(one, TextGrew)] == ["a", "\ufffd"]


def test_a_piece_of_an_argument_that_ends_in_half_a_character_goes_on() -> None:
    def piece(text: str, **more: bool) -> dict[str, Any]:
        partial = [{"jsonPath": "$.a", "stringValue": text}]
        return {"functionCall": {"partialArgs": partial, **more}}

    first = {"functionCall": {"name": "f", "willContinue": True}}
    pieces = [piece("\ud83d", willContinue=True), piece("\ude00")]
    deltas, _ = read(sse(chunk(first), *map(chunk, pieces), finish()))
    assert CallMade("f", '{"a":"😀"}') in deltas


def test_arguments_and_tokens_of_the_wrong_kind_break_nothing() -> None:
    data = (
        b'{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"a":"\xff"}}}]},'
    )
    deltas, _ = whole(data + b'"finishReason":"STOP"}]}')
    assert CallMade("f", '{"a":"\ufffd"}', None) in deltas
    tokens = {"chosenCandidates": [{"token": "a"}], "topCandidates": [{"candidates": 5}]}
    [grew] = told(finish({"text": "a"}, logprobsResult=tokens))
    assert isinstance(grew, TextGrew)
    assert grew.logprobs[0]["top_logprobs"] == []


def test_counts_that_are_no_text_are_unknown() -> None:
    data = b'{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"serviceTier":"\xff"}}'
    deltas, reader = whole(data)
    assert (deltas, reader.fault) == ([Stopped("stop")], None)
