"""The loop of rounds: nothing received is lost, errors keep their cause, tools fit in between."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import msgspec
import pytest

from antiphon.backends.base import DeltaSink
from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.engine.engine import Engine
from antiphon.engine.prepare.grammars import aside
from antiphon.engine.run.call_checker import HELD_AT_MOST
from antiphon.engine.run.rounds import Next, Policy, RoundEnd, Rounds
from antiphon.plans.plan import Plan
from antiphon.protocol.codec import decode_event
from antiphon.protocol.deltas import (
    CallClosed,
    CallGrew,
    CallMade,
    CallOpened,
    Degraded,
    Delta,
    ItemPassed,
    Stopped,
    TextGrew,
    UsageKnown,
)
from antiphon.protocol.errors import BackendError, ContextOverflow, Overloaded
from antiphon.protocol.machines.referee import judge_stream
from antiphon.protocol.response import Response, Usage
from antiphon.protocol.tools import ToolPolicy
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import ask, ask_stream, events_of, request, terminal
from tests.playing import Collected
from tests.talking import talk

STOP = Stopped("stop")
PLAN = Plan(model="m", items=[{"type": "message", "role": "user", "content": "hi"}])
SUM: dict[str, Any] = {
    "type": "custom",
    "name": "sum",
    "format": {"type": "grammar", "syntax": "regex", "definition": r"[0-9]+ [+] [0-9]+"},
}


class Sink(Collected):
    """Takes what rounds produce, and notes what they report."""

    def __init__(self, *waits: bool) -> None:
        super().__init__(*waits)
        self.notes: list[str] = []
        self.asked = 0

    def note_degraded(self, notes: Sequence[str], *, is_said: bool) -> None:
        self.notes += notes

    def check_reader(self) -> None:
        return

    def begin_round(self, plan: Plan, *, continues: bool) -> None:
        self.asked += 1


class Hasty(ScriptedBackend):
    """A model that breaks off at once when it has to wait."""

    async def play(self, steps: Iterable[Step], sink: DeltaSink) -> None:
        for step in steps:
            assert isinstance(step, list)
            if not sink.push(step):
                raise BackendError("the wire broke", code="upstream_closed")


def used(read: int, written: int) -> UsageKnown:
    return UsageKnown(Usage(input_tokens=read, output_tokens=written, total_tokens=read + written))


# What was received is not lost.


async def test_text_received_before_a_fault_is_sent_although_nothing_waited_for_it() -> None:
    async with serve_gateway(Hasty(lambda _: [[TextGrew("half an ")]])) as gateway:
        events = await ask_stream(gateway)
        whole = await ask(gateway)
        async with talk(gateway.base_url) as socket:
            last = await socket.turn(input="x")

    found = [terminal(events), msgspec.convert(whole.json, Response)]
    found.append(msgspec.convert(last["response"], Response))
    assert [response.status for response in found] == ["failed"] * 3
    assert [response.output_text for response in found] == ["half an "] * 3
    assert all(r.error and r.error.code == "upstream_closed" for r in found)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_call_that_is_checked_in_a_thread_survives_a_fault_before_it_is_waited_for(
    stream: bool,
) -> None:
    text = msgspec.json.encode({"input": "2 + 2"}).decode()
    call: list[Delta] = [CallOpened(0, "sum", "c1"), CallGrew(0, text), CallClosed(0)]
    async with serve_gateway(Hasty(lambda _: [call])) as gateway:
        if stream:
            response = terminal(await ask_stream(gateway, tools=[SUM]))
        else:
            response = msgspec.convert((await ask(gateway, tools=[SUM])).json, Response)

    assert response.status == "failed"
    assert [item["input"] for item in response.output] == ["2 + 2"]


class Blocked(ScriptedBackend):
    """A model whose call cannot be checked before `release` is set; it waits, or does not."""

    def __init__(self, *, waits: bool) -> None:
        super().__init__()
        self.release = threading.Event()
        self.has_pushed, self.was_cancelled = asyncio.Event(), asyncio.Event()
        self._waits = waits

    async def play(self, steps: Iterable[Step], sink: DeltaSink) -> None:
        blocking = asyncio.create_task(aside(self.release.wait))
        await asyncio.sleep(0)  # the one thread for checks is taken now
        text = msgspec.json.encode({"input": "2 + 2"}).decode()
        sink.push([CallOpened(0, "sum", "c1"), CallGrew(0, text), CallClosed(0)])
        self.has_pushed.set()
        try:
            await (sink.drained() if self._waits else asyncio.Event().wait())
        except asyncio.CancelledError:
            self.was_cancelled.set()
            raise
        finally:
            del blocking


@pytest.mark.parametrize("waits", [True, False])
async def test_a_call_that_is_checked_in_a_thread_survives_a_cancellation(waits: bool) -> None:
    backend = Blocked(waits=waits)
    async with serve_gateway(backend) as gateway:
        try:
            begun = (await ask(gateway, background=True, tools=[SUM])).json
            await backend.has_pushed.wait()
            path = f"/responses/{begun['id']}/cancel"
            cancelling = asyncio.create_task(request(gateway, "POST", path))
            await backend.was_cancelled.wait()
        finally:
            backend.release.set()
        response = msgspec.convert((await cancelling).json, Response)
    assert response.status == "cancelled"
    assert [item["input"] for item in response.output] == ["2 + 2"]


async def test_a_round_that_ends_before_its_sink_has_room_waits_for_it() -> None:
    sink = Sink(True)
    await Rounds(Lazy([[[TextGrew("a")]]]), PLAN, (), sink).run()
    assert sink.waited == 1


class Lazy(ScriptedBackend):
    """A model that never waits."""

    async def play(self, steps: Iterable[Step], sink: DeltaSink) -> None:
        for step in steps:
            assert isinstance(step, list)
            sink.push(step)


# Errors keep their cause.


async def test_an_error_of_the_sink_is_raised_as_it_is_and_nothing_follows_it() -> None:
    class Refusing(Sink):
        def push(self, batch: Sequence[Delta]) -> bool:
            if self.batches:
                raise Overloaded("no memory")
            return super().push(batch)

    class Holding(Policy):
        sees: ClassVar[bool] = True

        @property
        def note_text(self) -> None:
            return None

        async def after(self, end: RoundEnd, rounds: Rounds) -> Next | None:
            ended.append(end)
            return Next(PLAN)

    ended: list[RoundEnd] = []
    sink, backend = Refusing(), ScriptedBackend([[TextGrew("a"), TextGrew("b"), STOP]])
    with pytest.raises(Overloaded, match="no memory"):
        await Rounds(backend, PLAN, [Holding()], sink).run()
    assert (sink.deltas, ended) == ([TextGrew("a")], [])
    assert backend.stopped_early == 1


async def test_an_error_of_the_sink_of_the_models_own_kind_is_not_taken_for_the_models() -> None:
    class Refusing(Sink):
        def push(self, batch: Sequence[Delta]) -> bool:
            raise BackendError("no such call", code="bad")

    class Again(Policy):
        async def after(self, end: RoundEnd, rounds: Rounds) -> Next | None:
            raise AssertionError("no model may be asked again")

    with pytest.raises(BackendError, match="no such call"):
        await Rounds(ScriptedBackend([[TextGrew("a"), STOP]]), PLAN, [Again()], Refusing()).run()


async def test_cancelling_stops_the_model() -> None:
    backend, sink = ScriptedBackend([[TextGrew("a"), asyncio.Event(), STOP]]), Sink()
    running = asyncio.create_task(Rounds(backend, PLAN, (), sink).run())
    await sink.has_more.wait()
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()
    assert backend.stopped_early == 1


# All rounds are one answer.


class Twice(Policy):
    """Asks a second time."""

    def __init__(self) -> None:
        self.rounds = 0

    async def after(self, end: RoundEnd, rounds: Rounds) -> Next | None:
        self.rounds += 1
        return Next(end.plan, continues=True) if self.rounds == 1 else None


@pytest.mark.parametrize(
    ("usages", "total"),
    [
        ([[used(1, 2)], [used(10, 20)]], [used(11, 22)]),
        ([[used(1, 2)], []], []),
        ([[], [used(1, 2)]], []),
    ],
)
async def test_the_sink_gets_one_stop_and_the_usage_of_all_rounds_or_none(
    usages: list[list[Delta]], total: list[Delta]
) -> None:
    scripts: list[list[Step]] = [
        [TextGrew("a"), [*usages[0], Stopped("length")]],
        [TextGrew("b"), [*usages[1], STOP]],
    ]
    sink = Sink()
    await Rounds(ScriptedBackend(scripts), PLAN, [Twice()], sink).run()
    assert sink.deltas == [TextGrew("a"), TextGrew("b"), *total, STOP]
    assert sink.asked == 2


async def test_an_attempt_that_failed_before_it_produced_anything_costs_nothing() -> None:
    scripts: list[list[Step]] = [[BackendError("busy")], [TextGrew("a"), [used(1, 2), STOP]]]
    sink = Sink()
    await Rounds(ScriptedBackend(scripts), PLAN, [Twice()], sink).run()
    assert sink.deltas == [TextGrew("a"), used(1, 2), STOP]


async def test_a_shortened_context_is_counted_as_it_was_sent() -> None:
    history = [{"role": role, "content": "x"} for role in ("user", "assistant", "user")]
    scripts: list[list[Step]] = [[ContextOverflow("too long")], [TextGrew("a"), [used(7, 1), STOP]]]
    async with serve_gateway(ScriptedBackend(scripts)) as gateway:
        response = terminal(await ask_stream(gateway, input=history, truncation="auto"))
    assert response.usage is not None
    assert response.usage.input_tokens == 7
    assert response.antiphon
    assert response.antiphon.usage is None


async def test_what_cannot_be_honoured_is_reported_for_the_first_round_only() -> None:
    note = Degraded("text.verbosity: not sent")
    sink = Sink()
    await Rounds(ScriptedBackend(lambda _: [note, STOP]), PLAN, [Twice()], sink).run()
    assert sink.notes == [note.what]


# A hosted tool is a policy.


class Lookup(Policy):
    """Runs calls of the tool `lookup` between two rounds, which the caller never sees."""

    sees: ClassVar[bool] = True

    def __init__(self) -> None:
        self._arguments: list[str] = []
        self._is_open = False

    @property
    def note_text(self) -> Callable[[str], object] | None:
        return None if self._is_open else super().note_text

    def see(self, batch: Sequence[Delta]) -> Sequence[Delta]:
        return [delta for delta in batch if not self._is_own(delta)]

    def _is_own(self, delta: Delta) -> bool:
        match delta:
            case CallMade(name="lookup"):
                self._arguments.append(delta.said)
            case CallOpened(name="lookup"):
                self._is_open = True
            case CallGrew() if self._is_open:
                self._arguments.append(delta.arguments)
            case CallClosed() if self._is_open:
                self._is_open = False
            case _:
                return False
        return True

    async def after(self, end: RoundEnd, rounds: Rounds) -> Next | None:
        if end.error is not None or not self._arguments:
            return None
        arguments, self._arguments = "".join(self._arguments), []
        search = {"type": "web_search_call", "status": "completed", "action": {"type": "search"}}
        await rounds.emit([ItemPassed(search)])
        call = {
            "type": "function_call",
            "call_id": "c1",
            "name": "lookup",
            "arguments": arguments,
        }
        output = {"type": "function_call_output", "call_id": "c1", "output": "rain"}
        items = [*end.plan.items, call, output]
        # The call that was required has been made.
        policy = ToolPolicy()
        return Next(msgspec.structs.replace(end.plan, items=items, policy=policy))


@pytest.fixture
def with_policy(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Policy]], None]:
    """Let every turn have a policy before all others."""

    def put(policy: Callable[[], Policy]) -> None:
        plain = Engine._policies
        monkeypatch.setattr(
            Engine, "_policies", lambda *args, **more: [policy(), *plain(*args, **more)]
        )

    return put


Put = Callable[[Callable[[], Policy]], None]


def forecaster() -> ScriptedBackend:
    """Return a model that looks something up, then answers."""
    call: list[Step] = [
        TextGrew("Let me see. "),
        [CallOpened(0, "lookup", "c1"), CallGrew(0, '{"q":'), CallGrew(0, '"Oslo"}')],
        [CallClosed(0), used(10, 3), STOP],
    ]
    return ScriptedBackend([call, [TextGrew("Rain."), [used(20, 1), STOP]]])


async def _over_sse(gateway: Gateway) -> Response:
    return terminal(await ask_stream(gateway))


async def _whole(gateway: Gateway) -> Response:
    return msgspec.convert((await ask(gateway)).json, Response)


async def _over_websocket(gateway: Gateway) -> Response:
    async with talk(gateway.base_url) as socket:
        await socket.ask(input="x")
        events = [decode_event(msgspec.json.encode(event)) for event in await socket.events()]
    assert judge_stream(events) == []
    return terminal(events)


async def _in_background(gateway: Gateway) -> Response:
    begun = (await ask(gateway, background=True)).json
    path = f"/responses/{begun['id']}?stream=true"
    return terminal(events_of((await request(gateway, "GET", path)).body))


@pytest.mark.parametrize("turn", [_over_sse, _whole, _over_websocket, _in_background])
async def test_a_tool_runs_between_two_rounds_of_one_response(turn: Any, with_policy: Put) -> None:
    with_policy(Lookup)
    backend = forecaster()
    async with serve_gateway(backend) as gateway:
        response: Response = await turn(gateway)
        stored = (await request(gateway, "GET", f"/responses/{response.id}")).json
        log = await request(gateway, "GET", f"/responses/{response.id}?stream=true")

    kinds = [item["type"] for item in response.output]
    assert kinds == ["message", "web_search_call", "message"]
    assert response.status == "completed"
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (30, 4)
    assert [item["type"] for item in backend.plans[1].items[-2:]] == [
        "function_call",
        "function_call_output",
    ]
    assert stored["output"] == msgspec.to_builtins(response.output)
    assert judge_stream(events_of(log.body)) == []


# Each answer is held to its own plan.

FUNCTION: dict[str, Any] = {"type": "function", "name": "f", "parameters": {"type": "object"}}
# So long that it is not held back until it is complete: it stays open, under its key.
ARGUMENTS = msgspec.json.encode({"text": "x" * (HELD_AT_MOST + 100)}).decode()


class Again(Policy):
    """Asks for a second answer, as a tool does that has run."""

    def __init__(self) -> None:
        self._rounds = 0

    async def after(self, end: RoundEnd, rounds: Rounds) -> Next | None:
        self._rounds += 1
        return Next(end.plan) if self._rounds == 1 and end.error is None else None


def call(key: int, arguments: str, stop: Stopped | None = STOP) -> list[Step]:
    grown: list[Step] = [[CallOpened(key, "f", f"c{key}")], [CallGrew(key, arguments)]]
    return grown if stop is None else [*grown, stop]


async def test_calls_of_two_rounds_with_one_key_are_two_items(with_policy: Put) -> None:
    with_policy(Again)
    backend = ScriptedBackend([call(0, ARGUMENTS), call(0, ARGUMENTS)])
    async with serve_gateway(backend) as gateway:
        events = await ask_stream(gateway, tools=[FUNCTION])
    assert judge_stream(events) == []
    response = terminal(events)
    assert response.status == "completed"
    assert [item["arguments"] for item in response.output] == [ARGUMENTS, ARGUMENTS]


async def test_a_call_of_one_round_leaves_room_for_the_only_call_of_the_next(
    with_policy: Put,
) -> None:
    with_policy(Again)
    scripts = [call(0, '{"n":1}', None) + call(1, '{"n":2}'), call(0, '{"n":3}')]
    async with serve_gateway(ScriptedBackend(scripts)) as gateway:
        response = terminal(await ask_stream(gateway, tools=[FUNCTION], parallel_tool_calls=False))
    assert [item["arguments"] for item in response.output] == ['{"n":1}', '{"n":3}']
    assert response.antiphon
    assert response.antiphon.degraded[0].startswith("parallel_tool_calls: a second call")


async def test_a_call_of_one_round_is_not_the_call_that_the_next_requires(
    with_policy: Put,
) -> None:
    with_policy(Again)
    wordy: list[Step] = [TextGrew("no"), STOP]
    scripts = [call(0, "{}"), wordy, wordy]
    async with serve_gateway(ScriptedBackend(scripts)) as gateway:
        events = await ask_stream(gateway, tools=[FUNCTION], tool_choice="required")
    response = terminal(events)
    assert response.error is not None
    assert response.error.code == "tool_choice_violated"


async def test_a_required_call_that_the_gateway_runs_is_not_missed_later(
    with_policy: Put,
) -> None:
    with_policy(Lookup)
    lookup = {**FUNCTION, "name": "lookup"}
    backend = forecaster()
    async with serve_gateway(backend) as gateway:
        response = terminal(await ask_stream(gateway, tools=[lookup], tool_choice="required"))
    assert response.status == "completed"
    assert [item["type"] for item in response.output][-1] == "message"
    assert len(backend.plans) == 2


async def test_a_repaired_answer_goes_on_in_the_same_message() -> None:
    scripts = [
        [TextGrew("So, "), *call(0, "no JSON")],
        [TextGrew("once more."), *call(0, "{}")],
    ]
    async with serve_gateway(ScriptedBackend(scripts)) as gateway:
        response = terminal(await ask_stream(gateway, tools=[FUNCTION]))
    assert [item["type"] for item in response.output] == ["message", "function_call"]
    assert response.output_text == "So, once more."


async def test_a_repaired_call_may_have_the_key_of_one_that_was_right() -> None:
    wrong = call(0, ARGUMENTS, None) + call(1, "no JSON")
    cut = call(0, '{"n":', Stopped("length"))
    async with serve_gateway(ScriptedBackend([wrong, cut])) as gateway:
        events = await ask_stream(gateway, tools=[FUNCTION])
    assert judge_stream(events) == []
    response = terminal(events)
    assert response.status == "incomplete"
    assert [item["arguments"] for item in response.output] == [ARGUMENTS, '{"n":']


async def test_what_a_policy_kept_is_emitted_before_another_asks_for_the_next_answer() -> None:
    class Keeping(Policy):
        sees: ClassVar[bool] = True

        def __init__(self) -> None:
            self._kept: list[Delta] = []

        @property
        def note_text(self) -> None:
            return None

        def see(self, batch: Sequence[Delta]) -> Sequence[Delta]:
            self._kept += [delta for delta in batch if isinstance(delta, TextGrew)]
            return [delta for delta in batch if not isinstance(delta, TextGrew)]

        def finish(self) -> Sequence[Delta]:
            kept, self._kept = self._kept, []
            return kept

    class Emitting(Again):
        async def after(self, end: RoundEnd, rounds: Rounds) -> Next | None:
            wish = await super().after(end, rounds)
            if wish is not None:
                await rounds.emit([TextGrew("(tool) ")])
            return wish

    sink = Sink()
    scripts: list[list[Step]] = [[TextGrew("one "), STOP], [TextGrew("two"), STOP]]
    await Rounds(ScriptedBackend(scripts), PLAN, [Emitting(), Keeping()], sink).run()
    texts = [delta.text for delta in sink.deltas if isinstance(delta, TextGrew)]
    assert texts == ["one ", "(tool) ", "two"]
    assert sink.deltas[-1] == STOP


async def test_no_tool_runs_after_an_answer_that_fails_the_turn() -> None:
    class Refusing(Policy):
        def judge(self) -> None:
            raise BackendError("invalid twice", code="tool_call_invalid")

    backend, sink = ScriptedBackend([[TextGrew("one"), [used(1, 2), STOP]]]), Sink()
    with pytest.raises(BackendError, match="invalid twice"):
        await Rounds(backend, PLAN, [Again(), Refusing()], sink).run()
    assert sink.deltas == [TextGrew("one"), used(1, 2), STOP]
    assert len(backend.plans) == 1


@pytest.mark.parametrize("together", [False, True])
async def test_only_a_text_with_the_mark_of_a_policy_is_looked_at(together: bool) -> None:
    class Marking(Policy):
        sees: ClassVar[bool] = True
        looks_for = re.compile(r"\*")

        def __init__(self) -> None:
            self.seen: list[str] = []
            self.passed: list[str] = []

        @property
        def note_text(self) -> Callable[[str], object]:
            return self.passed.append

        def see(self, batch: Sequence[Delta]) -> Sequence[Delta]:
            self.seen += [delta.text for delta in batch if isinstance(delta, TextGrew)]
            return batch

    policy, sink = Marking(), Sink()
    texts = [[TextGrew("first")], [TextGrew("a")], [TextGrew("b*")], [TextGrew("c")]]
    if together:
        texts = [[TextGrew("first")], [TextGrew("a"), TextGrew("a")]]
        texts += [[TextGrew("b"), TextGrew("*")], [TextGrew("c")]]
    script: list[Step] = [*texts, STOP]
    await Rounds(ScriptedBackend([script]), PLAN, [policy], sink).run()
    # The first batch of a round is always looked at.
    assert policy.seen == (["first", "b", "*"] if together else ["first", "b*"])
    assert policy.passed == (["a", "a", "c"] if together else ["a", "c"])


async def test_a_text_after_a_stop_is_looked_at_and_those_of_the_next_round_may_pass() -> None:
    class Noting(Again):
        sees: ClassVar[bool] = True

        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []
            self.passed: list[str] = []

        @property
        def note_text(self) -> Callable[[str], object]:
            return self.passed.append

        def see(self, batch: Sequence[Delta]) -> Sequence[Delta]:
            self.seen += [delta.text for delta in batch if isinstance(delta, TextGrew)]
            return batch

    policy, sink = Noting(), Sink()
    first: list[Step] = [[TextGrew("a")], [TextGrew("b")], STOP, [TextGrew("late")]]
    second: list[Step] = [[TextGrew("c")], [TextGrew("d")], STOP]
    await Rounds(ScriptedBackend([first, second]), PLAN, [policy], sink).run()
    assert policy.seen == ["a", "late", "c"]
    assert policy.passed == ["b", "d"]
    texts = [delta.text for delta in sink.deltas if isinstance(delta, TextGrew)]
    assert texts == ["a", "b", "late", "c", "d"]
