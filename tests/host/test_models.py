"""The directory of models: when the server is asked, what is shown meanwhile, who knows best."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from aiohttp import web

from antiphon.backends.scripted import ScriptedBackend
from antiphon.client.errors import (
    AuthFailed,
    InvalidAnswer,
    ServerFailed,
    ServerUnreachable,
    TimedOut,
)
from antiphon.host.model_table import ModelTable
from antiphon.host.models import ModelAbilities, ModelDescription, ModelDirectory
from antiphon.models.prices import Price
from antiphon.testing import serve_gateway
from antiphon.transport.http import HttpClient, Secret


@dataclass
class Clock:
    """Time that a test moves."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Lister:
    """A server that lists models, and what it was asked."""

    names: list[str] = field(default_factory=lambda: ["gpt-4o", "house"])
    extra: dict[str, Any] = field(default_factory=dict)
    etag: str | None = None
    failure: tuple[int, str] | None = None
    retry_after: str | None = None
    gate: asyncio.Event | None = None
    requests: list[dict[str, str]] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.requests.append({name.lower(): text for name, text in request.headers.items()})
        self.arrived.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            status, text = self.failure
            headers = {"Retry-After": self.retry_after} if self.retry_after else {}
            return web.Response(status=status, text=text, headers=headers)
        if self.etag and request.headers.get("If-None-Match") == self.etag:
            return web.Response(status=304)
        data = [{"id": name, "object": "model", **self.extra} for name in self.names]
        headers = {"ETag": self.etag} if self.etag else {}
        return web.json_response({"object": "list", "data": data}, headers=headers)


@asynccontextmanager
async def serve(lister: Lister) -> AsyncIterator[Lister]:
    """Serve a lister on the loopback."""
    app = web.Application()
    app.router.add_get("/v1/models", lister.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.0, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    lister.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield lister
    finally:
        await runner.cleanup()


@asynccontextmanager
async def directory_of(url: str, **options: Any) -> AsyncIterator[ModelDirectory]:
    """Open a directory, and close it and its client. Who waits in vain fails."""
    client = HttpClient(key=Secret("sk-test"))
    directory = ModelDirectory(client, url, **options)
    try:
        async with asyncio.timeout(30):
            yield directory
    finally:
        await directory.close()
        await client.close()


async def _settle(directory: ModelDirectory) -> None:
    """Wait for the refresh that is under way."""
    if directory._refresh is not None:
        await asyncio.wait({directory._refresh})


def _ids(models: tuple[ModelDescription, ...]) -> list[str]:
    return [model.id for model in models]


@pytest.mark.requirement("RFC016-facade")
async def test_the_list_is_fetched_once_and_kept_for_its_time() -> None:
    clock = Clock()
    async with serve(Lister()) as server, directory_of(server.url, clock=clock) as directory:
        assert _ids(await directory.list()) == ["gpt-4o", "house"]
        clock.now += 299.9
        assert _ids(await directory.list(silent=False)) == ["gpt-4o", "house"]

    assert len(server.requests) == 1
    assert server.requests[0]["authorization"] == "Bearer sk-test"
    assert "if-none-match" not in server.requests[0]


async def test_an_old_list_is_shown_at_once_while_a_new_one_is_fetched() -> None:
    clock = Clock()
    async with serve(Lister()) as server, directory_of(server.url, clock=clock) as directory:
        await directory.list()
        server.names, server.gate = ["new"], asyncio.Event()
        server.arrived.clear()
        clock.now += 300.0

        shown = [await directory.list() for _ in range(5)]
        await server.arrived.wait()
        assert [_ids(models) for models in shown] == [["gpt-4o", "house"]] * 5
        assert len(server.requests) == 2
        server.gate.set()
        await _settle(directory)
        assert _ids(await directory.list()) == ["new"]

    assert len(server.requests) == 2


async def test_a_refresh_asks_at_once_and_keeps_the_last_list_when_that_fails() -> None:
    async with serve(Lister()) as server, directory_of(server.url) as directory:
        assert directory.known == ()
        await directory.list()
        server.names = ["new"]
        assert _ids(await directory.refresh(silent=False)) == ["new"]
        server.failure = (503, "busy")
        with pytest.raises(ServerFailed, match="busy"):
            await directory.refresh(silent=False)
        assert _ids(await directory.refresh()) == _ids(directory.known) == ["new"]


async def test_who_comes_first_together_shares_one_request() -> None:
    async with serve(Lister(gate=asyncio.Event())) as server, directory_of(server.url) as directory:
        waiting = [asyncio.create_task(directory.list()) for _ in range(10)]
        await server.arrived.wait()
        waiting[0].cancel()
        assert server.gate is not None
        server.gate.set()

        lists = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(lists[0], asyncio.CancelledError)
        assert [len(found) for found in lists[1:] if isinstance(found, tuple)] == [2] * 9

    assert len(server.requests) == 1


async def test_an_unchanged_list_is_not_sent_again() -> None:
    clock = Clock()
    lister = Lister(etag='W/"one"')
    async with serve(lister) as server, directory_of(server.url, clock=clock) as directory:
        first = await directory.list()
        clock.now += 301
        await directory.list()
        await _settle(directory)
        assert await directory.list() is first
        assert server.requests[1]["if-none-match"] == 'W/"one"'

        server.etag, server.names = 'W/"two"', ["new"]
        clock.now += 301
        await directory.list()
        await _settle(directory)
        assert _ids(await directory.list()) == ["new"]

    assert len(server.requests) == 3


async def test_a_304_that_nobody_asked_for_is_an_error() -> None:
    lister = Lister(failure=(304, ""))
    async with serve(lister) as server, directory_of(server.url) as directory:
        with pytest.raises(InvalidAnswer):
            await directory.list(silent=False)


async def test_the_last_good_list_stands_when_the_server_fails() -> None:
    clock = Clock()
    async with serve(Lister()) as server, directory_of(server.url, clock=clock) as directory:
        good = await directory.list()
        server.failure = (500, "out of order")
        clock.now += 300
        assert await directory.list() is good
        await _settle(directory)
        assert await directory.list(silent=False) is good
        await _settle(directory)
        assert len(server.requests) == 2  # not again at once

        server.failure = None
        server.names = ["new"]
        clock.now += 15
        assert await directory.list() is good
        await _settle(directory)
        assert _ids(await directory.list()) == ["new"]


async def test_a_server_that_says_when_to_come_back_is_obeyed() -> None:
    clock = Clock()
    async with serve(Lister()) as server, directory_of(server.url, clock=clock) as directory:
        await directory.list()
        server.failure, server.retry_after = (429, "{}"), "120"
        clock.now += 300
        await directory.list()
        await _settle(directory)
        clock.now += 119
        await directory.list()
        await _settle(directory)
        assert len(server.requests) == 2
        clock.now += 1
        await directory.list()
        await _settle(directory)

    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        ((401, '{"error": {"message": "no such key"}}'), AuthFailed),
        ((503, "down"), ServerFailed),
        ((200, "<html>"), InvalidAnswer),
    ],
)
async def test_with_nothing_to_show_only_the_silent_are_spared(
    failure: tuple[int, str], error: type[Exception]
) -> None:
    clock = Clock()
    async with (
        serve(Lister(failure=failure)) as server,
        directory_of(server.url, clock=clock) as directory,
    ):
        assert await directory.list() == ()
        with pytest.raises(error):
            await directory.list(silent=False)
        server.failure = None
        clock.now += 15.0
        assert _ids(await directory.list()) == ["gpt-4o", "house"]


