"""For any answer, cut in any way: nothing is lost, nothing doubled, one end."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.deltas import (
    CallGrew,
    CallOpened,
    Delta,
    ReasoningGrew,
    Stopped,
    TextGrew,
    UsageKnown,
)
from antiphon.protocol.errors import BackendError
from antiphon.wires.chat.stream import ChatStream

Piece = dict[str, Any]

# Any characters, halves of pairs too: a server that writes "\\ud83c" may cut a character in two.
texts = st.text(st.characters(exclude_categories=[]), max_size=12)
text_pieces = st.builds(lambda text: {"content": text}, texts)
thought_pieces = st.builds(lambda text: {"reasoning_content": text}, texts)
call_pieces = st.builds(
    lambda index, text: {"tool_calls": [{"index": index, "function": {"arguments": text}}]},
    st.integers(0, 2),
    st.text("ab{}", max_size=5),
)
OPENERS: list[Piece] = [
    {"tool_calls": [{"index": n, "id": f"c{n}", "function": {"name": f"f{n}", "arguments": ""}}]}
    for n in range(3)
]
answers = st.lists(st.one_of(text_pieces, thought_pieces, call_pieces), max_size=12)
FIELDS = [
    *("choices", "delta", "message", "content", "tool_calls", "function", "name", "id", "text"),
    *("arguments", "index", "usage", "logprobs", "annotations", "finish_reason", "thinking"),
    *("prompt_tokens", "error", "token", "top_logprobs", "service_tier", "x_groq", "refusal"),
]
ends = st.sampled_from(["\n\n", "\r\n\r\n", "\r\r"])


def encode(pieces: list[Piece], end: str) -> bytes:
    choices = [{"index": 0, "delta": piece} for piece in [*OPENERS, *pieces]]
    chunks: list[Any] = [{"choices": [choice]} for choice in choices]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    chunks.append({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}})
    lines = [f"data: {json.dumps(chunk)}{end}" for chunk in chunks]
    return "".join([*lines, f"data: [DONE]{end}"]).encode()


def cut(data: bytes, places: list[int]) -> list[bytes]:
    marks = sorted({place % (len(data) + 1) for place in places})
    return [data[a:b] for a, b in zip([0, *marks], [*marks, len(data)], strict=True)]


def read(pieces: list[bytes]) -> list[Delta]:
    reader = ChatStream(think_tags=False)
    said = [delta for piece in pieces for delta in reader.feed(piece)]
    return said + reader.end()


def whole(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def said_in(pieces: list[Piece], field: str) -> str:
    return whole("".join(piece.get(field, "") for piece in pieces))


@given(answers, ends, st.lists(st.integers(min_value=0), max_size=8))
def test_any_cut_says_the_same_and_all_of_it(
    pieces: list[Piece], end: str, places: list[int]
) -> None:
    data = encode(pieces, end)
    said = read([data])
    assert read(cut(data, places)) == said

    text = "".join(d.text for d in said if isinstance(d, TextGrew))
    thought = "".join(d.text for d in said if isinstance(d, ReasoningGrew))
    assert text == said_in(pieces, "content")
    assert thought == said_in(pieces, "reasoning_content")
    for key in range(3):
        arguments = "".join(d.arguments for d in said if isinstance(d, CallGrew) and d.key == key)
        calls = [call for piece in pieces for call in piece.get("tool_calls", ())]
        mine = [call["function"]["arguments"] for call in calls if call["index"] == key]
        assert arguments == "".join(mine)
    assert [d.call_id for d in said if isinstance(d, CallOpened)] == ["c0", "c1", "c2"]
    assert [type(d) for d in said[-2:]] == [UsageKnown, Stopped]
    assert sum(isinstance(d, Stopped) for d in said) == 1


@given(answers, st.integers(min_value=0))
def test_a_stream_cut_off_anywhere_keeps_its_prefix_and_never_lies(
    pieces: list[Piece], place: int
) -> None:
    data = encode(pieces, "\n\n")
    data = data[: place % len(data)]
    reader = ChatStream()
    said: list[Delta] = []
    try:
        said += reader.feed(data)
        said += reader.end()
    except BackendError as error:
        assert error.code in {"upstream_closed", "upstream_invalid_response"}
    stopped = [delta for delta in said if isinstance(delta, Stopped)]
    assert bool(stopped) == (reader.fault is None)
    if stopped:
        assert b"finish_reason" in data


SIMPLE = b'{"choices":[{"index":0,"delta":{"content":"%b"}}]}'
BEFORE = b"data: " + SIMPLE % b"a" + b"\n\n"
# Little pieces of JSON and SSE, to be put where they do not belong.
SCRAPS = st.sampled_from(
    [
        *(b'"', b"\\", b'\\"', b",", b'","', b"}", b"\x01", b"\xff", b"\\ud83c", b"\xc3\xa9", b""),
        *(b"\n", b"\n\n", b"\n\ndata: ", b"data: ", b"[DONE]"),
        *(b'","content":"', b'"},"finish_reason":"stop"}]}'),
    ]
)
alike = st.lists(texts.map(lambda text: SIMPLE % json.dumps(text)[1:-1].encode()), max_size=5)
damages = st.lists(st.tuples(st.integers(min_value=0), st.integers(0, 2), SCRAPS), max_size=3)


def damage(data: bytes, damages: list[tuple[int, int, bytes]]) -> bytes:
    for place, size, scrap in damages:
        at = place % (len(data) + 1)
        data = data[:at] + scrap + data[at + size :]
    return data


def read_after(begin: bytes, data: bytes, **settings: Any) -> tuple[list[Delta], str]:
    """Return what the data tell to a reader that has read the beginning, and its fault."""
    reader = ChatStream(**settings)
    reader.feed(begin)
    said: list[Delta] = []
    try:
        said += reader.feed(data)
        said += reader.feed(b"data: [DONE]\n\n")
        said += reader.end()
    except BackendError:
        pass
    return said, str(reader.fault)


@given(alike, damages, st.booleans(), st.integers(1, 20))
def test_what_is_read_in_one_go_is_what_is_read_one_by_one(
    chunks: list[bytes], damages: list[tuple[int, int, bytes]], has_tools: bool, room: int
) -> None:
    """After a chunk of another shape, the first is read by itself, and so are all with it."""
    data = b"".join(b"data: " + chunk + b"\n\n" for chunk in chunks)
    data = damage(data, damages)
    settings: dict[str, Any] = {"names": ["f"] if has_tools else [], "max_output": room}
    other = BEFORE.replace(b'{"choices"', b'{"n":1,"choices"')
    assert read_after(BEFORE, data, **settings) == read_after(other, data, **settings)


@given(st.binary(max_size=300), st.lists(st.integers(min_value=0), max_size=4))
def test_any_bytes_end_in_a_fault_or_an_answer(data: bytes, places: list[int]) -> None:
    reader = ChatStream()
    try:
        for piece in cut(b"data: " + data, places):
            reader.feed(piece)
        reader.end()
    except BackendError:
        pass
    assert reader.is_done or reader.fault is not None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(FIELDS),
                inner,
                max_size=4,
            )
        ),
        max_leaves=20,
    )
)
def test_any_json_ends_in_a_fault_or_an_answer(value: Any) -> None:
    reader = ChatStream()
    try:
        reader.feed(b"data: %b\n\n" % json.dumps(value).encode())
        reader.end()
    except BackendError:
        pass
    assert reader.is_done or reader.fault is not None
