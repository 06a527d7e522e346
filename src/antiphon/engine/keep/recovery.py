"""What happens to turns whose process died?

The process that claims one is its only writer from then on. A queued turn is run. A turn that had
begun ends as failed, or as cancelled if that was asked for, with everything that is in its log:
the builder is rebuilt from the log and closes what is open there. A call of a hosted tool that
was open may have run; it is never run again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from antiphon.accounts.principal import Principal
from antiphon.accounts.runs import NO_RUN, Run
from antiphon.engine.keep.follow import events_of
from antiphon.engine.keep.live import Live
from antiphon.engine.run.turn import Turn
from antiphon.engine.services import TurnServices
from antiphon.plans.estimate import estimate_tokens, estimate_tools
from antiphon.protocol.body import decode_body
from antiphon.protocol.deltas import Degraded
from antiphon.protocol.errors import (
    AntiphonError,
    BrokenStream,
    Overloaded,
    StoreUnavailable,
    TurnLost,
)
from antiphon.protocol.events import Event, TerminalEvent, sequence_of
from antiphon.protocol.machines.builder import ResponseBuilder
from antiphon.protocol.machines.log import has_error_event, pack_events
from antiphon.protocol.machines.rebuild import rebuild
from antiphon.protocol.request import CreateResponse, read_request
from antiphon.protocol.response import Failure, OutputDetails, Response, Usage
from antiphon.protocol.token_counts import NO_TOKENS, TokenCounts, add_counts, usage_of
from antiphon.store.base import Batch, Log, Orphan, Store
from antiphon.store.base.ledger import Charge, Settlement

__all__ = ["Recovery", "keep_request"]

_AT_ONCE: Final = 100
_CHARGES: Final = 1000
_RESTARTED: Final = Failure("server_restarted", "the server was restarted in mid-turn")
_CALL_RAN: Final = "the gateway restarted while this call ran"
_log = logging.getLogger(__name__)


class _Kept(msgspec.Struct, frozen=True):
    """What is kept of a request until its turn has ended."""

    body: msgspec.Raw
    is_strict: bool = False
    key: str | None = None
    user: str | None = None
    run: Run = NO_RUN


def keep_request(body: bytes, principal: Principal, run: Run = NO_RUN, *, is_strict: bool) -> bytes:
    """Return what a store keeps of a background request, and of who pays for it."""
    kept = _Kept(msgspec.Raw(body), is_strict, principal.key_id, principal.user, run)
    return msgspec.json.encode(kept)


class Revive(Protocol):
    """Makes the turn of a queued response again, in this process."""

    async def __call__(
        self,
        request: CreateResponse,
        principal: Principal,
        response: Response,
        *,
        strict: bool,
        run: Run = NO_RUN,
        body_bytes: int = 0,
        has_error_event: bool = True,
    ) -> Turn:
        """Return a turn that is ready to run, or raise what is wrong."""
        ...


class Recovery:
    """Claims turns of dead processes; those that could not be ended are tried again."""

    def __init__(
        self,
        store: Store,
        live: Live,
        services: TurnServices,
        revive: Revive,
        take_over: Callable[[Turn], None],
    ) -> None:
        self._store = store
        self._live = live
        self._services = services
        self._revive = revive
        self._take_over = take_over
        self._orphans: deque[Orphan] = deque()

    async def run(self) -> int:
        """Take over what dead processes left unfinished; return how many turns that were.

        Raise StoreUnavailable if some of it has to wait.
        """
        claimed = found = await self._claim()
        while found == _AT_ONCE:
            found = await self._claim()
            claimed += found
        trouble: StoreUnavailable | None = None
        for _ in range(len(self._orphans)):
            orphan = self._orphans.popleft()
            try:
                await self._settle(orphan)
            except TurnLost:
                continue  # it was deleted in the meantime
            except StoreUnavailable as error:
                trouble = error
                self._orphans.append(orphan)
            except Exception:  # noqa: BLE001 - one that breaks us must not strand the others
                _log.exception("response %s cannot be recovered", orphan.response.id)
                await self._give_up(orphan)
        if trouble is not None:
            raise trouble
        await self._settle_abandoned()
        return claimed

    async def _settle_abandoned(self) -> None:
        """Settle the charges of dead processes that belong to no response that can be claimed."""
        found = _AT_ONCE
        while found == _AT_ONCE:
            found = await self._store.ledger.settle_abandoned(_AT_ONCE)

    async def _give_up(self, orphan: Orphan) -> None:
        """End what cannot be understood, with nothing but its error."""
        response = msgspec.structs.replace(orphan.response, status="failed", error=_RESTARTED)
        try:
            settled, _ = await self._settle_charges(orphan)
            await self._store.finish(orphan.owner, response, entries=settled)
        except TurnLost:
            return
        except StoreUnavailable:
            self._orphans.append(orphan)

    async def _claim(self) -> int:
        orphans = await self._store.claim_orphans(_AT_ONCE)
        self._orphans += orphans
        return len(orphans)

    async def _settle(self, orphan: Orphan) -> None:
        if self._live.find(orphan.owner, orphan.response.id) is not None:
            return  # it runs here: this process was taken for dead
        is_queued = orphan.response.status == "queued" and not orphan.is_cancelled
        if not is_queued or orphan.request is None:
            await self._end(orphan, _RESTARTED)
            return
        try:
            kept = msgspec.json.decode(orphan.request, type=_Kept)
            request = read_request(decode_body(bytes(kept.body)))
            own = await self._store.input_items(orphan.owner, orphan.response.id)
            request.input = own or []
            turn = await self._revive(
                request,
                Principal(orphan.owner, kept.key, user=kept.user),
                orphan.response,
                strict=kept.is_strict,
                run=kept.run,
                body_bytes=len(kept.body),
                has_error_event=_has_error_event(orphan),
            )
        except StoreUnavailable:
            raise
        except Overloaded as error:
            raise StoreUnavailable(f"a queued turn cannot be run yet: {error.message}") from None
        except (AntiphonError, msgspec.DecodeError) as error:
            _log.warning("response %s cannot be run here: %s", orphan.response.id, error)
            await self._end(orphan, _failure(error))
        else:
            self._take_over(turn)

    async def _end(self, orphan: Orphan, failure: Failure) -> None:
        """End the log where it breaks off."""
        settled, spent = await self._settle_charges(orphan)
        try:
            events = await self._last_events(orphan, failure, spent)
        except BrokenStream as error:
            _log.error("the log of response %s cannot be read: %s", orphan.response.id, error)
            events = await self._bare_end(orphan, failure, spent)
        terminal = events[-1]
        assert isinstance(terminal, TerminalEvent)
        response = terminal.response
        at = max(0, int(self._services.now() - response.created_at)) * 1000
        body = pack_events(events, at=at)
        batch = Batch(sequence_of(events[0]), sequence_of(events[-1]), body)
        await self._store.finish(
            orphan.owner,
            response,
            batch=batch if orphan.batches else None,
            entries=[*self._services.notify(orphan.owner, response), *settled],
        )
        self._services.observe(response)

    async def _settle_charges(self, orphan: Orphan) -> tuple[list[Settlement], TokenCounts | None]:
        """Return the settlements of what the dead process held, and what all charges come to.

        How much its last call has used is not known: it is assumed to be what was held. Without
        a charge nothing is known.
        """
        charges = await self._store.ledger.charges(response_id=orphan.response.id, limit=_CHARGES)
        if not charges:
            return [], None
        held = [charge for charge in charges if charge.state == "held"]
        total = NO_TOKENS
        for charge in charges:
            total = add_counts(total, charge.held if charge.state == "held" else charge.used)
        return [_assume(charge) for charge in held], total

    async def _last_events(
        self, orphan: Orphan, failure: Failure, spent: TokenCounts | None
    ) -> list[Event]:
        log = Log(orphan.response, orphan.batches, bool(orphan.batches))
        builder = rebuild(
            orphan.response,
            events_of(log),
            self._services.mint,
            has_error_event=_has_error_event(orphan),
        )
        await self._note_calls(orphan, builder)
        events = builder.break_off(_CALL_RAN)
        if builder.usage is None:
            builder.note_estimate(await self._usage_of(orphan, builder.output, spent))
        return events + (builder.cancel() if orphan.is_cancelled else builder.fail(failure))

    async def _note_calls(self, orphan: Orphan, builder: ResponseBuilder) -> None:
        """Note the hosted calls that may have run, where no log shows them."""
        if orphan.batches:
            return
        calls = await self._store.tool_calls.find(orphan.owner, orphan.response.id)
        if calls:
            kinds = ", ".join(dict.fromkeys(call.kind for call in calls))
            note = f"tools: {len(calls)} hosted calls ({kinds}) may have run before the restart"
            builder.feed(Degraded(note))

    async def _bare_end(
        self, orphan: Orphan, failure: Failure, spent: TokenCounts | None
    ) -> list[Event]:
        """Return an end for a log that cannot be continued: its events stay as they are."""
        builder = ResponseBuilder(
            msgspec.structs.replace(orphan.response, output=[]),
            self._services.mint,
            has_error_event=_may_have_error_event(orphan),
            first=orphan.batches[-1].last + 1,
        )
        builder.note_estimate(await self._usage_of(orphan, [], spent))
        return builder.fail(failure)

    async def _usage_of(
        self, orphan: Orphan, output: list[dict[str, object]], spent: TokenCounts | None
    ) -> Usage:
        """Return what the turn has used: the sum of its charges, else an estimate."""
        if spent is not None:
            return usage_of(spent)
        response = orphan.response
        history = await self._store.history(orphan.owner, response.id)
        items = history.items if history else []
        conversation = response.conversation
        if conversation:
            earlier = await self._store.conversations.items(orphan.owner, str(conversation["id"]))
            items = [*(earlier or ()), *items]
        sent = estimate_tokens([_instructions(response), *items]) + estimate_tools(
            response.tools or []
        )
        said = estimate_tokens(output)
        thought = estimate_tokens([item for item in output if item.get("type") == "reasoning"])
        return Usage(
            input_tokens=sent,
            output_tokens=said,
            output_tokens_details=OutputDetails(reasoning_tokens=thought),
            total_tokens=sent + said,
        )


def _assume(charge: Charge) -> Settlement:
    return Settlement(
        response_id=charge.response_id,
        number=charge.number,
        outcome="failed",
        basis="assumed",
        used=charge.held,
        cost=charge.held_cost,
    )


def _failure(error: Exception) -> Failure:
    if isinstance(error, AntiphonError):
        return Failure(error.code or error.type, error.message)
    return _RESTARTED


def _has_error_event(orphan: Orphan) -> bool:
    """Return whether a failure has an `error` event. Raise BrokenStream if the log is damaged."""
    return not orphan.batches or has_error_event(orphan.batches[0].body)


def _may_have_error_event(orphan: Orphan) -> bool:
    """Return the same for a log that may not be readable."""
    try:
        return _has_error_event(orphan)
    except BrokenStream:
        return True


def _instructions(response: Response) -> str:
    return response.instructions if isinstance(response.instructions, str) else ""
