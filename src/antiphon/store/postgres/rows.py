"""How are values turned into columns of many rows, and rows into values?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from antiphon.protocol.response import Response
from antiphon.store.encoding import StoredItem, decode_item, decode_turn, is_storable

__all__ = ["columns", "is_text", "name_of", "response_of"]


def is_text(name: str) -> bool:
    """Return whether a name fits into a column of text, which holds no NUL."""
    return "\0" not in name and is_storable(name)


def name_of(item: StoredItem) -> bytes | None:
    # Bytes, because text cannot hold a NUL here, and clients choose the ids of items.
    return None if item.id is None else item.id.encode()


def columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    """Turn rows into columns, also without any row."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * width


def response_of(row: Any) -> Response:
    return decode_turn(row["body"], [decode_item(body) for body in row["output"]], row["status"])
