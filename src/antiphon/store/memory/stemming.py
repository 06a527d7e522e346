"""Which words have the same stem? The algorithm of M. F. Porter (1980), for English.

The full-text index of SQLite does the same, so a search in memory finds what it finds there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

__all__ = ["stem"]

_SHORTEST: Final = 3
_LONGEST: Final = 64
_SECOND: Final = (
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("logi", "log"),
    ("bli", "ble"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
)
_THIRD: Final = (
    ("icate", "ic"),
    ("ative", ""),
    ("alize", "al"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ful", ""),
    ("ness", ""),
)
_FOURTH: Final = (
    "al",
    "ance",
    "ence",
    "er",
    "ic",
    "able",
    "ible",
    "ant",
    "ement",
    "ment",
    "ent",
    "ion",
    "ou",
    "ism",
    "ate",
    "iti",
    "ous",
    "ive",
    "ize",
)
_REPAIRED: Final = (("at", "ate"), ("bl", "ble"), ("iz", "ize"))
_GROUPS: Final = re.compile("v+c+")


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """Return the stem of a word in lower case. One that is not plain English stays as it is."""
    if not (_SHORTEST <= len(word) < _LONGEST and word.isascii() and word.isalpha()):
        return word
    for step in (_plural, _past, _final_y):
        word = step(word)
    word = _replace(word, _SECOND)
    word = _replace(word, _THIRD)
    return _tidy(_drop(word))


def _kinds(word: str) -> str:
    """Return v for each vowel and c for each consonant; y is one after a vowel."""
    kinds = ""
    for letter in word:
        is_vowel = letter in "aeiou" or (letter == "y" and kinds[-1:] == "c")
        kinds += "v" if is_vowel else "c"
    return kinds


def _measure(word: str) -> int:
    return len(_GROUPS.findall(_kinds(word)))


def _has_vowel(word: str) -> bool:
    return "v" in _kinds(word)


def _ends_short(word: str) -> bool:
    return _kinds(word)[-3:] == "cvc" and word[-1] not in "wxy"


def _ends_double(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and _kinds(word)[-1] == "c"


def _plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _past(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for ending in ("ed", "ing"):
        rest = word.removesuffix(ending)
        if rest != word:
            return _repair(rest) if _has_vowel(rest) else word
    return word


def _repair(word: str) -> str:
    for ending, instead in _REPAIRED:
        if word.endswith(ending):
            return word.removesuffix(ending) + instead
    if _ends_double(word) and word[-1] not in "lsz":
        return word[:-1]
    return word + "e" if _measure(word) == 1 and _ends_short(word) else word


def _final_y(word: str) -> str:
    return word[:-1] + "i" if word.endswith("y") and _has_vowel(word[:-1]) else word


def _replace(word: str, table: Sequence[tuple[str, str]]) -> str:
    for ending, instead in table:
        if word.endswith(ending):
            rest = word.removesuffix(ending)
            return rest + instead if _measure(rest) > 0 else word
    return word


def _drop(word: str) -> str:
    for ending in _FOURTH:
        if word.endswith(ending):
            rest = word.removesuffix(ending)
            is_odd = ending == "ion" and rest[-1:] not in ("s", "t")
            return rest if _measure(rest) > 1 and not is_odd else word
    return word


def _tidy(word: str) -> str:
    if word.endswith("e"):
        rest = word[:-1]
        measure = _measure(rest)
        if measure > 1 or (measure == 1 and not _ends_short(rest)):
            word = rest
    if word.endswith("ll") and _measure(word[:-1]) > 1:
        word = word[:-1]
    return word
