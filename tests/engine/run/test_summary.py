"""The model writes a summary: in one go, in pieces, or not at all."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pytest

from antiphon.backends.scripted import Script, ScriptedBackend
from antiphon.engine.run.summary import Summariser, cut_texts
from antiphon.engine.run.turn_charges import TurnCharges
from antiphon.plans.estimate import estimate_tokens
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import (
    CallOpened,
    Degraded,
    ReasoningGrew,
    Stopped,
    StopReason,
    TextGrew,
    UsageKnown,
)
from antiphon.protocol.errors import BackendError, ContextOverflow
from antiphon.protocol.items import Item, text_of
from antiphon.protocol.response import InputDetails, OutputDetails, Usage, add_usage
from antiphon.protocol.tools import ToolPolicy
from tests.building import plan_with
from tests.paying import charges_of
from tests.routing.making import alone

PLAN: Final = plan_with(
    [{"type": "function", "name": "f"}],
    stream=False,
    instructions="be brief",
    policy=ToolPolicy("required"),
    format={"type": "json_object"},
    max_output_tokens=1,
    temperature=0.5,
)


def said(text: str, role: str = "user") -> Item:
    return {"type": "message", "role": role, "content": text}


def writing(text: str, reason: StopReason = "stop", *, tokens: int = 10) -> Script:
    usage = Usage(input_tokens=tokens, output_tokens=1, total_tokens=tokens + 1)
    return [ReasoningGrew("hm"), TextGrew(text), [UsageKnown(usage), Stopped(reason)]]


def narrow(limit: int) -> ScriptedBackend:
    """Return a model that takes so many tokens, and writes down every item it was shown."""

    def script(plan: Plan) -> Script:
        if estimate_tokens(list(plan.items[:-1])) > limit:
            return [ContextOverflow("too long")]
        texts = [text_of(item.get("content") or item.get("output")) for item in plan.items[:-1]]
        return writing(f"<{'|'.join(text.split(chr(10))[-1][:8] for text in texts)}>")

    return ScriptedBackend(script)


def writer(
    backend: ScriptedBackend, context: int | None = None, charges: TurnCharges | None = None
) -> Summariser:
    return Summariser(alone(backend), PLAN, context, charges or charges_of())


async def test_the_model_reads_the_items_and_is_asked_for_notes() -> None:
    backend = ScriptedBackend([writing("  the notes\n")])
    items = [said("hello"), said("hi", "assistant")]
    assert await writer(backend).write(items) == "the notes"
    (plan,) = backend.plans
    assert plan.items[:-1] == items
    assert "notes to yourself" in text_of(plan.items[-1]["content"])
    assert plan.items[-1]["role"] == "user"


async def test_only_what_would_spoil_the_summary_is_taken_out_of_the_plan() -> None:
    backend = ScriptedBackend([writing("x")])
    await writer(backend).write([said("hello")])
    (plan,) = backend.plans
    assert plan.instructions == "be brief"
    assert plan.toolbox is PLAN.toolbox
    assert plan.temperature == 0.5
    assert plan.policy == ToolPolicy("none")
    assert (plan.format, plan.max_output_tokens, plan.stream) == (None, None, True)


async def test_an_empty_summary_is_the_models_fault() -> None:
    backend = ScriptedBackend([writing(" \n")])
    with pytest.raises(BackendError, match="wrote no summary") as caught:
        await writer(backend).write([said("x")])
    assert caught.value.status == 502


async def test_a_call_instead_of_a_summary_is_none() -> None:
    backend = ScriptedBackend([[CallOpened(0, "f"), Stopped("stop")]])
    with pytest.raises(BackendError, match="wrote no summary"):
        await writer(backend).write([said("x")])


async def test_a_model_that_breaks_off_has_not_written_one() -> None:
    backend = ScriptedBackend([[TextGrew("half")]])
    with pytest.raises(BackendError) as caught:
        await writer(backend).write([said("x")])
    assert caught.value.code == "upstream_closed"


async def test_a_summary_that_was_cut_off_is_reported() -> None:
    summariser = writer(ScriptedBackend([writing("half", "length")]))
    assert await summariser.write([said("x")]) == "half"
    assert summariser.notes == ["compaction: the summary was cut off at the model's limit"]


async def test_an_endless_summary_is_stopped() -> None:
    backend = ScriptedBackend([[*[TextGrew("x" * 100_000)] * 9, Stopped("stop")]])
    summariser = writer(backend)
    assert len(await summariser.write([said("x")])) == 256 * 1024
    assert backend.stopped_early == 1
    assert len(summariser.notes) == 1


async def test_too_long_a_context_is_read_in_pieces_that_leave_nothing_out() -> None:
    backend = narrow(100)
    items = [said(f"item{n:03}" + " " * 100) for n in range(20)]
    summariser = writer(backend)
    await summariser.write(items)
    read = [text_of(i["content"])[:7] for plan in backend.plans for i in plan.items[:-1]]
    assert [f"item{n:03}" for n in range(20)] == sorted({t for t in read if t.startswith("item")})
    assert summariser.notes == []


async def test_each_piece_comes_with_the_notes_on_those_before() -> None:
    backend = narrow(60)
    items = [said(c * 120) for c in "abcd"]
    last = await writer(backend).write(items)
    assert last.endswith("dddddddd>")
    answered = [plan for plan in backend.plans if estimate_tokens(list(plan.items[:-1])) <= 60]
    for plan in answered[1:]:
        assert "Notes on the part" in text_of(plan.items[0]["content"])


async def test_an_item_that_is_too_long_alone_loses_its_middle_loudly() -> None:
    backend = narrow(300)
    summariser = writer(backend)
    await summariser.write([said("head" + "x" * 5000 + "tail")])
    text = text_of(backend.plans[-1].items[0]["content"])
    assert text.startswith("head")
    assert text.endswith("tail")
    assert summariser.notes == ["compaction: the middle of an item was too long to be summed up"]


async def test_a_known_context_length_spares_the_refusals() -> None:
    backend = narrow(200)
    items = [said("x" * 200) for _ in range(10)]
    await writer(backend, context=200).write(items)
    assert all(estimate_tokens(list(plan.items[:-1])) <= 200 for plan in backend.plans)
    assert len(backend.plans) > 1


async def test_instructions_that_are_too_long_fail_as_an_overflow() -> None:
    backend = narrow(-1)
    with pytest.raises(ContextOverflow):
        await writer(backend).write([said("x" * 10_000), said("y")])


async def test_the_number_of_calls_is_bounded() -> None:
    backend = narrow(60)
    with pytest.raises(ContextOverflow, match="in 32 steps"):
        await writer(backend).write([said("x" * 120) for _ in range(40)])
    assert len(backend.plans) == 32


async def test_the_usage_of_all_calls_is_added_up() -> None:
    backend = narrow(59)
    charges = charges_of()
    await writer(backend, charges=charges).write([said("x" * 120), said("y" * 120)])
    calls = charges.usage.input_tokens // 10
    assert calls == 2
    assert charges.usage.total_tokens == 22
    assert charges.basis == "reported"


async def test_what_nobody_counted_is_estimated_and_marked() -> None:
    charges = charges_of()
    backend = ScriptedBackend([[TextGrew("abcd" * 3), Stopped("stop")]])
    await writer(backend, charges=charges).write([said("x")])
    assert charges.basis == "counted"
    assert charges.usage.output_tokens == 3


async def test_reports_that_concern_the_caller_are_passed_on() -> None:
    notes = [Degraded("reasoning.effort: no"), Degraded("input[3]: x"), Degraded("tool_choice: x")]
    summariser = writer(ScriptedBackend([[notes, *writing("x")]]))
    await summariser.write([said("x")])
    assert summariser.notes == ["reasoning.effort: no"]


def test_every_figure_of_a_usage_is_added() -> None:
    usage = Usage(
        input_tokens=1,
        input_tokens_details=InputDetails(cached_tokens=2, cache_write_tokens=3),
        output_tokens=4,
        output_tokens_details=OutputDetails(reasoning_tokens=5),
        total_tokens=6,
    )
    both: Any = msgspec.to_builtins(add_usage(usage, usage))
    assert both == {
        "input_tokens": 2,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 6},
        "output_tokens": 8,
        "output_tokens_details": {"reasoning_tokens": 10},
        "total_tokens": 12,
    }


def test_only_texts_are_cut_and_arguments_stay_json() -> None:
    long = "x" * 100
    item = {
        "id": long,
        "arguments": long,
        "output": long,
        "content": [{"type": "input_text", "text": long}, {"image_url": long}, long],
        "n": 1,
    }
    cut = cut_texts(item, 10)
    assert cut["id"] == long
    assert cut["content"][1:] == [{"image_url": long}, long]
    assert "90 characters left out" in msgspec.json.decode(cut["arguments"])["cut"]
    assert cut["output"] == cut["content"][0]["text"]
    assert cut["output"].startswith("xxxxx\n")
    assert cut_texts(item, 100) == item
