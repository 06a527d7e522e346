"""A store in PostgreSQL, which several machines may share. Needs the extra `postgres`."""

from antiphon.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
