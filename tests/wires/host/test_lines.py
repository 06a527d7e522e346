"""Lines of the bridge: any split of the bytes, and lines that are too long."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from antiphon.wires.host.lines import LineReader, LongLine


@given(
    lines=st.lists(st.binary(max_size=12).filter(lambda line: b"\n" not in line), max_size=8),
    cuts=st.lists(st.integers(0, 120), max_size=6),
)
def test_any_split_of_the_bytes_gives_the_same_lines(lines: list[bytes], cuts: list[int]) -> None:
    data = b"".join(line + b"\n" for line in lines)
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    reader = LineReader(max_bytes=8)
    found = [
        line for start, end in itertools.pairwise(places) for line in reader.feed(data[start:end])
    ]
    kept = [line for line in lines if line.strip() or len(line) > 8]
    assert found == [LongLine(len(line)) if len(line) > 8 else line for line in kept]


def test_a_long_line_is_dropped_while_it_arrives() -> None:
    reader = LineReader(max_bytes=10)
    for _ in range(1000):
        assert reader.feed(b"x" * 100) == []
    assert reader.feed(b"\nnext\n") == [LongLine(100_000), b"next"]


def test_a_line_without_its_end_is_not_a_line_yet() -> None:
    reader = LineReader()
    assert reader.feed(b'{"type":') == []
    assert reader.feed(b' "models"}\n\n  \n') == [b'{"type": "models"}']
