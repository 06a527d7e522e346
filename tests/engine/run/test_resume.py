"""An answer that its provider paused goes on in the same response."""

from __future__ import annotations

import pytest

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.engine.run.resume import Resume
from antiphon.engine.run.rounds import Rounds
from antiphon.protocol.deltas import NativeState, Reported, Stopped, TextGrew, UsageKnown
from antiphon.protocol.errors import BackendError
from antiphon.protocol.native_state import PAUSED, state_of
from tests.engine.run.test_rounds import PLAN, STOP, Sink, used

STATE = NativeState("messages", b"[]", account="me")
PAUSE: list[Step] = [TextGrew("one "), used(2, 1), Stopped("length", STATE)]
END: list[Step] = [TextGrew("two"), used(3, 1), STOP]


async def run(*scripts: list[Step], most: int = 10) -> tuple[Sink, ScriptedBackend]:
    sink, model = Sink(), ScriptedBackend(scripts)
    await Rounds(model, PLAN, [Resume(most)], sink).run()
    return sink, model


async def test_the_provider_is_asked_with_what_it_produced_so_far() -> None:
    sink, model = await run(PAUSE, PAUSE, END)

    assert [one for one in sink.deltas if isinstance(one, Stopped)] == [STOP]
    assert [one for one in sink.deltas if isinstance(one, UsageKnown)] == [used(7, 3)]
    last = model.plans[-1].items
    assert [item["type"] for item in last] == ["message", PAUSED, PAUSED]
    assert state_of(last[-1]) == STATE


async def test_too_many_pauses_end_the_answer_and_are_reported() -> None:
    sink, _ = await run(PAUSE, PAUSE, most=1)

    assert sink.deltas[-1] == Stopped("length")
    assert sink.asked == 2
    assert any(isinstance(one, Reported) and "too often" in one.what for one in sink.deltas)


async def test_a_fault_after_a_pause_is_the_end() -> None:
    sink = Sink()
    model = ScriptedBackend([PAUSE, [BackendError("gone")]])

    with pytest.raises(BackendError, match="gone"):
        await Rounds(model, PLAN, [Resume()], sink).run()

    assert sink.asked == 2
