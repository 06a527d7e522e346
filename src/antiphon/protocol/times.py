"""When were the events of a response written? Beside the stream, which has no times in it."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["ResponseTimes", "TimedBatch"]


class TimedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Events that were written together, by their sequence numbers."""

    first: int
    last: int
    ms: int
    """Milliseconds since the response began; 0 in all of an old log, which has no times."""


class ResponseTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The times of the events of a response. A turn that was not streamed has no log."""

    object: Literal["response.antiphon.times"] = "response.antiphon.times"
    response_id: str
    created_at: int | float
    batches: list[TimedBatch]
