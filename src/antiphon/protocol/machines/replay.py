"""The events of a response that has ended and kept no log.

A turn that was not streamed has no log, but a reader may follow it like any other. A builder
makes its events again from what is stored: every text in one piece, every item under its own id.
"""

from __future__ import annotations

import itertools

import msgspec

from antiphon.protocol.deltas import ItemPassed
from antiphon.protocol.events import Event
from antiphon.protocol.machines.builder import ResponseBuilder
from antiphon.protocol.response import DONE_STATUSES, Response

__all__ = ["replay_response"]


def replay_response(response: Response) -> list[Event]:
    """Return the events of a response that has ended; the last one holds it as it is."""
    if response.status not in DONE_STATUSES:
        raise ValueError(f"a response that is {response.status} has not ended")
    # Items of any builder have ids; those that came otherwise get one in this stream.
    numbers = itertools.count()
    builder = ResponseBuilder(_as_begun(response), lambda prefix: f"{prefix}_{next(numbers)}")
    events = builder.start()
    events += builder.feed_all([ItemPassed(item) for item in response.output])
    return events + builder.repeat_end(response)


def _as_begun(response: Response) -> Response:
    notes = response.antiphon
    if notes:
        notes = msgspec.structs.replace(notes, usage=None)
    return msgspec.structs.replace(
        response,
        status="in_progress",
        output=[],
        completed_at=None,
        error=None,
        incomplete_details=None,
        usage=None,
        antiphon=notes,
    )
