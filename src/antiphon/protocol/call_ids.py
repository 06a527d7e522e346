"""Ids that tie a call to its output: unique, and the same on every replay.

A model or its server may give one id to two calls, in one answer or in later ones. The first
call keeps the id; the next one gets `<id>_2`, then `<id>_3`. A derived id depends only on the
id and on those that are taken, so the same history always gives the same ids. It is the id of
the call from then on: for the client, in the store, and towards the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from antiphon.protocol.items import Item

__all__ = ["MAX_CALL_ID", "CallIds", "taken_in"]

MAX_CALL_ID: Final = 64


class CallIds:
    """Gives every call an id of its own. `claimed` are ids that are taken already.

    `is_taken` is asked about further ones: those of a long history are looked at only if a
    call is made.
    """

    def __init__(
        self,
        claimed: Iterable[str] = (),
        is_taken: Callable[[str], bool] = lambda call_id: False,
    ) -> None:
        self._claimed = set(claimed)
        self._is_taken = is_taken
        self._numbers: dict[str, int] = {}

    def claim(self, wished: str) -> str:
        """Return the id itself if it is free, else a derived one of at most 64 characters."""
        call_id = wished
        while not self._is_free(call_id):
            number = self._numbers.get(wished, 1) + 1
            # Counted on, not from 2 each time: an answer may repeat one id many times.
            self._numbers[wished] = number
            mark = f"_{number}"
            call_id = wished[: MAX_CALL_ID - len(mark)] + mark
        self._claimed.add(call_id)
        return call_id

    def fork(self) -> CallIds:
        """Return a copy that knows the ids so far and continues on its own."""
        made = CallIds(self._claimed, self._is_taken)
        made._numbers = self._numbers.copy()
        return made

    def add(self, call_id: str) -> None:
        """Note that an id is taken."""
        self._claimed.add(call_id)

    def _is_free(self, call_id: str) -> bool:
        return call_id not in self._claimed and not self._is_taken(call_id)


def taken_in(items: Sequence[Item]) -> Callable[[str], bool]:
    """Return a function that returns whether these items use an id. They are read when it is asked.

    Most turns make no call, and a history may be long.
    """
    found: set[object] = set()

    def is_taken(call_id: str) -> bool:
        if not found:
            found.update(item.get("call_id") for item in items)
            found.add(None)
        return call_id in found

    return is_taken
