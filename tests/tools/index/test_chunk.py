"""Cutting a text into chunks: sizes, borders, overlap, and any split of the text."""

from __future__ import annotations

import time
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.plans.estimate import estimate_text
from antiphon.tools.index.chunk import Chunker

_TEXT = st.text(
    st.one_of(st.sampled_from("ab .\n\f。é漢😀"), st.characters(codec="utf-8")), max_size=3_000
)


def chunks(text: str, tokens: int = 100, overlap: int = 0, piece: int = 1 << 30) -> list[str]:
    chunker = Chunker(tokens, overlap)
    found: list[str] = []
    for at in range(0, len(text), piece):
        found += chunker.feed(text[at : at + piece])
    return found + chunker.finish()


def words(count: int) -> str:
    return " ".join(f"word{number:05d}" for number in range(count))


@settings(max_examples=150, deadline=None)
@given(text=_TEXT, repeats=st.integers(1, 8), piece=st.integers(1, 700), half=st.booleans())
def test_chunks_do_not_depend_on_the_pieces(
    text: str, repeats: int, piece: int, half: bool
) -> None:
    whole = text * repeats
    overlap = 50 if half else 0
    assert chunks(whole, overlap=overlap, piece=piece) == chunks(whole, overlap=overlap)


@settings(max_examples=150, deadline=None)
@given(text=_TEXT, repeats=st.integers(1, 8), overlap=st.integers(0, 50))
def test_chunks_are_small_enough_and_nothing_is_lost(text: str, repeats: int, overlap: int) -> None:
    whole = text * repeats
    found = chunks(whole, overlap=overlap)
    assert all(0 < estimate_text(chunk) <= 100 for chunk in found)
    assert all(chunk == chunk.strip() for chunk in found)
    if overlap == 0:
        kept = "".join("".join(found).split())
        assert kept == "".join(whole.replace("\x00", "\ufffd").split())


def test_a_text_that_fits_is_one_chunk() -> None:
    assert chunks("  Hello there.\n") == ["Hello there."]


@pytest.mark.parametrize("text", ["", " \n\f\t " * 5_000])
def test_a_text_without_words_has_no_chunks(text: str) -> None:
    assert chunks(text, overlap=50) == []


@pytest.mark.parametrize(
    ("border", "worse"),
    [("\f", "\n\n"), ("\n\n", ". "), (". ", "\n"), ("。", "\n"), ("\n", " "), (" ", "")],
)
def test_a_chunk_ends_at_the_best_border_near_its_limit(border: str, worse: str) -> None:
    # Both borders are in the last quarter of 400 bytes, the worse one later.
    text = "x" * 310 + border + "y" * 50 + worse + "z" * 500
    assert chunks(text)[0] == ("x" * 310 + border).strip()


def test_a_border_far_from_the_limit_is_not_used() -> None:
    text = "x" * 200 + "\n\n" + "y" * 500
    assert len(chunks(text)[0]) == 400


def test_a_chunk_begins_with_the_end_of_the_one_before() -> None:
    found = chunks(words(500), overlap=50)
    for before, after in pairwise(found):
        shared = after[: after.index(before.split()[-1])] + before.split()[-1]
        assert before.endswith(shared)
        assert 150 < len(shared) <= 200
    assert words(500).endswith(found[-1])


def test_a_page_break_is_a_line_break_inside_of_a_chunk() -> None:
    assert chunks("one\ftwo") == ["one\ntwo"]


def test_characters_that_no_store_keeps_are_replaced() -> None:
    assert chunks("a\x00b\ud800c") == ["a\ufffdb\ufffdc"]


@pytest.mark.parametrize(("tokens", "overlap"), [(99, 0), (4097, 0), (100, 51), (800, -1)])
def test_sizes_out_of_range_are_refused(tokens: int, overlap: int) -> None:
    with pytest.raises(ValueError, match="tokens cannot overlap"):
        Chunker(tokens, overlap)


@pytest.mark.parametrize("letter", ["x", "é", "漢"])
def test_a_line_without_end_needs_little_memory_and_linear_time(letter: str) -> None:
    chunker = Chunker(800, 400)
    piece = letter * 100_000
    tracemalloc.start()
    count = sum(len(chunker.feed(piece)) for _ in range(100))
    count += len(chunker.finish())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    size = len(letter.encode()) * 10_000_000
    assert size / 1_700 < count < size / 1_500
    assert peak < 3_000_000


def test_cutting_is_faster_than_a_disk() -> None:
    text = (words(9) + ". " + words(7) + ".\n\n") * 40_000  # 7 MB
    start = time.process_time()
    assert chunks(text, 800, 400, piece=65_536)
    assert len(text) / (time.process_time() - start) > 10_000_000
