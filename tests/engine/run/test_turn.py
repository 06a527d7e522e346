"""One turn: what is told when a batch breaks in the middle, or has nothing to tell."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.protocol.deltas import CallGrew, Degraded, Stopped, TextGrew
from antiphon.protocol.errors import StoreUnavailable, TurnLost
from antiphon.store.base import Batch
from antiphon.store.memory import MemoryStore
from antiphon.testing.gateway import serve_gateway
from tests.asking import ask, ask_stream, terminal


@pytest.mark.parametrize("store", [True, False])
async def test_what_a_batch_told_before_a_delta_that_is_none_is_not_lost(store: bool) -> None:
    backend = ScriptedBackend([[TextGrew("So "), [TextGrew("far"), CallGrew(9, "{")]]])

    async with serve_gateway(backend) as gateway:
        events = await ask_stream(gateway, store=store)  # the referee counts

    response = terminal(events)
    assert (response.status, response.output_text) == ("failed", "So far")


async def test_an_empty_batch_begins_the_stream() -> None:
    go_on = asyncio.Event()
    backend = ScriptedBackend([[[], go_on, TextGrew("hi"), Stopped("stop")]])
    async with (
        asyncio.timeout(30),
        serve_gateway(backend) as gateway,
        aiohttp.ClientSession() as session,
        session.post(
            f"{gateway.base_url}/responses", json={"input": "x", "stream": True}
        ) as answer,
    ):
        assert (await answer.content.readline()).startswith(b"event: response.created")
        go_on.set()
        assert b"response.completed" in await answer.content.read()


@pytest.mark.parametrize("begun", [[], [TextGrew("a")]])
async def test_a_strict_caller_is_refused_before_the_model_is_asked(begun: list[TextGrew]) -> None:
    backend = ScriptedBackend([[*begun, Degraded("top_k: no"), TextGrew("b"), Stopped("stop")]])

    async with serve_gateway(backend) as gateway:
        answer = await ask(gateway, {"x-antiphon-strict": "1"})

    # What was said before is told with the failure.
    assert answer.status == (200 if begun else 400)
    assert "top_k" in answer.json["error"]["message"]


class BreakingStore(MemoryStore):
    """A store that cannot add to a log, by default for a bug."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self._error = error or ZeroDivisionError()

    async def append(
        self, owner: str, response_id: str, batch: Batch, *, status: str | None = None
    ) -> bool:
        raise self._error


@pytest.mark.parametrize("rest", [[], [[], TextGrew("!"), Stopped("stop")]])
async def test_a_log_that_breaks_ends_the_turn_as_failed_and_durable(rest: list[Step]) -> None:
    backend = ScriptedBackend([[TextGrew("So "), TextGrew("far"), Stopped("stop"), *rest]])

    async with serve_gateway(backend, store=BreakingStore()) as gateway:
        told = terminal(await ask_stream(gateway))  # the referee counts
        kept = await gateway.store.get("local", told.id)
        channel = gateway.app.engine.live.find("local", told.id)

    assert kept is not None
    assert (told.status, kept.status, channel) == ("failed", "failed", None)
    assert told.output_text.startswith("So far")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StoreUnavailable("no room"), "store_unavailable"),
        (TurnLost("deleted"), "store_unavailable"),
        (ZeroDivisionError(), "server_error"),
    ],
)
async def test_a_log_that_cannot_be_written_ends_a_turn_whose_model_is_silent(
    error: Exception, code: str
) -> None:
    backend = ScriptedBackend([[TextGrew("So "), TextGrew("far"), asyncio.Event()]])

    async with asyncio.timeout(30), serve_gateway(backend, store=BreakingStore(error)) as gateway:
        told = terminal(await ask_stream(gateway))
        await backend.stopped.wait()

    assert (told.status, told.output_text) == ("failed", "So far")
    assert told.error is not None
    assert told.error.code == code
