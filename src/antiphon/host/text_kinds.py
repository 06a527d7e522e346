"""How many tokens has a text, if the tokenizer is not known?

Tokenizers cut text in much the same way: words into a piece or two, digits into threes or one by
one, marks and line breaks into short runs, other scripts into characters or parts of them. So the
pieces of a text are counted by kind, and each has a price, by encoding.

An estimate comes as one figure for each kind, because a server's own count may correct each
kind by itself (see `calibration`). Runs are found by translating the text to classes and counting
where they begin, which is three times as fast as regular expressions.

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

import re
import string
from collections.abc import Callable
from typing import Final, NamedTuple

__all__ = ["ENCODINGS", "KINDS", "UNKNOWN", "Estimate", "Prices", "estimate_kinds"]

# Words are cut after eight letters and where upper case begins; acronyms after three.
_LOWER_RUN: Final = 8
_UPPER_RUN: Final = 3
_DIGIT_RUN: Final = 3
_MARK_RUN: Final = 9
_BLANK_RUN: Final = 16

_NOT_LATIN: Final = re.compile(r"[^\x00-\xff]+")
_ASCII: Final = re.compile(r"[\x00-\x7f]+")
_ACCENTED: Final = re.compile(r"[\u00c0-\u024f\u1e00-\u1eff]")
_HAN: Final = re.compile(r"[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_SYLLABLES: Final = re.compile(r"[\u3040-\u30ff\uac00-\ud7af]")
_GREEK: Final = re.compile(r"[\u0370-\u03ff\u0530-\u058f]")
_CYRILLIC: Final = re.compile(r"[\u0400-\u052f]")
_SYMBOLS: Final = re.compile(r"[\u0080-\u00bf\u2000-\u2bff\u3000-\u303f\ufe00-\ufe0f\uff00-\uffef]")
_PICTURES: Final = re.compile(r"[\U00010000-\U0001ffff]")

# Beyond this share of accents, in per cent, the words are not taken for English.
_ACCENTS_PER_CENT: Final = 0.3
# English prose is full of these. A long text that has hardly any is in another language.
_ENGLISH: Final = (b" the ", b" of ", b" and ", b" to ")
_ENGLISH_PER_CENT: Final = 4
_MIN_PROSE_WORDS: Final = 20


class Prices(NamedTuple):
    """The tokens of one piece of each sort."""

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


class Estimate(NamedTuple):
    """The estimated tokens of a text, by kind."""

    words: float = 0.0
    """English words, identifiers, and what looks like them: hexadecimal digits, base 64."""
    foreign_words: float = 0.0
    """Words of prose in other languages than English, which need more tokens."""
    digits: float = 0.0
    marks: float = 0.0
    """Punctuation, blanks and symbols."""
    signs: float = 0.0
    """Chinese, Japanese and Korean."""
    letters: float = 0.0
    """Any other script."""
    pictures: float = 0.0
    """Emoji."""


KINDS: Final = Estimate._fields


def _table(**names: Callable[[str], bool]) -> bytes:
    """Return how to translate Latin 1: each character to the name of its class, else a blank."""
    named = [(ord(name), is_member) for name, is_member in names.items()]
    return bytes(
        next((name for name, is_member in named if is_member(chr(code))), ord(" "))
        for code in range(256)
    )


_LOWER: Final = _table(a=str.islower)
_CASES: Final = _table(a=str.islower, A=str.isupper)
_UPPER: Final = _table(a=str.isupper)
_PROSE: Final = _table(a=str.islower, b=" ".__eq__)
_DIGITS: Final = _table(a="0123456789".__contains__)
_DIGITS_AND_OTHERS: Final = _table(a="0123456789".__contains__, x=" ".__ne__)
_MARKS: Final = _table(a=string.punctuation.__contains__)
_BLANKS: Final = _table(a=string.whitespace.__contains__)
_BREAKS: Final = _table(a="\n\r\t".__contains__, b=" ".__eq__)


def estimate_kinds(text: str, prices: Prices = UNKNOWN) -> Estimate:
    """Return the tokens of a text by kind. All of them are 0 for the empty text only."""
    # What is not in Latin 1 is read by itself; here it only ends a run.
    latin = text if text.isascii() else _NOT_LATIN.sub("\0", text)
    data = b"\0" + latin.encode("latin-1") + b"\0"
    words, numbers = _count_words(data), data.translate(_DIGITS)
    marks = _count_runs(data.translate(_MARKS), _MARK_RUN) + _count_blanks(data)
    digits = 0.0
    if b"a" in numbers:
        digits = prices.digit_run * _count_runs(numbers, _DIGIT_RUN)
        digits += prices.digit * numbers.count(b"a")
        # A blank before a digit is a piece of its own; before a word it belongs to the word.
        marks += data.translate(_DIGITS_AND_OTHERS).count(b" a")
    is_foreign = _is_other_prose(data, words)
    if not text.isascii():
        return _estimate_foreign(text, words, is_foreign, digits, marks, prices)
    if text and not (words or digits or marks):
        marks = 1
    if is_foreign:
        return Estimate(0.0, prices.foreign_word * words, digits, prices.mark * marks)
    return Estimate(prices.word * words, 0.0, digits, prices.mark * marks)


def _is_other_prose(data: bytes, words: int) -> bool:
    """Return whether a text is prose in a language other than English."""
    if words < _MIN_PROSE_WORDS:
        return False
    english = sum(data.count(word) for word in _ENGLISH)
    return 100 * english < _ENGLISH_PER_CENT * words and (
        3 * data.translate(_PROSE).count(b"aba") > 2 * words
    )


def _count_runs(classes: bytes, longest: int) -> int:
    """Return how many runs of `a` there are, if they are cut after so many."""
    if b"a" * (longest + 1) not in classes:
        return classes.count(b" a")
    cut = classes.replace(b"a" * longest, b" b ")
    return cut.count(b"b") + cut.count(b" a")


def _count_words(data: bytes) -> int:
    small = _count_runs(data.translate(_LOWER), _LOWER_RUN)
    capitals = _count_runs(data.translate(_UPPER), _UPPER_RUN)
    if not capitals:
        return small
    # A single capital belongs to the small letters after it.
    cases = data.translate(_CASES)
    return small + capitals - cases.count(b" Aa") - cases.count(b"aAa")


def _count_blanks(data: bytes) -> int:
    """Return how many pieces blanks make: several in a row are one, and so is a line break."""
    blanks, breaks = data.translate(_BLANKS), data.translate(_BREAKS)
    several = blanks.count(b" aa")
    if b"a" * (_BLANK_RUN + 1) in blanks:
        several += blanks.count(b"a" * _BLANK_RUN)
    if b"a" not in breaks:
        return several
    # Each blank twice, so that two breaks around one character do not share it.
    return several + breaks.replace(b" ", b"  ").count(b" a ")


def _estimate_foreign(
    text: str, words: int, is_foreign: bool, digits: float, marks: int, prices: Prices
) -> Estimate:
    foreign = _ASCII.sub("", text)
    accents = len(_ACCENTED.findall(foreign))
    is_foreign = is_foreign or accents * 100 > _ACCENTS_PER_CENT * (len(text) - len(foreign))
    han, syllables = len(_HAN.findall(foreign)), len(_SYLLABLES.findall(foreign))
    greek, cyrillic = len(_GREEK.findall(foreign)), len(_CYRILLIC.findall(foreign))
    symbols, pictures = len(_SYMBOLS.findall(foreign)), len(_PICTURES.findall(foreign))
    known = accents + han + syllables + greek + cyrillic + symbols + pictures
    letters = prices.greek * greek + prices.cyrillic * cyrillic
    accented = prices.accent * accents
    return Estimate(
        words=0.0 if is_foreign else prices.word * words + accented,
        foreign_words=prices.foreign_word * words + accented if is_foreign else 0.0,
        digits=digits,
        marks=prices.mark * marks + prices.symbol * symbols,
        signs=prices.han * han + prices.syllable * syllables,
        letters=letters + prices.other * (len(foreign) - known),
        pictures=prices.picture * pictures,
    )
