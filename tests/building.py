"""Ways to build streams in tests: ids that count, and the events of a list of deltas."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from antiphon.plans.assess import Assessment, assess
from antiphon.plans.capabilities import Capabilities
from antiphon.plans.plan import Plan
from antiphon.plans.toolbox import gather_tools
from antiphon.protocol.deltas import Delta, Stopped, UsageKnown
from antiphon.protocol.errors import BackendError
from antiphon.protocol.events import Event
from antiphon.protocol.items import Item
from antiphon.protocol.machines.builder import Mint, ReasoningAs, ResponseBuilder, Seal
from antiphon.protocol.request import CreateResponse
from antiphon.protocol.response import Failure, Response, Usage
from antiphon.protocol.tools import Tool

__all__ = ["COUNTED", "STOP", "Builder", "assessed", "build", "counting_mint", "plan_with"]

Builder = Callable[..., ResponseBuilder]
STOP = Stopped("stop")
COUNTED = UsageKnown(Usage(input_tokens=3, output_tokens=5, total_tokens=8))


def assessed(request: CreateResponse, items: Sequence[Item] = (), **settings: Any) -> Assessment:
    """Return what a backend that does nothing by itself can do of a request."""
    return assess(request, items, Capabilities(), **settings)


def plan_with(tools: Sequence[Tool] = (), **fields: Any) -> Plan:
    """Return a plan with these tools of the caller's."""
    return Plan(**{"model": "m", "items": [], **fields}, toolbox=gather_tools(tools)[0])


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
