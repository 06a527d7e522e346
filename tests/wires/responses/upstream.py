"""Streams of Responses servers, written down as their habits: whole ones, and what they lack."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from antiphon.plans.toolbox import Toolbox, gather_tools
from antiphon.protocol.deltas import Delta, NativeState
from antiphon.protocol.errors import BackendError
from antiphon.protocol.items import Item
from antiphon.protocol.machines.builder import ResponseBuilder
from antiphon.protocol.machines.referee import judge_stream
from antiphon.protocol.response import Response
from antiphon.protocol.tools import Tool
from antiphon.wires.responses.exchange import ResponsesExchange
from antiphon.wires.responses.profiles import PROFILES, Profile
from antiphon.wires.responses.stream import ResponsesStream
from tests.building import counting_mint, plan_with

__all__ = [
    "RECORDINGS",
    "USAGE",
    "Json",
    "answer",
    "built",
    "ended",
    "message",
    "read",
    "recordings",
    "sse",
    "texted",
]

Json = dict[str, Any]

RECORDINGS: Final = Path(__file__).parents[4] / "shared" / "recordings" / "responses"
USAGE: Final[Json] = {
    "input_tokens": 7,
    "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 1},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 12,
}


def recordings() -> list[Any]:
    """Return the recorded streams of real services; one that is skipped where they are not."""
    found = sorted(RECORDINGS.glob("*.sse"))
    if not found:
        return [pytest.param(None, marks=pytest.mark.skip(reason="there are no recordings here"))]
    return [pytest.param(path, id=path.stem) for path in found]


def sse(events: Iterable[Json]) -> bytes:
    """Return the events as a server sends them."""
    frames = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]
    return "".join(frames).encode()


def message(text: str, **more: Any) -> Item:
    part = {"type": "output_text", "text": text, "annotations": []}
    item: Item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    return item | {"content": [part]} | more


def texted(pieces: Sequence[str], index: int = 0, item_id: str = "msg_1") -> list[Json]:
    """Return the events of a whole message with this text."""
    place = {"output_index": index, "item_id": item_id, "content_index": 0}
    empty = message("") | {"id": item_id, "content": [], "status": "in_progress"}
    whole = message("".join(pieces)) | {"id": item_id}
    part = {"type": "output_text", "text": "", "annotations": []}
    return [
        {"type": "response.output_item.added", "output_index": index, "item": empty},
        {"type": "response.content_part.added", **place, "part": part},
        *({"type": "response.output_text.delta", **place, "delta": piece} for piece in pieces),
        {"type": "response.output_text.done", **place, "text": "".join(pieces)},
        {"type": "response.content_part.done", **place, "part": whole["content"][0]},
        {"type": "response.output_item.done", "output_index": index, "item": whole},
    ]


def ended(output: Sequence[Item], kind: str = "completed", **more: Any) -> Json:
    """Return the terminal event."""
    response: Json = {"id": "resp_up", "object": "response", "status": kind, "model": "m"}
    response |= {"output": list(output), "usage": USAGE, **more}
    return {"type": f"response.{kind}", "response": response}


def answer(
    data: bytes,
    *,
    tools: Sequence[Tool] = (),
    profile: str | Profile = "openai",
    limit: int | None = None,
    hosted: frozenset[str] = frozenset(),
) -> tuple[list[Delta], BackendError | None]:
    """Return the deltas of a stream as the backend gets them, and its fault."""
    chosen = PROFILES[profile] if isinstance(profile, str) else profile
    plan = plan_with(tools, max_output_tokens=limit)
    exchange = ResponsesExchange(plan, chosen, hosted, "team")
    deltas = [*exchange.feed(data)]
    if not exchange.is_done and exchange.fault is None:
        deltas += exchange.end()
    return deltas, exchange.fault


def read(data: bytes, toolbox: Toolbox | None = None, profile: str = "openai") -> list[Delta]:
    """Return the deltas of a stream that has no fault."""
    stream = ResponsesStream(PROFILES[profile], toolbox or gather_tools(())[0], account="team")
    deltas = [*stream.feed(data), *stream.end()]
    assert stream.fault is None
    return deltas


def built(deltas: Sequence[Delta]) -> Response:
    """Return the response that the deltas make; its stream must have no violation."""

    def seal(item: Item, state: NativeState | None) -> str:
        return state.data.decode() if state is not None else ""

    builder = ResponseBuilder(Response(id="resp_1", model="m"), counting_mint(), seal=seal)
    events = [*builder.start(), *builder.feed_all(deltas), *builder.finish(1)]
    assert judge_stream(events) == []
    return events[-1].response  # type: ignore[union-attr]  # the terminal event has one
