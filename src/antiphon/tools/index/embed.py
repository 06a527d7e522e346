"""What turns a text into a vector? The contract of embeddings, and vectors as bytes.

A vector has float32 numbers, little endian, and the length 1. Vectors of different kinds are never
compared: `Embedder.kind` is stored with them, and names everything that changes the numbers.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Sequence
from typing import Protocol

__all__ = ["Embedder", "EmbeddingFailed", "pack_vector"]


class EmbeddingFailed(Exception):
    """A text has no vector, for this reason. Callers read the text: no secrets in it."""

    def __init__(self, message: str, *, may_pass: bool = False, wait: float | None = None) -> None:
        super().__init__(message)
        self.may_pass = may_pass
        """Whether the same request may work later."""
        self.wait = wait
        """How long to wait before, if the upstream has stated it."""


class Embedder(Protocol):
    """Makes vectors of one kind."""

    @property
    def kind(self) -> str:
        """What is stored with the vectors."""
        ...

    @property
    def batch(self) -> int:
        """How many texts to give at once."""
        ...

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return the vectors of texts to be stored. Raise EmbeddingFailed."""
        ...

    async def embed_query(self, text: str) -> bytes:
        """Return the vector of a query; it does not wait for texts. Raise EmbeddingFailed."""
        ...

    async def close(self) -> None:
        """Release threads and connections."""
        ...


def pack_vector(numbers: Sequence[float]) -> bytes:
    """Return the numbers as a vector of length 1. Raise EmbeddingFailed if they have none."""
    length = math.hypot(*numbers)
    if not length or not math.isfinite(length):
        raise EmbeddingFailed("an embedding is empty, or has numbers that are not finite")
    packed = array("f", [number / length for number in numbers])
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()
