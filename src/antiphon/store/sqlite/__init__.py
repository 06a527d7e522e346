"""A store in one SQLite file, which several processes of a machine may share."""

from antiphon.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
