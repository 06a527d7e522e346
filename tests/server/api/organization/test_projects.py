"""Projects: made once, renamed, archived; and the keys that belong to them."""

from __future__ import annotations

import openai
import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.store.base import Store
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import request
from tests.server.api.organization.books import ask_as, key_of
from tests.store.conftest import Database


async def test_a_project_is_made_listed_renamed_and_archived(admin: openai.AsyncOpenAI) -> None:
    projects = admin.admin.organization.projects
    made = await projects.create(name="Shop")
    renamed = await projects.update(made.id, name="Store")
    listed = [one async for one in projects.list()]
    archived = await projects.archive(made.id)
    left = [one.id async for one in projects.list()]
    every = [one.id async for one in projects.list(include_archived=True)]

    assert made.id.startswith("proj_")
    assert made.object == "organization.project"
    assert (made.status, renamed.name) == ("active", "Store")
    assert renamed in listed
    assert archived.status == "archived"
    assert archived.archived_at is not None
    assert made.id not in left
    assert made.id in every
    assert await projects.retrieve(made.id) == archived


async def test_pages_of_projects_fit_together(admin: openai.AsyncOpenAI) -> None:
    projects = admin.admin.organization.projects
    made = [(await projects.create(name=f"p{n}")).id for n in range(5)]

    found = [one.id async for one in projects.list(limit=2)]

    assert sorted(made) == sorted(one for one in found if one in made)
    assert len(found) == len(set(found))


async def test_the_keys_of_an_archived_project_are_refused(
    office: Gateway, admin: openai.AsyncOpenAI
) -> None:
    project = await admin.admin.organization.projects.create(name="Shop")
    account = await admin.admin.organization.projects.service_accounts.create(
        project.id, name="bot"
    )
    assert account.api_key is not None
    bearer = {"Authorization": f"Bearer {account.api_key.value}"}
    before = await request(office, "GET", "/models", headers=bearer)
    await admin.admin.organization.projects.archive(project.id)
    with pytest.raises(openai.ConflictError, match="archived"):
        await admin.admin.organization.projects.service_accounts.create(project.id, name="bot")

    assert before.status == 200


async def test_an_admin_cannot_archive_the_project_of_its_own_key(
    admin: openai.AsyncOpenAI,
) -> None:
    projects = admin.admin.organization.projects
    with pytest.raises(openai.ConflictError, match="another project") as refused:
        await projects.archive("ops")

    assert refused.value.code == "project_is_your_own"
    assert (await projects.retrieve("ops")).status == "active"


async def test_a_project_may_have_an_id_of_choice_which_is_taken_once(
    office: Gateway, admin_key: str
) -> None:
    body = {"name": "Shop", "antiphon": {"id": "shop", "never_store": True}}
    made = await ask_as(office, admin_key, "POST", "/projects", body)
    again = await ask_as(office, admin_key, "POST", "/projects", body)

    assert made.json["id"] == "shop"
    assert made.json["antiphon"] == {"never_store": True}
    assert again.status == 409


async def test_the_same_request_makes_one_project(office: Gateway, admin_key: str) -> None:
    once = {"Idempotency-Key": "a"}
    made = await ask_as(office, admin_key, "POST", "/projects", {"name": "Shop"}, once)
    again = await ask_as(office, admin_key, "POST", "/projects", {"name": "Shop"}, once)
    other = await ask_as(office, admin_key, "POST", "/projects", {"name": "Other"}, once)

    assert again.json == made.json
    assert again.headers["x-antiphon-replayed"] == "1"
    assert other.status == 422


async def test_a_service_account_has_keys_that_work_until_it_is_deleted(
    office: Gateway, admin: openai.AsyncOpenAI
) -> None:
    project = await admin.admin.organization.projects.create(name="Shop")
    accounts = admin.admin.organization.projects.service_accounts
    made = await accounts.create(project.id, name="bot", expires_in_seconds=3600)
    more = await accounts.api_keys.create(made.id, project_id=project.id, name="second")
    assert made.api_key is not None
    answers = [
        (await request(office, "GET", "/models", headers={"Authorization": f"Bearer {key}"})).status
        for key in (made.api_key.value, more.value)
    ]
    listed = [one async for one in accounts.list(project.id)]
    keys = [one async for one in admin.admin.organization.projects.api_keys.list(project.id)]
    deleted = await accounts.delete(made.id, project_id=project.id)

    assert answers == [200, 200]
    assert [(one.id, one.name, one.role) for one in listed] == [(made.id, "bot", "member")]
    assert made.api_key.expires_at == made.created_at + 3600
    assert {key.id for key in keys} == {made.api_key.id, more.id}
    assert keys[0].owner.service_account is not None
    assert keys[0].owner.service_account.id == made.id
    assert deleted.deleted
    assert [one async for one in accounts.list(project.id)] == []
    with pytest.raises(openai.NotFoundError):
        await accounts.retrieve(made.id, project_id=project.id)


