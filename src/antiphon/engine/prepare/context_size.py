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
from antiphon.transport.aside import aside

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


_NOTHING: Final = Size(0, 0)


class ContextSize:
    """The size of one context, as it becomes known."""

    def __init__(self, limits: ContextLimits, hold: Hold, own: Size) -> None:
        self._limits = limits
        self.hold = hold
        self._body = hold.size
        self._own = own
        self._earlier = _NOTHING
        self.is_large = False
        """Whether the event loop should not work on it."""
        self._check("input")

    @property
    def adds_much(self) -> bool:
        """Whether the turn's own items alone are large: then they are not kept in memory."""
        return self._own.items > _LARGE_ITEMS or self._own.bytes > _MUCH_BYTES

    @property
    def is_own_large(self) -> bool:
        """Whether the event loop should not work on the turn's own items."""
        return self._own.items > _LARGE_ITEMS or self._own.bytes > _LARGE_BYTES

    @property
    def bytes(self) -> int:
        """How long the whole context is as JSON, about."""
        return self._own.bytes + self._earlier.bytes

    async def run(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Return what `work` makes of the context; a large one is worked on beside the loop."""
        if self.is_large:
            return await aside(work, *args, **kwargs)
        return work(*args, **kwargs)

    async def run_own(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Return what `work` makes of the turn's own items alone; large ones are worked on aside.

        It looks at a few earlier items at most.
        """
        if self.is_own_large:
            return await aside(work, *args, **kwargs)
        return work(*args, **kwargs)

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
        items = self._own.items + self._earlier.items
        size = self._own.bytes + self._earlier.bytes
        self.is_large = items > _LARGE_ITEMS or size > _LARGE_BYTES
        limits = self._limits
        if items > limits.items:
            raise _too_large(f"{items} items; at most {limits.items} are taken", param)
        if size > limits.bytes:
            raise _too_large(f"{size} bytes; at most {limits.bytes} are taken", param)
        if size * COPIES > self.hold.size:
            self.hold.resize(max(self._body, size * COPIES))


def _too_large(what: str, param: str) -> ContextTooLarge:
    return ContextTooLarge(
        f"the context has {what}. Compact it, or begin a new conversation.", param=param
    )
