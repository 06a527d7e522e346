"""Fallback: another deployment answers when one fails before its first delta."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.engine.run.fallback import Fallback
from antiphon.engine.run.rounds import Rounds
from antiphon.protocol.deltas import Delta, Stopped, TextGrew
from antiphon.protocol.errors import BackendError, ContextOverflow
from antiphon.protocol.machines.referee import judge_stream
from antiphon.protocol.response import Response
from antiphon.routing.candidates import Candidate
from antiphon.routing.catalog import Catalog
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import ask, ask_stream, events_of, request, terminal
from tests.engine.run.test_rounds import PLAN, Sink, used

STOP = Stopped("stop")
DOWN = BackendError("it is down", code="upstream_unavailable")
ANSWER: list[Step] = [TextGrew("here "), TextGrew("I am"), [used(3, 2), STOP]]


@pytest.fixture
def deployments(monkeypatch: pytest.MonkeyPatch) -> list[Candidate]:
    """Return the deployments that may answer any request; the test fills it."""
    found: list[Candidate] = []

    async def candidates(catalog: Catalog, model: str | None) -> tuple[Candidate, ...]:
        return tuple(found)

    monkeypatch.setattr(Catalog, "candidates", candidates)
    return found


def deploy(found: list[Candidate], *scripts: Sequence[Step]) -> list[ScriptedBackend]:
    backends = [ScriptedBackend([list(script)], enforces=frozenset()) for script in scripts]
    for name, backend in zip("abc", backends, strict=False):
        found.append(Candidate(backend, f"model-{name}", name))
    return backends


async def log_of(gateway: Gateway, response: Response) -> list[Any]:
    path = f"/responses/{response.id}?stream=true"
    return events_of((await request(gateway, "GET", path)).body)


async def test_the_next_deployment_answers_when_one_fails_before_its_first_delta(
    deployments: list[Candidate],
) -> None:
    first, second, third = deploy(deployments, [DOWN], ANSWER, ANSWER)
    async with serve_gateway(first) as gateway:
        events = await ask_stream(gateway)
        log = await log_of(gateway, terminal(events))

    response = terminal(events)
    assert judge_stream(events) == []
    assert (response.status, response.output_text) == ("completed", "here I am")
    assert response.usage is not None
    assert response.usage.total_tokens == 5
    assert [event.type for event in log] == [event.type for event in events]
    assert [backend.plans[0].model for backend in (first, second)] == ["model-a", "model-b"]
    assert third.plans == []


async def test_an_answer_that_has_begun_fails_with_its_deployment(
    deployments: list[Candidate],
) -> None:
    first, second = deploy(deployments, [TextGrew("half "), DOWN], ANSWER)
    async with serve_gateway(first) as gateway:
        response = terminal(await ask_stream(gateway))
    assert (response.status, response.output_text) == ("failed", "half ")
    assert second.plans == []


async def test_an_answer_that_is_held_back_has_begun_too(deployments: list[Candidate]) -> None:
    first, second = deploy(deployments, [TextGrew("{"), DOWN], ANSWER)
    form = {"format": {"type": "json_object"}}
    async with serve_gateway(first) as gateway:
        response = terminal(await ask_stream(gateway, text=form))
    assert response.status == "failed"
    assert second.plans == []


async def test_the_error_of_the_last_deployment_is_reported(deployments: list[Candidate]) -> None:
    busy = BackendError("too many", code="rate_limit_exceeded", status=429)
    first, second = deploy(deployments, [DOWN], [busy])
    async with serve_gateway(first) as gateway:
        answer = await ask(gateway)
    assert answer.status == 429
    assert len(second.plans) == 1


@pytest.mark.parametrize(
    "error",
    [ContextOverflow("too long"), BackendError("bad image", code="invalid_value", status=400)],
)
async def test_a_request_that_is_wrong_everywhere_is_asked_once(
    deployments: list[Candidate], error: BackendError
) -> None:
    first, second = deploy(deployments, [error], ANSWER)
    async with serve_gateway(first) as gateway:
        answer = await ask(gateway)
    assert answer.status == 400
    assert second.plans == []


async def test_a_context_is_shortened_for_the_deployment_that_is_asked_now(
    deployments: list[Candidate],
) -> None:
    history = [{"role": role, "content": "x"} for role in ("user", "assistant", "user")]
    first = ScriptedBackend([[DOWN]])
    second = ScriptedBackend([[ContextOverflow("too long")], ANSWER])
    deployments += [Candidate(first, "model-a", "a"), Candidate(second, "model-b", "b")]
    async with serve_gateway(first) as gateway:
        response = terminal(await ask_stream(gateway, input=history, truncation="auto"))
    assert response.output_text == "here I am"
    assert [plan.model for plan in second.plans] == ["model-b", "model-b"]
    assert [len(plan.items) for plan in second.plans] == [3, 1]


async def test_a_text_is_checked_if_one_deployment_does_not_enforce_its_format(
    deployments: list[Candidate],
) -> None:
    wrong: list[Step] = [TextGrew("no JSON"), STOP]
    right: list[Step] = [TextGrew("{}"), STOP]
    first = ScriptedBackend([[DOWN]])
    second = ScriptedBackend([wrong, right], enforces=frozenset())
    deployments += [Candidate(first, "model-a", "a"), Candidate(second, "model-b", "b")]
    async with serve_gateway(first) as gateway:
        response = terminal(await ask_stream(gateway, text={"format": {"type": "json_object"}}))
    assert (response.status, response.output_text) == ("completed", "{}")


async def test_what_the_answering_deployment_cannot_honour_is_reported() -> None:
    others = [Candidate(Degrading([ANSWER]), "model-b", "b")]
    sink = Sink()
    await Rounds(ScriptedBackend([[DOWN]]), PLAN, [Fallback(others)], sink).run()
    texts: list[Delta] = [delta for delta in sink.deltas if isinstance(delta, TextGrew)]
    assert texts == [TextGrew("here "), TextGrew("I am")]
    assert sink.notes == ["temperature: not sent"]


class Degrading(ScriptedBackend):
    """A backend that does not send the temperature."""

    async def open(self, plan: Any) -> Any:
        ask = await super().open(plan)
        return type(ask)(["temperature: not sent"], ask.run)
