"""SSE frames: what the standard says, what we forgive, and what we refuse."""

from __future__ import annotations

import tracemalloc

import pytest

from antiphon.protocol.errors import BrokenStream
from antiphon.protocol.sse import MAX_LINE, Frame, SseDecoder


def read(*chunks: bytes, max_line: int = MAX_LINE) -> list[Frame]:
    """Return all frames of a stream that arrives in these chunks."""
    decoder = SseDecoder(max_line)
    frames = [frame for chunk in chunks for frame in decoder.feed(chunk)]
    return frames + decoder.end()


def data_of(*chunks: bytes) -> list[bytes]:
    """Return the data of all frames."""
    return [frame.data for frame in read(*chunks)]


def test_a_frame_has_a_name_and_data() -> None:
    assert read(b"event: ping\ndata: {}\n\n") == [Frame("ping", b"{}")]


def test_a_frame_without_a_name_is_a_message() -> None:
    assert read(b"data: x\n\n") == [Frame("message", b"x")]


def test_an_empty_name_is_no_name() -> None:
    assert read(b"event: \ndata: x\n\n") == [Frame("message", b"x")]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_every_line_end_of_the_standard_works(end: bytes) -> None:
    stream = end.join([b"event: a", b"data: 1", b"", b"data: 2", b"", b""])
    assert read(stream) == [Frame("a", b"1"), Frame("message", b"2")]


def test_a_crlf_split_between_two_reads_is_one_line_end() -> None:
    assert data_of(b"data: 1\r", b"\ndata: 2\r", b"", b"\n\r", b"\n") == [b"1\n2"]


@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c"])
def test_other_line_separators_are_text(character: str) -> None:
    text = f"a{character}b".encode()
    assert data_of(b"data: " + text + b"\n\n") == [text]


def test_a_byte_order_mark_is_skipped_even_in_pieces() -> None:
    assert data_of(b"\xef", b"\xbb", b"\xbfdata: x\n\ndata: y\n\n") == [b"x", b"y"]


def test_a_later_byte_order_mark_is_text() -> None:
    assert data_of(b"data: x\n\n", b"\xef\xbb\xbfdata: y\n\n") == [b"x"]


@pytest.mark.requirement("22-C1")
def test_comments_say_nothing() -> None:
    assert data_of(b": ping\n\n:\n\ndata: x\n: in between\n\n") == [b"x"]


def test_an_event_without_data_is_no_frame() -> None:
    assert data_of(b"event: a\nid: 1\nretry: 5\n\n\n\ndata: x\n\n") == [b"x"]


def test_an_event_without_data_lends_its_name_to_nobody() -> None:
    assert read(b"event: a\n\ndata: x\n\n") == [Frame("message", b"x")]


@pytest.mark.requirement("22-C1")
def test_the_space_after_the_colon_is_optional_and_only_one_is_eaten() -> None:
    assert data_of(b"data:x\n\ndata:  y\n\n") == [b"x", b" y"]


def test_several_data_lines_are_joined() -> None:
    assert data_of(b"data: a\ndata\ndata: b\n\n") == [b"a\n\nb"]


def test_empty_data_is_data() -> None:
    assert data_of(b"data:\n\n") == [b""]


def test_the_last_name_of_an_event_counts() -> None:
    assert read(b"event: a\ndata: x\nevent: b\n\n") == [Frame("b", b"x")]


def test_unknown_fields_are_passed_over() -> None:
    assert data_of(b"datax: no\n data: no\nid: 7\ndata: x\n\n") == [b"x"]


@pytest.mark.requirement("22-C1")
@pytest.mark.parametrize("tail", [b"", b"\n", b"\r"])
def test_the_last_event_may_lack_its_blank_line(tail: bytes) -> None:
    assert data_of(b"data: 1\n\ndata: [DONE]" + tail) == [b"1", b"[DONE]"]


def test_the_end_of_a_whole_stream_brings_nothing_more() -> None:
    decoder = SseDecoder()
    decoder.feed(b"data: 1\n\n")
    assert decoder.end() == []


def test_bytes_that_are_no_utf8_become_replacement_characters() -> None:
    assert data_of(b"data: a\xffb\xc3\n\n") == ["a\ufffdb\ufffd".encode()]


def test_a_name_that_is_no_utf8_does_not_break_the_decoder() -> None:
    assert read(b"event: \xff\ndata: x\n\n") == [Frame("\ufffd", b"x")]


def test_a_character_split_between_two_reads_arrives_whole() -> None:
    assert data_of(b"data: \xf0\x9f", b"\x98\x80\n\n") == ["\U0001f600".encode()]


@pytest.mark.parametrize(
    "chunks",
    [
        [b"data: " + b"x" * 100],
        [b"data: " + b"x" * 100 + b"\n\n"],
        [b"data: 1\n\ndata: ", b"x" * 100, b"\n\n"],
        [b"data: x\n" * 20],
        [b": " + b"x" * 100],
    ],
)
def test_an_event_over_the_limit_is_a_fault(chunks: list[bytes]) -> None:
    with pytest.raises(BrokenStream) as caught:
        read(*chunks, max_line=64)
    assert caught.value.code == "line_too_long"


def test_an_event_of_exactly_the_limit_is_read() -> None:
    data = b"x" * 58
    one_by_one = [bytes([byte]) for byte in b"data: " + data + b"\n\n"]
    assert [frame.data for frame in read(*one_by_one, max_line=64)] == [data]


def test_many_small_events_in_one_read_are_not_one_large_event() -> None:
    assert len(read(b"data: x\n\n" * 100, max_line=64)) == 100


def test_an_endless_line_takes_bounded_memory() -> None:
    chunk = b"x" * 65536
    decoder = SseDecoder()
    tracemalloc.start()
    try:
        with pytest.raises(BrokenStream):
            for _ in range(300 * 16):
                decoder.feed(chunk)
        assert tracemalloc.get_traced_memory()[1] < 32 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_an_event_of_a_million_lines_takes_bounded_memory() -> None:
    stream = b"data:ab\n" * (MAX_LINE // 8) + b"\n"
    tracemalloc.start()
    try:
        assert len(read(stream)) == 1
        assert tracemalloc.get_traced_memory()[1] < 48 * 1024 * 1024
    finally:
        tracemalloc.stop()
