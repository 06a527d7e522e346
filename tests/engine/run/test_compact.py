"""Compaction: what stays word for word, what the model goes on from, and what it costs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final

import pytest

from antiphon.backends.base import Backend
from antiphon.backends.scripted import Script, ScriptedBackend
from antiphon.engine.prepare.seal import Sealer
from antiphon.engine.prepare.window import open_context
from antiphon.engine.run.compact import Compacted, compact, compaction_of
from antiphon.engine.run.rounds import Rounds
from antiphon.engine.run.turn_charges import TurnCharges
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import (
    Degraded,
    Delta,
    ItemPassed,
    Stopped,
    TextGrew,
    UsageKnown,
)
from antiphon.protocol.errors import InvalidRequest, NotBuilt
from antiphon.protocol.items import Item, item_type, text_of
from antiphon.protocol.request import read_request
from antiphon.protocol.response import Usage
from antiphon.routing.candidates import Route
from tests.faults.house import until
from tests.paying import charges_of
from tests.playing import Collected
from tests.routing.making import alone

SEALER: Final = Sealer([bytes(32)])
TRIGGER: Final[Item] = {"type": "compaction_trigger"}
USAGE: Final = Usage(input_tokens=100, output_tokens=10, total_tokens=110)


def said(role: str, text: str) -> Item:
    return {"type": "message", "role": role, "content": text, "id": f"msg_{text[:20]}"}


def call(name: str) -> Item:
    return {"type": "function_call", "call_id": name, "name": "f", "arguments": "{}", "id": name}


def output(name: str, text: str = "done") -> Item:
    return {"type": "function_call_output", "call_id": name, "output": text, "id": f"out_{name}"}


def summing(plan: Plan) -> Script:
    """Write a summary when asked for one, and an answer otherwise; both cost the same."""
    asked = "notes to yourself" in text_of(plan.items[-1].get("content"))
    return [TextGrew("SUM" if asked else "ANSWER"), [UsageKnown(USAGE), Stopped("stop")]]


class Sized(ScriptedBackend):
    """A scripted model that says how many tokens it takes."""

    def __init__(self, context: int, script: Callable[[Plan], Script] = summing) -> None:
        super().__init__(script)
        self.context = context


def routed(backend: Backend) -> Route:
    """Return the route of a model."""
    return alone(backend, context=backend.context if isinstance(backend, Sized) else None)


async def compacted(items: Sequence[Item], backend: Backend | None = None) -> Compacted:
    numbers = count()
    backend = backend or ScriptedBackend(summing)
    plan = Plan(model="m", items=items)
    mint = lambda kind: f"{kind}_{next(numbers)}"  # noqa: E731 - short
    return await compact(routed(backend), plan, "alice", SEALER, mint, charges_of())


class Taken(Collected):
    """Takes what rounds produce, with what they report."""

    def note_degraded(self, notes: Sequence[str], *, is_said: bool) -> None:
        self.batches.append([Degraded(note) for note in notes])

    def check_reader(self) -> None:
        return

    def begin_round(self, plan: Plan, *, continues: bool) -> None:
        return


async def streamed(
    items: list[Item], backend: Backend, charges: TurnCharges | None = None, **fields: Any
) -> list[Delta]:
    """Run a plan of these items as a turn would that asks for compaction."""
    request = read_request({"input": items, **fields})
    shown, _ = open_context(items, "alice", SEALER)
    policy = compaction_of(request, "alice", SEALER, routed(backend), charges or charges_of())
    sink = Taken()
    policies = [] if policy is None else [policy]
    await Rounds(backend, Plan(model="m", items=shown), policies, sink).run()
    return sink.deltas


def threshold(tokens: int) -> dict[str, Any]:
    return {"context_management": [{"type": "compaction", "compact_threshold": tokens}]}


def texts(items: Sequence[Item]) -> list[str]:
    """Return what each item says, in short."""
    found = []
    for item in items:
        kind = item_type(item)
        text = text_of(item.get("content")).split("\n")[-1]
        found.append(text[:12] if kind == "message" else f"{kind}:{item.get('call_id', '')}")
    return found


def next_window(items: list[Item]) -> list[str]:
    shown, notes = open_context(items, "alice", SEALER)
    assert notes == []
    return texts(shown)


def passed(deltas: list[Delta]) -> list[Item]:
    return [delta.item for delta in deltas if isinstance(delta, ItemPassed)]


def spent(deltas: list[Delta]) -> list[Usage]:
    return [delta.usage for delta in deltas if isinstance(delta, UsageKnown)]


TALK: Final = [
    said("system", "sys"),
    said("user", "first"),
    said("assistant", "reply"),
    call("a"),
    output("a"),
    said("user", "second"),
]


# The endpoint.


async def test_user_messages_stay_and_the_rest_is_in_one_sealed_item() -> None:
    done = await compacted(TALK)
    assert texts(done.output) == ["sys", "first", "second", "compaction:"]
    assert done.usage == USAGE
    assert not done.is_estimated
    assert done.degraded == []
    assert "SUM" not in done.output[-1]["encrypted_content"]


async def test_the_output_is_the_next_context() -> None:
    done = await compacted(TALK)
    window = next_window([*done.output, said("user", "third")])
    assert window == ["sys", "first", "second", "SUM", "third"]


async def test_the_output_without_its_ids_is_the_same_context() -> None:
    done = await compacted(TALK)
    bare = [{k: v for k, v in item.items() if k != "id"} for item in done.output]
    assert next_window(bare) == ["sys", "first", "second", "SUM"]


async def test_calls_that_wait_for_their_output_stay_behind() -> None:
    done = await compacted([*TALK, call("b"), call("c"), output("c")])
    assert texts(done.output)[-2:] == ["compaction:", "function_call:b"]
    window = next_window([*done.output, output("b")])
    assert window[-3:] == ["SUM", "function_call:b", "function_call_output:b"]


async def test_the_newest_user_messages_stay_as_far_as_there_is_room() -> None:
    items = [said("user", f"{n}" + "x" * 400) for n in range(10)]
    backend = Sized(1600)  # a quarter of which is room for three messages of 101 tokens
    done = await compacted(items, backend)
    assert [text[:1] for text in texts(done.output)] == ["7", "8", "9", "c"]
    assert [text[:1] for text in next_window([*items[-3:], done.output[-1]])] == list("789S")
    # Whoever sends everything again does not undo it.
    assert [text[:1] for text in next_window([*items, done.output[-1]])] == list("789S")


async def test_an_old_message_said_again_stays_once_more() -> None:
    items = [said("user", "yes"), *[said("user", "x" * 400) for _ in range(5)], said("user", "yes")]
    done = await compacted(items, Sized(1600))
    assert next_window(done.output)[-2:] == ["yes", "SUM"]


async def test_a_compacted_window_can_be_compacted_again() -> None:
    backend = ScriptedBackend(summing)
    first = await compacted(TALK, backend)
    shown, _ = open_context([*first.output, said("user", "third")], "alice", SEALER)
    second = await compacted(shown, backend)
    assert texts(second.output) == ["sys", "first", "second", "third", "compaction:"]
    assert "SUM" in texts(list(backend.plans[1].items))
    assert next_window(second.output) == ["sys", "first", "second", "third", "SUM"]


async def test_every_item_of_the_output_has_an_id() -> None:
    done = await compacted([{"role": "user", "content": "x"}])
    assert all(item["id"] for item in done.output)
    assert len({item["id"] for item in done.output}) == len(done.output)


@pytest.mark.parametrize("items", [[], [said("system", "sys")], [call("a")]])
async def test_nothing_to_compact_is_the_callers_mistake(items: list[Item]) -> None:
    with pytest.raises(InvalidRequest, match="nothing to compact"):
        await compacted(items)


# The trigger.


@pytest.mark.parametrize(
    ("body", "expected"),
    [({"input": [TRIGGER]}, True), ({"input": "x"}, False), ({"input": []}, False)],
)
def test_a_trigger_is_the_last_item(body: dict[str, Any], expected: bool) -> None:
    assert read_request(body).only_compacts is expected


async def test_a_trigger_compacts_and_says_nothing_else() -> None:
    backend = ScriptedBackend(summing)
    charges = charges_of()
    deltas = await streamed([*TALK, TRIGGER], backend, charges)
    (item,) = passed(deltas)
    assert item["type"] == "compaction"
    assert not any(isinstance(delta, TextGrew) for delta in deltas)
    assert deltas[-1] == Stopped("stop")
    assert (charges.usage, charges.basis) == (USAGE, "reported")
    assert len(backend.plans) == 1
    assert TRIGGER not in backend.plans[0].items


async def test_the_item_alone_or_behind_everything_is_the_same_context() -> None:
    (item,) = passed(await streamed([*TALK, TRIGGER], ScriptedBackend(summing)))
    assert next_window([item]) == ["first", "second", "SUM"]
    assert next_window([*TALK, TRIGGER, item]) == ["sys", "first", "second", "SUM"]


async def test_open_calls_are_sealed_with_it() -> None:
    (item,) = passed(await streamed([*TALK, call("b"), TRIGGER], ScriptedBackend(summing)))
    assert next_window([item, output("b")])[-3:] == [
        "SUM",
        "function_call:b",
        "function_call_output:b",
    ]


async def test_a_trigger_alone_is_the_callers_mistake() -> None:
    with pytest.raises(InvalidRequest, match="nothing to compact"):
        await streamed([TRIGGER], ScriptedBackend(summing))


def test_a_trigger_where_nothing_can_be_sealed_is_not_built() -> None:
    request = read_request({"input": [TRIGGER]})
    with pytest.raises(NotBuilt, match="\\[seal\\]"):
        compaction_of(request, "alice", None, routed(ScriptedBackend()), charges_of())


async def test_an_uncounted_summary_leaves_the_usage_to_be_estimated() -> None:
    deltas = await streamed([*TALK, TRIGGER], ScriptedBackend([[TextGrew("SUM"), Stopped("stop")]]))
    assert spent(deltas) == []


# The threshold.


LONG: Final = [
    said("system", "sys"),
    said("user", "one" + "x" * 2000),
    said("assistant", "two" + "x" * 2000),
    said("user", "three"),
]


def test_without_a_wish_nothing_is_compacted() -> None:
    plain = read_request({"input": "x"})
    wish = read_request({"input": "x", **threshold(1000)})
    route = routed(ScriptedBackend())
    assert compaction_of(plain, "alice", SEALER, route, charges_of()) is None
    assert compaction_of(wish, "alice", None, route, charges_of()) is None


async def test_below_the_threshold_nothing_happens() -> None:
    backend = ScriptedBackend(summing)
    deltas = await streamed(LONG, backend, **threshold(5000))
    assert passed(deltas) == []
    assert len(backend.plans) == 1


async def test_over_the_threshold_the_model_goes_on_from_the_summary() -> None:
    backend, charges = ScriptedBackend(summing), charges_of()
    deltas = await streamed(LONG, backend, charges, **threshold(900))
    kinds = [type(delta) for delta in deltas]
    assert kinds.index(ItemPassed) < kinds.index(TextGrew)
    summary, answer = backend.plans
    assert texts(list(summary.items))[:-1] == ["sys", "onexxxxxxxxx", "twoxxxxxxxxx"]
    assert texts(list(answer.items)) == ["sys", "SUM", "three"]
    assert charges.usage == USAGE  # the answer is charged by its own policy
    assert spent(deltas) == [USAGE]


async def test_the_next_turn_begins_with_what_was_sealed() -> None:
    backend = ScriptedBackend(summing)
    (item,) = passed(await streamed(LONG, backend, **threshold(900)))
    answer = said("assistant", "ANSWER")
    window = next_window([*LONG, item, answer, said("user", "four")])
    assert window == ["sys", "SUM", "three", "ANSWER", "four"]


async def test_a_turn_that_is_itself_too_long_keeps_its_last_calls() -> None:
    backend = ScriptedBackend(summing)
    items = [
        said("user", "task"),
        *[step for n in range(5) for step in (call(f"c{n}"), output(f"c{n}", "x" * 1000))],
    ]
    deltas = await streamed(items, backend, **threshold(1000))
    assert len(passed(deltas)) == 1
    answer = texts(list(backend.plans[-1].items))
    assert answer == ["task", "SUM", "function_call:c4", "function_call_output:c4"]


async def test_a_call_stays_with_an_output_that_came_after_a_later_message() -> None:
    backend = ScriptedBackend(summing)
    items = [said("user", "x" * 4000), call("a"), said("user", "quick"), output("a")]
    deltas = await streamed(items, backend, **threshold(900))
    assert len(passed(deltas)) == 1
    answer = texts(list(backend.plans[-1].items))
    assert answer == ["SUM", "function_call:a", "quick", "function_call_output:a"]


async def test_what_the_user_said_last_always_stays() -> None:
    backend = ScriptedBackend(summing)
    items = [*LONG[:3], said("user", "ask" + "y" * 4000)]
    await streamed(items, backend, **threshold(900))
    assert texts(list(backend.plans[-1].items)) == ["sys", "askyyyyyyyyy", "SUM"]


async def test_last_calls_that_are_too_long_are_summed_up() -> None:
    backend = ScriptedBackend(summing)
    items = [said("user", "task"), call("a"), output("a", "x" * 8000)]
    await streamed(items, backend, **threshold(900))
    assert texts(list(backend.plans[-1].items)) == ["task", "SUM"]


async def test_where_nothing_would_be_won_the_model_just_answers() -> None:
    backend = ScriptedBackend(summing)
    items = [said("system", "sys" * 2000), said("user", "hi")]
    deltas = await streamed(items, backend, **threshold(900))
    assert passed(deltas) == []
    assert spent(deltas) == [USAGE]


async def test_a_summary_that_no_server_counted_is_counted_here() -> None:
    def script(plan: Plan) -> Script:
        is_last = text_of(plan.items[-1]["content"]) == "three"
        return summing(plan) if is_last else [TextGrew("SUM"), Stopped("stop")]

    charges = charges_of()
    deltas = await streamed(LONG, ScriptedBackend(script), charges, **threshold(900))
    assert (charges.basis, charges.usage.output_tokens) == ("counted", 1)
    assert any(isinstance(delta, TextGrew) for delta in deltas)


async def test_large_attachments_are_answered_but_not_sealed() -> None:
    backend = ScriptedBackend(summing)
    picture = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 200_000}
    small = {"type": "input_text", "text": "look"}
    newest = {"type": "message", "role": "user", "content": [small, picture], "id": "msg_p"}
    deltas = await streamed([*LONG, newest], backend, **threshold(1700))
    assert backend.plans[-1].items[-1] == newest
    (item,) = passed(deltas)
    assert len(item["encrypted_content"]) < 100_000
    notes = [delta.what for delta in deltas if isinstance(delta, Degraded)]
    assert notes == ["compaction: attachments over 128 KiB and texts over 1 MiB are not kept whole"]
    shown, _ = open_context([*LONG, newest, item], "alice", SEALER)
    assert "left out when" in text_of(shown[-1]["content"])
    assert text_of(shown[-1]["content"]).startswith("look")


async def test_cancelling_stops_the_model() -> None:
    backend = ScriptedBackend(lambda plan: [TextGrew("a"), asyncio.Event(), Stopped("stop")])
    plan = Plan(model="m", items=LONG)
    request = read_request({"input": LONG, **threshold(900)})
    policy = compaction_of(request, "alice", SEALER, routed(backend), charges_of())
    assert policy is not None
    sink = Taken()
    running = asyncio.create_task(Rounds(backend, plan, [policy], sink).run())
    await until(lambda: bool(backend.plans))
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()
    assert backend.stopped_early == 1


async def test_calls_of_every_family_wait_for_their_output() -> None:
    waiting: list[Item] = [
        {"type": "custom_tool_call", "call_id": "c", "name": "t", "input": "x", "id": "ctc_1"},
        {"type": "local_shell_call", "call_id": "l", "action": {}, "id": "lsh_1"},
        {"type": "shell_call", "call_id": "s", "action": {}, "id": "sh_1"},
    ]
    answered: Item = {"type": "local_shell_call_output", "id": "lsh_1", "output": "a"}

    done = await compacted([*TALK, *waiting, answered])

    behind = texts(done.output)
    assert "custom_tool_call:c" in behind
    assert "shell_call:s" in behind
    assert "local_shell_call:l" not in behind