async def test_a_key_is_never_shown_again(
    office: Gateway, admin: openai.AsyncOpenAI, admin_key: str
) -> None:
    made = await admin.admin.organization.projects.create(name="Shop")
    account = await admin.admin.organization.projects.service_accounts.create(made.id, name="bot")
    assert account.api_key is not None
    secret = account.api_key.value.split("_", 2)[2]
    paths = [
        f"/projects/{made.id}/api_keys",
        f"/projects/{made.id}/api_keys/{account.api_key.id}",
        f"/projects/{made.id}/service_accounts",
        "/audit_logs",
    ]
    for path in paths:
        answer = await ask_as(office, admin_key, "GET", path)
        assert answer.status == 200
        assert secret.encode() not in answer.body


async def test_the_same_request_makes_one_key_and_shows_it_to_its_caller_again(
    office: Gateway, admin_key: str, store: Store
) -> None:
    await ask_as(office, admin_key, "POST", "/projects", {"name": "S", "antiphon": {"id": "s"}})
    once, path = {"Idempotency-Key": "k"}, "/projects/s/service_accounts"
    made = await ask_as(office, admin_key, "POST", path, {"name": "bot"}, once)
    again = await ask_as(office, admin_key, "POST", path, {"name": "bot"}, once)

    assert again.json == made.json
    assert again.headers["x-antiphon-replayed"] == "1"
    assert len(await store.list_keys("s")) == 1


async def test_a_key_is_changed_and_deleted(office: Gateway, admin: openai.AsyncOpenAI) -> None:
    project = await admin.admin.organization.projects.create(name="Shop")
    account = await admin.admin.organization.projects.service_accounts.create(
        project.id, name="bot"
    )
    assert account.api_key is not None
    keys = admin.admin.organization.projects.api_keys
    key_id = account.api_key.id
    changed = await keys.update(
        key_id,
        project_id=project.id,
        expires_in_seconds=60,
        extra_body={
            "antiphon": {"role": "viewer", "models": ["m"], "max_run_budget_usd": "2.5"},
        },
    )
    deleted = await keys.delete(key_id, project_id=project.id)

    assert changed.expires_at is not None
    assert changed.model_extra is not None
    assert changed.model_extra["antiphon"]["role"] == "viewer"
    assert changed.model_extra["antiphon"]["models"] == ["m"]
    assert changed.model_extra["antiphon"]["max_run_budget_usd"] == "2.50"
    assert changed.model_extra["antiphon"]["run_budget_usd"] is None
    assert deleted.object == "organization.project.api_key.deleted"
    with pytest.raises(openai.NotFoundError):
        await keys.retrieve(key_id, project_id=project.id)


async def test_a_rotated_key_has_two_secrets_for_a_while(
    office: Gateway, admin_key: str, store: Store
) -> None:
    old = await key_of(store, "shop")
    key_id = old.split("_")[1]
    path = f"/projects/shop/api_keys/{key_id}/antiphon/rotate"
    once = {"Idempotency-Key": "r"}
    new = await ask_as(office, admin_key, "POST", path, {"overlap_seconds": 600}, once)
    again = await ask_as(office, admin_key, "POST", path, {"overlap_seconds": 600}, once)
    statuses = [
        (await request(office, "GET", "/models", headers={"Authorization": f"Bearer {key}"})).status
        for key in (old, new.json["value"])
    ]

    assert statuses == [200, 200]
    assert new.json["value"] != old
    assert again.json["value"] == new.json["value"]
    assert again.headers["x-antiphon-replayed"] == "1"
    assert new.json["antiphon"]["previous_until"] > new.json["created_at"]


async def test_a_rotation_without_overlap_ends_the_old_secret(
    office: Gateway, admin_key: str, store: Store
) -> None:
    old = await key_of(store, "shop")
    path = f"/projects/shop/api_keys/{old.split('_')[1]}/antiphon/rotate"
    new = await ask_as(office, admin_key, "POST", path, {"overlap_seconds": 0})
    refused = await request(office, "GET", "/models", headers={"Authorization": f"Bearer {old}"})

    assert new.status == 200
    assert refused.status == 401


async def test_a_key_of_another_project_is_not_found(
    office: Gateway, admin_key: str, store: Store
) -> None:
    key = await key_of(store, "shop")
    await key_of(store, "bank")
    path = f"/projects/bank/api_keys/{key.split('_')[1]}"

    assert (await ask_as(office, admin_key, "GET", path)).status == 404
    assert (await ask_as(office, admin_key, "DELETE", path)).status == 404


