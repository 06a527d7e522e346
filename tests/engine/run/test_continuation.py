"""Continuation: an answer that breaks off goes on elsewhere, or fails truthfully."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.engine.run import continuation
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import (
    CallGrew,
    CallMade,
    CallOpened,
    Delta,
    ReasoningGrew,
    Stopped,
    TextGrew,
)
from antiphon.protocol.errors import BackendError
from antiphon.protocol.events import Event
from antiphon.protocol.response import Response
from antiphon.routing.settings import DeploymentSettings, RouteSettings
from antiphon.testing import (
    Call,
    Close,
    Cut,
    ErrorChunk,
    Fault,
    Garbage,
    Reset,
    Script,
    ScriptedUpstream,
    serve_gateway,
)
from antiphon.testing.gateway import Gateway
from antiphon.testing.tools import ScriptedTool
from tests.asking import ask, ask_stream, events_of, request, terminal
from tests.engine.run.test_rounds import used
from tests.properties.planting import plant
from tests.talking import talk

PIECES = ["The", " quick", " brown", " fox\n", "\n  jumps", " over ", "", "the", " lazy dog", "."]
TEXT = "".join(PIECES)
STOP = Stopped("stop")
CUT = BackendError("it hung up", code="upstream_closed")
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}


def streaming(*providers: str, models: Sequence[str] = (), **rules: Any) -> RouteSettings:
    names = models or ["m"] * len(providers)
    found = [
        DeploymentSettings(provider=provider, model=model)
        for provider, model in zip(providers, names, strict=True)
    ]
    return RouteSettings(
        deployments=tuple(found), **{"affinity": "none", "failover": "stream", **rules}
    )


# Scripted models.


def model(*scripts: Sequence[Step], continues: bool = True) -> ScriptedBackend:
    return ScriptedBackend([list(one) for one in scripts], models=("m",), continues=continues)


def writes_on(plan: Plan) -> list[Step]:
    """Go on after the prefix of the plan, in pieces of three characters."""
    rest = TEXT[len(plan.prefix or "") :]
    pieces: list[Step] = [TextGrew(rest[at : at + 3]) for at in range(0, len(rest), 3)]
    return [*pieces, [used(7, 5), STOP]]


async def told(
    first: Sequence[Step],
    second: Callable[[Plan], list[Step]] = writes_on,
    *,
    continues: bool = True,
    headers: dict[str, str] | None = None,
    route: RouteSettings | None = None,
    **body: Any,
) -> tuple[list[Event], ScriptedBackend]:
    """Return the events of a stream whose first deployment plays `first`, and the second one."""
    backends = {
        "a": model(first),
        "b": ScriptedBackend(second, models=("m",), continues=continues),
    }
    routes = {"route": route or streaming("a", "b")}
    async with serve_gateway(backends, routes=routes) as gateway:
        events = await ask_stream(gateway, headers, model="route", **body)
        stored = await request(gateway, "GET", f"/responses/{terminal(events).id}?stream=true")
    assert [one.type for one in events_of(stored.body)] == [one.type for one in events]
    return events, backends["b"]


def texts(cut: int) -> list[Delta]:
    return [TextGrew(piece) for piece in PIECES[:cut]]


@pytest.mark.parametrize("cut", range(1, len(PIECES)))
async def test_a_cut_at_any_delta_gives_the_same_text_in_the_same_item(cut: int) -> None:
    events, second = await told([*texts(cut), CUT])
    response = terminal(events)
    assert (response.status, response.output_text) == ("completed", TEXT)
    assert len(response.output) == 1
    assert [plan.prefix for plan in second.plans] == ["".join(PIECES[:cut])]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert response.model == "route"


async def test_the_log_names_who_continues(caplog: pytest.LogCaptureFixture) -> None:
    await told([*texts(4), CUT])
    failed, continued = (one.message for one in caplog.records if "upstream a/m" in one.message)
    assert failed.endswith("; another deployment may continue it")
    assert continued == "the answer of upstream a/m is continued by b/m"


async def test_both_legs_are_reported_and_paid() -> None:
    events, _ = await told([*texts(4), CUT])
    response = terminal(events)
    notes, prefix = response.antiphon, "".join(PIECES[:4])
    assert notes
    first, last = notes.attempts
    assert (first.provider, first.outcome) == ("a", "upstream_closed")
    assert (first.told_characters, first.estimated) == (len(prefix), True)
    assert (last.provider, last.outcome) == ("b", "answered")
    assert notes.degraded == (f"continued on b/m after {len(prefix)} characters",)
    assert notes.usage == "estimated"
    assert first.usage is not None
    assert response.usage is not None
    assert response.usage.input_tokens == first.usage.input_tokens + 7
    assert response.usage.output_tokens == first.usage.output_tokens + 5


async def test_a_leg_that_was_counted_is_not_estimated() -> None:
    events, _ = await told([*texts(4), used(10, 4), CUT])
    response = terminal(events)
    assert response.antiphon
    assert (response.antiphon.usage, response.antiphon.attempts[0].estimated) == (None, False)
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (17, 9)


async def test_what_is_left_of_the_token_limit_is_for_the_second_leg() -> None:
    events, second = await told([*texts(4), CUT], max_output_tokens=10)
    assert terminal(events).status == "completed"
    assert second.plans[0].max_output_tokens == 6


async def test_reasoning_without_a_text_is_abandoned_and_the_plan_run_again() -> None:
    def think(plan: Plan) -> list[Step]:
        assert plan.prefix is None
        return [ReasoningGrew("new"), TextGrew(TEXT), STOP]

    # To begin anew, a deployment need not continue anything.
    include = ["reasoning.encrypted_content"]
    events, _ = await told([ReasoningGrew("old"), CUT], think, continues=False, include=include)
    response = terminal(events)
    assert [item["type"] for item in response.output] == ["reasoning", "reasoning", "message"]
    assert [bool(item.get("encrypted_content")) for item in response.output] == [False, True, False]
    assert response.output_text == TEXT
    assert response.antiphon
    assert "reasoning was started again on b/m" in response.antiphon.degraded


async def test_reasoning_that_was_abandoned_is_shown_but_no_model_gets_it_back() -> None:
    anew: list[Step] = [ReasoningGrew("new"), TextGrew(TEXT), STOP]
    first, second = model([ReasoningGrew("old"), CUT], anew), model(anew, anew)
    async with serve_gateway(
        {"a": first, "b": second}, routes={"route": streaming("a", "b")}
    ) as gateway:
        response = terminal(await ask_stream(gateway, model="route"))
        stored = await request(gateway, "GET", f"/responses/{response.id}")
        await ask(gateway, model="route", previous_response_id=response.id, input="go on")
    assert [item["type"] for item in stored.json["output"]] == ["reasoning", "reasoning", "message"]
    assert b"antiphon.native" not in stored.body
    again = [*first.plans[1:], *second.plans[1:]][-1]
    thoughts = [item["content"] for item in again.items if item.get("type") == "reasoning"]
    assert thoughts == [[{"type": "reasoning_text", "text": "new"}]]


async def test_reasoning_before_a_text_stays_and_the_text_is_continued() -> None:
    events, second = await told([ReasoningGrew("hm"), *texts(3), CUT])
    response = terminal(events)
    assert [item["type"] for item in response.output] == ["reasoning", "message"]
    assert (response.output_text, second.plans[0].prefix) == (TEXT, "".join(PIECES[:3]))


async def test_of_a_call_that_was_cut_nothing_was_shown() -> None:
    def call(plan: Plan) -> list[Step]:
        rest = TEXT[len(plan.prefix or "") :]
        return [TextGrew(rest), CallOpened(0, "f", "c2"), CallGrew(0, "{}"), STOP]

    begun: list[Step] = [*texts(4), CallOpened(0, "f", "c1"), CallGrew(0, '{"a'), CUT]
    events, _ = await told(begun, call, tools=[TOOL])
    response = terminal(events)
    assert response.status == "completed"
    assert [item.get("call_id") for item in response.output] == [None, "c2"]
    assert response.output_text == TEXT


async def test_calls_are_held_until_they_are_whole() -> None:
    steps: list[Step] = [CallOpened(0, "f", "c1"), CallGrew(0, "{"), CallGrew(0, "}"), STOP]
    events, second = await told(steps, tools=[TOOL])
    response = terminal(events)
    assert [item["arguments"] for item in response.output] == ["{}"]
    assert (response.status, second.plans) == ("completed", [])


# When it is not allowed, the stream fails as it would without it.

LONG = [f"word {number}, " for number in range(60)]
CALL: list[Step] = [CallOpened(0, "f", "c1"), CallGrew(0, '{"a')]


@pytest.mark.parametrize(
    ("steps", "asked"),
    [
        ([*texts(3), BackendError("x", code="upstream_invalid_response")], {}),
        ([*texts(3), BackendError("x", code="content_filter", status=400)], {}),
        ([*texts(3), BackendError("x", code="rate_limit_exceeded", status=429)], {}),
        ([*texts(3), CUT], {"headers": {"x-antiphon-strict": "1"}}),
        ([*texts(3), CUT], {"continues": False}),
        ([*texts(3), CUT], {"max_output_tokens": 3}),
        ([*texts(3), CUT], {"text": {"format": {"type": "json_object"}}}),
        ([TextGrew("x", ({"token": "x"},)), CUT], {"include": ["message.output_text.logprobs"]}),
        ([*texts(3), ReasoningGrew("hm"), CUT], {}),
        ([*texts(3), CUT], {"route": streaming("a", "b", failover="start")}),
        ([*texts(3), CUT], {"route": streaming("a", "b", models=["m", "other"])}),
        ([*CALL, CUT], {"tools": [TOOL]}),
    ],
    ids=[
        *("nonsense", "policy", "busy", "strict", "cannot", "used up", "format", "logprobs"),
        *("closed message", "start only", "other model", "only a call"),
    ],
)
async def test_what_cannot_be_continued_fails_truthfully(
    steps: list[Step], asked: dict[str, Any]
) -> None:
    events, second = await told(steps, **asked)
    response = terminal(events)
    assert response.status == "failed"
    assert response.error is not None
    assert isinstance(steps[-1], BackendError)
    assert response.error.code == steps[-1].code
    assert second.plans == []
    shown = "".join(step.text for step in steps if isinstance(step, TextGrew))
    assert response.output_text == shown
    if steps[:2] == CALL:  # what was held is delivered with the failure
        assert response.output[0]["arguments"] == '{"a'


async def test_an_answer_that_was_cut_at_its_very_end_is_whole() -> None:
    events, _ = await told([*texts(10), CUT], lambda plan: [[used(7, 1), STOP]])
    response = terminal(events)
    assert (response.status, response.output_text) == ("completed", TEXT)
    assert response.antiphon
    assert [one.outcome for one in response.antiphon.attempts] == ["upstream_closed", "answered"]


async def test_a_second_leg_that_breaks_off_is_paid_and_reported_too() -> None:
    events, _ = await told([*texts(4), used(10, 4), CUT], lambda plan: [TextGrew("xyz"), CUT])
    response = terminal(events)
    assert (response.status, response.output_text) == ("failed", "".join(PIECES[:4]) + "xyz")
    assert response.antiphon
    first, second = response.antiphon.attempts
    assert (first.provider, first.estimated) == ("a", False)
    assert (second.provider, second.told_characters, second.estimated) == ("b", 3, True)
    assert second.usage is not None
    assert response.usage is not None
    assert response.usage.input_tokens == 10 + second.usage.input_tokens
    assert response.usage.output_tokens == 4 + second.usage.output_tokens


async def test_a_second_leg_that_never_began_leaves_the_cost_of_the_first() -> None:
    down = BackendError("it is down", code="upstream_unreachable")
    events, _ = await told([*texts(4), used(10, 4), CUT], lambda plan: [down])
    response = terminal(events)
    assert response.status == "failed"
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (10, 4)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (BackendError("bad", status=400, code="invalid_value"), 400),
        (BackendError("slow", status=429, code="rate_limit_exceeded", retry_after=7), 429),
        (BackendError("it is down", code="upstream_unreachable"), 502),
    ],
    ids=["caller", "busy", "transport"],
)
async def test_an_error_before_the_first_output_has_its_status(
    error: BackendError, status: int
) -> None:
    backends = {name: ScriptedBackend(lambda _: [error], models=("m",)) for name in ("a", "b")}
    async with serve_gateway(backends, routes={"route": streaming("a", "b")}) as gateway:
        answer = await ask(gateway, model="route", stream=True)
    assert answer.status == status
    assert answer.error["code"] == error.code


async def test_a_model_that_does_not_run_the_tools_of_the_plan_does_not_continue() -> None:
    search = {"type": "web_search"}
    backends = {
        "a": ScriptedBackend(
            [[*texts(4), CUT]], models=("m",), tool_kinds=frozenset({"web_search"})
        ),
        "b": ScriptedBackend(writes_on, models=("n",), continues=True),
    }
    rules = streaming("a", fallbacks=("b/n",), across_models=True)
    async with serve_gateway(backends, routes={"route": rules}) as gateway:
        events = await ask_stream(gateway, model="route", tools=[search])
    assert terminal(events).status == "failed"
    assert backends["b"].plans == []


async def test_another_model_continues_only_if_the_route_says_so() -> None:
    rules = streaming("a", "b", models=["m", "other"], across_models=True)
    events, second = await told([*texts(4), CUT], route=rules)
    assert (terminal(events).output_text, second.plans[0].model) == (TEXT, "other")


async def test_it_happens_once() -> None:
    def cut_again(plan: Plan) -> list[Step]:
        return [TextGrew(TEXT[len(plan.prefix or "") :][:5]), BackendError("again", code="x5")]

    backends = {"a": model([*texts(2), CUT]), "b": ScriptedBackend(cut_again, continues=True)}
    backends["c"] = ScriptedBackend(writes_on, continues=True)
    routes = {"route": streaming("a", "b", "c")}
    async with serve_gateway(backends, routes=routes) as gateway:
        response = terminal(await ask_stream(gateway, model="route"))
    assert (response.status, response.output_text) == ("failed", TEXT[:14])
    assert response.error is not None
    assert response.error.code == "upstream_closed"
    assert backends["c"].plans == []


async def test_a_refused_prefix_does_not_hide_the_first_error() -> None:
    def refuse(plan: Plan) -> list[Step]:
        return [BackendError("no prefill here", code="invalid", status=400)]

    events, second = await told([*texts(4), CUT], refuse)
    response = terminal(events)
    assert response.error is not None
    assert (response.status, response.error.code) == ("failed", "upstream_closed")
    assert response.output_text == "".join(PIECES[:4])
    assert len(second.plans) == 1
    assert response.antiphon
    assert [one.outcome for one in response.antiphon.attempts] == ["upstream_closed", "invalid"]


# Liars.


def pieces_of(text: str, size: int = 7) -> list[Step]:
    return [TextGrew(text[at : at + size]) for at in range(0, len(text), size)]


@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_an_echo_of_the_beginning_is_cut_off(size: int) -> None:
    def echo(plan: Plan) -> list[Step]:
        return [*pieces_of("".join(LONG), size), STOP]

    events, _ = await told([*map(TextGrew, LONG[:30]), CUT], echo)
    assert terminal(events).output_text == "".join(LONG)


@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_an_answer_that_starts_again_fails_with_the_first_error(size: int) -> None:
    def restart(plan: Plan) -> list[Step]:
        return [*pieces_of("".join(LONG[:10]) + "and now something else", size), STOP]

    events, _ = await told([*map(TextGrew, LONG[:30]), CUT], restart)
    response = terminal(events)
    assert response.error is not None
    assert (response.status, response.error.code) == ("failed", "upstream_closed")
    assert response.output_text == "".join(LONG[:30])


async def test_an_answer_that_starts_again_is_among_the_attempts() -> None:
    text = "".join(f"sentence number {number}. " for number in range(20))
    events, _ = await told([TextGrew(text), CUT], lambda plan: [TextGrew(text[:60] + "no"), STOP])
    notes = terminal(events).antiphon
    assert notes
    outcomes = [(one.provider, one.outcome) for one in notes.attempts]
    assert outcomes == [("a", "upstream_closed"), ("b", "upstream_invalid_response")]


async def test_a_continuation_that_begins_to_reason_has_started_again() -> None:
    def reason(plan: Plan) -> list[Step]:
        return [ReasoningGrew("let me see"), TextGrew("x"), STOP]

    events, _ = await told([*texts(4), CUT], reason)
    assert terminal(events).output_text == "".join(PIECES[:4])
    assert terminal(events).status == "failed"


async def test_a_text_may_repeat_itself() -> None:
    def laugh(plan: Plan) -> list[Step]:
        return [*pieces_of("ha ha ha", 3), STOP]

    events, _ = await told([TextGrew("ha "), TextGrew("ha "), CUT], laugh)
    assert terminal(events).output_text == "ha ha ha ha ha"


async def test_white_space_that_a_target_must_not_be_given_is_not_written_twice() -> None:
    class Stripping(ScriptedBackend):
        """A model whose prefix must not end with white space."""

        def __init__(self) -> None:
            super().__init__(self.script, models=("m",), continues=True)
            able = msgspec.structs.replace(self.capabilities, strips_prefix=True)
            self.capabilities = able

        @staticmethod
        def script(plan: Plan) -> list[Step]:
            assert plan.prefix is not None
            assert plan.prefix == plan.prefix.rstrip()
            return [*pieces_of(TEXT[len(plan.prefix) :], 1), STOP]

    for cut in range(1, len(PIECES)):
        backends = {"a": model([*texts(cut), CUT]), "b": Stripping()}
        routes = {"route": streaming("a", "b")}
        async with serve_gateway(backends, routes=routes) as gateway:
            response = terminal(await ask_stream(gateway, model="route"))
        assert response.output_text == TEXT


_BEGUN: Final = "".join(LONG[:30]).rstrip()
_SHORT: Final = "".join(LONG[:6])
_CALL: Final[list[Delta]] = [CallOpened(0, "f"), CallGrew(0, "{}"), STOP]
# What was shown, what a model begins its leg with, and what is forwarded; None if it has lied.
_LEGS: Final[list[tuple[str, list[Delta], list[Delta] | None]]] = [
    (_BEGUN, [TextGrew(_BEGUN + "and on"), STOP], [TextGrew("and on"), STOP]),
    (_BEGUN, [TextGrew(_BEGUN), STOP], [STOP]),
    (_BEGUN, [TextGrew("".join(LONG[:10]) + "else"), STOP], None),
    (_BEGUN, [TextGrew("".join(LONG[:10])), STOP], None),
    (_BEGUN, [ReasoningGrew("hm"), TextGrew("x"), STOP], None),
    (_BEGUN, [TextGrew("and on"), STOP], [TextGrew("and on"), STOP]),
    (_BEGUN, [*_CALL], [*_CALL]),
    (_BEGUN + " \n", [TextGrew(" \nand on"), STOP], [TextGrew("and on"), STOP]),
    (_BEGUN + " \n", [TextGrew("and on"), STOP], [TextGrew("and on"), STOP]),
    (_BEGUN + " \n", [TextGrew(" \n"), STOP], [STOP]),
    (_SHORT, [TextGrew(_SHORT[:30] + "else"), STOP], [TextGrew(_SHORT[:30] + "else"), STOP]),
    ("ha ", [TextGrew("ha ha"), STOP], [TextGrew("ha ha"), STOP]),
]


def check_guard(make: Any) -> None:
    """Play every leg to a guard, in pieces of several sizes: lies must be caught, no others."""
    for text, leg, wanted in _LEGS:
        for size in (1, 7, 1000):
            guard = make(text, strips=text.endswith("\n"))
            found: list[Delta] = []
            for delta in _in_pieces(leg, size):
                found += guard.feed([delta]) if not guard.has_failed else []  # the turn fails
            assert guard.has_failed == (wanted is None)
            if wanted is not None:
                assert _joined(found) == wanted
                assert guard.is_decided


def _in_pieces(leg: Sequence[Delta], size: int) -> list[Delta]:
    cut: list[Delta] = []
    for delta in leg:
        text = delta.text if isinstance(delta, TextGrew) else ""
        cut += [TextGrew(text[at : at + size]) for at in range(0, len(text), size)]
        cut += [] if isinstance(delta, TextGrew) else [delta]
    return cut


def _joined(deltas: Sequence[Delta]) -> list[Delta]:
    text = "".join(one.text for one in deltas if isinstance(one, TextGrew))
    rest: list[Delta] = [one for one in deltas if not isinstance(one, TextGrew)]
    return [TextGrew(text), *rest] if text else rest


def test_the_guard_lets_no_liar_through() -> None:
    check_guard(continuation._PrefixGuard)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # An echo is written a second time.
        ("found.startswith(text)", "False"),
        ("self._found, self.is_decided = found[len(text) :], True", "self.is_decided = True"),
        # An answer that starts again is written after the first.
        ("len(text) > _LONG and _common(text, found) >= _SURE", "False"),
        ("_common(text, found) >= _SURE", "_common(text, found) > len(text)"),
        (
            "else:\n                self.has_failed = True",
            "else:\n                out.append(delta)",
        ),
        # White space is written twice.
        ("self._found[shared:]", "self._found"),
        ("if self._space.startswith(self._found) and not is_end:", "if False:"),
        ('text[len(text.rstrip()) :] if strips else ""', '""'),
        # What is no lie is taken for one, or lost.
        ("len(text) >= _SURE and ", ""),
        ("len(text) > _LONG and ", ""),
        ("Stopped | CallOpened", "Stopped"),
        ("self._decide(is_end=True)", "pass"),
    ],
)
def test_a_guard_with_a_bug_is_caught(old: str, new: str) -> None:
    broken: Any = plant([continuation], old, new)
    with pytest.raises(AssertionError):
        check_guard(broken._PrefixGuard)


# Real chat servers on loopback, killed in mid-stream.


def continuing(body: dict[str, Any]) -> Script:
    """Go on with the last message if it is the assistant's, as llama.cpp does."""
    last = body["messages"][-1]
    prefix = last["content"] if last["role"] == "assistant" else ""
    assert TEXT.startswith(prefix)
    return Script(text=[TEXT[len(prefix) :]] if len(prefix) < len(TEXT) else "")