async def test_a_server_that_is_not_there_has_no_models() -> None:
    async with serve(Lister()) as server:
        url = server.url
    async with directory_of(url) as directory:
        assert await directory.list() == ()
        with pytest.raises(ServerUnreachable):
            await directory.list(silent=False)


async def test_a_server_that_never_answers_is_given_up() -> None:
    lister = Lister(gate=asyncio.Event())
    async with serve(lister) as server, directory_of(server.url, timeout=0.05) as directory:
        with pytest.raises(TimedOut):
            await directory.list(silent=False)
        assert await directory.list() == ()


async def test_closing_ends_the_request_and_frees_who_waits() -> None:
    lister = Lister(gate=asyncio.Event())
    async with serve(lister) as server, directory_of(server.url) as directory:
        silent = asyncio.create_task(directory.list())
        loud = asyncio.create_task(directory.list(silent=False))
        await server.arrived.wait()
        await directory.close()
        running = {getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()}
        assert "ModelDirectory._fetch" not in running

        assert await silent == ()
        with pytest.raises(ServerUnreachable, match="closed"):
            await loud
        with pytest.raises(ServerUnreachable, match="closed"):
            await directory.list(silent=False)
        assert len(server.requests) == 1


async def test_what_was_never_used_closes_too() -> None:
    async with serve(Lister()) as server, directory_of(server.url) as directory:
        await directory.close()
        assert await directory.list() == ()

    assert server.requests == []


async def test_a_closed_directory_still_shows_its_last_list() -> None:
    clock = Clock()
    async with serve(Lister()) as server, directory_of(server.url, clock=clock) as directory:
        good = await directory.list()
        await directory.close()
        clock.now += 1000
        assert await directory.list() is good

    assert len(server.requests) == 1


async def test_config_knows_better_than_the_server_and_that_better_than_the_table() -> None:
    table = ModelTable({"gpt-4o": {"max_output_tokens": 1000, "image_input": False}})
    lister = Lister(extra={"context_length": 64_000, "capabilities": {"vision": True}})
    async with serve(lister) as server, directory_of(server.url, table=table) as directory:
        known, house = await directory.list()

    assert known == ModelDescription(
        id="gpt-4o",
        name="gpt-4o",
        family="gpt-4o",
        capabilities=ModelAbilities(image_input=False, tool_calling=True, reasoning=False),
        context_window=64_000,
        max_input_tokens=63_000,
        max_output_tokens=1000,
        price=Price(2.5, 10, 1.25),
    )
    assert house == ModelDescription(
        id="house",
        name="house",
        family="house",
        capabilities=ModelAbilities(image_input=True),
        context_window=64_000,
        max_input_tokens=64_000,
    )


