"""What turns a text into a vector? The contract of embeddings, and vectors as bytes.

A vector has float32 numbers, little endian, and the length 1. Vectors of different kinds are never
compared: `Embedder.kind` is stored with them, and names everything that changes the numbers.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from antiphon.models.prices import Price
from antiphon.protocol.response import Usage
from antiphon.transport.http import Sending

__all__ = ["CallCharge", "Embedder", "EmbeddingFailed", "Pay", "not_paid", "pack_vector"]


class EmbeddingFailed(Exception):
    """A text has no vector, for this reason. Callers read the text: no secrets in it."""

    def __init__(self, message: str, *, may_pass: bool = False, wait: float | None = None) -> None:
        super().__init__(message)
        self.may_pass = may_pass
        """Whether the same request may work later."""
        self.wait = wait
        """How long to wait before, if the upstream has stated it."""


class CallCharge(Protocol):
    """What is known of a call that is charged."""

    sending: Sending
    usage: Usage | None
    is_whole: bool


Pay = Callable[[str, str, Price | None, int], AbstractAsyncContextManager[CallCharge]]
"""Holds a charge for one call of an upstream, and settles it however it ends.

It gets who pays, the model, its price if that is known, and how many bytes are sent. It raises
LimitReached before the call, and learns from BackendError how the call failed.
"""


class _Free:
    def __init__(self) -> None:
        self.sending = Sending()
        self.usage: Usage | None = None
        self.is_whole = False


@asynccontextmanager
async def not_paid(owner: str, model: str, price: Price | None, sent: int) -> AsyncIterator[_Free]:
    """Charge nobody: there is no ledger."""
    yield _Free()


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

    def pay_with(self, pay: Pay) -> None:
        """Charge the calls of an upstream in this way from now on."""
        ...

    async def embed(self, owner: str, texts: Sequence[str]) -> list[bytes]:
        """Return the vectors of texts to be stored. Raise EmbeddingFailed or LimitReached.

        `owner` pays, if an upstream is asked.
        """
        ...

    async def embed_query(self, owner: str, text: str) -> bytes:
        """Return the vector of a query; it does not wait for texts. It raises the same errors."""
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
