"""Every change is in the audit log, with who made it, and without secrets."""

from __future__ import annotations

import time
from typing import Any

import openai
import pytest

from antiphon.store.base import Store
from antiphon.testing.gateway import Gateway
from tests.server.api.organization.books import ask_as, key_of

_MONTHLY: dict[str, Any] = {"currency": "USD", "interval": "month", "threshold_amount": 100}


async def test_every_change_writes_an_entry(
    office: Gateway, admin: openai.AsyncOpenAI, admin_key: str, store: Store
) -> None:
    organization = admin.admin.organization
    project = (await organization.projects.create(name="Shop")).id
    await organization.projects.update(project, name="Store")
    account = await organization.projects.service_accounts.create(project, name="bot")
    assert account.api_key is not None
    keys, key = organization.projects.api_keys, account.api_key.id
    await keys.update(key, project_id=project, expires_in_seconds=60)
    await ask_as(office, admin_key, "POST", f"/projects/{project}/api_keys/{key}/antiphon/rotate")
    await organization.projects.rate_limits.update_rate_limit(
        "rl-m", project_id=project, max_requests_per_1_minute=1
    )
    await ask_as(office, admin_key, "DELETE", f"/projects/{project}/rate_limits/rl-m")
    await organization.projects.spend_limit.update(project, **_MONTHLY)
    await organization.projects.spend_limit.delete(project)
    await organization.projects.service_accounts.delete(account.id, project_id=project)
    await organization.projects.archive(project)
    made = await organization.admin_api_keys.create(name="more")
    await organization.admin_api_keys.delete(made.id)

    entries = [one async for one in organization.audit_logs.list(limit=5)]

    assert [one.type for one in reversed(entries)] == [
        "project.created",
        "project.updated",
        "api_key.created",
        "service_account.created",
        "api_key.updated",
        "api_key.updated",
        "rate_limit.updated",
        "rate_limit.deleted",
        "spend_limit.updated",
        "spend_limit.deleted",
        "api_key.deleted",
        "service_account.deleted",
        "project.archived",
        "api_key.created",
        "api_key.deleted",
    ]
    created = entries[-1]
    assert created.project_created is not None
    assert created.project_created.id == project
    assert created.project_created.data is not None
    assert created.project_created.data.name == "Shop"
    assert created.project is not None
    assert (created.project.id, created.project.name) == (project, "Store")
    assert created.actor is not None
    assert created.actor.api_key is not None
    assert created.actor.api_key.id == admin_key.split("_")[1]
    assert (await store.audit.verify()).problem is None


async def test_the_log_is_filtered_and_paged_both_ways(
    admin: openai.AsyncOpenAI, admin_key: str
) -> None:
    organization = admin.admin.organization
    one, two = [(await organization.projects.create(name=name)).id for name in ("one", "two")]
    await organization.projects.archive(one)
    logs, now = organization.audit_logs, int(time.time())

    async def found(**filters: Any) -> list[tuple[str, str | None]]:
        return [
            (str(entry.type), entry.project.id if entry.project else None)
            async for entry in logs.list(**filters)
        ]

    assert await found(event_types=["project.archived"]) == [("project.archived", one)]
    assert await found(project_ids=[two]) == [("project.created", two)]
    assert await found(resource_ids=[two]) == [("project.created", two)]
    assert len(await found(actor_ids=[admin_key.split("_")[1]])) == 3
    assert await found(actor_ids=["nobody"]) == []
    assert len(await found(effective_at={"gte": now - 60, "lt": now + 60})) == 3
    assert await found(effective_at={"gt": now + 60}) == []
    assert await found(effective_at={"lte": now - 3600}) == []
    newest = await logs.list(limit=1)
    older = await logs.list(limit=1, after=newest.data[0].id)
    newer = await logs.list(limit=1, before=older.data[0].id)
    assert newer.data == newest.data


async def test_a_refused_change_writes_nothing(office: Gateway, store: Store) -> None:
    viewer = await key_of(store, "shop", "viewer")
    await ask_as(office, viewer, "POST", "/projects", {"name": "x"})
    admin = await key_of(store, "ops", "admin")
    await ask_as(office, admin, "POST", "/projects", {"name": ""})

    assert (await store.audit.verify()).count == 0


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("after=audit_log-0", "after"),
        ("after=a&before=b", "before"),
        ("limit=101", "limit"),
        ("effective_at[gt]=soon", "effective_at[gt]"),
        ("tenant_only=true", "tenant_only"),
    ],
)
async def test_a_query_that_cannot_be_is_refused_by_name(
    office: Gateway, admin_key: str, query: str, param: str
) -> None:
    answer = await ask_as(office, admin_key, "GET", f"/audit_logs?{query}")

    assert answer.status == 400
    assert answer.error["param"] == param
