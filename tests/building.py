"""Ways to build streams in tests: ids that count, and the events of a list of deltas."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from antiphon.protocol.deltas import Delta, Stopped, UsageKnown
from antiphon.protocol.errors import BackendError
from antiphon.protocol.events import Event
from antiphon.protocol.machines.builder import Mint, ReasoningAs, ResponseBuilder, Seal
from antiphon.protocol.response import Failure, Response, Usage

__all__ = ["COUNTED", "STOP", "Builder", "build", "counting_mint"]

Builder = Callable[..., ResponseBuilder]
STOP = Stopped("stop")
COUNTED = UsageKnown(Usage(input_tokens=3, output_tokens=5, total_tokens=8))


def counting_mint() -> Mint:
    """Return a mint whose ids end in 0, 1, 2, …"""
    numbers = itertools.count()
    return lambda prefix: f"{prefix}_{next(numbers)}"


def build(
    deltas: Iterable[Delta],
    *,
    reasoning_as: ReasoningAs = "content",
    seal: Seal | None = None,
    builder: Builder = ResponseBuilder,
) -> list[Event]:
    """Return the whole stream that these deltas make, failed if they do not end."""
    machine = builder(
        Response(id="resp_1", model="m", usage=COUNTED.usage),
        counting_mint(),
        reasoning_as=reasoning_as,
        seal=seal,
    )
    events = machine.start()
    try:
        for delta in deltas:
            events += machine.feed(delta)
        events += machine.finish(7)
    except BackendError as error:
        events += machine.fail(Failure(error.code, error.message))
    return events
