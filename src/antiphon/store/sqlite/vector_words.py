"""The full-text indexes of chunks: FTS5 with porter stemming, ranked by BM25.

There are a few indexes, each for some of the vector stores: with one for all, every search would
read through the words of all owners, and with one for each, every change of the list of vector
stores would change the schema. An index is made when it is first used.

Common words must not make a search slow. Ranking a chunk takes about a microsecond, so no more
than RANKED are ranked: words that most chunks have are left out, since they tell chunks apart
hardly at all, and of the others the rarest are looked for. A small vector store loses nothing by
that. If a single word is in more chunks than that, the newest of them are ranked.

Words are literal: each is quoted, so callers cannot use the query language of FTS5.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final, NamedTuple

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.sql.steps import Each, Steps, ask
from antiphon.store.sqlite.erasure import mark
from antiphon.store.vector_rows import PART_BITS, chunk_keys, first_part, part_of, split_words

__all__ = [
    "NO_FTS5",
    "Range",
    "add_words",
    "check_fts5",
    "has_fts5",
    "index_name",
    "index_steps",
    "merge_words",
    "rank_words",
    "remove_words",
]

INDEXES: Final = 32
RANKED: Final = 6_000
# Words wait in memory for the commit, up to so many bytes, and segments are joined when there are
# eight of one size: with the defaults, a megabyte and four, every word is written twice as often.
_SETTINGS: Final = {"hashsize": 8 * 1024 * 1024, "automerge": 8}
_PAGES_AT_ONCE: Final = 500
_IS_THERE: Final = "SELECT 1 FROM sqlite_master WHERE name = $1"
NO_FTS5: Final = (
    "files cannot be searched: the SQLite of this Python has no FTS5;"
    " use another Python, or a store in PostgreSQL"
)


class Range(NamedTuple):
    """The vector store that is searched, how many chunks it has, and which parts may be found.

    `parts` is a query for the parts, with its values; empty if all that are there may be found.
    """

    store: int
    chunks: int
    parts: str = ""
    values: Sequence[object] = ()


@cache
def has_fts5() -> bool:
    """Return whether this SQLite has FTS5 with what we need of it."""
    connection = sqlite3.connect(":memory:")
    try:
        _create(connection, "probe")
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
    return True


def check_fts5() -> None:
    """Raise StoreUnavailable if files cannot be searched here."""
    if not has_fts5():
        raise StoreUnavailable(NO_FTS5)


def index_name(store: int) -> str:
    """Return the table that has the words of this vector store."""
    return f"vector_words_{store % INDEXES}"


def index_steps(store: int, rows: Sequence[tuple[int, str]]) -> Steps[None]:
    """Add chunks to the index: their keys and texts."""
    name = index_name(store)
    if not (yield from ask(_IS_THERE, name)):
        for statement in _creation(name):
            yield from ask(statement)
    yield Each(f"INSERT INTO {name} (rowid, text) VALUES ($1, $2)", rows)  # noqa: S608 # a constant


def add_words(connection: sqlite3.Connection, rows: Iterable[tuple[int, str]]) -> None:
    """Add chunks of any vector stores to their indexes. Raise StoreUnavailable without FTS5."""
    check_fts5()
    for key, text in rows:
        name = index_name(part_of(key)[0] >> PART_BITS)
        if not _is_there(connection, name):
            _create(connection, name)
        connection.execute(f"INSERT INTO {name} (rowid, text) VALUES (?, ?)", (key, text))  # noqa: S608


def remove_words(
    connection: sqlite3.Connection, store: int, rows: Iterable[tuple[int, str]]
) -> None:
    """Remove chunks from the index. Their words are in the file until `merge_words` is done."""
    name = index_name(store)
    connection.executemany(
        f"INSERT INTO {name} ({name}, rowid, text) VALUES ('delete', ?, ?)",  # noqa: S608
        rows,
    )
    connection.execute("INSERT OR REPLACE INTO vector_merges VALUES (?, 0)", (store % INDEXES,))


def merge_words(connection: sqlite3.Connection) -> bool:
    """Rewrite a piece of an index that has words of removed chunks; False if there is none.

    The first step begins to join all segments of an index into one, which has none of these
    words; the next ones go on with that until nothing is left to join.
    """
    row = connection.execute("SELECT number, is_begun FROM vector_merges LIMIT 1").fetchone()
    if row is None:
        return False
    number, is_begun = row
    name = index_name(number)
    before = connection.total_changes
    connection.execute(
        f"INSERT INTO {name} ({name}, rank) VALUES ('merge', ?)",  # noqa: S608
        (_PAGES_AT_ONCE if is_begun else -_PAGES_AT_ONCE,),
    )
    # FTS5 changes two rows or more if there was something to join.
    if is_begun and connection.total_changes - before < 2:
        connection.execute("DELETE FROM vector_merges WHERE number = ?", (number,))
    else:
        connection.execute("UPDATE vector_merges SET is_begun = 1 WHERE number = ?", (number,))
    mark(connection)
    return True


def rank_words(
    connection: sqlite3.Connection, words: Iterable[str], where: Range, limit: int
) -> list[tuple[int, float]]:
    """Return the best chunks, each with a score that is smaller for a better one."""
    name = index_name(where.store)
    if not _is_there(connection, name):
        return []
    chosen = _choose(connection, name, split_words(words), where)
    if not chosen:
        return []
    condition, values = _in_range(where)
    # The inner query ends after RANKED rows and needs no sorter, because FTS5 yields rows in
    # either order. A condition inside of it is checked before a row is ranked.
    return connection.execute(
        f"""SELECT key, score FROM (
            SELECT rowid AS key, bm25({name}) AS score FROM {name}
            WHERE {name} MATCH ? AND {condition} ORDER BY rowid DESC LIMIT {RANKED})
        ORDER BY score, key LIMIT ?""",  # noqa: S608 # constants and placeholders
        (" OR ".join(map(_quote, chosen)), *values, limit),
    ).fetchall()


def _choose(
    connection: sqlite3.Connection, name: str, words: Sequence[str], where: Range
) -> list[str]:
    """Return the words to look for: the rarest, and no more than can be ranked."""
    low, high = _bounds(where.store)
    question = f"""SELECT count(*) FROM (SELECT 1 FROM {name}
        WHERE {name} MATCH ? AND rowid >= ? AND rowid < ? LIMIT {RANKED + 1})"""  # noqa: S608
    counts = {
        word: connection.execute(question, (_quote(word), low, high)).fetchone()[0]
        for word in words
    }
    found = sorted((word for word in words if counts[word]), key=counts.__getitem__)
    rare = [word for word in found if counts[word] * 2 <= where.chunks]
    chosen: list[str] = []
    room = RANKED
    for word in rare or found:
        room -= counts[word]
        if chosen and room < 0:
            break
        chosen.append(word)
    return chosen


def _in_range(where: Range) -> tuple[str, list[object]]:
    low, high = _bounds(where.store)
    condition, values = "rowid >= ? AND rowid < ?", [low, high]
    if not where.parts:
        return condition, [*values]
    return f"{condition} AND rowid >> 17 IN ({where.parts})", [*values, *where.values]


def _bounds(store: int) -> tuple[int, int]:
    return chunk_keys(first_part(store)).start, chunk_keys(first_part(store + 1)).start


def _is_there(connection: sqlite3.Connection, name: str) -> bool:
    return connection.execute(_IS_THERE, (name,)).fetchone() is not None


def _create(connection: sqlite3.Connection, name: str) -> None:
    for statement in _creation(name):
        connection.execute(statement)


def _creation(name: str) -> list[str]:
    """Return the statements that make an index. An older one has the defaults of FTS5."""
    # Contentless: the text is in `vector_chunks` alone.
    table = f"CREATE VIRTUAL TABLE {name} USING fts5(text, content='', tokenize='porter unicode61')"
    settings = [
        f"INSERT INTO {name} ({name}, rank) VALUES ('{setting}', {value})"  # noqa: S608 # constants
        for setting, value in _SETTINGS.items()
    ]
    return [table, *settings]


def _quote(word: str) -> str:
    return '"' + word.replace('"', '""') + '"'
