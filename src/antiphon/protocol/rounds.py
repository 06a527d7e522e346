"""How a response came about: its rounds, and its place among the responses that continue it.

A round is one call of an upstream. What the upstream was sent is kept if the gateway is set so;
otherwise it is written again from what is stored, and says so.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from antiphon.protocol.response import CostNote, Usage

__all__ = ["ImportConversation", "RoundList", "RoundObject", "RoundRequest", "TurnObject"]

Source = Literal["kept", "rendered"]


class RoundObject(msgspec.Struct, frozen=True, kw_only=True):
    """One call of an upstream. What is not known is null."""

    object: Literal["response.antiphon.round"] = "response.antiphon.round"
    number: int
    kind: str
    """Why it was made: model, attempt, continuation, repair, truncation or compaction; or what for:
    embedding, image or search."""
    provider: str | None
    model: str | None
    """As the provider names it."""
    created_at: float
    first_ms: int | None
    total_ms: int | None
    outcome: str | None
    basis: str | None
    used: dict[str, Any] | None  # Any: an object of JSON
    line_items: list[dict[str, Any]]  # Any: objects of JSON
    source: Source | None
    """Where the request of this round can be had from; null if it cannot."""
    request_bytes: int | None
    """How long it was as sent, if it was kept."""


class RoundList(msgspec.Struct, frozen=True, kw_only=True):
    """All rounds of a response, in their order."""

    object: Literal["list"] = "list"
    response_id: str
    data: list[RoundObject]
    is_kept: bool
    """Whether the gateway keeps requests to upstreams now."""


class RoundRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the upstream was sent in a round."""

    object: Literal["response.antiphon.round.request"] = "response.antiphon.round.request"
    response_id: str
    number: int
    source: Source
    body: msgspec.Raw
    """The JSON of the request: without headers, and without secrets of tools."""


class TurnObject(msgspec.Struct, frozen=True, kw_only=True):
    """A response as one turn of a tree."""

    id: str
    object: Literal["response.antiphon.turn"] = "response.antiphon.turn"
    previous_response_id: str | None
    conversation_id: str | None
    status: str
    created_at: int | float
    model: str
    usage: Usage | None
    cost: CostNote | None
    children: int
    """How many responses continue it."""
    text: str
    """How the last message of its input begins."""


class ImportConversation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A conversation to be made of an export."""

    jsonl: str
    """The export, line by line."""
