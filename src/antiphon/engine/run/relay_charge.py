"""Charge a request to an upstream for which no turn runs: one that is passed on, or embeddings.

What it used is what the upstream reports, also in the middle of a stream. Without a report it is
counted: the input by the length of what was sent, and the output by the texts that arrived, or by
the length of an answer that came as a whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from antiphon.accounts.refusals import refusal_of
from antiphon.engine.run.meter import Meter
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
from antiphon.wires.chat.chunks import has_output, read_usage

__all__ = ["RelayCharge", "charged", "wanted_for", "wanted_for_files"]

# What a completion has at most if the caller sets no limit: OpenAI's own default is 16.
_DEFAULT_OUTPUT: Final = 2048
_FILES: Final = "file_search"  # the upstream of these settings is the provider
_DATA: Final = b"data:"
# An event is not longer, unless the upstream sends something else than events.
_MOST_PENDING: Final = 1 << 20


class _Choice(msgspec.Struct):
    text: str | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: Any = None  # any JSON


_read_event: Final = msgspec.json.Decoder(_Event).decode


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
        self._reported_at = 0  # how many pieces there were when the upstream reported last
        self._held = held
        self._sent = sent
        self._is_capped = is_capped  # the caller allows no more than is held
        self._meter = Meter()
        self._pending = b""  # the beginning of a line
        self._answer_size = 0
        self.is_cut = False
        """Whether the stream was ended where its grant ends."""

    async def may_go_on(self) -> bool:
        """Return whether more of a stream may be taken: at the end of a grant, ask for as much.

        Without room for it, the stream has to end here.
        """
        held, meter = self._held.held, self._meter
        if not self._held.is_limited or meter.output < held.output:
            return True
        if self._is_capped:  # the upstream ends it there, unless it ignores what was asked
            self.is_cut = meter.pieces > held.output
            return not self.is_cut
        more = TokenCounts(fresh=held.fresh, output=max(2 * held.output, meter.output + 1))
        self.is_cut = not await self.charges.extend(self._held, more)
        return not self.is_cut

    def note_piece(self, piece: bytes) -> None:
        """Count a piece of a stream, and keep what it reports."""
        *lines, self._pending = (self._pending + piece).splitlines(keepends=True) or [b""]
        if self._pending.endswith((b"\n", b"\r")):
            lines.append(self._pending)
            self._pending = b""
        elif len(self._pending) > _MOST_PENDING:
            self._pending = b""
        for line in lines:
            if line.startswith(_DATA):
                self._note_event(line[len(_DATA) :].strip())

    def _note_event(self, data: bytes) -> None:
        try:
            event = _read_event(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self._meter.pieces += data.startswith(b"{")  # the last event is no JSON
            return
        for choice in event.choices or ():
            if choice.text:
                self._meter.note_text(choice.text)
        if isinstance(event.usage, dict):
            usage = read_usage(event.usage)
            if usage is not None:
                self.usage, self.has_output = usage, has_output(event.usage)
                self._reported_at = self._meter.pieces

    def note_answer(self, data: bytes) -> None:
        """Count an answer that came as a whole, by its length."""
        if self._held.wanted.kind != "embedding":
            self._answer_size = len(data)

    @property
    def _output(self) -> int:
        return max(self._meter.output, -(-self._answer_size // BYTES_PER_TOKEN))

    @property
    def _is_reported(self) -> bool:
        """Whether the upstream has reported all that has arrived."""
        if self.usage is None:
            return False
        if self._held.wanted.kind == "embedding":
            return True
        return self.has_output and (self.is_whole or self._reported_at == self._meter.pieces)

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
        if self.usage is not None and self._is_reported:
            self.charges.settle(self._held, outcome, "reported", counts_of(self.usage))
            return
        if self.usage is None:
            counted = TokenCounts(fresh=-(-self._sent // BYTES_PER_TOKEN), output=self._output)
        else:
            reported = counts_of(self.usage)
            output = max(reported.output, self._output - reported.reasoning)
            counted = msgspec.structs.replace(reported, output=output)
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
