"""Which words does a query look for?

A query is text, never a language of operators: it is cut into words. The most frequent words of
English find every chunk and rank none, so they are left out if others remain.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["MAX_WORDS", "words_of"]

MAX_WORDS: Final = 64
_WORD: Final = re.compile(r"\w+")
_FREQUENT: Final = frozenset(
    _WORD.findall(
        "a about am an and are as at be been but by can could did do does for from had has have "
        "he her his how i if in into is it its me my no not of on or our she should so than that "
        "the their them then there these they this those to was we were what when where which "
        "who why will with would you your"
    )
)


def words_of(query: str) -> list[str]:
    """Return the words of a query in lower case, each once, at most `MAX_WORDS`."""
    words = list(dict.fromkeys(_WORD.findall(query.lower())))
    rare = [word for word in words if word not in _FREQUENT]
    return (rare or words)[:MAX_WORDS]
