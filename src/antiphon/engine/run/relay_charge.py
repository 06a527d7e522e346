"""Charge a request to an upstream for which no turn runs: one that is passed on, or embeddings.

What it used is what the upstream reports. Without a report it is counted: the input by the length
of what was sent, and the output by the events that arrived, or by the length of an answer that
came as a whole.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from antiphon.accounts.refusals import refusal_of
from antiphon.engine.run.turn_charges import HeldCharge, TurnCharges, Wanted, did_no_work
from antiphon.models.prices import Price
from antiphon.plans.estimate import BYTES_PER_TOKEN
from antiphon.protocol.errors import BackendError
from antiphon.protocol.response import Usage
from antiphon.protocol.token_counts import MOST_TOKENS, NO_TOKENS, TokenCounts, counts_of
from antiphon.routing.candidates import Candidate
from antiphon.store.base.ledger import ChargeKind, Outcome, Refused
from antiphon.transport.exchange import LEAVING
from antiphon.transport.http import Sending

__all__ = ["RelayCharge", "charged", "wanted_for", "wanted_for_files"]

# What a completion has at most if the caller sets no limit: OpenAI's own default is 16.
_DEFAULT_OUTPUT: Final = 2048
_FILES: Final = "file_search"  # the upstream of these settings is the provider
_EVENT: Final = re.compile(rb"data: ?\{")


class RelayCharge:
    """What is known of one request that was passed on."""

    def __init__(
        self, charges: TurnCharges, held: HeldCharge, sent: int, *, is_capped: bool = False
    ) -> None:
        self.charges = charges
        self.usage: Usage | None = None
        """What the upstream has reported."""
        self.has_output = True
        """Whether it has reported the output, too."""
        self.is_whole = False
        """Whether the whole answer has arrived."""
        self.sending = Sending()
        """What becomes of the request; to be passed on with it."""
        self._held = held
        self._sent = sent
        self._is_capped = is_capped  # the caller allows no more than is held
        self._output = 0
        self.is_cut = False
        """Whether the stream was ended where its grant ends."""

    async def may_go_on(self) -> bool:
        """Return whether more of a stream may be taken: at the end of a grant, ask for as much.

        Without room for it, the stream has to end here.
        """
        held = self._held.held
        if not self._held.is_limited or self._output < held.output:
            return True
        more = TokenCounts(fresh=held.fresh, output=max(2 * held.output, self._output + 1))
        self.is_cut = self._is_capped or not await self.charges.extend(self._held, more)
        return not self.is_cut

    def note_piece(self, piece: bytes) -> None:
        """Count a piece of a stream."""
        self._output += len(_EVENT.findall(piece))

    def note_answer(self, data: bytes) -> None:
        """Count an answer that came as a whole, by its length."""
        if self._held.wanted.kind != "embedding":
            self._output = -(-len(data) // BYTES_PER_TOKEN)

    def settle(self, error: BackendError | None) -> None:
        """Note what the call came to."""
        is_free = not self.sending.is_taken or (error is not None and did_no_work(error))
        if is_free and not (self._output or self.usage or self.is_whole):
            self.charges.settle(self._held, "released", "reported", NO_TOKENS)
            return
        outcome: Outcome = "completed" if self.is_whole else "cancelled"
        if error is not None:
            outcome = "failed"
        if self.is_cut:
            outcome = "incomplete"
        if self.usage is not None and (self.has_output or self._held.wanted.kind == "embedding"):
            self.charges.settle(self._held, outcome, "reported", counts_of(self.usage))
            return
        given = -(-self._sent // BYTES_PER_TOKEN) if self.usage is None else self.usage.input_tokens
        counted = TokenCounts(fresh=given, output=self._output)
        self.charges.settle(self._held, outcome, "counted", counted)


def wanted_for(
    candidate: Candidate,
    kind: ChargeKind,
    body: Mapping[str, Any],  # any JSON
    sent: int,
) -> Wanted:
    """Return what a request of so many bytes may use."""
    if kind == "embedding":  # each of its texts may fill the window
        held = TokenCounts(fresh=sent)
    else:
        given = min(sent, candidate.context_length or sent)
        held = TokenCounts(fresh=given, output=_most_output(body))
    return Wanted(
        kind=kind,
        served=candidate.model,
        provider=candidate.provider,
        price=candidate.price,
        held=held,
    )


def wanted_for_files(model: str, price: Price | None, sent: int) -> Wanted:
    """Return what the vectors of so many bytes of files or queries may use."""
    held = TokenCounts(fresh=sent)
    return Wanted(kind="embedding", served=model, provider=_FILES, price=price, held=held)


@asynccontextmanager
async def charged(
    charges: TurnCharges, wanted: Wanted, sent: int, *, is_capped: bool = False
) -> AsyncIterator[RelayCharge]:
    """Hold a charge for one request, and settle it however it ends. Raise LimitReached.

    `is_capped` if the caller allows no more output than is wanted.
    """
    found = await charges.reserve(wanted, is_limited=await charges.limits_apply())
    if isinstance(found, Refused):
        charges.note_refused(found)
        raise refusal_of(found)
    charge, trouble = RelayCharge(charges, found, sent, is_capped=is_capped), None
    try:
        yield charge
    except BackendError as error:
        trouble = error
        raise
    except LEAVING:
        charge.note_piece(await charge.sending.linger())
        raise
    finally:
        charge.settle(trouble)
        del trouble  # its traceback holds this frame
        await asyncio.shield(charges.close())


def _most_output(body: Mapping[str, Any]) -> int:
    """Return how many tokens a completion may have: of all prompts and choices together."""
    limit, prompt = body.get("max_tokens"), body.get("prompt")
    tokens = limit if isinstance(limit, int) and limit >= 0 else _DEFAULT_OUTPUT
    # A list of numbers is one prompt, as tokens.
    is_many = isinstance(prompt, list) and not all(isinstance(one, int) for one in prompt)
    choices = max(_choices(body.get(name)) for name in ("n", "best_of"))
    return min(tokens * choices * (len(prompt or ()) if is_many else 1), MOST_TOKENS)


def _choices(given: object) -> int:
    return given if isinstance(given, int) and given > 0 else 1
