"""Make it durable that a call of a hosted tool is about to start.

A turn that keeps a log has the intent there: the events that open the item. A turn without a log
(answered whole, or not stored) has a row in the journal of the store instead, with a digest of
what is asked. After a crash, neither is ever started again: see `recovery`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial

from antiphon.engine.keep.pending_writes import Defer
from antiphon.engine.run.hosted_runs import Work
from antiphon.engine.run.rounds import Rounds
from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.base import Intent, ToolCalls

__all__ = ["TurnIntents"]

_CALL_DIGITS = 32


class TurnIntents:
    """The intents of one turn."""

    def __init__(
        self,
        calls: ToolCalls,
        owner: str,
        response_id: str,
        now: Callable[[], int],
        defer: Defer,
        *,
        is_logged: bool,
        is_stored: bool,
    ) -> None:
        self._calls = calls
        self._owner = owner
        self._response_id = response_id
        self._now = now
        self._defer = defer
        self._is_logged = is_logged
        self._is_stored = is_stored
        self._has_rows = False

    async def make_durable(self, work: Sequence[Work], rounds: Rounds) -> None:
        """Return when a crash cannot hide that these calls may have run."""
        await rounds.settle()
        if self._is_logged:
            return
        self._has_rows = True
        intents = [_intent_of(one) for one in work]
        await self._calls.intend(self._owner, self._response_id, intents, self._now())

    async def close(self) -> None:
        """Forget the calls of a response that is not stored: it has ended."""
        if not self._has_rows or self._is_stored:
            return
        forget = partial(self._calls.forget, self._owner, self._response_id)
        try:
            await forget()
        except StoreUnavailable:
            self._defer(forget)


def _intent_of(work: Work) -> Intent:
    call = work.call
    name = hashlib.sha256(call.call_id.encode("utf-8", "surrogatepass")).hexdigest()
    asked = "\n".join((call.function.namespace or "", call.function.name, call.arguments))
    digest = hashlib.sha256(asked.encode("utf-8", "surrogatepass")).digest()
    return Intent(name[:_CALL_DIGITS], call.function.kind, digest)
