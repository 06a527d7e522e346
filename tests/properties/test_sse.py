"""SSE: however the bytes are split, the frames are the same."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.codec import decode_event, encode_sse
from antiphon.protocol.errors import BrokenStream
from antiphon.protocol.events import OutputTextDelta
from antiphon.protocol.sse import MAX_LINE, Frame, SseDecoder, read_data
from tests.strategies import texts

PIECES = [
    *(
        b"\r",
        b"\n",
        b"\r\n",
        b"\n\n",
        b"\r\r",
        b":",
        b" ",
        b"data",
        b"data:",
        b"data: x",
        b"data: ",
    ),
    *(b"event: a", b"event:", b"id: 1", b": note", b"\xef\xbb\xbf", b"\xff", b"\xf0\x9f\x98\x80"),
    *("\u2028".encode(), "\u0085".encode(), b'{"a":1}', b"\x00"),
]


def streams() -> st.SearchStrategy[bytes]:
    """Bytes that look like SSE, more or less."""
    return st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join)


@st.composite
def split_streams(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """A stream, and the same stream in chunks, some of them empty."""
    stream = draw(streams())
    cuts = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    edges = [0, *cuts, len(stream)]
    return stream, [stream[a:b] for a, b in pairwise(edges)]


def read(chunks: list[bytes], max_line: int = MAX_LINE) -> list[Frame]:
    decoder = SseDecoder(max_line)
    frames = [frame for chunk in chunks for frame in decoder.feed(chunk)]
    return frames + decoder.end()


def is_too_long(chunks: list[bytes]) -> bool:
    try:
        read(chunks, max_line=12)
    except BrokenStream:
        return True
    return False


def read_by_the_book(stream: bytes) -> list[Frame]:
    """Read as the standard is written, line by line, and slowly."""
    text = stream.decode("utf-8", "replace").removeprefix("\ufeff")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    frames, name, data = [], "", []
    for line in [*lines, ""]:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == "event":
            name = value
        elif not line:
            if data:
                frames.append(Frame(name or "message", "\n".join(data).encode()))
            name, data = "", []
    return frames


@pytest.mark.requirement("22-C1")
@given(split_streams())
def test_any_split_gives_the_same_frames(case: tuple[bytes, list[bytes]]) -> None:
    stream, chunks = case
    assert read(chunks) == read([stream])


@given(streams())
def test_one_byte_at_a_time_gives_the_same_frames(stream: bytes) -> None:
    assert read([bytes([byte]) for byte in stream]) == read([stream])


@given(split_streams())
def test_frames_are_what_the_standard_says(case: tuple[bytes, list[bytes]]) -> None:
    stream, chunks = case
    assert read(chunks) == read_by_the_book(stream)


@given(split_streams())
def test_any_split_finds_the_same_events_too_long(case: tuple[bytes, list[bytes]]) -> None:
    stream, chunks = case
    assert is_too_long(chunks) == is_too_long([stream])


@given(st.binary(max_size=200))
def test_no_bytes_break_the_decoder(stream: bytes) -> None:
    read([stream])


@given(st.lists(texts(), max_size=5), st.integers(1, 50))
def test_encoded_events_come_back(words: list[str], size: int) -> None:
    events = [
        OutputTextDelta(
            sequence_number=number, item_id="msg_1", output_index=0, content_index=0, delta=word
        )
        for number, word in enumerate(words)
    ]
    stream = b"".join(encode_sse(event) for event in events)
    chunks = [stream[start : start + size] for start in range(0, len(stream), size)]
    assert [decode_event(frame.data) for frame in read(chunks)] == events


def plain_streams() -> st.SearchStrategy[bytes]:
    """Mostly events of two lines, as servers send them, with something odd in between."""
    plain = [b"event: a\ndata: x\n\n", b"event: b\ndata: \n\n", b"event: c\n\n", b"data: y\n\n"]
    odd = [b"data: 1\ndata: 2\n\n", b"event: d\ndata:z\n\n", b": note\n", b"\n", b"id: 1\n"]
    return st.lists(st.sampled_from(plain + odd), max_size=12).map(b"".join)


@given(st.one_of(split_streams(), plain_streams().map(lambda stream: (stream, [stream]))))
def test_the_data_alone_is_the_data_of_the_frames(case: tuple[bytes, list[bytes]]) -> None:
    _, chunks = case
    whole, alone, at_once = SseDecoder(), SseDecoder(), SseDecoder()
    for chunk in chunks:
        data = [frame.data for frame in whole.feed(chunk) if frame.data]
        assert read_data(alone.feed_lines(chunk)) == data
        assert at_once.feed_data(chunk) == data
    assert alone.end() == at_once.end() == whole.end()


@given(st.lists(plain_streams(), max_size=4), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_line_ends_and_reads_change_nothing(reads: list[bytes], line_end: bytes) -> None:
    plain, other = SseDecoder(), SseDecoder()
    frames = [frame for data in reads for frame in plain.feed(data)] + plain.end()
    data = [one for piece in reads for one in other.feed_data(piece.replace(b"\n", line_end))]
    rest = [frame.data for frame in other.end()]
    assert [one for one in [*data, *rest] if one] == [frame.data for frame in frames if frame.data]