async def test_a_smaller_window_makes_the_answer_shorter_too() -> None:
    lister = Lister(names=["gpt-5"], extra={"max_model_len": 32_000})
    async with serve(lister) as server, directory_of(server.url) as directory:
        (model,) = await directory.list()

    assert model.context_window == 32_000
    assert model.max_input_tokens == 32_000
    assert model.max_output_tokens == 32_000


async def test_names_and_families_are_fit_to_be_shown() -> None:
    names = ["openai/gpt-5-2025-08-07", "x/house-2025-01-02", "mistral-latest", "plain@20250101"]
    async with serve(Lister(names=names)) as server, directory_of(server.url) as directory:
        models = await directory.list()

    assert [model.family for model in models] == ["gpt-5", "house", "mistral", "plain"]
    assert _ids(models) == names
    assert models[0].capabilities.reasoning_levels == ("minimal", "low", "medium", "high")
    assert models[0].max_input_tokens == 272_000


async def test_one_model_is_looked_up_without_asking_anyone() -> None:
    lister = Lister(extra={"context_length": 64_000})
    async with serve(lister) as server, directory_of(server.url) as directory:
        assert directory.get("house") is None
        before = directory.get("gpt-4o")
        await directory.list()
        after = directory.get("gpt-4o")
        house = directory.get("house")

    assert before is not None
    assert before.context_window == 128_000
    assert after is not None
    assert after.context_window == 64_000
    assert house is not None
    assert len(server.requests) == 1


async def test_our_own_gateway_is_understood() -> None:
    async with (
        serve_gateway(ScriptedBackend()) as gateway,
        directory_of(f"{gateway.base_url}/") as directory,
    ):
        models = await directory.list(silent=False)

    assert _ids(models) == ["scripted", "echo"]


@pytest.mark.requirement("REQ-010.1")
async def test_logs_name_neither_key_nor_address(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    with caplog.at_level(logging.DEBUG, "antiphon.host"):
        async with (
            serve(Lister(etag='"e"')) as server,
            directory_of(server.url, clock=clock) as directory,
        ):
            await directory.list()
            clock.now += 301
            await directory.list()
            await _settle(directory)
            server.failure = (500, "secret reason")
            clock.now += 301
            await directory.list()
            await _settle(directory)

    texts = [record.getMessage() for record in caplog.records if record.name == "antiphon.host"]
    assert texts == ["models listed: 2", "models unchanged", "no new list of models: ServerFailed"]
    assert {record.levelno for record in caplog.records} == {logging.DEBUG}


def test_descriptions_are_values() -> None:
    model = ModelDescription(id="m", name="m", family="m", capabilities=ModelAbilities())

    with pytest.raises(AttributeError):
        model.id = "other"  # type: ignore[misc]
    assert msgspec.json.decode(msgspec.json.encode(model), type=ModelDescription) == model


@pytest.mark.parametrize(("retry_after", "pause"), [(None, 15.0), ("40", 40.0)])
async def test_without_a_first_list_a_server_that_fails_is_left_alone_for_a_while(
    retry_after: str | None, pause: float
) -> None:
    clock = Clock()
    server = Lister(failure=(503, "busy"), retry_after=retry_after)
    async with serve(server), directory_of(server.url, clock=clock) as directory:
        for _ in range(5):
            assert await directory.list() == ()
        clock.now += pause - 0.1
        with pytest.raises(ServerFailed, match="busy"):
            await directory.list(silent=False)
        assert len(server.requests) == 1
        clock.now += 0.1
        server.failure = None
        assert _ids(await directory.list()) == ["gpt-4o", "house"]
        assert len(server.requests) == 2


async def test_who_asks_while_a_failing_server_is_asked_again_waits_for_its_answer() -> None:
    clock = Clock()
    server = Lister(failure=(503, "busy"))
    async with serve(server), directory_of(server.url, clock=clock) as directory:
        assert await directory.list() == ()
        clock.now += 15.0
        server.failure, server.gate = None, asyncio.Event()
        server.arrived.clear()
        first = asyncio.create_task(directory.list())
        await server.arrived.wait()
        clock.now -= 10.0  # as if the pause were not over: the question is under way all the same
        second = asyncio.create_task(directory.list())
        server.gate.set()
        assert _ids(await first) == _ids(await second) == ["gpt-4o", "house"]
    assert len(server.requests) == 2


async def test_a_list_with_strange_values_is_a_list() -> None:
    server = Lister(extra={"visibility": ["x"]})
    async with serve(server), directory_of(server.url) as directory:
        assert _ids(await directory.list()) == ["gpt-4o", "house"]


async def test_a_client_that_was_closed_has_no_models() -> None:
    async with serve(Lister()) as server, directory_of(server.url) as directory:
        await directory._client.close()
        assert await directory.list() == ()
        with pytest.raises(ServerUnreachable, match="the client is closed"):
            await directory.list(silent=False)
