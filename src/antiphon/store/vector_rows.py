"""How are vector stores, their files and their chunks kept in the rows of a database?

    store key (22 bits) | part (24 bits) | place (17 bits)  =  key of a chunk

A part is a place for the chunks of one file. It is used once: a file that is indexed again gets a
new one, and the old one is left to be cleaned up. So the chunks of a vector store, and those of a
file, are a range of keys, and a file is replaced or removed by a change of one row.
Bodies are JSON in ASCII, because PostgreSQL has no NUL in texts and UTF-8 no half surrogates.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from antiphon.store.base.filters import Value, type_of
from antiphon.store.base.vector_stores import (
    AttachedFile,
    Attributes,
    FileCounts,
    VectorStore,
)
from antiphon.store.stop_words import STOP_WORDS

__all__ = [
    "KINDS",
    "MAX_CHUNKS",
    "MAX_PARTS",
    "MAX_STORES",
    "MAX_WORDS",
    "PART_BITS",
    "PLACE_BITS",
    "AttributeRow",
    "attribute_rows",
    "chunk_keys",
    "clean_text",
    "comparable",
    "file_body",
    "first_part",
    "part_of",
    "read_file",
    "read_store",
    "short_name",
    "split_words",
    "store_body",
    "to_counts",
]

PLACE_BITS: Final = 17
PART_BITS: Final = 24
MAX_CHUNKS: Final = 1 << PLACE_BITS
MAX_PARTS: Final = 1 << PART_BITS
MAX_STORES: Final = 1 << 22
MAX_WORDS: Final = 64
"""More words of a question are not looked for."""

KINDS: Final = {"bool": 0, "number": 1, "text": 2}
_LONG_NAME: Final = 256
_WORD: Final = re.compile(r"[^\W_]+")


class AttributeRow(NamedTuple):
    """An attribute as it can be compared: `number` is that of a number or a truth value."""

    key: bytes
    kind: int
    number: float
    text: bytes


def first_part(store: int) -> int:
    """Return the first part of a vector store; that of the next one is its end."""
    return store << PART_BITS


def chunk_keys(part: int) -> range:
    """Return the keys that the chunks of a part may have."""
    return range(part << PLACE_BITS, (part + 1) << PLACE_BITS)


def part_of(chunk: int) -> tuple[int, int]:
    """Return the part of a chunk and its place in it."""
    return chunk >> PLACE_BITS, chunk & (MAX_CHUNKS - 1)


def clean_text(text: str) -> str:
    """Return a text that can be stored: half a surrogate pair is replaced."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def split_words(words: Iterable[str]) -> list[str]:
    """Return what is searched for, each once: letters and digits, without stop words.

    If there are only stop words, these are searched for.
    """
    parts = (part.lower() for word in words for part in _WORD.findall(clean_text(word)))
    every = list(dict.fromkeys(parts))
    return ([part for part in every if part not in STOP_WORDS] or every)[:MAX_WORDS]


def comparable(value: Value) -> tuple[int, float, bytes]:
    """Return kind, number and text of a value: equal values have equal ones."""
    kind = KINDS[type_of(value)]
    if isinstance(value, str):
        return kind, 0.0, _encode(value)
    return kind, float(value), b""


def attribute_rows(attributes: Attributes) -> list[AttributeRow]:
    """Return the rows that filters look at."""
    return [AttributeRow(short_name(key), *comparable(one)) for key, one in attributes.items()]


def short_name(key: str) -> bytes:
    """Return what the key of an attribute is compared by: an index takes no long names."""
    name = _encode(key)
    return name if len(name) <= _LONG_NAME else b"\xff" + hashlib.sha256(name).digest()


def store_body(store: VectorStore) -> bytes:
    """Return what callers have set, as JSON."""
    return _json([store.name, store.description, store.metadata])


def read_store(
    store_id: str,
    created_at: int,
    last_active_at: int,
    days: int | None,
    body: bytes,
    counts: FileCounts,
    usage: int,
) -> VectorStore:
    """Return the vector store of a row."""
    name, description, metadata = json.loads(body)
    return VectorStore(
        id=store_id,
        name=name,
        description=description,
        metadata=metadata,
        created_at=created_at,
        last_active_at=last_active_at,
        expires_after_days=days,
        counts=counts,
        usage_bytes=usage,
    )


def file_body(file: AttachedFile) -> bytes:
    """Return what is set when a file is attached, as JSON."""
    sizes = [file.chunk_tokens, file.overlap_tokens, file.is_auto]
    return _json([file.filename, file.attributes, *sizes])


def read_file(
    file_id: str,
    created_at: int,
    batch: str | None,
    status: str,
    error_code: str | None,
    error_message: bytes | None,
    usage: int,
    body: bytes,
) -> AttachedFile:
    """Return the attached file of a row."""
    filename, attributes, chunk_tokens, overlap_tokens, is_auto = json.loads(body)
    return AttachedFile(
        file_id=file_id,
        filename=filename,
        created_at=created_at,
        attributes=attributes,
        chunk_tokens=chunk_tokens,
        overlap_tokens=overlap_tokens,
        is_auto=is_auto,
        batch_id=batch,
        status=status,
        error_code=error_code,
        error_message=None if error_message is None else json.loads(error_message),
        usage_bytes=usage,
    )


def to_counts(rows: Iterable[Sequence[Any]]) -> FileCounts:
    """Return the counts of rows that begin with a status and a number."""
    return FileCounts(**{row[0]: row[1] for row in rows})


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _encode(text: str) -> bytes:
    """Return bytes that have the order of the code points."""
    return text.encode(errors="surrogatepass")
