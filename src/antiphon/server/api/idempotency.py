"""Is this request the same as one before, and what became of that?

Two kinds of callers send a request again. One names it with an `Idempotency-Key`, and means
it: the key stands for one body, one run, one answer, for a day. The other is an SDK that lost
its connection and only counts its retries (`x-stainless-retry-count`): a retry joins the run
of the same body, if that is recent.

    | the first run          | the same key      | a keyless retry                       |
    |------------------------|-------------------|---------------------------------------|
    | had another body       | 422               | cannot be: the body is its name       |
    | is on its way          | 409, Retry-After  | waits for its end                     |
    | is in the background   | as it stands      | as it stands, or follows the stream   |
    | completed, incomplete  | the same answer   | the same answer                       |
    | failed by the model    | the same answer   | runs again                            |
    | failed by the gateway  | runs again (1)    | runs again                            |
    | cancelled              | runs again (2)    | runs again                            |
    | never began            | runs again        | runs again                            |

(1) A background response was accepted under its id before it failed, and is the answer, unless
`reruns_background` is set.
(2) A background response was cancelled on purpose, and is the answer.

What is stored is answered from the store, by any process. What must not be stored is
remembered by this process only, for a short while (see `recent`), and nothing of it is
written down.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from functools import partial
from typing import Final, Protocol

import msgspec

from antiphon.accounts.principal import Principal
from antiphon.engine.engine import Engine
from antiphon.engine.run.sinks import EventSink
from antiphon.protocol.errors import Conflict, StoreUnavailable
from antiphon.protocol.events import Event
from antiphon.protocol.machines.replay import replay_response
from antiphon.protocol.request import CreateResponse
from antiphon.protocol.response import DONE_STATUSES, Response
from antiphon.server.api.recent import Recent, Recently
from antiphon.server.api.request_keys import (
    KEY_SECONDS,
    Mismatch,
    digest_of,
    read_key,
    read_retries,
)
from antiphon.store.base import Claim

__all__ = ["Admission", "Idempotency", "InFlight", "PriorAnswer", "Runs"]

_RETRY_SECONDS: Final = 900
_JOIN_SECONDS: Final = 600.0
_LOOK_AGAIN_SECONDS: Final = 0.5
# Claims that turn out to be void are taken over; others may be at the same.
_MAX_TRIES: Final = 4
# How a response fails when the fault is neither the caller's nor the model's.
_OUR_FAULTS: Final = frozenset(
    {"server_error", "server_restarted", "server_overloaded", "store_unavailable"}
)
_ANSWERED: Final = frozenset({"completed", "incomplete"})
_CAME_TO_NOTHING: Final = frozenset({"failed", "cancelled"})


Guard = Callable[[], AbstractAsyncContextManager[None]]
"""Makes what stands around a wait."""


class InFlight(Conflict):
    """The same request is being answered now."""

    code = "idempotency_in_flight"
    retry_after = 1.0

    def __init__(self) -> None:
        super().__init__("the same request is being answered now; ask again when it has ended")


class Runs(Protocol):
    """What a turn can do, as far as this module needs to know."""

    ended: Response | None

    async def run(self, sink: EventSink) -> None:
        """Run it; show its events to the sink."""
        ...

    async def respond(self) -> Response:
        """Run it; return the response it ends in."""
        ...


class _Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A request, as far as it matters whether it is the same as another."""

    owner: str
    token: str
    digest: bytes
    is_retry: bool
    has_key: bool
    is_stored: bool


class PriorAnswer(msgspec.Struct, frozen=True):
    """An answer that was given, or is being given, to the same request before."""

    response: Response
    _engine: Engine
    _owner: str
    _is_stored: bool

    async def events(self) -> AsyncGenerator[list[Event], None]:
        """Yield its events from the start, live if it is still running."""
        if not self._is_stored:
            yield replay_response(self.response)
            return
        async with aclosing(self._engine.follow(self._owner, self.response.id)) as batches:
            async for batch in batches:
                yield batch


