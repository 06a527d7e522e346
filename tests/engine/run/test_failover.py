"""Failover: who is asked when a deployment fails, how often, and what the caller gets.

The matrix has every class of error, before and after the first output, streamed and whole, over
real loopback servers: who was asked, what the caller saw, what was counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec
import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.backends.fault_classes import CLASSES, FaultName, classify
from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.engine.run.ask_route import ask_route
from antiphon.gateway.assemble import ServerSettings
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Stopped, TextGrew, TierUsed, UsageKnown
from antiphon.protocol.errors import BackendError, ContextOverflow
from antiphon.protocol.response import Response, Usage
from antiphon.routing.candidates import Candidate
from antiphon.routing.describe import ModelSettings
from antiphon.routing.settings import DeploymentSettings, RetrySettings, RouteSettings
from antiphon.testing import (
    Cut,
    ErrorChunk,
    Fault,
    Html,
    Reset,
    Script,
    ScriptedUpstream,
    Status,
    serve_gateway,
)
from antiphon.testing.gateway import Gateway
from tests.asking import ask, ask_stream, events_of, request, terminal
from tests.engine.run.test_rounds import PLAN, Sink, used
from tests.faults.house import until
from tests.paying import charges_of
from tests.routing.making import route_of
from tests.talking import talk

STOP = Stopped("stop")
DOWN = BackendError("it is down", code="upstream_unreachable")
ANSWER: list[Step] = [TextGrew("here "), TextGrew("I am"), [used(3, 2), STOP]]
GOOD = Script(text="one two three")
both_ways = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


def on(*providers: str, **rules: Any) -> RouteSettings:
    """Return a route with the model `m` at each provider."""
    found = [DeploymentSettings(provider=name, model="m") for name in providers]
    return RouteSettings(deployments=tuple(found), affinity="none", **rules)


class House(NamedTuple):
    """A gateway with upstreams `a`, `b` and `c` behind it, and the waits that were not made."""

    gateway: Gateway
    upstreams: dict[str, ScriptedUpstream]
    waits: list[float]

    @property
    def asked(self) -> dict[str, int]:
        return {name: len(one.requests) for name, one in self.upstreams.items() if one.requests}

    def counted(self, name: FaultName) -> int:
        return self.gateway.app.engine.catalog.board.tally.fallbacks["a", name]

    def open_seconds(self, provider: str) -> float:
        return self.gateway.app.engine.catalog.board.breaker.seconds_left(f"{provider}/m")


@asynccontextmanager
async def open_house(
    route: RouteSettings,
    *faults: Fault | None,
    settings: ServerSettings | None = None,
    models: dict[str, ModelSettings] | None = None,
) -> AsyncIterator[House]:
    """Run an upstream for each fault, which it always has; None for one that answers."""
    waits: list[float] = []

    async def note(seconds: float) -> None:
        waits.append(seconds)

    upstreams = {
        name: ScriptedUpstream(msgspec.structs.replace(GOOD, faults=[fault] if fault else []))
        for name, fault in zip("abc", (*faults, None, None)[:3], strict=True)
    }
    async with upstreams["a"], upstreams["b"], upstreams["c"]:
        backends = {
            name: ChatBackend(one.base_url, jitter=lambda: 0.0, sleep=note)
            for name, one in upstreams.items()
        }
        async with serve_gateway(
            backends, routes={"route": route}, settings=settings, models=models
        ) as gateway:
            yield House(gateway, upstreams, waits)


class Case(NamedTuple):
    """A fault before the first output, and what follows by the table of error classes."""

    name: FaultName
    fault: Fault
    status: int
    """What the caller gets if there is no one else."""
    again: int
    """How often the only deployment is asked."""
    moves: bool
    seconds: float
    """How long the breaker is open after the first request with other deployments."""


CASES = [
    Case("transport", Reset(), 502, 1, True, 0),
    Case("transport", Cut(), 502, 1, True, 0),
    Case("busy", Status(429, headers={"Retry-After": "7"}), 429, 3, True, 7),
    Case("overloaded", Status(500), 502, 2, True, 0),
    Case("overloaded", Status(529), 503, 2, True, 0),
    Case("overloaded", Status(200), 502, 2, True, 0),
    Case("quota", Status(429, error_code="insufficient_quota"), 429, 1, True, 60),
    Case("quota", Status(402), 429, 1, True, 60),
    Case("refused", Status(401), 502, 1, True, 60),
    Case("refused", Status(418), 502, 1, True, 60),
    Case("nonsense", Html(), 502, 1, True, 0),
    Case("no_model", Status(404, "no such model"), 404, 1, True, 300),
    Case("overflow", Status(400, "maximum context length is 8"), 400, 1, False, 0),
    Case("caller", Status(400, "temperature is wrong"), 400, 1, False, 0),
    Case("caller", Status(422, "no"), 400, 1, False, 0),
    Case("policy", Status(400, "no", error_code="content_filter"), 400, 1, False, 0),
]


def named(case: Case) -> str:
    return f"{case.name}-{type(case.fault).__name__}-{getattr(case.fault, 'code', '')}"


matrix = pytest.mark.parametrize("case", CASES, ids=named)


def error_of(answer: Any) -> dict[str, Any]:
    """Return the error of an answer that failed; an overflow is reported as a failed stream."""
    if answer.status != 200:
        return dict(answer.error)
    failure = terminal(events_of(answer.body)).error
    assert failure is not None
    return {"code": failure.code}


@matrix
@both_ways
async def test_another_deployment_answers_if_the_class_allows_it(case: Case, stream: bool) -> None:
    async with open_house(on("a", "b"), case.fault) as house:
        answer = await ask(house.gateway, model="route", stream=stream)
        assert house.open_seconds("a") == pytest.approx(case.seconds, abs=1)

    assert house.asked == ({"a": 1, "b": 1} if case.moves else {"a": 1})
    assert house.counted(case.name) == (1 if case.moves else 0)
    assert house.waits == []
    if case.moves:
        assert (answer.status, answer.headers["x-antiphon-served-by"]) == (200, "b/m")
        whole = terminal(events_of(answer.body)) if stream else None
        response = whole or msgspec.convert(answer.json, Response)
        assert response.output_text == "one two three"
        assert response.model == "route"
        assert response.antiphon
        first, last = response.antiphon.attempts
        assert (first.provider, last.provider, last.outcome) == ("a", "b", "answered")
    elif answer.status != 200:
        assert answer.status == case.status


# A busy deployment is asked again first: it has a test of its own.
@pytest.mark.parametrize("case", [one for one in CASES if one.name != "busy"], ids=named)
@both_ways
async def test_another_model_answers_if_the_class_allows_it(case: Case, stream: bool) -> None:
    async with open_house(on("a", fallbacks=("c/m",)), case.fault) as house:
        answer = await ask(house.gateway, model="route", stream=stream)
    assert house.asked == ({"a": 1, "c": 1} if case.moves else {"a": 1})
    if case.moves:
        assert answer.headers["x-antiphon-served-by"] == "c/m"


@matrix
@both_ways
async def test_the_only_deployment_is_asked_as_often_as_the_class_allows(
    case: Case, stream: bool
) -> None:
    async with open_house(on("a"), case.fault) as house:
        answer = await ask(house.gateway, model="route", stream=stream)
    assert house.asked == {"a": case.again}
    if stream and case.name == "overflow":
        assert error_of(answer)["code"] == "context_length_exceeded"
    else:
        assert answer.status == case.status


@both_ways
async def test_a_busy_deployment_without_others_is_waited_for_before_another_model_is_asked(
    stream: bool,
) -> None:
    busy = Status(429, headers={"Retry-After": "7"})
    async with open_house(on("a", fallbacks=("c/m",)), busy) as house:
        answer = await ask(house.gateway, model="route", stream=stream)
    assert (house.asked, house.waits) == ({"a": 2, "c": 1}, [7.0])
    assert answer.headers["x-antiphon-served-by"] == "c/m"


AFTER = [
    ("transport", Reset(2)),
    ("transport", Cut(2)),
    ("overloaded", ErrorChunk(2)),
]


@pytest.mark.parametrize(("name", "fault"), AFTER)
async def test_after_the_first_output_no_one_else_is_asked(name: FaultName, fault: Fault) -> None:
    async with open_house(on("a", "b", fallbacks=("c/m",)), fault) as house:
        response = terminal(await ask_stream(house.gateway, model="route"))
    assert (response.status, response.output_text) == ("failed", "one")
    assert (house.asked, house.counted(name)) == ({"a": 1}, 0)


@both_ways
async def test_failover_off_asks_no_one_else(stream: bool) -> None:
    async with open_house(on("a", "b", fallbacks=("c/m",), failover="off"), Reset()) as house:
        answer = await ask(house.gateway, model="route", stream=stream)
    assert (answer.status, house.asked) == (502, {"a": 1})


async def test_attempts_are_counted_over_all_deployments() -> None:
    rules = on("a", "b", fallbacks=("c/m",), retry=RetrySettings(attempts=2))
    async with open_house(rules, Reset(), Status(500)) as house:
        answer = await ask(house.gateway, model="route")
    assert house.asked == {"a": 1, "b": 1}
    assert (answer.status, answer.error["code"]) == (502, "upstream_error")


async def test_a_wait_over_the_budget_is_not_made() -> None:
    busy = Status(429, headers={"Retry-After": "7"})
    async with open_house(on("a", retry=RetrySettings(budget_seconds=5)), busy) as house:
        answer = await ask(house.gateway, model="route")
    assert (answer.status, answer.headers["Retry-After"], house.waits) == (429, "7", [])


async def test_the_last_error_comes_with_the_earliest_end_of_a_breaker() -> None:
    faults = (Status(429, headers={"Retry-After": "30"}), Status(401))
    async with open_house(on("a", "b"), *faults) as house:
        answer = await ask(house.gateway, model="route")
    assert (answer.status, answer.error["code"]) == (502, "upstream_auth")
    assert answer.headers["Retry-After"] == "30"


async def test_the_wish_of_one_deployment_is_not_passed_on_while_another_is_ready() -> None:
    faults = (Status(500), Status(429, headers={"Retry-After": "3600"}))
    async with open_house(on("a", "b"), *faults) as house:
        answer = await ask(house.gateway, model="route")
    assert answer.status == 429
    assert "Retry-After" not in answer.headers


async def test_a_request_that_finds_all_breakers_open_is_sent_once() -> None:
    async with open_house(on("a", "b"), Status(401), Status(401)) as house:
        await ask(house.gateway, model="route")
        answer = await ask(house.gateway, model="route")
    assert answer.status == 502
    assert house.asked == {"a": 2, "b": 1}


# Doors, background, WebSocket.


async def test_a_deployment_that_has_recovered_is_asked_although_its_breaker_is_open() -> None:
    async with open_house(on("a", "b"), Status(500)) as house:
        breaker = house.gateway.app.engine.catalog.board.breaker
        for _ in range(3):
            breaker.note_failure("b/m", CLASSES["transport"])
        assert house.open_seconds("b") > 0
        answer = await ask(house.gateway, model="route")
        assert house.open_seconds("b") == 0
    assert (answer.status, house.asked) == (200, {"a": 1, "b": 1})


async def test_of_many_open_deployments_one_is_asked_after_a_failure() -> None:
    async with open_house(on("a", "b", "c"), Status(500), Status(500), Status(500)) as house:
        breaker = house.gateway.app.engine.catalog.board.breaker
        for name in ("b/m", "c/m"):
            breaker.note_failure(name, CLASSES["quota"])
        answer = await ask(house.gateway, model="route")
    assert (answer.status, house.asked) == (502, {"a": 1, "b": 1})


async def test_a_background_turn_is_answered_by_another_deployment() -> None:
    async with open_house(on("a", "b"), Reset()) as house:
        queued = await ask(house.gateway, model="route", background=True)
        path = f"/responses/{queued.json['id']}?stream=true"
        events = events_of((await request(house.gateway, "GET", path)).body)
    response = terminal(events)
    assert (response.status, response.output_text) == ("completed", "one two three")
    assert response.antiphon
    assert [one.provider for one in response.antiphon.attempts] == ["a", "b"]


async def test_a_turn_over_a_websocket_is_answered_by_another_deployment() -> None:
    async with open_house(on("a", "b"), Reset()) as house, talk(house.gateway.base_url) as socket:
        last = await socket.turn(input="x", model="route")
    assert last["response"]["antiphon"]["attempts"][0]["outcome"] == "upstream_closed"
    assert msgspec.convert(last["response"], Response).output_text == "one two three"


@both_ways
@pytest.mark.parametrize("path", ["/chat/completions", "/messages"])
async def test_a_request_through_another_door_is_answered_by_another_deployment(
    path: str, stream: bool
) -> None:
    said = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 100, "stream": stream}
    async with open_house(on("a", "b"), Reset()) as house:
        answer = await request(house.gateway, "POST", path, {**said, "model": "route"})
    assert (answer.status, house.asked) == (200, {"a": 1, "b": 1})
    assert answer.headers["x-antiphon-served-by"] == "b/m"
    assert b"three" in answer.body


# What is no answer yet.


async def ask_scripted(*scripts: Sequence[Step], **rules: Any) -> tuple[Sink, list[Plan]]:
    """Ask a route of scripted models; return what came, and who was asked."""
    backends = [ScriptedBackend([list(script)]) for script in scripts]
    found = [
        Candidate(backend, f"m-{name}", name)
        for name, backend in zip("abc", backends, strict=False)
    ]
    sink = Sink()
    route = route_of(found, affinity="none", **rules)
    try:
        await ask_route(route, PLAN, (), sink, charges_of())
    finally:
        assert set(route.board.inflight.values()) == {0}
    return sink, [plan for backend in backends for plan in backend.plans]


@pytest.mark.parametrize(
    "early",
    [
        UsageKnown(Usage(input_tokens=9)),
        TierUsed("flex"),
        [TierUsed("flex"), UsageKnown(Usage(input_tokens=9))],
    ],
)
async def test_usage_alone_is_no_answer_yet(early: Step) -> None:
    sink, plans = await ask_scripted([early, DOWN], ANSWER)
    assert [plan.model for plan in plans] == ["m-a", "m-b"]
    assert sink.deltas == [TextGrew("here "), TextGrew("I am"), used(3, 2), STOP]


async def test_what_comes_before_the_answer_is_kept_for_it() -> None:
    sink, _ = await ask_scripted([TierUsed("flex"), TextGrew("a"), STOP])
    assert sink.deltas == [TierUsed("flex"), TextGrew("a"), STOP]


async def test_an_empty_answer_is_asked_for_once_more_elsewhere_and_paid() -> None:
    sink, plans = await ask_scripted([[used(3, 0), STOP]], ANSWER)
    assert len(plans) == 2
    assert sink.deltas == [TextGrew("here "), TextGrew("I am"), used(6, 2), STOP]


async def test_a_second_empty_answer_is_passed_on() -> None:
    sink, plans = await ask_scripted([[STOP]], [[STOP]], ANSWER)
    assert len(plans) == 2
    assert sink.deltas == [STOP]


async def test_the_only_empty_answer_is_passed_on() -> None:
    sink, plans = await ask_scripted([[used(3, 0), STOP]])
    assert len(plans) == 1
    assert sink.deltas == [used(3, 0), STOP]


# Contexts that are too long.


def windows(**sizes: int) -> dict[str, ModelSettings]:
    return {f"{name}/m": ModelSettings(context_length=size) for name, size in sizes.items()}


TOO_LONG = Status(400, "maximum context length is 8")


async def test_a_deployment_with_a_larger_window_is_asked() -> None:
    async with open_house(on("a", "b"), TOO_LONG, models=windows(a=8, b=16)) as house:
        answer = await ask(house.gateway, model="route")
    assert (answer.status, house.asked) == (200, {"a": 1, "b": 1})


async def test_fallbacks_are_not_asked_for_a_context_that_is_too_long() -> None:
    async with open_house(on("a", fallbacks=("b/m",)), TOO_LONG) as house:
        answer = await ask(house.gateway, model="route")
    assert (answer.status, house.asked) == (400, {"a": 1})


async def test_the_model_for_long_contexts_is_asked() -> None:
    async with open_house(on("a", fallbacks=("b/m",), on_overflow="c/m"), TOO_LONG) as house:
        answer = await ask(house.gateway, model="route")
    assert (answer.status, house.asked) == (200, {"a": 1, "c": 1})
    assert answer.headers["x-antiphon-served-by"] == "c/m"


async def test_a_model_for_long_contexts_that_is_down_is_the_error_that_is_told() -> None:
    rules = on("a", "b", on_overflow="c/m")
    async with open_house(rules, TOO_LONG, TOO_LONG, Status(503)) as house:
        answer = await ask(house.gateway, model="route")
    assert (answer.status, answer.error["code"]) == (503, "upstream_overloaded")
    assert house.asked == {"a": 1, "c": 1}


async def test_truncation_is_tried_before_the_model_for_long_contexts() -> None:
    history = [{"role": role, "content": "x"} for role in ("user", "assistant", "user")]
    async with open_house(on("a", on_overflow="c/m"), TOO_LONG) as house:
        answer = await ask(house.gateway, model="route", input=history, truncation="auto")
    assert (answer.status, house.asked) == (200, {"a": 2, "c": 1})
    sent = [len(msgspec.json.decode(one.body)["messages"]) for one in house.upstreams["a"].requests]
    assert sent == [3, 1]


# What was promised to the caller.


class Degrading(ScriptedBackend):
    """A backend that does not send the temperature."""

    async def open(self, plan: Any) -> Any:
        asked = await super().open(plan)
        return type(asked)(["temperature: not sent"], asked.run)


def scripted(*backends: ScriptedBackend, **rules: Any) -> dict[str, Any]:
    providers = dict(zip("abc", backends, strict=False))
    return {"backend": providers, "routes": {"route": on(*providers, **rules)}}


async def test_what_the_answering_deployment_cannot_honour_is_reported() -> None:
    house = scripted(ScriptedBackend([[DOWN]]), Degrading([ANSWER]))
    async with serve_gateway(**house) as gateway:
        answer = await ask(gateway, model="route")
    assert "temperature: not sent" in answer.headers["x-antiphon-degraded"]


async def test_a_strict_caller_gets_the_real_error_instead_of_a_degraded_answer() -> None:
    house = scripted(ScriptedBackend([[DOWN]]), Degrading([ANSWER]))
    async with serve_gateway(**house) as gateway:
        answer = await ask(gateway, {"x-antiphon-strict": "1"}, model="route")
    assert (answer.status, answer.error["code"]) == (502, "upstream_unreachable")


async def test_a_text_is_checked_if_one_deployment_does_not_enforce_its_format() -> None:
    wrong: list[Step] = [TextGrew("no JSON"), STOP]
    right: list[Step] = [TextGrew("{}"), STOP]
    loose = ScriptedBackend([wrong, right], enforces=frozenset())
    form = {"format": {"type": "json_object"}}
    async with serve_gateway(**scripted(ScriptedBackend([[DOWN]]), loose)) as gateway:
        response = terminal(await ask_stream(gateway, model="route", text=form))
    assert (response.status, response.output_text) == ("completed", "{}")


async def test_a_repair_goes_on_elsewhere_if_its_deployment_fails() -> None:
    wrong: list[Step] = [TextGrew("no JSON"), STOP]
    right: list[Step] = [TextGrew("{}"), STOP]
    loose = frozenset[str]()
    house = scripted(
        ScriptedBackend([wrong, [DOWN]], enforces=loose), ScriptedBackend([right], enforces=loose)
    )
    form = {"format": {"type": "json_object"}}
    async with serve_gateway(**house) as gateway:
        response = terminal(await ask_stream(gateway, model="route", text=form))
    assert (response.status, response.output_text) == ("completed", "{}")


async def test_an_answer_that_is_held_back_has_begun_too() -> None:
    loose = frozenset[str]()
    first = ScriptedBackend([[TextGrew("{"), DOWN]], enforces=loose)
    second = ScriptedBackend([ANSWER], enforces=loose)
    form = {"format": {"type": "json_object"}}
    async with serve_gateway(**scripted(first, second)) as gateway:
        response = terminal(await ask_stream(gateway, model="route", text=form))
    assert response.status == "failed"
    assert second.plans == []


async def test_a_caller_who_leaves_frees_the_seat_and_asks_no_one_else() -> None:
    waiting = ScriptedBackend(lambda plan: [asyncio.Event()])
    other = ScriptedBackend([ANSWER])
    found = [Candidate(waiting, "m", "a"), Candidate(other, "m", "b")]
    route = route_of(found, affinity="none")
    running = asyncio.create_task(ask_route(route, PLAN, (), Sink(), charges_of()))
    await until(lambda: bool(waiting.plans))
    assert route.board.inflight["a"] == 1
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()
    assert (route.board.inflight["a"], other.plans) == (0, [])


async def test_a_full_gateway_is_a_503_with_advice() -> None:
    release = asyncio.Event()
    waiting = ScriptedBackend(lambda plan: [release, *ANSWER])
    house = scripted(waiting)
    async with serve_gateway(**house, max_inflight={"a": 1}) as gateway:
        first = asyncio.create_task(ask(gateway, model="route"))
        await until(lambda: bool(waiting.plans))
        refused = await ask(gateway, model="route")
        release.set()
        answer = await first
    assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
    assert answer.status == 200


# Sessions.


async def where(gateway: Gateway, headers: dict[str, str] | None = None, /, **body: Any) -> str:
    answer = await ask(gateway, headers, model="route", **body)
    return str(answer.headers["x-antiphon-served-by"])


def many(affinity: Any) -> dict[str, Any]:
    providers = {name: ScriptedBackend(models=("m",)) for name in "abcd"}
    deployed = [DeploymentSettings(provider=name, model="m") for name in providers]
    route = RouteSettings(deployments=tuple(deployed), affinity=affinity)
    return {"backend": providers, "routes": {"route": route}}


async def test_a_session_stays_on_one_deployment() -> None:
    async with serve_gateway(**many("session")) as gateway:
        for number in range(8):
            first = await ask(gateway, model="route")
            served = first.headers["x-antiphon-served-by"]
            follow = {"previous_response_id": first.json["id"]}
            second = await ask(gateway, model="route", **follow)
            follow = {"previous_response_id": second.json["id"]}
            third = await where(gateway, **follow)
            assert second.headers["x-antiphon-served-by"] == third == served

            key = {"prompt_cache_key": f"key {number}"}
            assert await where(gateway, **key) == await where(gateway, **key)
            header = {"X-Claude-Code-Session-Id": f"session {number}"}
            at = [await where(gateway, header, store=False) for _ in range(2)]
            assert at[0] == at[1]
            made = await request(gateway, "POST", "/conversations", {})
            name = {"conversation": made.json["id"]}
            assert await where(gateway, **name) == await where(gateway, **name)


async def test_the_same_beginning_goes_to_the_same_deployment() -> None:
    async with serve_gateway(**many("prefix")) as gateway:
        for number in range(8):
            asked = {"instructions": f"be number {number}", "store": False}
            said = {"role": "user", "content": "hi"}
            more = [said, {"role": "assistant", "content": "ho"}, {"role": "user", "content": "x"}]
            first = await where(gateway, **asked, input=[said])
            assert await where(gateway, **asked, input=more) == first


async def test_without_affinity_deployments_take_turns() -> None:
    async with serve_gateway(**many("none")) as gateway:
        found = [await where(gateway, prompt_cache_key="x") for _ in range(4)]
    assert sorted(found) == ["a/m", "b/m", "c/m", "d/m"]


# Classes.


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (ContextOverflow("x"), "overflow"),
        (BackendError("x", code="something_new", status=400), "caller"),
        (BackendError("x", code="something_new", status=503), "overloaded"),
        (BackendError("x", code="something_new", status=429), "busy"),
        (BackendError("x", code="upstream_refused", status=400), "caller"),
        (BackendError("x", code="upstream_refused"), "refused"),
        (BackendError("x", code="tool_call_invalid"), "unusable"),
    ],
)
def test_every_error_has_a_class(error: BackendError, name: FaultName) -> None:
    assert classify(error) is CLASSES[name]


def test_a_stream_that_ends_in_order_but_too_early_is_nonsense() -> None:
    assert classify(BackendError("x", code="upstream_closed")).name == "transport"
    error = BackendError("x", code="upstream_closed", ended_in_order=True)
    assert classify(error).name == "nonsense"
