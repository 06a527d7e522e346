"""However the bytes of a Gemini stream are cut, it tells the same."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.deltas import NativeState, Stopped, SummaryGrew, TextGrew
from tests.wires.gemini.answers import Sealed, body, chunk, finish, items_of, read, sse, whole

WORDS = st.text(min_size=1, max_size=8)
SIGNATURES: st.SearchStrategy[dict[str, Any]] = st.sampled_from([{}, {"thoughtSignature": "U2ln"}])


@st.composite
def parts(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["text", "empty", "thought", "call", "code", "image"]))
    signed: dict[str, Any] = draw(SIGNATURES)
    match kind:
        case "text":
            return {"text": draw(WORDS)} | signed
        case "empty":
            return {"text": ""} | signed
        case "thought":
            return {"text": draw(WORDS), "thought": True} | signed
        case "call":
            call = {"name": "look", "args": {"at": draw(WORDS)}}
            return {"functionCall": call | draw(st.sampled_from([{}, {"id": "x1"}]))} | signed
        case "code":
            return {"executableCode": {"language": "PYTHON", "code": draw(WORDS)}} | signed
    return {"inlineData": {"mimeType": "image/png", "data": "AAAA"}} | signed


@st.composite
def answers(draw: st.DrawFn) -> list[dict[str, Any]]:
    reason = draw(st.sampled_from(["STOP", "MAX_TOKENS", "SAFETY", "NEW"]))
    chunks = [chunk(*some) for some in draw(st.lists(st.lists(parts(), max_size=3), max_size=4))]
    return [*chunks, finish(*draw(st.lists(parts(), max_size=1)), reason=reason)]


@given(chunks=answers(), data=st.data())
def test_any_split_tells_the_same(chunks: list[dict[str, Any]], data: st.DataObject) -> None:
    stream = sse(*chunks)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert read(pieces)[0] == read(stream)[0]


@given(chunks=answers())
def test_every_answer_is_a_legal_response(chunks: list[dict[str, Any]]) -> None:
    deltas, reader = read(sse(*chunks))
    assert reader.fault is None
    assert isinstance(deltas[-1], Stopped)
    items_of(deltas)
    items_of(deltas, Sealed())


@given(chunks=answers())
def test_whole_answer_makes_the_items_of_the_stream(chunks: list[dict[str, Any]]) -> None:
    streamed, _ = read(sse(*chunks))
    at_once, _ = whole(body(*chunks))
    assert items_of(at_once) == items_of(streamed)


@given(chunks=answers(), cut=st.integers(0, 2000))
def test_cut_stream_fails_after_what_it_told(chunks: list[dict[str, Any]], cut: int) -> None:
    stream = sse(*chunks)
    short = stream[: min(cut, len(stream) - 5)]
    deltas, reader = read(short)
    grown = [delta for delta in deltas if isinstance(delta, TextGrew | SummaryGrew)]
    all_grown = [delta for delta in read(stream)[0] if isinstance(delta, TextGrew | SummaryGrew)]
    assert grown == all_grown[: len(grown)]
    if reader.fault is None:
        assert b'"finishReason"' in short
    else:
        assert not any(isinstance(delta, Stopped) for delta in deltas)


@given(chunks=answers())
def test_no_signature_is_lost(chunks: list[dict[str, Any]]) -> None:
    deltas, _ = read(sse(*chunks))
    kept = b"".join(delta.data for delta in deltas if isinstance(delta, NativeState)).count(b"U2ln")
    passed = str(deltas).count("'thoughtSignature': 'U2ln'")
    images = [
        part
        for one in chunks
        for part in one["candidates"][0].get("content", {}).get("parts", ())
        if "inlineData" in part
    ]
    repeated = images[1:]  # the same image again is one image
    lost = sum("thoughtSignature" in part for part in repeated)
    came = sum(
        "thoughtSignature" in part
        for one in chunks
        for part in one["candidates"][0].get("content", {}).get("parts", ())
    )
    assert kept + passed == came - lost