@asynccontextmanager
async def two_servers(fault: Fault, profile: str, **script: Any) -> AsyncIterator[Any]:
    dying = Script(**{"text": PIECES, **script, "faults": [fault]})
    async with ScriptedUpstream(dying) as one, ScriptedUpstream(continuing) as two:
        backends = {
            "a": ChatBackend(one.base_url, profile=profile),
            "b": ChatBackend(two.base_url, profile=profile),
        }
        async with serve_gateway(backends, routes={"route": streaming("a", "b")}) as gateway:
            yield gateway, two


def sent_to(server: ScriptedUpstream) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.json.decode(server.requests[-1].body)
    return body


@pytest.mark.parametrize("kind", [Reset, Cut, ErrorChunk])
@pytest.mark.parametrize("after", range(1, len(PIECES) + 1))
async def test_a_server_that_dies_at_any_chunk_is_continued(kind: Any, after: int) -> None:
    async with two_servers(kind(after), "llamacpp") as (gateway, _):
        response = terminal(await ask_stream(gateway, model="route"))
    assert (response.status, response.output_text) == ("completed", TEXT)
    assert len(response.output) == 1


@pytest.mark.parametrize("fault", [Close(4), Garbage(4)])
async def test_an_end_in_good_order_and_nonsense_are_not_continued(fault: Fault) -> None:
    async with two_servers(fault, "llamacpp") as (gateway, two):
        response = terminal(await ask_stream(gateway, model="route"))
    assert (response.status, two.requests) == ("failed", [])


