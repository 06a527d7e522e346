"""Chunks that differ in their text alone: what is read in one go, and what is not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.wires.chat.chunks import read_chunk
from antiphon.wires.chat.runs import ChunkRun


def chunk(delta: dict[str, Any], **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    return json.dumps({"id": "c", "choices": [choice]} | more, separators=(",", ":")).encode()


def events(*chunks: bytes) -> bytes:
    return b"\n\n".join(b"data: " + data for data in chunks)


def after(data: bytes) -> ChunkRun:
    run = ChunkRun()
    run.follow(data, read_chunk(data))
    return run


SAID = chunk({"content": "a"})


def test_chunks_like_the_last_one_are_read_by_their_text() -> None:
    alike = [chunk({"content": text}) for text in ("b", ' "c"\n', "\\", "", "\u00e9")]
    assert after(SAID).read(events(*alike)) == ["b", ' "c"\n', "\\", "", "\u00e9"]


def test_an_event_that_comes_in_two_reads_is_like_the_last_one_too() -> None:
    run = after(SAID)
    assert run.read(b"") is None
    assert run.read(events(SAID)) == ["a"]


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_is_a_run_too(name: str) -> None:
    run = after(chunk({name: "a", "content": None}))
    assert run.read(events(chunk({name: "b", "content": None}))) == ["b"]
    assert run.channel == "reasoning"


@pytest.mark.parametrize(
    "other",
    [
        chunk({"content": "b"}, id="d"),
        chunk({"content": "b", "refusal": "c"}),
        chunk({"content": None}),
        chunk({"content": "b"})[:-1],
        chunk({"content": "b"}) + b" ",
        SAID.replace(b'"a"', b'"b","content":"c"'),
        SAID.replace(b'"a"', b'"b","c"'),
        SAID.replace(b'"a"', b'"b\\"'),
        SAID.replace(b'"a"', b'"b\x01"'),
        SAID.replace(b'"a"', b'"\\ud83c"'),
        SAID.replace(b'"a"', b""),
        b"[DONE]",
    ],
)
def test_whatever_has_another_shape_is_not_read(other: bytes) -> None:
    assert after(SAID).read(events(other)) is None
    assert after(SAID).read(events(SAID, other, SAID)) is None


def test_what_stands_between_two_events_is_not_passed_over() -> None:
    run = after(SAID)
    assert run.read(events(SAID) + b"\n\n: a comment\n\n" + events(SAID)) is None
    assert run.read(b"event: error\n" + events(SAID)) is None
    assert run.read(events(SAID) + b"\n" + events(SAID)) is None


@pytest.mark.parametrize(
    "data",
    [
        chunk({"content": "a", "reasoning": "b"}),
        chunk({"content": ["a"]}),
        chunk({"role": "assistant"}),
        chunk({"refusal": "a"}),
        chunk({"content": "a"}, usage={"prompt_tokens": 1}),
        chunk({"content": "a"}, x_groq={}),
        SAID.replace(b'"finish_reason":null', b'"finish_reason":"stop"'),
        SAID.replace(b'"finish_reason":null', b'"logprobs":{}'),
        SAID.replace(b'"index":0', b'"index":1'),
        SAID.replace(b'"content":', b'"content" :'),
        SAID.replace(b'"delta"', b'"message"'),
        SAID.replace(b'"a"', b'"\\ud83c"'),
        SAID.replace(b'"a"', b'"' + b"a" * 70_000 + b'"'),
        b'{"choices":[]}',
    ],
)
def test_a_chunk_that_says_something_else_begins_no_run(data: bytes) -> None:
    assert after(data).read(events(data)) is None


def test_a_field_of_that_name_elsewhere_is_not_the_text() -> None:
    data = b'{"prompt":{"content":"p"},' + SAID[1:]
    assert after(data).read(events(data)) is None
    twice = SAID.replace(b'"content":"a"', b'"content":"b","content":"a"')
    assert after(twice).read(events(twice)) is None


def test_data_of_several_lines_begins_no_run() -> None:
    data = SAID.replace(b'"choices":', b'"choices":\n')
    # As one event, its second line would be no data.
    assert after(data).read(events(data)) is None


def test_another_chunk_ends_the_run() -> None:
    run = after(SAID)
    other = chunk({"content": "a"}, usage={"prompt_tokens": 1})
    run.follow(other, read_chunk(other))
    assert run.read(events(SAID)) is None


def test_nobody_goes_on_looking_where_every_chunk_is_new() -> None:
    run = ChunkRun()
    for number in range(5):
        assert run.read(events(chunk({"content": "a"}, created=number))) is None
        data = chunk({"content": "a"}, created=number)
        run.follow(data, read_chunk(data))
    assert run.read(events(data)) is None


def test_many_chunks_in_one_read_are_one_look() -> None:
    run = ChunkRun()
    for number in range(5):
        data = chunk({"content": "a"}, created=number)
        run.follow(data, read_chunk(data))
    assert run.read(events(data)) == ["a"]


def test_a_run_that_was_found_is_worth_looking_for_the_next() -> None:
    run = ChunkRun()
    for number in range(20):
        data = chunk({"content": "a"}, created=number)
        run.follow(data, read_chunk(data))
        assert run.read(events(data, data)) == ["a", "a"]


def learned() -> ChunkRun:
    """Return a run that knows its shape."""
    run = after(SAID)
    assert run.read(events(SAID)) == ["a"]
    return run


@pytest.mark.parametrize("text", ["b", ' "c"\n', "\\", "", "\u00e9", "\U0001f600", "</x>"])
def test_a_whole_event_with_one_chunk_is_read_by_its_text(text: str) -> None:
    assert learned().read_one(events(chunk({"content": text})) + b"\n\n") == text


@pytest.mark.parametrize(
    "event",
    [
        events(SAID),
        events(SAID) + b"\n",
        events(SAID) + b"\r\n\r\n",
        events(SAID, SAID) + b"\n\n",
        events(chunk({"content": "a"}, usage={})) + b"\n\n",
        events(SAID).replace(b'"a"', b'"a\nb"') + b"\n\n",
        events(SAID).replace(b'"a"', b'"a\rb"') + b"\n\n",
        events(SAID).replace(b'"a"', b'"\xff"') + b"\n\n",
        events(SAID).replace(b'"a"', b'"a","x":"b"') + b"\n\n",
        events(SAID)[:-9] + b"\n\n",
        b"data: [DONE]\n\n",
    ],
)
def test_an_event_of_another_shape_is_not_read(event: bytes) -> None:
    assert learned().read_one(event) is None


def test_no_event_is_read_before_its_shape_is_known() -> None:
    assert after(SAID).read_one(events(SAID) + b"\n\n") is None
