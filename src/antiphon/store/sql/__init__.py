"""The facets that are the same for SQLite and PostgreSQL: files, keys, projects and others.

Each operation is a generator of steps (see `steps`), which the store of either database drives
inside one transaction. The statements are those that both understand.
"""

__all__: list[str] = []
