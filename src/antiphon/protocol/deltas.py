"""What a backend can report: the one language between model and builder.

A delta describes what happened, never how it is written down: no ids, no indexes, no done-events.
The builder makes those. A new delta needs one backend that reports it and one item of the
specification that it becomes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final, Literal

import msgspec

from antiphon.protocol.families import Kind
from antiphon.protocol.items import Item, text_length
from antiphon.protocol.response import Usage
from antiphon.protocol.tool_usage import ToolUsage

__all__ = [
    "AnnotationAdded",
    "Begins",
    "CallClosed",
    "CallGrew",
    "CallMade",
    "CallOpened",
    "Degraded",
    "Delta",
    "ItemClosed",
    "ItemOpened",
    "ItemPassed",
    "ItemProgressed",
    "NativeState",
    "ProseDelta",
    "ReasoningGrew",
    "RefusalGrew",
    "Repaired",
    "Reported",
    "StopReason",
    "Stopped",
    "SummaryGrew",
    "TextGrew",
    "TierUsed",
    "UsageKnown",
    "produced_length",
]

StopReason = Literal["stop", "length", "content_filter", "rounds"]
"""Why an answer ended. "rounds": the model was asked as often as it may be, and wanted more."""
Begins = Literal["part", "item"]
"""Whether a text begins a part or an item of its own, although the one before could go on."""


class TextGrew(msgspec.Struct, frozen=True, gc=False):
    """The answer grew by `text`. `logprobs` are OpenAI-shaped token objects, if asked for."""

    text: str
    logprobs: tuple[dict[str, Any], ...] = ()
    begins: Begins | None = None
    phase: str | None = None
    """What the message is for, such as "commentary", where a text begins one."""


class RefusalGrew(msgspec.Struct, frozen=True, gc=False):
    """The model declines with these words."""

    text: str
    begins: Begins | None = None


class ReasoningGrew(msgspec.Struct, frozen=True, gc=False):
    """Raw reasoning grew by `text`."""

    text: str
    begins: Begins | None = None


class SummaryGrew(msgspec.Struct, frozen=True, gc=False):
    """A reasoning summary grew by `text`."""

    text: str
    begins: Begins | None = None


class AnnotationAdded(msgspec.Struct, frozen=True):
    """A note on the text so far, such as a url_citation, as on the wire.

    With `covers` it stands for that many characters at the end of the text, 0 for the place there,
    and the builder writes the positions: it alone knows where a part began.
    """

    annotation: dict[str, Any]
    covers: int | None = None


class CallOpened(msgspec.Struct, frozen=True, gc=False):
    """A tool call began. `key` is how this backend names it until it is closed.

    Backends that know only functions give the name by which the model knows the tool. The lifter
    puts the caller's own name there, and keeps the model's as `alias`.
    """

    key: int
    name: str
    call_id: str | None = None
    kind: Kind = "function"
    namespace: str | None = None
    alias: str | None = None


class CallGrew(msgspec.Struct, frozen=True, gc=False):
    """The arguments of an open call, or the input of a custom one, grew by `arguments`."""

    key: int
    arguments: str


class CallClosed(msgspec.Struct, frozen=True, gc=False):
    """The backend reports that a call is complete. Most never do."""

    key: int


class CallMade(msgspec.Struct, frozen=True, gc=False):
    """A whole call at once. `said` is its arguments as JSON, or the input of a custom tool."""

    name: str
    said: str
    call_id: str | None = None
    kind: Kind = "function"
    namespace: str | None = None
    alias: str | None = None


class ItemPassed(msgspec.Struct, frozen=True):
    """A whole item to be handed on as it is: an image, or one that we do not understand."""

    item: Item


class ItemOpened(msgspec.Struct, frozen=True):
    """A hosted or foreign item began: a search, a call of an MCP server, a vendor's own item.

    `item` is the whole item as far as it is known, without an id unless it has to keep one.
    `key` is how its source names it until it is closed.
    """

    key: str
    item: Item


class ItemProgressed(msgspec.Struct, frozen=True):
    """An open item came further: an event of its type, such as `response.mcp_call.in_progress`.

    `fields` are those of the event without sequence number, item id and indexes.
    """

    key: str
    event: str
    fields: dict[str, Any] = {}


class ItemClosed(msgspec.Struct, frozen=True):
    """An open item is final. `item` is the whole item, with its last status.

    `usage` is what its tool took, as a part of the response's `tool_usage`.
    """

    key: str
    item: Item
    usage: ToolUsage | None = None


class NativeState(msgspec.Struct, frozen=True):
    """State that only its own provider can read, such as the signature of a thought.

    It ends the reasoning item that is open, or stands alone if none is. With `attach` it belongs
    to the item that comes next or that came before. `data` are the provider's own bytes.
    `account` is the provider account that made it: another one cannot read it.
    """

    wire: str
    data: bytes
    attach: Literal["next", "previous"] | None = None
    account: str = ""


class UsageKnown(msgspec.Struct, frozen=True):
    """The backend counted tokens. The last word counts."""

    usage: Usage
    has_output: bool = True
    """Whether it has counted the output too; otherwise that figure is missing, and not 0."""


class TierUsed(msgspec.Struct, frozen=True, gc=False):
    """The service tier the backend really used."""

    tier: str


class Degraded(msgspec.Struct, frozen=True, gc=False):
    """Something asked for that this backend cannot honour, as `field` or `field: reason`.

    Reported before anything is sent to the model, so that a strict request is refused instead.
    """

    what: str


class Reported(msgspec.Struct, frozen=True, gc=False):
    """Something in the model's output that could not be handed on as it came, and why.

    It is known only when the model has produced it, so no request is refused for it.
    """

    what: str


class Repaired(msgspec.Struct, frozen=True, gc=False):
    """The model was asked to repair its output, and what it sent then is right."""

    what: str


class Stopped(msgspec.Struct, frozen=True, gc=False):
    """The model stopped by itself, and why. Without this a stream did not end, it broke.

    With `resume` the provider only paused: asked again with this state at the end of the context,
    it goes on with the same answer. If it is not, `reason` is how the answer ended.
    """

    reason: StopReason
    resume: NativeState | None = None


ProseDelta = (
    TextGrew
    | RefusalGrew
    | ReasoningGrew
    | SummaryGrew
    | AnnotationAdded
    | ItemPassed
    | NativeState
)
"""What never stands beside an open call."""

Delta = (
    ProseDelta
    | CallOpened
    | CallGrew
    | CallClosed
    | CallMade
    | ItemOpened
    | ItemProgressed
    | ItemClosed
    | UsageKnown
    | TierUsed
    | Degraded
    | Reported
    | Repaired
    | Stopped
)


# The output that a delta brings: a text, an item or the fields of an event. Others bring none.
_output_of: Final[dict[type[Any], Callable[[Any], Any]]] = {
    **dict.fromkeys((TextGrew, ReasoningGrew, SummaryGrew, RefusalGrew), attrgetter("text")),
    CallGrew: attrgetter("arguments"),
    CallMade: attrgetter("said"),
    **dict.fromkeys((ItemPassed, ItemClosed), attrgetter("item")),
    ItemProgressed: attrgetter("fields"),
}


def produced_length(batch: Sequence[Delta]) -> int:
    """Return how many characters of output these deltas bring, about."""
    length = 0
    for delta in batch:
        get = _output_of.get(type(delta))
        if get is None:
            continue
        output = get(delta)
        if isinstance(output, str):
            length += len(output)
        elif isinstance(delta, ItemProgressed):
            length += sum(len(text) for text in output.values() if isinstance(text, str))
        else:
            length += text_length(output)
    return length
