"""Which backend answers for a model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from antiphon.backends.base import ModelInfo
from antiphon.backends.scripted import ScriptedBackend
from antiphon.protocol.errors import BackendError, InvalidRequest, NotFound
from antiphon.routing.catalog import Catalog
from antiphon.routing.describe import ModelSettings


class Listing(ScriptedBackend):
    """A backend whose list can change or fail, and counts how often it is asked."""

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


@pytest.mark.requirement("003-flow-2")
async def test_the_first_provider_has_a_name_and_the_prefix_reaches_the_other() -> None:
    one, two = Listing("m", "a"), Listing("m", "b")
    catalog = Catalog({"one": one, "two": two}, Clock())

    assert [model.id for model in await catalog.models()] == ["m", "a", "two/m", "b"]
    assert (await catalog.route("m")).backend is one
    other = await catalog.route("two/m")
    assert (other.backend, other.model) == (two, "m")


async def test_a_list_is_asked_for_once_a_minute() -> None:
    clock, backend = Clock(), Listing("m")
    catalog = Catalog({"one": backend}, clock)
    for _ in range(10):
        await catalog.route("m")
    assert backend.asked == 1

    clock.now += 61
    await catalog.route("m")
    assert backend.asked == 2


async def test_a_model_that_is_new_upstream_is_found_without_waiting_a_minute() -> None:
    clock, backend = Clock(), Listing("old")
    catalog = Catalog({"one": backend}, clock)
    await catalog.route("old")
    backend.names = ("old", "new")
    clock.now += 6

    assert (await catalog.route("new")).model == "new"


async def test_an_unknown_model_does_not_make_us_ask_again_and_again() -> None:
    backend = Listing("m")
    catalog = Catalog({"one": backend}, Clock())
    for _ in range(10):
        with pytest.raises(NotFound) as caught:
            await catalog.route("nope")
    assert caught.value.param == "model"
    assert backend.asked == 1


async def test_a_known_model_does_not_wait_for_the_search_of_another() -> None:
    class Slow(Listing):
        asked_again, may_tell = asyncio.Event(), asyncio.Event()

        async def models(self) -> Sequence[ModelInfo]:
            if self.asked:
                self.asked_again.set()
                await self.may_tell.wait()
            return await super().models()

    clock, backend = Clock(), Slow("m")
    catalog = Catalog({"one": backend}, clock)
    await catalog.route("m")
    clock.now += 6
    search = asyncio.create_task(catalog.route("nope"))
    await backend.asked_again.wait()

    assert (await catalog.route("m")).model == "m"
    backend.may_tell.set()
    with pytest.raises(NotFound):
        await search


async def test_many_who_ask_at_once_make_us_ask_once() -> None:
    backend = Listing("m")
    catalog = Catalog({"one": backend}, Clock())
    await asyncio.gather(*(catalog.route("m") for _ in range(10)))
    assert backend.asked == 1


async def test_of_two_models_of_one_name_the_first_counts() -> None:
    class Twice(Listing):
        async def models(self) -> Sequence[ModelInfo]:
            return [ModelInfo("m", context_length=1000), ModelInfo("m", context_length=2000)]

    assert (await Catalog({"one": Twice()}, Clock()).route("m")).context_length == 1000


async def test_a_provider_without_a_list_is_taken_at_the_callers_word() -> None:
    silent = Listing()
    silent.names = None
    catalog = Catalog({"listed": Listing("m"), "silent": silent}, Clock())

    assert (await catalog.route("anything")).backend is silent
    assert (await catalog.route("m")).backend is not silent
    await catalog.route("anything")
    assert silent.asked == 1


async def test_the_last_good_list_outlives_a_failure() -> None:
    clock, backend = Clock(), Listing("m")
    catalog = Catalog({"one": backend}, clock)
    await catalog.route("m")
    backend.names = None
    clock.now += 61

    assert (await catalog.route("m")).model == "m"
    assert [model.id for model in await catalog.models()] == ["m"]


async def test_without_a_name_the_default_is_taken_else_the_first() -> None:
    backend = Listing("first", "second")
    assert (await Catalog({"one": backend}, Clock()).route(None)).model == "first"
    chosen = Catalog({"one": backend}, Clock(), default_model="second")
    assert (await chosen.route(None)).model == "second"


async def test_without_a_name_no_model_is_taken_that_cannot_chat() -> None:
    listing = Listing("nomic-embed-text:latest", "qwen3")
    assert (await Catalog({"one": listing}, Clock()).route(None)).model == "qwen3"
    listing = Listing("nomic-embed-text:latest")
    assert (await Catalog({"one": listing}, Clock()).route(None)).model == "nomic-embed-text:latest"


async def test_without_any_model_the_caller_must_name_one() -> None:
    with pytest.raises(InvalidRequest):
        await Catalog({"one": Listing()}, Clock()).route(None)


async def test_if_no_provider_says_anything_the_failure_is_told() -> None:
    backend = Listing()
    backend.names = None
    with pytest.raises(BackendError, match="no list"):
        await Catalog({"one": backend}, Clock()).models()


async def test_models_are_listed_with_what_config_says_of_them() -> None:
    told = {
        "m": ModelSettings(context_length=1000),
        "two/m": ModelSettings(context_length=2000),
        "ghost": ModelSettings(context_length=3000),
    }
    catalog = Catalog({"one": Listing("m"), "two": Listing("m")}, Clock(), models=told)

    found = {model.id: model.context_length for model in await catalog.models()}
    assert found == {"m": 1000, "two/m": 2000}


async def test_the_default_model_can_be_asked_for() -> None:
    assert Catalog({}, Clock(), default_model="m").default_model == "m"
    assert Catalog({}, Clock()).default_model is None


async def test_a_route_knows_how_much_the_model_takes() -> None:
    told = {"b": ModelSettings(context_length=4_096)}
    catalog = Catalog({"p": Listing("a", "b")}, Clock(), models=told)

    assert (await catalog.route("b")).context_length == 4_096
    assert (await catalog.route("a")).context_length is None