async def test_admin_keys_are_made_listed_and_deleted(
    office: Gateway, admin: openai.AsyncOpenAI
) -> None:
    keys = admin.admin.organization.admin_api_keys
    made = await keys.create(name="deploy", expires_in_seconds=3600)
    listed = [one.id async for one in keys.list()]
    allowed = await ask_as(office, made.value, "GET", "/projects")
    found = await keys.retrieve(made.id)
    deleted = await keys.delete(made.id)

    assert allowed.status == 200
    assert made.id in listed
    assert len(listed) == 2
    assert (found.name, found.object) == ("deploy", "organization.admin_api_key")
    assert found.redacted_value not in ("", made.value)
    assert deleted.deleted
    with pytest.raises(openai.NotFoundError):
        await keys.retrieve(made.id)


@pytest.mark.parametrize(
    ("method", "path", "body", "param"),
    [
        ("POST", "/projects", {}, "name"),
        ("POST", "/projects", {"name": ""}, "name"),
        ("POST", "/projects", {"name": "x", "geography": "EU"}, "geography"),
        ("POST", "/projects", {"name": "x", "antiphon": {"id": "a/b"}}, "antiphon.id"),
        ("POST", "/projects/shop", {"antiphon": {"id": "x"}}, "antiphon.id"),
        (
            "POST",
            "/projects/shop/service_accounts",
            {"name": "x", "create_service_account_only": True},
            "create_service_account_only",
        ),
        ("POST", "/admin_api_keys", {"name": "x", "expires_in_seconds": 0}, "expires_in_seconds"),
        ("POST", "/projects", {"name": "x\n"}, "name"),
        ("POST", "/projects", {"name": "a\x1b[2Jb"}, "name"),
        ("POST", "/projects", {"name": "a\0"}, "name"),
        ("POST", "/projects", {"name": "x", "antiphon": {"id": "x\n"}}, "antiphon.id"),
        ("GET", "/projects?limit=0", None, "limit"),
        ("GET", "/projects?order=up", None, "order"),
        ("GET", "/projects?after=nobody", None, "after"),
        ("GET", "/admin_api_keys?after=nobody", None, "after"),
    ],
)
async def test_what_cannot_be_is_refused_by_name(
    office: Gateway,
    admin_key: str,
    store: Store,
    method: str,
    path: str,
    body: object,
    param: str,
) -> None:
    await key_of(store, "shop")
    answer = await ask_as(office, admin_key, method, path, body)

    assert answer.status == 400
    assert answer.error["param"] == param


@pytest.mark.parametrize(
    "path",
    ["/projects", "/admin_api_keys", "/projects/shop/service_accounts", "{account}/api_keys"],
)
async def test_a_key_that_stood_for_another_body_is_refused_by_every_creating_post(
    office: Gateway, admin_key: str, store: Store, path: str
) -> None:
    await key_of(store, "shop", user="svc_acct_bot")
    path = path.format(account="/projects/shop/service_accounts/svc_acct_bot")
    once = {"Idempotency-Key": "k"}
    bodies = ({"name": "a"}, {"name": "b"})
    answers = [await ask_as(office, admin_key, "POST", path, body, once) for body in bodies]

    assert [answer.status for answer in answers] == [200, 422]


async def test_another_caller_does_not_get_the_secret_of_a_key(
    office: Gateway, admin_key: str, store: Store
) -> None:
    other = await key_of(store, "ops", "admin")
    once, body = {"Idempotency-Key": "k"}, {"name": "deploy"}
    made = await ask_as(office, admin_key, "POST", "/admin_api_keys", body, once)
    again = await ask_as(office, other, "POST", "/admin_api_keys", body, once)

    assert made.status == 200
    assert again.status == 409
    assert again.error["code"] == "secret_not_available"
    assert made.json["value"].encode() not in again.body


async def test_a_restart_does_not_make_a_second_key(database: Database) -> None:
    if not database.is_shared:
        pytest.skip("a store in memory ends with its process")
    settings, once = ServerSettings(require_keys=True), {"Idempotency-Key": "k"}
    answers = []
    first = await database.open()
    admin_key = await key_of(first, "ops", "admin")
    for store in (first, await database.open()):
        async with serve_gateway(ScriptedBackend(), store=store, settings=settings) as gateway:
            body = {"name": "deploy"}
            answers.append(await ask_as(gateway, admin_key, "POST", "/admin_api_keys", body, once))
        await store.close()

    assert answers[0].json == answers[1].json
    assert answers[1].headers["x-antiphon-replayed"] == "1"


async def test_a_key_that_was_deleted_is_not_shown_again(office: Gateway, admin_key: str) -> None:
    once, body = {"Idempotency-Key": "k"}, {"name": "deploy"}
    made = await ask_as(office, admin_key, "POST", "/admin_api_keys", body, once)
    await ask_as(office, admin_key, "DELETE", f"/admin_api_keys/{made.json['id']}")
    again = await ask_as(office, admin_key, "POST", "/admin_api_keys", body, once)

    assert (again.status, again.error["code"]) == (409, "secret_not_available")
