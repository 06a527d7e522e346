"""How does a file become searchable, and how is it found again?

    blob -> document reader -> chunk -> store (words) -> embed -> store (vectors)
    query -> words and vector -> store (two rankings) -> rank -> results

`ingest` does the first line, `search` the second. Nothing here knows HTTP or models.
"""

__all__: list[str] = []
