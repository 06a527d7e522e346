"""Which deployments may answer for a model."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Sequence
from decimal import Decimal

import pytest

from antiphon.backends.breaker import FAILURES_TO_OPEN
from antiphon.backends.fault_classes import CLASSES
from antiphon.backends.scripted import ScriptedBackend
from antiphon.models.facts import ModelInfo
from antiphon.models.prices import PriceSettings
from antiphon.protocol.errors import BackendError, InvalidRequest, NotFound
from antiphon.routing.candidates import Candidate
from antiphon.routing.catalog import Catalog
from antiphon.routing.describe import ModelSettings
from antiphon.routing.settings import DeploymentSettings, RouteSettings


class Listing(ScriptedBackend):
    """A backend whose list can change or fail; it counts how often it is fetched."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names: tuple[str, ...] | None = names
        self.asked = 0

    async def models(self) -> Sequence[ModelInfo]:
        self.asked += 1
        if self.names is None:
            raise BackendError("no list")
        return [ModelInfo(name) for name in self.names]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def choose(catalog: Catalog, model: str | None) -> Candidate:
    """Return the candidate that would answer; there is one today."""
    return (await catalog.route(model)).first


@pytest.mark.requirement("003-flow-2")
async def test_the_first_provider_has_a_name_and_the_prefix_reaches_the_other() -> None:
    one, two = Listing("m", "a"), Listing("m", "b")
    catalog = Catalog({"one": one, "two": two}, Clock())

    assert [model.id for model in await catalog.models()] == ["m", "a", "two/m", "b"]
    assert (await choose(catalog, "m")).backend is one
    other = await choose(catalog, "two/m")
    assert (other.backend, other.model) == (two, "m")


async def test_a_list_is_fetched_once_a_minute() -> None:
    clock, backend = Clock(), Listing("m")
    catalog = Catalog({"one": backend}, clock)
    for _ in range(10):
        await choose(catalog, "m")
    assert backend.asked == 1

    clock.now += 61
    await choose(catalog, "m")
    assert backend.asked == 2


async def test_a_model_that_is_new_upstream_is_found_without_waiting_a_minute() -> None:
    clock, backend = Clock(), Listing("old")
    catalog = Catalog({"one": backend}, clock)
    await choose(catalog, "old")
    backend.names = ("old", "new")
    clock.now += 6

    assert (await choose(catalog, "new")).model == "new"


async def test_an_unknown_model_does_not_fetch_the_list_each_time() -> None:
    backend = Listing("m")
    catalog = Catalog({"one": backend}, Clock())
    for _ in range(10):
        with pytest.raises(NotFound) as caught:
            await choose(catalog, "nope")
    assert caught.value.param == "model"
    assert backend.asked == 1


async def test_a_known_model_does_not_wait_for_the_search_of_another() -> None:
    class Slow(Listing):
        asked_again, may_answer = asyncio.Event(), asyncio.Event()

        async def models(self) -> Sequence[ModelInfo]:
            if self.asked:
                self.asked_again.set()
                await self.may_answer.wait()
            return await super().models()

    clock, backend = Clock(), Slow("m")
    catalog = Catalog({"one": backend}, clock)
    await choose(catalog, "m")
    clock.now += 6
    search = asyncio.create_task(choose(catalog, "nope"))
    await backend.asked_again.wait()

    assert (await choose(catalog, "m")).model == "m"
    backend.may_answer.set()
    with pytest.raises(NotFound):
        await search


async def test_requests_at_the_same_time_fetch_the_list_once() -> None:
    backend = Listing("m")
    catalog = Catalog({"one": backend}, Clock())
    await asyncio.gather(*(choose(catalog, "m") for _ in range(10)))
    assert backend.asked == 1


async def test_the_first_of_two_entries_of_one_name_wins() -> None:
    class Twice(Listing):
        async def models(self) -> Sequence[ModelInfo]:
            return [ModelInfo("m", context_length=1000), ModelInfo("m", context_length=2000)]

    assert (await choose(Catalog({"one": Twice()}, Clock()), "m")).context_length == 1000


async def test_a_provider_without_a_list_is_assumed_to_have_the_model() -> None:
    silent = Listing()
    silent.names = None
    catalog = Catalog({"listed": Listing("m"), "silent": silent}, Clock())

    assert (await choose(catalog, "anything")).backend is silent
    assert (await choose(catalog, "m")).backend is not silent
    await choose(catalog, "anything")
    assert silent.asked == 1


async def test_of_providers_without_a_list_the_prefix_names_one() -> None:
    down, vertex = Listing(), Listing()
    down.names = vertex.names = None
    catalog = Catalog({"down": down, "vertex": vertex}, Clock(), accounts={"vertex": "google"})

    found = await choose(catalog, "vertex/gemini")
    assert (found.backend, found.model, found.account) == (vertex, "gemini", "google")
    assert (await choose(catalog, "gemini")).backend is down


async def test_a_catalog_knows_why_a_provider_has_no_list() -> None:
    down, listed = Listing(), Listing("m")
    down.names = None
    catalog = Catalog({"down": down, "listed": listed}, Clock())
    assert catalog.list_failure("down") is None
    await catalog.models()

    assert catalog.list_failure("down") == "no list"
    assert catalog.list_failure("listed") is None


