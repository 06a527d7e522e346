"""Ways to fill the ledger of a gateway, and to ask as somebody."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import openai

from antiphon.protocol.token_counts import TokenCounts
from antiphon.server.auth import new_key
from antiphon.store.base import Store
from antiphon.store.base.keys import Role
from antiphon.store.base.ledger import (
    Basis,
    ChargeKind,
    Granted,
    Payer,
    Reservation,
    Settlement,
)
from antiphon.testing.gateway import Gateway
from tests.asking import Answer, request

__all__ = ["DOLLAR", "ask_as", "charge", "hold", "key_of", "sdk_with", "usage_of"]

DOLLAR = 1_000_000_000
_numbers = itertools.count()


async def key_of(store: Store, project: str, role: Role = "user", **extra: Any) -> str:
    """Return a new key of a project."""
    key, record = new_key(project, 1_700_000_000, role=role, **extra)
    await store.add_key(record)
    return key


def sdk_with(gateway: Gateway, key: str) -> openai.AsyncOpenAI:
    """Return the official client with a key, which it also sends to the admin API."""
    return openai.AsyncOpenAI(
        base_url=gateway.base_url, api_key=key, admin_api_key=key, max_retries=0
    )


async def ask_as(
    gateway: Gateway,
    key: str,
    method: str,
    path: str,
    body: object = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Ask for a path below /v1/organization with a key."""
    sent = {"Authorization": f"Bearer {key}", **(headers or {})}
    return await request(gateway, method, f"/organization{path}", body, sent)


async def hold(
    store: Store,
    project: str,
    *,
    model: str = "m",
    kind: ChargeKind = "model",
    cost: int | None = DOLLAR,
    tokens: TokenCounts = TokenCounts(10, 0, 0, 10),  # noqa: B008 # frozen
    **payer: str | None,
) -> str:
    """Reserve a charge; return its response."""
    response = f"resp_{next(_numbers)}"
    wanted = Reservation(
        response_id=response,
        number=0,
        payer=Payer(project, **payer),
        kind=kind,
        model=model,
        provider="upstream",
        held=tokens,
        held_cost=cost,
        is_request=True,
        allows_unpriced=True,
    )
    assert isinstance(await store.ledger.reserve(wanted), Granted)
    return response


async def charge(
    store: Store,
    project: str,
    *,
    cost: int | None = DOLLAR,
    used: TokenCounts = TokenCounts(100, 30, 5, 40, 20),  # noqa: B008 # frozen
    basis: Basis = "reported",
    model: str = "m",
    kind: ChargeKind = "model",
    **payer: str | None,
) -> str:
    """Write a settled charge; return its response."""
    response = await hold(store, project, model=model, kind=kind, cost=cost, tokens=used, **payer)
    done = Settlement(
        response_id=response, number=0, outcome="completed", basis=basis, used=used, cost=cost
    )
    await store.ledger.settle([done])
    return response


def usage_of(page: Any) -> list[Any]:
    """Return the results of all buckets of a page."""
    return [result for bucket in page.data for result in bucket.results]
