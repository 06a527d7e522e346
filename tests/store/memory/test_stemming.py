"""Words in memory have the stems that FTS5 gives them."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from antiphon.store.memory.stemming import stem

WORDS = """
    caresses ponies ties caress cats feed agreed plastered bled motoring sing conflated troubled
    sized hopping tanned falling hissing fizzed failing filing happy sky relational conditional
    rational valenci hesitanci digitizer conformabli radicalli differentli vileli analogousli
    vietnamization predication operator feudalism decisiveness hopefulness callousness formaliti
    sensitiviti sensibiliti triplicate formative formalize electriciti electrical hopeful goodness
    revival allowance inference airliner gyroscopic adjustable defensible irritant replacement
    adjustment dependent adoption homologou communism activate angulariti homologous effective
    bowdlerize probate rate cease controll roll connection engines running geology by as
"""


def test_stems_are_those_of_fts5() -> None:
    words = sorted(set(WORDS.split()))
    assert {word: stem(word) for word in words} == _stems(words)


def test_other_words_stay_as_they_are() -> None:
    assert [stem(word) for word in ("ünder", "42", "as", "x" * 80)] == [
        "ünder",
        "42",
        "as",
        "x" * 80,
    ]


def _stems(words: list[str]) -> dict[str, str]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE VIRTUAL TABLE t USING fts5(a, tokenize='porter unicode61')")
        connection.executemany("INSERT INTO t (rowid, a) VALUES (?, ?)", enumerate(words))
        connection.execute("CREATE VIRTUAL TABLE v USING fts5vocab(t, instance)")
        found = connection.execute("SELECT doc, term FROM v").fetchall()
    return {words[place]: term for place, term in found}
