"""Which names can be in a PostgreSQL database? What cannot be stored is simply not found."""

from __future__ import annotations

from antiphon.store.encoding import is_storable

__all__ = ["is_bytes", "is_text"]


def is_text(name: str) -> bool:
    """Say whether a name fits into a column of text, which holds no NUL."""
    return "\0" not in name and is_storable(name)


def is_bytes(name: str) -> bool:
    """Say whether a name fits into a column of bytes, as the ids of items do."""
    return is_storable(name)