async def test_a_prefix_names_one_of_several_providers_without_a_list() -> None:
    first, second = Listing(), Listing()
    first.names = second.names = None
    settings = {"m": ModelSettings(context_length=1000)}
    catalog = Catalog({"first": first, "second": second}, Clock(), models=settings)

    chosen = await choose(catalog, "second/m")
    assert (chosen.backend, chosen.model) == (second, "m")
    assert (chosen.context_length, chosen.account) == (1000, "second")
    assert (await choose(catalog, "vendor/m")).backend is first


async def test_the_last_good_list_outlives_a_failure() -> None:
    clock, backend = Clock(), Listing("m")
    catalog = Catalog({"one": backend}, clock)
    await choose(catalog, "m")
    backend.names = None
    clock.now += 61

    assert (await choose(catalog, "m")).model == "m"
    assert [model.id for model in await catalog.models()] == ["m"]


async def test_without_a_name_the_default_is_used_else_the_first() -> None:
    backend = Listing("first", "second")
    assert (await choose(Catalog({"one": backend}, Clock()), None)).model == "first"
    chosen = Catalog({"one": backend}, Clock(), default_model="second")
    assert (await choose(chosen, None)).model == "second"


async def test_without_a_name_a_model_that_can_chat_is_used() -> None:
    listing = Listing("nomic-embed-text:latest", "qwen3")
    assert (await choose(Catalog({"one": listing}, Clock()), None)).model == "qwen3"
    listing = Listing("nomic-embed-text:latest")
    assert (
        await choose(Catalog({"one": listing}, Clock()), None)
    ).model == "nomic-embed-text:latest"


async def test_without_any_model_the_caller_must_name_one() -> None:
    with pytest.raises(InvalidRequest):
        await choose(Catalog({"one": Listing()}, Clock()), None)


async def test_if_no_provider_lists_models_the_failure_is_raised() -> None:
    backend = Listing()
    backend.names = None
    with pytest.raises(BackendError, match="no list"):
        await Catalog({"one": backend}, Clock()).models()


async def test_models_are_listed_with_their_settings() -> None:
    settings = {
        "m": ModelSettings(context_length=1000),
        "two/m": ModelSettings(context_length=2000),
        "ghost": ModelSettings(context_length=3000),
    }
    catalog = Catalog({"one": Listing("m"), "two": Listing("m")}, Clock(), models=settings)

    found = {model.id: model.context_length for model in await catalog.models()}
    assert found == {"m": 1000, "two/m": 2000}


async def test_the_default_model_can_be_asked_for() -> None:
    assert Catalog({}, Clock(), default_model="m").default_model == "m"
    assert Catalog({}, Clock()).default_model is None


async def test_a_candidate_has_the_window_of_its_model() -> None:
    settings = {"b": ModelSettings(context_length=4_096)}
    catalog = Catalog({"p": Listing("a", "b")}, Clock(), models=settings)

    assert (await choose(catalog, "b")).context_length == 4_096
    assert (await choose(catalog, "a")).context_length is None


async def test_the_price_of_a_route_counts_for_deployments_without_one_of_their_own() -> None:
    own, common = (
        ModelSettings(price=PriceSettings(input=Decimal(given), output=Decimal(given)))
        for given in (2, 5)
    )
    deployments = tuple(DeploymentSettings(provider="one", model=name) for name in ("a", "gpt-5.1"))
    routes = {"fast": RouteSettings(deployments=deployments)}
    catalog = Catalog(
        {"one": Listing("a", "gpt-5.1")},
        Clock(),
        models={"one/a": own, "fast": common},
        routes=routes,
    )
    found = (await catalog.route("fast")).deployments
    assert [one.price and one.price.input for one in found] == [2.0, 5.0]
    assert [(one.model, one.source) for one in await catalog.prices()] == [
        ("a", "settings"),
        ("gpt-5.1", "bundled"),
    ]


async def test_a_catalog_that_takes_over_knows_what_still_runs() -> None:
    kept, replaced = Listing("m"), Listing("m")
    old = Catalog({"a": kept, "b": replaced}, Clock(), limits={"a": 1})
    for provider in ("a", "b"):
        for _ in range(FAILURES_TO_OPEN):
            old.board.breaker.note_failure(f"{provider}/m", CLASSES["transport"])
    running = await choose(old, "m")
    old.board.enter(running, "only")
    new = Catalog({"a": kept, "b": Listing("m")}, Clock(), board=old.board, limits={"a": 2})
    assert not old.board.has_room("a")  # not before it takes over
    new.take_over(old)
    assert new.board.has_room("a")
    new.board.enter(await choose(new, "m"), "only")
    assert not new.board.has_room("a")
    assert new.board.breaker.is_open("a/m")  # the provider is the same
    assert not new.board.breaker.is_open("b/m")
    new.board.leave(running)
    assert new.board.has_room("a")


async def test_a_lease_ends_with_the_last_route_of_a_catalog_and_of_those_before() -> None:
    backend, ended = Listing("m"), list[str]()
    catalogs = [Catalog({"a": backend}, Clock()) for _ in range(3)]
    first, second, third = catalogs
    for name, one in (("first", first), ("second", second)):
        weakref.finalize(one.lease, ended.append, name)
    route = await first.route("m")
    second.take_over(first)
    third.take_over(second)
    catalogs.clear()
    del first, second, one
    assert ended == []  # a turn of the first may ask a backend that all had
    del route
    assert ended == ["first", "second"]
    assert (await third.route("m")).first.backend is backend
