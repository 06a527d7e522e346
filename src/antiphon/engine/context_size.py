"""How large may the context of one turn be?

Its size is known before any of it is read: the store adds up what a chain or a conversation
holds, and the body of the request has a length. What is larger than the limits is refused with
400 `context_too_large`; what fits reserves memory for its copies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

import msgspec

from antiphon.engine.budget import COPIES, Hold
from antiphon.protocol.errors import ContextTooLarge
from antiphon.store.base import Size
from antiphon.transport.aside import aside_if

__all__ = ["ContextLimits", "ContextSize"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

# From here on work on a context is done beside the event loop (see `transport.aside`).
_LARGE_ITEMS: Final = 500
_LARGE_BYTES: Final = 256 * 1024
_MUCH_BYTES: Final = 4 * 1024 * 1024


class ContextLimits(msgspec.Struct, frozen=True):
    """The most items, and bytes as JSON, that a context may have."""

    items: int = 20_000
    bytes: int = 64 * 1024 * 1024


class ContextSize:
    """The size of one context, as it becomes known."""

    def __init__(self, limits: ContextLimits, hold: Hold, own: Size) -> None:
        self._limits = limits
        self._hold = hold
        self._body = hold.size
        self._own = own
        self._earlier = Size(0, 0)
        self._check("input")

    @property
    def adds_much(self) -> bool:
        """Whether the turn's own items alone are large: then they are not kept in memory."""
        return self._own.items > _LARGE_ITEMS or self._own.bytes > _MUCH_BYTES

    @property
    def is_large(self) -> bool:
        """Whether the event loop should not work on it."""
        total = self._total()
        return total.items > _LARGE_ITEMS or total.bytes > _LARGE_BYTES

    async def run(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Return what `work` makes of the context; a large one is worked on beside the loop."""
        return await aside_if(self.is_large, work, *args, **kwargs)

    def admit_chain(self, size: Size) -> None:
        """Take the size of the chain that the turn continues. Raise if it is too large."""
        self._admit(size, "previous_response_id")

    def admit_conversation(self, size: Size) -> None:
        """Take the size of the conversation that the turn continues. Raise if it is too large."""
        self._admit(size, "conversation")

    def add_reference(self, size: int) -> None:
        """Add an item of earlier turns that the input names. Raise if it is too much."""
        self._own = Size(self._own.items, self._own.bytes + size)
        self._check("input")

    def _admit(self, size: Size, param: str) -> None:
        # Asked again when a transaction is run again: so it replaces, and does not add.
        self._earlier = size
        self._check(param)

    def _check(self, param: str) -> None:
        total, limits = self._total(), self._limits
        if total.items > limits.items:
            raise ContextTooLarge(
                f"the context has {total.items} items; at most {limits.items} are taken. "
                "Compact it, or begin a new conversation.",
                param=param,
            )
        if total.bytes > limits.bytes:
            raise ContextTooLarge(
                f"the context has {total.bytes} bytes; at most {limits.bytes} are taken. "
                "Compact it, or begin a new conversation.",
                param=param,
            )
        more = total.bytes * COPIES
        if more > _LARGE_BYTES:
            self._hold.resize(max(self._body, more))

    def _total(self) -> Size:
        own, earlier = self._own, self._earlier
        return Size(own.items + earlier.items, own.bytes + earlier.bytes)
