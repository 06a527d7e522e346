"""Entries: rows that `Turns.finish` writes in the transaction that ends a turn.

An entry is a frozen value, and its class is its kind. A store has one function per kind, which
writes all entries of that kind in a transaction; a table beside `finish` lists them (`KINDS`). So
the caller needs no knowledge of the store, and there is no table of unread journal rows. Rules:

- Entries are stored if and only if the end is: the fence is checked before, under the same lock.
- An entry cannot be refused. What may be refused, such as a reservation, is asked before.
- A function may get entries of many turns. It locks rows in the order of their keys.
- A second attempt to store the same end writes nothing if the first one was stored.

`Notice` is the first kind. A new facet, such as a ledger, adds a class and a function per store.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

import msgspec

__all__ = ["Entry", "check_entries", "group_entries"]


class Entry(msgspec.Struct, frozen=True):
    """Something to store together with the end of a turn."""


def check_entries(entries: Iterable[Entry], kinds: Container[type[Entry]]) -> None:
    """Raise ValueError if a store has no function for one of these: that is a caller's bug."""
    for entry in entries:
        if type(entry) not in kinds:
            raise ValueError(f"the store keeps no entries of the kind {type(entry).__name__}")


def group_entries(entries: Iterable[Entry]) -> dict[type[Entry], list[Entry]]:
    """Return the entries by kind, in their order."""
    groups: dict[type[Entry], list[Entry]] = {}
    for entry in entries:
        groups.setdefault(type(entry), []).append(entry)
    return groups