class Admission:
    """What to do with a request: give the `prior` answer, or run it as `response_id`.

    Use as `async with`: a run that ends in an error makes room for the next try.
    """

    def __init__(
        self,
        idempotency: Idempotency,
        ask: _Ask | None,
        response_id: str | None,
        prior: PriorAnswer | None = None,
    ) -> None:
        self.response_id = response_id
        """The id to run under; None if any will do."""
        self.prior = prior
        self._idempotency = idempotency
        self._ask = ask if prior is None else None
        self._is_accepted = False
        self._entry: Recently | None = None
        if self._ask and (self._ask.has_key or not self._ask.is_stored):
            self._entry = idempotency.recent.begin(
                self._ask.owner, self._ask.token, self._ask.digest
            )
        self._response: Response | None = None

    async def __aenter__(self) -> Admission:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        ask = self._ask
        if ask is None or self.response_id is None:
            return
        if self._entry is not None:
            self._idempotency.close_entry(ask, self._entry, self._response, error)
        if error is not None and ask.is_stored:
            is_void = isinstance(error, StoreUnavailable) and not self._is_accepted
            await asyncio.shield(self._idempotency.let_go(ask, self.response_id, is_void=is_void))

    def note_accepted(self) -> None:
        """Note that a background response is durable: its id may be told."""
        self._is_accepted = True

    async def run(self, turn: Runs, sink: EventSink) -> None:
        """Run the turn; show its events, and keep its response where the store does not."""
        try:
            await turn.run(sink)
        finally:
            self._note_end(turn)

    async def respond(self, turn: Runs) -> Response:
        """Run the turn; return its response, and keep it in the same way."""
        try:
            return await turn.respond()
        finally:
            self._note_end(turn)

    def _note_end(self, turn: Runs) -> None:
        if self._ask is not None and not self._ask.is_stored:
            self._response = turn.ended


