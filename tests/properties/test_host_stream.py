"""An answer of an editor means the same, however its bytes are cut and its parts are grouped."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.deltas import NativeState, ReasoningGrew, Stopped, TextGrew
from tests.wires.gemini.answers import Sealed, items_of
from tests.wires.host.answers import Json, done, lines, parts, read

WORDS = st.text(min_size=1, max_size=8)


@st.composite
def some_parts(draw: st.DrawFn) -> Json:
    match draw(st.sampled_from(["text", "thinking", "tool_call", "image", "odd", "mark"])):
        case "text":
            return {"type": "text", "value": draw(st.text(max_size=8))}
        case "thinking":
            some_id: Any = draw(st.sampled_from([None, "t1", "t2"]))
            metadata: Any = draw(st.sampled_from([{}, {"sig": "x"}]))
            value = draw(st.text(max_size=8))
            return {"type": "thinking", "value": value, "id": some_id, "metadata": metadata}
        case "tool_call":
            call_id = draw(st.sampled_from(["c1", "c2", ""]))
            arguments = draw(st.dictionaries(WORDS, st.integers(-9, 9) | WORDS, max_size=2))
            return {"type": "tool_call", "call_id": call_id, "name": "look", "input": arguments}
        case "image":
            return {
                "type": "data",
                "mime": "image/png",
                "data": draw(st.sampled_from(["AAAA", "BBBB"])),
            }
        case "odd":
            return {"type": "scent", "of": draw(WORDS)}
    return {"type": "data", "mime": "stateful_marker", "data": "AAAA"}


ENDS = st.sampled_from(
    [
        done(),
        done(status="incomplete", incomplete_reason="max_output_tokens"),
        done(refusal="No."),
        done(usage={"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}),
    ]
)
ANSWERS = st.lists(some_parts(), max_size=8)


@given(answer=ANSWERS, end=ENDS, data=st.data())
def test_any_split_of_the_bytes_means_the_same(
    answer: list[Json], end: Json, data: st.DataObject
) -> None:
    stream = lines(*(parts(one) for one in answer), end)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert read(pieces)[0] == read(stream)[0]


@given(answer=ANSWERS, end=ENDS, data=st.data())
def test_any_grouping_of_the_parts_means_the_same(
    answer: list[Json], end: Json, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(answer)), max_size=4)))
    groups = [answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
    grouped = lines(*(parts(*group) for group in groups), end)
    assert read(grouped)[0] == read(lines(*(parts(one) for one in answer), end))[0]


@given(answer=ANSWERS, end=ENDS)
def test_every_answer_is_a_legal_response_with_all_its_calls(answer: list[Json], end: Json) -> None:
    deltas, reader = read(lines(parts(*answer), end))
    assert reader.fault is None and isinstance(deltas[-1], Stopped)
    items = items_of(deltas)
    items_of(deltas, Sealed())
    calls = sum(item["type"] == "function_call" for item in items)
    assert calls == sum(one["type"] == "tool_call" for one in answer)


@given(answer=ANSWERS, end=ENDS)
def test_no_text_and_no_state_is_lost(answer: list[Json], end: Json) -> None:
    deltas, _ = read(lines(parts(*answer), end))
    for kind, delta_type in (("text", TextGrew), ("thinking", ReasoningGrew)):
        came = "".join(one["value"] for one in answer if one["type"] == kind)
        assert came == "".join(one.text for one in deltas if isinstance(one, delta_type))
    signed = any(one["type"] == "thinking" and one["metadata"] for one in answer)
    kept = b"".join(one.data for one in deltas if isinstance(one, NativeState))
    assert (b"sig" in kept) is signed


@given(answer=ANSWERS, end=ENDS, cut=st.integers(0, 2000))
def test_a_cut_answer_fails_after_what_came(answer: list[Json], end: Json, cut: int) -> None:
    stream = lines(*(parts(one) for one in answer), end)
    short = stream[: min(cut, len(stream) - 1)]
    deltas, reader = read(short)
    whole = [one for one in read(stream)[0] if isinstance(one, TextGrew | ReasoningGrew)]
    grown = [one for one in deltas if isinstance(one, TextGrew | ReasoningGrew)]
    assert grown == whole[: len(grown)]
    assert reader.fault is not None and not any(isinstance(one, Stopped) for one in deltas)
