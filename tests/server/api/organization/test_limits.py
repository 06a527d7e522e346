"""Rate limits, spend limits, budgets and alerts: what is set is in the ledger, exactly."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from antiphon.protocol.token_counts import TokenCounts
from antiphon.store.base import Store
from antiphon.store.base.ledger import Payer, Refused, Reservation
from antiphon.testing.gateway import Gateway
from tests.server.api.organization.books import DOLLAR, ask_as, charge, hold, key_of

BUDGETS = "/antiphon/budgets"


async def test_a_rate_limit_is_set_changed_listed_and_deleted(
    office: Gateway, admin: openai.AsyncOpenAI, admin_key: str, store: Store
) -> None:
    await key_of(store, "shop")
    limits = admin.admin.organization.projects.rate_limits
    first: Any = await limits.update_rate_limit(
        "rl-qwen3:8b", project_id="shop", max_requests_per_1_minute=60
    )
    second = await limits.update_rate_limit(
        "rl-qwen3:8b", project_id="shop", max_tokens_per_1_minute=1000
    )
    every = await limits.update_rate_limit(
        "rl-*",
        project_id="shop",
        max_requests_per_1_minute=5,
        extra_body={"antiphon": {"max_concurrent_requests": 2}},
    )
    listed = [one async for one in limits.list_rate_limits("shop")]
    deleted = await ask_as(office, admin_key, "DELETE", "/projects/shop/rate_limits/rl-*")
    left = await store.ledger.rate_limits("project", "shop")

    assert (first.max_requests_per_1_minute, first.max_tokens_per_1_minute) == (60, None)
    assert (second.max_requests_per_1_minute, second.max_tokens_per_1_minute) == (60, 1000)
    assert [one.id for one in listed] == ["rl-qwen3:8b", "rl-*"]
    assert listed[1] == every
    assert every.model == "*"
    assert deleted.status == 200
    assert [(one.model, one.requests, one.tokens) for one in left] == [("qwen3:8b", 60, 1000)]


async def test_the_model_of_a_rate_limit_may_have_a_slash(
    admin: openai.AsyncOpenAI, store: Store
) -> None:
    await key_of(store, "shop")
    made = await admin.admin.organization.projects.rate_limits.update_rate_limit(
        "rl-openai/gpt-6", project_id="shop", max_requests_per_1_minute=60
    )
    (limit,) = await store.ledger.rate_limits()

    assert made.model == limit.model == "openai/gpt-6"


async def test_a_rate_limit_of_the_api_refuses_the_next_request(
    admin: openai.AsyncOpenAI, store: Store
) -> None:
    await key_of(store, "shop")
    await admin.admin.organization.projects.rate_limits.update_rate_limit(
        "rl-m", project_id="shop", max_requests_per_1_minute=1
    )
    await charge(store, "shop")
    refused = await store.ledger.reserve(
        Reservation(
            response_id="resp_more",
            number=0,
            payer=Payer("shop"),
            model="m",
            held=TokenCounts(1),
            is_request=True,
        )
    )

    assert isinstance(refused, Refused)
    assert refused.by == "requests"


@pytest.mark.parametrize("project", [None, "shop"])
async def test_a_spend_limit_is_set_raised_and_deleted(
    admin: openai.AsyncOpenAI, store: Store, project: str | None
) -> None:
    await key_of(store, "shop")
    organization = admin.admin.organization
    limits: Any = organization.projects.spend_limit if project else organization.spend_limit
    where = (project,) if project else ()
    with pytest.raises(openai.NotFoundError):
        await limits.retrieve(*where)
    monthly: dict[str, Any] = {"currency": "USD", "interval": "month"}
    made = await limits.update(*where, threshold_amount=150, **monthly)
    await charge(store, "shop", cost=DOLLAR)
    await hold(store, "shop", cost=DOLLAR // 2)
    full = await limits.retrieve(*where)
    raised = await limits.update(*where, threshold_amount=1000, **monthly)
    (state,) = await store.ledger.budgets("project" if project else "organization")
    deleted = await limits.delete(*where)

    assert (made.threshold_amount, made.currency, made.interval) == (150, "USD", "month")
    assert made.enforcement.status == "inactive"
    assert full.enforcement.status == "enforcing"
    assert full.model_extra["antiphon"]["spent"] == "1.00"
    assert full.model_extra["antiphon"]["held"] == "0.50"
    assert raised.enforcement.status == "inactive"
    assert state.budget.ceiling == 10 * DOLLAR
    assert state.budget.id == made.model_extra["antiphon"]["id"]
    assert deleted.deleted
    assert await store.ledger.budgets() == []
    with pytest.raises(openai.NotFoundError):
        await limits.delete(*where)


async def test_alerts_by_email_are_refused_by_name(admin: openai.AsyncOpenAI, store: Store) -> None:
    await key_of(store, "shop")
    organization = admin.admin.organization
    alert: dict[str, Any] = {
        "currency": "USD",
        "interval": "month",
        "threshold_amount": 100,
        "notification_channel": {"type": "email", "recipients": ["a@b.c"]},
    }
    with pytest.raises(openai.BadRequestError, match="e-mail is not sent"):
        await organization.spend_alerts.create(**alert)
    with pytest.raises(openai.BadRequestError, match="e-mail is not sent"):
        await organization.projects.spend_alerts.create("shop", **alert)
    with pytest.raises(openai.NotFoundError):
        await organization.spend_alerts.retrieve("alert_1")

    assert [one async for one in organization.spend_alerts.list()] == []
    assert [one async for one in organization.projects.spend_alerts.list("shop")] == []


@pytest.mark.parametrize(
    ("target", "scope_id"),
    [
        ({"scope": "organization"}, ""),
        ({"scope": "project", "scope_id": "shop"}, "shop"),
        ({"scope": "user", "scope_id": "ann", "project_id": "shop"}, "shop/ann"),
        ({"scope": "conversation", "scope_id": "conv_1", "project_id": "shop"}, "shop/conv_1"),
        ({"scope": "run", "scope_id": "night", "project_id": "shop"}, "shop/night"),
    ],
)
async def test_a_budget_of_every_scope_is_exact(
    office: Gateway, admin_key: str, store: Store, target: dict[str, str], scope_id: str
) -> None:
    await key_of(store, "shop")
    body = {**target, "unit": "usd", "limit": "0.000000003", "period": "day", "soft": [80, 50]}
    made = await ask_as(office, admin_key, "POST", BUDGETS, body)
    (state,) = await store.ledger.budgets()

    assert made.status == 200, made.body
    assert state.budget.ceiling == 3
    assert state.budget.scope_id == scope_id
    assert state.budget.soft == (50, 80)
    assert made.json["limit"] == made.json["remaining"] == "0.000000003"
    assert made.json["project_id"] == ("shop" if scope_id else None)
    assert (
        await ask_as(office, admin_key, "GET", f"{BUDGETS}/{made.json['id']}")
    ).json == made.json


async def test_a_budget_of_a_key_in_tokens_counts_what_was_used(
    office: Gateway, admin_key: str, store: Store
) -> None:
    key_id = (await key_of(store, "shop")).split("_")[1]
    await charge(store, "shop", key=key_id, used=TokenCounts(100, 0, 0, 50))
    body = {"scope": "key", "scope_id": key_id, "unit": "tokens", "limit": 1000}
    made = await ask_as(office, admin_key, "POST", BUDGETS, body)
    changed = await ask_as(office, admin_key, "POST", BUDGETS, {**body, "limit": 2000})
    listed = await ask_as(office, admin_key, "GET", f"{BUDGETS}?scope=key")
    deleted = await ask_as(office, admin_key, "DELETE", f"{BUDGETS}/{made.json['id']}")

    assert (made.json["spent"], made.json["remaining"]) == (150, 850)
    assert (changed.json["id"], changed.json["remaining"]) == (made.json["id"], 1850)
    assert [one["id"] for one in listed.json["data"]] == [made.json["id"]]
    assert deleted.json["deleted"]
    assert await store.ledger.budgets() == []


async def test_budgets_are_listed_by_project(office: Gateway, admin_key: str, store: Store) -> None:
    for project in ("shop", "bank"):
        await key_of(store, project)
        body = {"scope": "project", "scope_id": project, "unit": "usd", "limit": "1"}
        await ask_as(office, admin_key, "POST", BUDGETS, body)
    found = await ask_as(office, admin_key, "GET", f"{BUDGETS}?project_id=bank")

    assert [one["scope_id"] for one in found.json["data"]] == ["bank"]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (BUDGETS, {"scope": "team", "unit": "usd", "limit": "1"}, "scope"),
        (BUDGETS, {"scope": "project", "unit": "usd", "limit": "1"}, "scope_id"),
        (BUDGETS, {"scope": "user", "scope_id": "a", "unit": "usd", "limit": "1"}, "project_id"),
        (BUDGETS, {"scope": "organization", "unit": "usd", "limit": 1.5}, "limit"),
        (BUDGETS, {"scope": "organization", "unit": "usd", "limit": 5}, "limit"),
        (BUDGETS, {"scope": "organization", "unit": "usd", "limit": "-1"}, "limit"),
        (BUDGETS, {"scope": "organization", "unit": "usd", "limit": "0"}, "limit"),
        (BUDGETS, {"scope": "organization", "unit": "usd", "limit": "1e3"}, "limit"),
        (BUDGETS, {"scope": "organization", "unit": "tokens", "limit": "ten"}, "limit"),
        (BUDGETS, {"scope": "organization", "unit": "eur", "limit": "1"}, "unit"),
        (BUDGETS, {"scope": "organization", "unit": "usd", "limit": "1", "soft": [0]}, "soft[0]"),
        (BUDGETS, {"scope": "organization", "unit": "usd", "limit": "1", "hard": True}, "hard"),
        (
            "/spend_limit",
            {"currency": "EUR", "interval": "month", "threshold_amount": 1},
            "currency",
        ),
        (
            "/spend_limit",
            {"currency": "USD", "interval": "month", "threshold_amount": 0},
            "threshold_amount",
        ),
        ("/projects/shop/rate_limits/rl-m", {}, "max_requests_per_1_minute"),
        (
            "/projects/shop/rate_limits/rl-m",
            {"max_images_per_1_minute": 5},
            "max_images_per_1_minute",
        ),
        (
            "/projects/shop/rate_limits/rl-m",
            {"max_tokens_per_1_minute": -1},
            "max_tokens_per_1_minute",
        ),
    ],
)
async def test_what_cannot_be_is_refused_by_name(
    office: Gateway, admin_key: str, store: Store, path: str, body: object, param: str
) -> None:
    await key_of(store, "shop")
    answer = await ask_as(office, admin_key, "POST", path, body)

    assert answer.status == 400, answer.body
    assert answer.error["param"] == param
    assert await store.ledger.budgets() == []
    assert await store.ledger.rate_limits() == []


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"scope": "project", "scope_id": "nobody"}, "scope_id"),
        ({"scope": "key", "scope_id": "nobody"}, "scope_id"),
        ({"scope": "run", "scope_id": "r", "project_id": "nobody"}, "project_id"),
    ],
)
async def test_a_budget_that_no_key_can_reach_is_refused(
    office: Gateway, admin_key: str, body: dict[str, str], param: str
) -> None:
    answer = await ask_as(office, admin_key, "POST", BUDGETS, {**body, "unit": "usd", "limit": "1"})

    assert answer.status == 404
    assert answer.error["param"] == param


async def test_an_unknown_project_is_not_found(office: Gateway, admin_key: str) -> None:
    for path in ("rate_limits", "spend_limit", "spend_alerts", "api_keys", "service_accounts"):
        answer = await ask_as(office, admin_key, "GET", f"/projects/nobody/{path}")
        assert answer.status == 404
        assert answer.error["code"] == "project_not_found"
