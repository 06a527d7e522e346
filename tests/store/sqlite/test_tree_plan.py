"""Trees are read by an index: a page costs what is on it, however many responses there are."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from antiphon.store.sql.trees import PAGE, ROOT
from antiphon.store.sqlite.migrations import migrate


def test_children_are_found_by_their_parent(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    migrate(connection)
    for statement in (PAGE.format("$4"), ROOT):
        count = statement.count("$4") + 3 if "$4" in statement else 2
        values = [f"v{number}" for number in range(count)]
        rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
        plan = [row[3] for row in rows]
        scans = [line for line in plan if line.startswith("SCAN responses") or "SCAN items" in line]
        assert scans == [], plan
        if statement != ROOT:
            assert sum("responses_by_parent" in line for line in plan) == 2, plan
    connection.close()
