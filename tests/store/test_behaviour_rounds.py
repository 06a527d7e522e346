"""Requests to upstreams are kept with the end of their turn, in every store."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.protocol.errors import TurnLost
from antiphon.store.base import KeptRound, Store
from tests.store.conftest import Database
from tests.store.samples import OWNER, message, opened, run_turn

STRANGER = "mallory"


def kept(response_id: str, number: int = 0, **more: Any) -> KeptRound:
    fields: dict[str, Any] = {"owner": OWNER, "kind": "model", "created_at": 1_000} | more
    body = fields.pop("body", b"\x00\xff")
    return KeptRound(response_id=response_id, number=number, size=7, body=body, **fields)


async def finish(store: Store, response_id: str, *rounds: KeptRound, owner: str = OWNER) -> None:
    await store.begin(owner, opened(response_id), [message(f"in-{response_id}")])
    await store.finish(owner, opened(response_id, status="completed"), entries=rounds)


async def test_rounds_are_stored_with_the_end_and_found_in_order(database: Database) -> None:
    store = await database.open()
    rounds = [kept("r1", 0), kept("r1", 1, kind="repair", body=None)]
    await finish(store, "r1", *reversed(rounds))
    await finish(store, "r2", kept("r2"))
    other = await database.open()
    assert await other.rounds.find(OWNER, "r1") == rounds
    assert await other.rounds.find(STRANGER, "r1") == []
    assert await other.rounds.find(OWNER, "r3") == []
    assert await other.rounds.find(OWNER, "\ud800") == []


async def test_a_long_request_is_kept_as_it_is(store: Store) -> None:
    body = bytes(range(256)) * 8192
    await finish(store, "r1", kept("r1", body=body))
    assert (await store.rounds.find(OWNER, "r1"))[0].body == body


async def test_rounds_of_an_end_that_is_refused_are_not_stored(store: Store) -> None:
    await run_turn(store, "r1")
    with pytest.raises(TurnLost):
        await store.finish(OWNER, opened("r1", status="completed"), entries=[kept("r1")])
    assert await store.rounds.find(OWNER, "r1") == []


async def test_rounds_are_removed_with_their_response(store: Store) -> None:
    await finish(store, "r1", kept("r1"))
    await finish(store, "r1", kept("r1", owner=STRANGER), owner=STRANGER)
    assert await store.delete(OWNER, "r1")
    assert await store.rounds.find(OWNER, "r1") == []
    assert len(await store.rounds.find(STRANGER, "r1")) == 1


async def test_old_rounds_are_swept_and_their_responses_stay(store: Store) -> None:
    await finish(store, "r1", kept("r1", 0), kept("r1", 1))
    await finish(store, "r2", kept("r2", created_at=2_000))
    assert await store.rounds.sweep(1_500, 1) == 1
    assert await store.rounds.sweep(1_500, 10) == 1
    assert await store.rounds.sweep(1_500, 10) == 0
    assert await store.get(OWNER, "r1") is not None
    assert len(await store.rounds.find(OWNER, "r2")) == 1


async def test_rounds_of_old_responses_are_swept_with_them(store: Store) -> None:
    await finish(store, "r1", kept("r1", created_at=9_000))
    assert await store.sweep(1_500, 0) == 1
    assert await store.rounds.find(OWNER, "r1") == []