@pytest.mark.parametrize(
    ("profile", "message", "fields"),
    [
        ("llamacpp", {}, {}),
        ("vllm", {}, {"continue_final_message": True, "add_generation_prompt": False}),
        ("sglang", {}, {"continue_final_message": True, "add_generation_prompt": False}),
        ("deepseek", {"prefix": True}, {}),
        ("mistral", {"prefix": True}, {}),
    ],
)
async def test_each_profile_says_how_its_server_continues(
    profile: str, message: dict[str, Any], fields: dict[str, Any]
) -> None:
    async with two_servers(Cut(4), profile) as (gateway, two):
        response = terminal(await ask_stream(gateway, model="route"))
    body = sent_to(two)
    assert response.output_text == TEXT
    prefix = {"role": "assistant", "content": "".join(PIECES[:3])}
    assert body["messages"][-1] == prefix | message
    asked = ("continue_final_message", "add_generation_prompt")
    assert {name: body[name] for name in asked if name in body} == fields


@pytest.mark.parametrize("profile", ["generic", "openai", "ollama", "openrouter", "groq"])
async def test_a_server_that_cannot_continue_is_not_asked_to(profile: str) -> None:
    async with two_servers(Cut(4), profile) as (gateway, two):
        response = terminal(await ask_stream(gateway, model="route"))
    assert (response.status, two.requests) == ("failed", [])


