"""How many tokens is each piece of a text, for which encoding?

Prices lean high, because a conversation that is longer than its estimate is refused, and one that
is shorter is only summarised early. They were fitted to seventy sorts of text: prose in twenty-four
languages, code, JSON, logs, numbers, random digits. For the two encodings that are known by name,
an estimate is 1.0 to 1.5 times the true count of each kind of text in `bench/estimates.py`.

A tokenizer that is not known may be any. Some cut numbers into single digits, and a small
vocabulary has few tokens for other scripts than Latin: for the same Chinese text one tokenizer
needs 2.3 times as many tokens as another. So `UNKNOWN` covers the largest count of o200k, cl100k
and SmolLM2, which has 49,000 tokens. It is too high for large vocabularies where these differ.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["ENCODINGS", "UNKNOWN", "Prices"]


class Prices(NamedTuple):
    """The tokens of one piece of each sort. `text_kinds` finds the pieces."""

    word: float
    foreign_word: float
    accent: float
    digit_run: float
    """Up to three digits."""
    digit: float
    mark: float
    symbol: float
    han: float
    syllable: float
    """Japanese and Korean."""
    greek: float
    cyrillic: float
    other: float
    picture: float


UNKNOWN: Final = Prices(
    word=1.4,
    foreign_word=2.25,
    accent=0.65,
    digit_run=1.6,
    digit=0.5,
    mark=1.05,
    symbol=0.75,
    han=2.1,
    syllable=2.85,
    greek=1.15,
    cyrillic=0.9,
    other=1.95,
    picture=3.0,
)
ENCODINGS: Final[dict[str, Prices]] = {
    "o200k_base": Prices(
        word=1.3,
        foreign_word=1.35,
        accent=0.3,
        digit_run=1.45,
        digit=0.0,
        mark=0.9,
        symbol=0.85,
        han=1.02,
        syllable=0.75,
        greek=0.47,
        cyrillic=0.29,
        other=0.52,
        picture=2.0,
    ),
    "cl100k_base": Prices(
        word=1.35,
        foreign_word=1.58,
        accent=0.8,
        digit_run=1.45,
        digit=0.0,
        mark=0.9,
        symbol=0.75,
        han=1.55,
        syllable=1.08,
        greek=1.15,
        cyrillic=0.45,
        other=1.33,
        picture=2.8,
    ),
}
"""Prices of the encodings that models are known to have, for where no tokenizer is installed."""
