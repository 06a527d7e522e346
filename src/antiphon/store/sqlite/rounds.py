"""Facet `rounds` in SQLite: how rounds are inserted. `store.sql.rounds` has the rest."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from antiphon.store.base.rounds import KeptRound
from antiphon.store.sqlite.connection import insert_row

__all__ = ["insert_rounds"]

_INTO: Final = "rounds (owner, response, number, kind, created_at, size, body)"


def insert_rounds(
    connection: sqlite3.Connection, _writer: str, rounds: Sequence[KeptRound]
) -> None:
    """Store the rounds of turns that end now."""
    for one in rounds:
        about = (one.owner, one.response_id, one.number, one.kind, one.created_at, one.size)
        insert_row(connection, _INTO, (*about, one.body))