async def test_a_call_that_is_cut_in_mid_arguments_is_not_shown() -> None:
    calls = [Call("f", '{"a": "a long argument of some words"}')]
    async with two_servers(Cut(12), "llamacpp", calls=calls) as (gateway, _):
        response = terminal(await ask_stream(gateway, model="route", tools=[TOOL]))
    assert (response.status, response.output_text) == ("completed", TEXT)
    assert [item["type"] for item in response.output] == ["message"]


@pytest.mark.parametrize(
    "text",
    ['Look. <tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>', "<think>hm</think>So"],
    ids=["call", "tag"],
)
async def test_a_text_that_is_cut_inside_a_call_or_a_tag_is_not_continued(text: str) -> None:
    begun = text.index("<") + 4
    pieces = [text[:begun], text[begun:]]
    async with two_servers(Cut(2), "vllm", text=pieces) as (gateway, two):
        response = terminal(await ask_stream(gateway, model="route", tools=[TOOL]))
    assert (response.status, two.requests) == ("failed", [])
    assert response.output_text == pieces[0]


async def test_background_turns_websockets_and_doors_are_continued_too() -> None:
    async def in_background(gateway: Gateway) -> str:
        queued = await ask(gateway, model="route", background=True)
        path = f"/responses/{queued.json['id']}?stream=true"
        return terminal(events_of((await request(gateway, "GET", path)).body)).output_text

    async def over_socket(gateway: Gateway) -> str:
        async with talk(gateway.base_url) as socket:
            last = await socket.turn(input="x", model="route")
        return msgspec.convert(last["response"], Response).output_text

    async def through_chat(gateway: Gateway) -> str:
        body = {"model": "route", "messages": [{"role": "user", "content": "x"}], "stream": True}
        answer = await request(gateway, "POST", "/chat/completions", body)
        lines = [line[6:] for line in answer.body.splitlines() if line.startswith(b"data: {")]
        chunks = [msgspec.json.decode(line)["choices"] for line in lines]
        return "".join(one[0]["delta"].get("content") or "" for one in chunks if one)

    for way in (in_background, over_socket, through_chat):
        async with two_servers(Cut(5), "llamacpp") as (gateway, _):
            assert await way(gateway) == TEXT


async def test_an_answer_that_is_cut_after_a_hosted_call_fails_with_what_it_has() -> None:
    tool = ScriptedTool()
    call: list[Step] = [CallMade("test__look", "{}"), STOP]
    backends = {"a": model(call, [*texts(4), CUT]), "b": model([*texts(9), STOP])}
    routes = {"route": streaming("a", "b")}
    async with serve_gateway(backends, routes=routes, tools=[tool]) as gateway:
        hosted = {"type": "mcp", "server_label": "test"}
        events = await ask_stream(gateway, model="route", tools=[hosted])
    response = terminal(events)
    assert (response.status, response.output_text) == ("failed", "".join(PIECES[:4]))
    assert [one.function.name for one in tool.calls] == ["look"]
    assert backends["b"].plans == []
