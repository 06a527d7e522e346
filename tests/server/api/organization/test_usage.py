"""Usage, costs and charges: exact figures by time and by who used them."""

from __future__ import annotations

import base64
import time
from typing import Any

import msgspec
import openai
import pytest

from antiphon.protocol.token_counts import TokenCounts
from antiphon.server.api.organization import figures
from antiphon.store.base import Store
from antiphon.testing.gateway import Gateway
from tests.server.api.organization.books import (
    DOLLAR,
    ask_as,
    charge,
    hold,
    key_of,
    sdk_with,
    usage_of,
)

DAY = 86_400
HOUR = 3600


def today() -> int:
    return int(time.time()) // DAY * DAY


async def test_usage_has_the_parts_of_every_charge(admin: openai.AsyncOpenAI, store: Store) -> None:
    await charge(store, "shop", used=TokenCounts(100, 30, 5, 40, 20))
    await charge(store, "bank", used=TokenCounts(1, 0, 0, 2, 0), basis="counted", cost=None)
    usage = admin.admin.organization.usage

    (one,) = usage_of(await usage.completions(start_time=today() - 2 * DAY))

    assert one.object == "organization.usage.completions.result"
    assert (one.input_tokens, one.output_tokens) == (136, 62)
    assert (one.input_cached_tokens, one.input_uncached_tokens) == (30, 101)
    assert one.input_cache_write_tokens == 5
    assert one.num_model_requests == 2
    assert one.project_id is one.model is None
    ours = one.model_extra["antiphon"]
    assert ours["cost_usd"] == 1
    assert ours["unpriced_requests"] == 1
    assert ours["estimated_tokens"] == 3
    assert ours["output_reasoning_tokens"] == 20
    assert ours["basis"]["reported"] == {"requests": 1, "tokens": 195}


@pytest.mark.parametrize("group", ["project_id", "user_id", "api_key_id", "model"])
async def test_usage_is_grouped_by_each_field(
    admin: openai.AsyncOpenAI, store: Store, group: Any
) -> None:
    fields = {"project_id": "project", "user_id": "user", "api_key_id": "key", "model": "model"}
    for name in ("a", "b", "b"):
        whom: dict[str, Any] = {"project": "shop", fields[group]: name}
        await charge(store, whom.pop("project"), **whom)

    page = await admin.admin.organization.usage.completions(
        start_time=today(), group_by=[group], bucket_width="1h"
    )
    found = {getattr(one, group): one.num_model_requests for one in usage_of(page)}

    assert found == {"a": 1, "b": 2}


async def test_usage_and_costs_are_grouped_by_run_and_conversation(
    admin: openai.AsyncOpenAI, store: Store
) -> None:
    for project, run, conversation in (("shop", "n", "c1"), ("shop", "n", "c2"), ("bank", "n", "")):
        await charge(store, project, run=run, conversation=conversation or None)
    api = admin.admin.organization.usage

    async def asked(group: str, **names: str) -> list[tuple[Any, ...]]:
        named = {f"antiphon.{name}": [one] for name, one in names.items()}
        query = {"group_by": [group], **named}
        page = await api.completions(start_time=today(), limit=1, extra_query=query)
        found = [(one.project_id, one.model_extra["antiphon"]) for one in usage_of(page)]
        return sorted((name, ours["run_id"], ours["conversation_id"]) for name, ours in found)

    assert await asked("antiphon.run") == [("bank", "n", None), ("shop", "n", None)]
    found = await asked("antiphon.conversation", conversation="c2")
    assert found == [(None, None, "c2")]
    query = {"group_by": ["antiphon.run"], "antiphon.run": ["n"]}
    page = await api.costs(start_time=today() - 90 * DAY, limit=91, extra_query=query)
    costs = {one.project_id: one.amount.value for one in usage_of(page)}
    assert costs == {"shop": 2.0, "bank": 1.0}


