"""Counting a request: exact where the backend can, marked where it cannot."""

from __future__ import annotations

from typing import Final

from antiphon.backends.scripted import ScriptedBackend
from antiphon.engine.prepare.count import Count, count_tokens
from antiphon.plans.estimate import estimate_usage
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Stopped, TextGrew
from antiphon.protocol.errors import BackendError

PLAN: Final = Plan(model="m", items=[{"role": "user", "content": "one two three four"}])


class Absent(ScriptedBackend):
    """A backend that cannot be asked just now."""

    async def count(self, plan: Plan) -> int | None:
        raise BackendError("away")


async def test_a_backend_that_counts_has_the_word() -> None:
    assert ScriptedBackend().capabilities.counts
    assert await count_tokens(ScriptedBackend(), PLAN) == Count(4, is_estimated=False)


async def test_what_it_cannot_tell_is_estimated() -> None:
    backend = ScriptedBackend([[TextGrew("x"), Stopped("stop")]])
    expected = estimate_usage(PLAN, ()).input_tokens
    assert await count_tokens(backend, PLAN) == Count(expected, is_estimated=True)
    assert backend.plans == []


async def test_a_backend_that_is_away_does_not_fail_the_count() -> None:
    assert (await count_tokens(Absent(), PLAN)).is_estimated
