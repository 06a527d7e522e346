"""What can be set for searching files: `[file_search]`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

__all__ = ["Embedding", "FileSearchSettings"]

Embedding = Literal["none", "local", "upstream"]


class FileSearchSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What makes vectors, and how much is done at once. Words are always searched."""

    embedding: Embedding = "none"
    """What makes vectors: nothing, this process (extra `embed`), or an embeddings API."""
    base_url: str | None = None
    """For `upstream`: where the server is, with its `/v1`."""
    model: str | None = None
    """For `upstream`: the model that makes the vectors."""
    key_env: str | None = None
    """The name of the environment variable that holds the key, never the key itself."""
    dimensions: Annotated[int, msgspec.Meta(ge=1, le=16_384)] | None = None
    """For `upstream`: how many numbers a vector has, if the model can choose."""
    batch: Annotated[int, msgspec.Meta(ge=1, le=256)] = 32
    """For `upstream`: how many texts a request has."""
    seconds: Annotated[float, msgspec.Meta(gt=0)] = 10.0
    """How long a search may take."""
    indexing: Annotated[int, msgspec.Meta(ge=1, le=64)] = 2
    """How many files a process indexes at the same time."""