async def test_single_charges_are_not_all_read(
    admin: openai.AsyncOpenAI, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run in ("a", "b", "c"):
        await charge(store, "shop", run=run)
    usage = admin.admin.organization.usage
    query: dict[str, Any] = {"group_by": ["antiphon.run"]}

    with pytest.raises(openai.BadRequestError, match="ask for one day at most"):
        await usage.completions(start_time=today() - 2 * DAY, extra_query=query)
    monkeypatch.setattr(figures, "_MOST_ROWS", 2)
    with pytest.raises(openai.BadRequestError, match="more than 2 results"):
        await usage.completions(start_time=today(), limit=1, extra_query=query)
    named = query | {"antiphon.run": ["a", "b"]}
    page = await usage.completions(start_time=today() - 9 * DAY, limit=31, extra_query=named)
    assert len(usage_of(page)) == 2


async def test_filters_leave_the_others_out(admin: openai.AsyncOpenAI, store: Store) -> None:
    await charge(store, "shop", model="small", key="k1", user="ann")
    await charge(store, "shop", model="large", key="k2", user="bob")
    await charge(store, "bank", model="large", key="k3", user="bob")
    usage = admin.admin.organization.usage

    async def count(**filters: Any) -> int:
        page = await usage.completions(start_time=today(), **filters)
        return sum(one.num_model_requests for one in usage_of(page))

    assert await count() == 3
    assert await count(project_ids=["shop"]) == 2
    assert await count(models=["large"]) == 2
    assert await count(user_ids=["bob"], project_ids=["bank"]) == 1
    assert await count(api_key_ids=["k1", "k2"]) == 2
    assert await count(project_ids=["nobody"]) == 0


async def test_buckets_without_charges_are_there(admin: openai.AsyncOpenAI, store: Store) -> None:
    await charge(store, "shop")
    page = await admin.admin.organization.usage.completions(
        start_time=today() - 3 * DAY, end_time=today() + DAY
    )

    assert [bucket.start_time for bucket in page.data] == [
        today() - 3 * DAY,
        today() - 2 * DAY,
        today() - DAY,
        today(),
    ]
    assert [len(bucket.results) for bucket in page.data] == [0, 0, 0, 1]
    assert all(bucket.end_time - bucket.start_time == DAY for bucket in page.data)
    assert page.has_more is False
    assert page.next_page is None


async def test_pages_of_buckets_fit_together(admin: openai.AsyncOpenAI, store: Store) -> None:
    await charge(store, "shop")
    usage = admin.admin.organization.usage
    starts, page, requests = [], None, 0
    while True:
        extra: dict[str, Any] = {} if page is None else {"page": page}
        found = await usage.completions(
            start_time=today() - HOUR, bucket_width="1h", limit=3, **extra
        )
        starts += [bucket.start_time for bucket in found.data]
        requests += sum(one.num_model_requests for one in usage_of(found))
        page = found.next_page
        if not found.has_more:
            break

    assert page is None
    assert starts == list(range(today() - HOUR, starts[-1] + HOUR, HOUR))
    assert starts[-1] == int(time.time()) // HOUR * HOUR
    assert requests == 1


async def test_a_minute_is_as_exact_as_a_day(admin: openai.AsyncOpenAI, store: Store) -> None:
    await charge(store, "shop")
    page = await admin.admin.organization.usage.completions(
        start_time=int(time.time()) - 600, bucket_width="1m"
    )

    assert [one.input_tokens for one in usage_of(page)] == [135]


@pytest.mark.parametrize(
    ("kind", "name", "figures"),
    [
        ("embedding", "embeddings", {"input_tokens": 135, "num_model_requests": 1}),
        ("image", "images", {"images": 1, "num_model_requests": 1}),
        ("search", "web_search_calls", {"num_requests": 1}),
    ],
)
async def test_other_kinds_have_their_own_figures(
    admin: openai.AsyncOpenAI, store: Store, kind: Any, name: str, figures: dict[str, int]
) -> None:
    await charge(store, "shop")
    await charge(store, "shop", kind=kind)
    (one,) = usage_of(await getattr(admin.admin.organization.usage, name)(start_time=today()))

    assert {field: getattr(one, field) for field in figures} == figures


async def test_costs_are_exact_and_what_is_not_known_is_null(
    office: Gateway, admin_key: str, store: Store
) -> None:
    await charge(store, "shop", cost=1, model="a")
    await charge(store, "shop", cost=3 * DOLLAR, model="a")
    await charge(store, "shop", cost=None, model="b")
    path = f"/costs?start_time={today()}&group_by[]=line_item&group_by[]=project_id"
    answer = await ask_as(office, admin_key, "GET", path)
    found = msgspec.json.decode(answer.body, type=dict[str, Any])

    results = {one["line_item"]: one for one in found["data"][0]["results"]}
    assert b'"value":3.000000001' in answer.body
    assert results["a, tokens"]["amount"]["currency"] == "usd"
    assert results["a, tokens"]["quantity"] == 390
    assert results["a, tokens"]["project_id"] == "shop"
    assert results["b, tokens"]["amount"]["value"] is None
    assert results["b, tokens"]["antiphon"]["unpriced_requests"] == 1


async def test_costs_are_grouped_and_filtered(admin: openai.AsyncOpenAI, store: Store) -> None:
    await charge(store, "shop", cost=DOLLAR, key="k1")
    await charge(store, "bank", cost=2 * DOLLAR, key="k2")
    costs = admin.admin.organization.usage.costs
    by_project = usage_of(await costs(start_time=today(), group_by=["project_id"]))
    by_key = usage_of(await costs(start_time=today(), group_by=["api_key_id"], limit=180))
    (all_,) = usage_of(await costs(start_time=today()))
    filtered = usage_of(await costs(start_time=today(), project_ids=["bank"]))

    assert {one.project_id: one.amount.value for one in by_project} == {"shop": 1, "bank": 2}
    assert {one.api_key_id: one.amount.value for one in by_key} == {"k1": 1, "k2": 2}
    assert all_.amount.value == 3
    assert [one.amount.value for one in filtered] == [2]
    assert usage_of(await costs(start_time=today(), line_items=["nothing"])) == []
    (named,) = usage_of(await costs(start_time=today(), line_items=["m, tokens"]))
    assert named.amount.value == 3


async def test_charges_are_listed_newest_first_in_pages(
    office: Gateway, admin_key: str, store: Store
) -> None:
    made = [await charge(store, "shop", run="night", cost=DOLLAR // 4) for _ in range(5)]
    held = await hold(store, "shop", run="night")
    found: list[Any] = []
    path = "/antiphon/charges?limit=2"
    while True:
        after = f"&after={found[-1]['id']}" if found else ""
        page = (await ask_as(office, admin_key, "GET", path + after)).json
        found += page["data"]
        if not page["has_more"]:
            break

    assert {one["response_id"] for one in found} == {held, *made}
    assert len(found) == 6
    times = [one["created_at"] for one in found]
    assert times == sorted(times, reverse=True)
    settled = next(one for one in found if one["state"] == "settled")
    assert settled["used"]["cost_usd"] == "0.25"
    assert settled["used"]["total_tokens"] == 195
    assert settled["basis"] == "reported"
    assert next(one for one in found if one["state"] == "held")["used"] is None


async def test_charges_are_found_by_what_they_were_for(
    office: Gateway, admin_key: str, store: Store
) -> None:
    one = await charge(store, "shop", run="night", conversation="conv_1")
    await charge(store, "shop", run="day")
    await charge(store, "bank", run="night")

    async def ids(query: str) -> list[str]:
        answer = await ask_as(office, admin_key, "GET", f"/antiphon/charges?{query}")
        return [found["response_id"] for found in answer.json["data"]]

    assert await ids(f"response_id={one}") == [one]
    assert await ids("conversation_id=conv_1") == [one]
    assert await ids("run_id=night&project_id=shop") == [one]
    assert len(await ids("project_id=shop")) == 2


# Tenants: a viewer sees its own project's figures, whatever it asks for.


@pytest.mark.parametrize(
    "path", ["/usage/completions", "/costs", "/usage/embeddings", "/usage/images"]
)
async def test_a_viewer_never_sees_figures_of_another_project(
    office: Gateway, store: Store, path: str
) -> None:
    viewer = await key_of(store, "shop", "viewer")
    kind: Any = {"/usage/embeddings": "embedding", "/usage/images": "image"}.get(path, "model")
    await charge(store, "bank", kind=kind, cost=DOLLAR)
    times = f"start_time={today()}"
    empty = await ask_as(office, viewer, "GET", f"{path}?{times}&group_by=project_id")
    other = await ask_as(office, viewer, "GET", f"{path}?{times}&project_ids[]=bank")
    both = await ask_as(office, viewer, "GET", f"{path}?{times}&project_ids=shop,bank")
    await charge(store, "shop", kind=kind, cost=2 * DOLLAR)
    own = await ask_as(office, viewer, "GET", f"{path}?{times}&group_by=project_id")

    assert all(bucket["results"] == [] for bucket in empty.json["data"])
    assert other.status == both.status == 403
    assert other.error["param"] == "project_ids"
    (one,) = (one for bucket in own.json["data"] for one in bucket["results"])
    assert one["project_id"] == "shop"


async def test_a_viewer_never_sees_charges_of_another_project(
    office: Gateway, store: Store
) -> None:
    viewer = await key_of(store, "shop", "viewer")
    secret = await charge(store, "bank", run="night")
    own = await charge(store, "shop", run="night")
    queries = ("", f"response_id={secret}", "run_id=night", "project_id=shop")
    pages = [
        (await ask_as(office, viewer, "GET", f"/antiphon/charges?{query}")).json["data"]
        for query in queries
    ]
    other = await ask_as(office, viewer, "GET", "/antiphon/charges?project_id=bank")

    assert [[one["response_id"] for one in page] for page in pages] == [[own], [], [own], [own]]
    assert other.status == 403


@pytest.mark.parametrize("role", ["user", "metrics"])
async def test_other_roles_see_no_figures(office: Gateway, store: Store, role: Any) -> None:
    key = await key_of(store, "shop", role)
    for path in (f"/usage/completions?start_time={today()}", "/antiphon/charges", "/projects"):
        answer = await ask_as(office, key, "GET", path)
        assert answer.status == 403
        assert answer.error["code"] == "insufficient_permissions"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/projects"),
        ("POST", "/projects"),
        ("GET", "/projects/shop/api_keys"),
        ("POST", "/projects/shop/service_accounts"),
        ("GET", "/projects/shop/rate_limits"),
        ("POST", "/projects/shop/rate_limits/rl-m"),
        ("GET", "/spend_limit"),
        ("POST", "/projects/shop/spend_limit"),
        ("GET", "/spend_alerts"),
        ("GET", "/antiphon/budgets"),
        ("POST", "/antiphon/budgets"),
        ("GET", "/admin_api_keys"),
        ("GET", "/audit_logs"),
    ],
)
async def test_a_viewer_manages_nothing(
    office: Gateway, store: Store, method: str, path: str
) -> None:
    viewer = await key_of(store, "shop", "viewer")
    answer = await ask_as(office, viewer, method, path, {} if method == "POST" else None)

    assert answer.status == 403


async def test_an_admin_has_no_data_of_projects(office: Gateway, admin_key: str) -> None:
    async with sdk_with(office, admin_key) as client:
        with pytest.raises(openai.PermissionDeniedError):
            await client.responses.create(model="m", input="hello")


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("", "start_time"),
        ("start_time=x", "start_time"),
        ("start_time=-1", "start_time"),
        ("start_time=1&start_time=2", "start_time"),
        ("start_time=100&end_time=100", "end_time"),
        ("start_time=1&bucket_width=2d", "bucket_width"),
        ("start_time=1&limit=0", "limit"),
        ("start_time=1&limit=32", "limit"),
        ("start_time=1&bucket_width=1h&limit=169", "limit"),
        ("start_time=1&bucket_width=1m&limit=1441", "limit"),
        ("start_time=1&group_by=colour", "group_by"),
        ("start_time=1&group_by[]=model&group_by[]=batch", "group_by"),
        ("start_time=1&page=nonsense", "page"),
        ("start_time=1&page=page_MS4y", "page"),
        ("start_time=1&batch=true", "batch"),
    ],
)
async def test_a_query_that_cannot_be_is_refused_by_name(
    office: Gateway, admin_key: str, query: str, param: str
) -> None:
    answer = await ask_as(office, admin_key, "GET", f"/usage/completions?{query}")

    assert answer.status == 400
    assert answer.error["param"] == param


@pytest.mark.parametrize(
    ("width", "most", "usual"), [("1m", 1440, 60), ("1h", 168, 24), ("1d", 31, 7)]
)
async def test_the_limits_of_a_page_are_openais(
    office: Gateway, admin_key: str, width: str, most: int, usual: int
) -> None:
    path = f"/usage/completions?start_time=0&bucket_width={width}"
    largest = await ask_as(office, admin_key, "GET", f"{path}&limit={most}")
    default = await ask_as(office, admin_key, "GET", path)

    assert len(largest.json["data"]) == most
    assert len(default.json["data"]) == usual


@pytest.mark.parametrize(
    "place", ['[1e308,"a",1]', '[1,"a",9223372036854775808]', '[-1,"a",1]', '[1,"a",-1]', "[1]"]
)
async def test_a_place_that_no_charge_has_is_refused(
    office: Gateway, admin_key: str, place: str
) -> None:
    cursor = "chg_" + base64.urlsafe_b64encode(place.encode()).decode().rstrip("=")
    answer = await ask_as(office, admin_key, "GET", f"/antiphon/charges?after={cursor}")

    assert (answer.status, answer.error["param"]) == (400, "after")