class Idempotency:
    """Sees to it that a request which is sent again is not run again. One per process."""

    def __init__(
        self,
        engine: Engine,
        *,
        join_seconds: float = _JOIN_SECONDS,
        reruns_background: bool = False,
    ) -> None:
        self.recent = Recent()
        self._engine = engine
        self.reruns_background = reruns_background
        self._join_seconds = join_seconds

    async def admit(
        self,
        principal: Principal,
        headers: Mapping[str, str],
        data: bytes,
        request: CreateResponse,
        guard: Guard = nullcontext,
        path: str = "/v1/responses",
    ) -> Admission:
        """Return what to do with this POST to `path`, whose body is `data`.

        `headers` are found by names of any case, as aiohttp's are. `guard` stands around the
        wait for another run, and may end it. Raise InFlight or Mismatch if nothing can be done.
        """
        key, retries = read_key(headers), read_retries(headers)
        if key is None and retries is None:
            return Admission(self, None, None)
        digest = await digest_of(path, data)
        ask = _Ask(
            owner=principal.owner,
            token=f"auto:{digest.hex()}" if key is None else f"key:{key}",
            digest=digest,
            is_retry=bool(retries),
            has_key=key is not None,
            is_stored=request.store is not False and not principal.never_store,
        )
        if not ask.is_stored:
            return await self._by_memory(ask, guard)
        return await (self._by_key(ask) if ask.has_key else self._by_retry(ask, guard))

    def close_entry(
        self, ask: _Ask, entry: Recently, response: Response | None, error: BaseException | None
    ) -> None:
        """Take note in memory of how a run ended."""
        now = self._engine.now()
        if error is not None and not (response and response.status in _ANSWERED):
            self.recent.forget(ask.owner, ask.token, entry, now)
            return
        keep = response is not None and not ask.is_stored and self._is_answer(response, ask)
        self.recent.end(ask.owner, ask.token, entry, response if keep else None, now)

    async def let_go(self, ask: _Ask, response_id: str, *, is_void: bool = False) -> None:
        """Release the claim of a run that broke off, unless there is something to answer with.

        A client that leaves may have been answered in the store before it left, and what runs
        in the background goes on without it. `is_void`: a background response was refused
        because of the store, so whatever there is of it was never accepted.
        """
        let_go = partial(self._let_go, ask, response_id, is_void=is_void)
        try:
            await let_go()
        except StoreUnavailable:
            self._engine.pending_writes.defer(let_go)

    async def _let_go(self, ask: _Ask, response_id: str, *, is_void: bool) -> None:
        store = self._engine.store
        response = await store.get(ask.owner, response_id)
        is_void = is_void and response is not None and bool(response.background)
        if response is None or is_void or response.status in _CAME_TO_NOTHING:
            await store.claims.release(ask.owner, ask.token, response_id)

    async def _by_memory(self, ask: _Ask, guard: Guard) -> Admission:
        """Answer what must not be stored from memory, or run it."""
        while True:
            entry = self.recent.find(ask.owner, ask.token, self._engine.now())
            if entry is None or not (ask.has_key or ask.is_retry):
                return self._new(ask)
            if entry.digest != ask.digest:
                raise Mismatch
            if entry.ended.is_set():
                response = entry.response
                return self._new(ask) if response is None else self._again(ask, response)
            if ask.has_key:
                raise InFlight
            async with guard():
                await self._wait_for(entry)

    async def _by_key(self, ask: _Ask) -> Admission:
        """Claim the key, durably, or answer with what it led to."""
        now, claims = self._engine.now(), self._engine.store.claims
        recent = self.recent.find(ask.owner, ask.token, now)
        if recent is not None and recent.digest != ask.digest:
            raise Mismatch
        response_id = self._engine.mint("resp")
        for _ in range(_MAX_TRIES):
            claim = await self._take(ask, response_id, now)
            if claim is None:
                return Admission(self, ask, response_id)
            if now - claim.created_at < KEY_SECONDS:
                if claim.digest != ask.digest:
                    raise Mismatch
                response = await self._engine.store.get(ask.owner, claim.response_id)
                if _is_on_its_way(claim, response):
                    raise InFlight
                if response is not None and self._is_answer(response, ask):
                    return self._again(ask, response)
            await claims.release(ask.owner, ask.token, claim.response_id)
        raise InFlight

    async def _take(self, ask: _Ask, response_id: str, now: int) -> Claim | None:
        """Claim the key; a client that leaves meanwhile takes its claim along."""
        claims = self._engine.store.claims
        try:
            return await claims.take(ask.owner, ask.token, ask.digest, response_id, now)
        except StoreUnavailable:
            self._doubt(ask, response_id)
            raise
        except asyncio.CancelledError:
            self._doubt(ask, response_id)
            await asyncio.shield(self.let_go(ask, response_id))
            raise

    def _doubt(self, ask: _Ask, response_id: str) -> None:
        """Release a claim of which nobody knows whether it was made, or is about to be."""
        release = partial(self._engine.store.claims.release, ask.owner, ask.token, response_id)
        self._engine.pending_writes.defer(release, is_in_doubt=True)

    async def _by_retry(self, ask: _Ask, guard: Guard) -> Admission:
        """Join the recent run of the same body, or run it."""
        if ask.is_retry:
            async with guard():
                first = await self._join(ask)
            if first is not None:
                return self._again(ask, first)
        admission = self._new(ask)
        assert admission.response_id is not None
        try:
            await self._engine.store.claims.note(
                ask.owner, ask.token, ask.digest, admission.response_id, self._engine.now()
            )
        except (asyncio.CancelledError, StoreUnavailable):
            self._doubt(ask, admission.response_id)
            raise
        return admission

    async def _join(self, ask: _Ask) -> Response | None:
        """Return the response of the first run when it has ended, if it is an answer.

        It may be about to end with the connection that was lost, so nobody follows it live.
        """
        store = self._engine.store
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._join_seconds
        while clock() < deadline:
            claim = await store.claims.find(ask.owner, ask.token)
            if claim is None or self._engine.now() - claim.created_at >= _RETRY_SECONDS:
                return None
            response = await store.get(ask.owner, claim.response_id)
            if not _is_on_its_way(claim, response):
                return response if response and self._is_answer(response, ask) else None
            await store.wait(claim.response_id, _LOOK_AGAIN_SECONDS)
        raise InFlight

    async def _wait_for(self, entry: Recently) -> None:
        try:
            async with asyncio.timeout(self._join_seconds):
                await entry.ended.wait()
        except TimeoutError:
            raise InFlight from None

    def _is_answer(self, response: Response, ask: _Ask) -> bool:
        """Return whether this is what the same request should be answered with."""
        match response.status:
            case "failed":
                if response.background and not self.reruns_background:
                    return ask.has_key
                code = response.error.code if response.error else None
                return ask.has_key and code not in _OUR_FAULTS
            case "cancelled":
                return ask.has_key and bool(response.background)
            case _:
                return True

    def _new(self, ask: _Ask) -> Admission:
        return Admission(self, ask, self._engine.mint("resp"))

    def _again(self, ask: _Ask, response: Response) -> Admission:
        return Admission(
            self, ask, None, PriorAnswer(response, self._engine, ask.owner, ask.is_stored)
        )


def _is_on_its_way(claim: Claim, response: Response | None) -> bool:
    """Say whether the request has not been answered: what is in the background has been."""
    if response is None:
        return claim.is_held
    return response.status not in DONE_STATUSES and not response.background
