"""Ranking: two rankings become one, with scores from 0 to 1 in their order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from antiphon.store.base.vector_stores import FoundChunk
from antiphon.tools.index.rank import Ranking, group_files, rank

_PLACE = st.none() | st.integers(0, 300)


def chunk(
    file_id: str, words: int | None = None, vector: int | None = None, place: int = 0
) -> FoundChunk:
    return FoundChunk(
        store_id="vs",
        file_id=file_id,
        filename=f"{file_id}.md",
        attributes={},
        place=place,
        text=f"{file_id} {place}",
        by_words=words,
        by_vector=vector,
    )


def order(*found: FoundChunk, has_vectors: bool = True, ranking: Ranking | None = None) -> str:
    ranked = rank([found], ranking or Ranking(), has_vectors=has_vectors)
    return "".join(one.chunk.file_id for one in ranked)


@given(
    places=st.lists(st.tuples(_PLACE, _PLACE), max_size=20),
    weights=st.tuples(st.floats(0.0, 5.0), st.floats(0.1, 5.0)),
    has_vectors=st.booleans(),
)
def test_scores_are_from_0_to_1_and_in_order(
    places: list[tuple[int | None, int | None]], weights: tuple[float, float], has_vectors: bool
) -> None:
    found = [chunk("a", words, vector, at) for at, (words, vector) in enumerate(places)]
    ranking = Ranking(words_weight=weights[0], vector_weight=weights[1])
    scores = [one.score for one in rank([found], ranking, has_vectors=has_vectors)]
    assert all(0 < score <= 1 for score in scores)
    assert scores == sorted(scores, reverse=True)


@given(words=st.integers(0, 99), vector=st.integers(0, 99), better=st.integers(1, 50))
def test_a_better_place_is_a_better_score(words: int, vector: int, better: int) -> None:
    assert order(chunk("b", words + better, vector), chunk("a", words, vector)) == "ab"
    assert order(chunk("b", words, vector + better), chunk("a", words, vector)) == "ab"
    assert order(chunk("b", words), chunk("a", words, vector)) == "ab"


def test_the_top_of_both_rankings_has_the_score_1() -> None:
    both, one = rank([[chunk("a", 0, 0), chunk("b", 1)]], Ranking(), has_vectors=True)
    assert both.score == 1.0
    assert one.score < 0.5


def test_without_vectors_the_words_alone_count() -> None:
    ranking = Ranking(words_weight=0.0, vector_weight=1.0)
    assert order(chunk("b", 1), chunk("a", 0), has_vectors=False, ranking=ranking) == "ab"
    (best,) = rank([[chunk("a", 0)]], ranking, has_vectors=False)
    assert best.score == 1.0


def test_weights_move_the_order() -> None:
    by_words, by_vector = chunk("w", 0, 9), chunk("v", 9, 0)
    assert order(by_words, by_vector, ranking=Ranking(words_weight=2.0)) == "wv"
    assert order(by_words, by_vector, ranking=Ranking(vector_weight=2.0)) == "vw"
    only = Ranking(words_weight=0.0)
    assert order(chunk("w", 0), by_vector, ranking=only) == "v"


def test_a_chunk_keeps_its_best_score_over_several_queries() -> None:
    ranked = rank([[chunk("a", 5)], [chunk("a", 0), chunk("b", 1)]], Ranking(), has_vectors=False)
    assert (ranked[0].chunk.file_id, ranked[0].score) == ("a", 1.0)
    assert len(ranked) == 2


def test_the_threshold_is_a_limit_of_the_score() -> None:
    found = [chunk("a", 0), chunk("b", 20), chunk("c", 21)]
    assert order(*found, has_vectors=False, ranking=Ranking(score_threshold=0.5)) == "ab"


def test_files_come_in_the_order_of_their_best_chunks() -> None:
    found = [chunk("b", 1, place=3), chunk("a", 2, place=1), chunk("a", 0, place=7), chunk("c", 3)]
    files = group_files(rank([found], Ranking(), has_vectors=False), 2)
    assert [(file.file_id, file.score == 1.0) for file in files] == [("a", True), ("b", False)]
    assert files[0].texts == ["a 7", "a 1"]
