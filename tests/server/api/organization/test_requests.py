"""Requests: the charges of a response seen together, in pages and as they happen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest

from antiphon.protocol.token_counts import TokenCounts
from antiphon.server.request_tail import TailRoom
from antiphon.store.base import Store
from antiphon.store.base.ledger import Payer, Reservation, Settlement
from antiphon.testing.gateway import Gateway
from tests.server.api.organization.books import DOLLAR, ask_as, charge, hold, key_of

PATH = "/antiphon/requests"


async def listed(office: Gateway, key: str, query: str = "") -> list[dict[str, Any]]:
    answer = await ask_as(office, key, "GET", f"{PATH}?{query}")
    assert answer.status == 200, answer.body
    found: list[dict[str, Any]] = answer.json["data"]
    return found


async def again(store: Store, response: str, **settled: Any) -> None:
    """Add a second charge to a request of the project "shop"."""
    tokens = TokenCounts(1, 0, 0, 2, 0)
    wanted = Reservation(
        response_id=response, number=1, payer=Payer("shop"), model="m", served="other", held=tokens
    )
    await store.ledger.reserve(wanted)
    await store.ledger.settle([Settlement(response_id=response, number=1, used=tokens, **settled)])


async def test_a_request_sums_up_its_charges(office: Gateway, store: Store, admin_key: str) -> None:
    response = await charge(store, "shop", key="k", user="ann", run="night", conversation="c")
    await again(store, response, outcome="incomplete", basis="counted")

    (one,) = await listed(office, admin_key)

    assert one["id"] == response
    assert one["status"] == "incomplete"
    assert (one["project_id"], one["api_key_id"], one["user_id"]) == ("shop", "k", "ann")
    assert (one["run_id"], one["conversation_id"]) == ("night", "c")
    assert (one["charges"], one["unpriced_charges"]) == (2, 1)
    assert one["used"]["fresh_tokens"] == 101
    assert one["used"]["total_tokens"] == 198
    assert float(one["used"]["cost_usd"]) == 1
    assert one["basis"] == "counted"
    assert one["served_model"] == "other"
    assert one["total_ms"] == round((one["ended_at"] - one["created_at"]) * 1000)


async def test_an_unknown_cost_is_null_and_a_running_request_has_no_end(
    office: Gateway, store: Store, admin_key: str
) -> None:
    await charge(store, "shop", cost=None)
    await hold(store, "shop")

    running, ended = sorted(
        await listed(office, admin_key), key=lambda one: one["status"], reverse=True
    )

    assert running["status"] == "in_progress"
    assert running["ended_at"] is running["total_ms"] is running["basis"] is None
    assert ended["used"]["cost_usd"] is None


async def test_a_released_request_cost_nothing(
    office: Gateway, store: Store, admin_key: str
) -> None:
    response = await hold(store, "shop")
    done = Settlement(response_id=response, number=0, outcome="released", basis="reported")
    await store.ledger.settle([done])

    (one,) = await listed(office, admin_key, "status=released")

    assert float(one["used"]["cost_usd"]) == 0
    assert one["unpriced_charges"] == 0


async def test_filters_and_pages(office: Gateway, store: Store, admin_key: str) -> None:
    made = [await charge(store, f"p{number % 2}", model=f"m{number}") for number in range(5)]
    pages: list[str] = []
    after = ""
    while True:
        answer = await ask_as(office, admin_key, "GET", f"{PATH}?limit=2{after}")
        pages += [one["id"] for one in answer.json["data"]]
        after = f"&after={answer.json['last_id']}"
        if not answer.json["has_more"]:
            break

    assert sorted(pages) == sorted(made)
    assert pages == [one["id"] for one in await listed(office, admin_key)]
    of_one = await listed(office, admin_key, "project_ids=p1&models=m1,m2")
    assert [one["id"] for one in of_one] == [made[1]]
    assert len(await listed(office, admin_key, "status=completed")) == 5
    assert await listed(office, admin_key, "status=failed") == []
    assert await listed(office, admin_key, "end_time=1000") == []


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("status=great", "status"),
        ("after=resp_none", "after"),
        ("limit=501", "limit"),
        ("colour=red", "colour"),
        ("stream=true&limit=3", "limit"),
        ("stream=yes", "stream"),
    ],
)
async def test_what_cannot_be_is_refused_by_name(
    office: Gateway, admin_key: str, query: str, param: str
) -> None:
    answer = await ask_as(office, admin_key, "GET", f"{PATH}?{query}")
    assert answer.status == 400
    assert answer.error["param"] == param


async def test_a_viewer_sees_its_own_project_only(office: Gateway, store: Store) -> None:
    viewer = await key_of(store, "shop", "viewer")
    secret = await charge(store, "bank")
    own = await charge(store, "shop")
    for query in ("", "project_ids=shop", f"response_ids={own},{secret}"):
        assert [one["id"] for one in await listed(office, viewer, query)] == [own]
    for query in ("project_ids=bank", "project_ids=bank&stream=true"):
        assert (await ask_as(office, viewer, "GET", f"{PATH}?{query}")).status == 403
    # Another project's request is no place from which a list can go on.
    assert (await ask_as(office, viewer, "GET", f"{PATH}?after={secret}")).status == 400


@asynccontextmanager
async def following(
    office: Gateway, key: str, query: str = ""
) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """Follow the requests of a gateway; the tail has begun when this is entered."""
    url = f"{office.base_url}/organization{PATH}?stream=true{query}"
    headers = {"Authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        assert answer.status == 200
        assert await answer.content.readline() == b": follows\n"
        yield _requests(answer.content)


async def _requests(lines: aiohttp.StreamReader) -> AsyncIterator[dict[str, Any]]:
    async for line in lines:
        if line.startswith(b"data: "):
            yield msgspec.json.decode(line.removeprefix(b"data: "))


async def next_of(requests: AsyncIterator[dict[str, Any]]) -> tuple[str, str]:
    async with asyncio.timeout(60):
        one = await anext(requests)
    return one["id"], one["status"]


async def test_a_tail_shows_requests_as_they_run_begin_and_end(
    office: Gateway, store: Store, admin_key: str
) -> None:
    await charge(store, "shop")
    running = await hold(store, "shop")
    done = Settlement(response_id=running, number=0, outcome="failed", basis="reported")
    async with following(office, admin_key) as requests:
        assert await next_of(requests) == (running, "in_progress")
        await store.ledger.settle([done])
        assert await next_of(requests) == (running, "failed")
        new = await charge(store, "bank")
        assert await next_of(requests) == (new, "completed")


async def test_a_viewer_follows_its_own_project_only(office: Gateway, store: Store) -> None:
    viewer = await key_of(store, "shop", "viewer")
    async with following(office, viewer) as requests:
        await charge(store, "bank")
        own = await charge(store, "shop")
        assert await next_of(requests) == (own, "completed")


async def test_a_tail_keeps_to_its_filters(office: Gateway, store: Store, admin_key: str) -> None:
    async with following(office, admin_key, "&models=large") as requests:
        await charge(store, "shop", model="small")
        large = await charge(store, "shop", model="large", cost=DOLLAR)
        assert await next_of(requests) == (large, "completed")


def test_the_number_of_readers_is_bounded() -> None:
    from contextlib import ExitStack

    from antiphon.protocol.errors import Overloaded

    room = TailRoom()
    with ExitStack() as stack:
        for _ in range(64):
            stack.enter_context(room.place())
        with pytest.raises(Overloaded), room.place():
            pass
    with room.place():
        pass
