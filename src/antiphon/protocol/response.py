"""The response object, in one superset body for both dialects.

Fields the specification requires are always there, null where it allows null; fields that may
be absent but not null are left out (UNSET). Fields we do not know are kept in `extra` and
written back (see `codec`). A foreign server may leave out anything: every field has a default.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from antiphon.protocol.items import Item, item_type, text_of

__all__ = [
    "DONE_STATUSES",
    "MOST_NOTES",
    "Attempt",
    "BudgetNote",
    "CostNote",
    "Extra",
    "Failure",
    "IncompleteDetails",
    "InputDetails",
    "Notes",
    "OutputDetails",
    "Reasoning",
    "Response",
    "Status",
    "Usage",
    "add_notes",
    "add_usage",
    "with_total",
]

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
DONE_STATUSES = frozenset({"completed", "incomplete", "failed", "cancelled"})

# What a text is called: by the specification, by servers that take it from chat, and by none.
_TEXTS: Final = ("output_text", "text", None)

# What a peer sent beyond what we know. It never goes out under this name (see `codec`).
Extra = dict[str, Any] | UnsetType


class InputDetails(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where input tokens came from."""

    cached_tokens: int = 0
    cache_write_tokens: int = 0
    extra: Extra = msgspec.field(default=UNSET, name="$extra")


class OutputDetails(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What output tokens were spent on."""

    reasoning_tokens: int = 0
    extra: Extra = msgspec.field(default=UNSET, name="$extra")


class Usage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tokens of one response. `total_tokens` is the server's own; see `with_total`."""

    input_tokens: int = 0
    input_tokens_details: InputDetails = InputDetails()
    output_tokens: int = 0
    output_tokens_details: OutputDetails = OutputDetails()
    total_tokens: int = 0
    extra: Extra = msgspec.field(default=UNSET, name="$extra")


def with_total(usage: Usage) -> Usage:
    """Return the usage; a total that the server left out is the sum of input and output."""
    total = usage.total_tokens or usage.input_tokens + usage.output_tokens
    return msgspec.structs.replace(usage, total_tokens=total)


def add_usage(one: Usage, other: Usage) -> Usage:
    """Return what two calls cost together."""
    read, more_read = one.input_tokens_details, other.input_tokens_details
    thought = one.output_tokens_details.reasoning_tokens
    return Usage(
        input_tokens=one.input_tokens + other.input_tokens,
        input_tokens_details=InputDetails(
            cached_tokens=read.cached_tokens + more_read.cached_tokens,
            cache_write_tokens=read.cache_write_tokens + more_read.cache_write_tokens,
        ),
        output_tokens=one.output_tokens + other.output_tokens,
        output_tokens_details=OutputDetails(
            reasoning_tokens=thought + other.output_tokens_details.reasoning_tokens
        ),
        total_tokens=one.total_tokens + other.total_tokens,
    )


class Failure(msgspec.Struct, frozen=True):
    """Why a response failed."""

    code: str | None = None
    message: str = ""


class IncompleteDetails(msgspec.Struct, frozen=True):
    """Why a response stopped early."""

    reason: str | None = None


class Reasoning(msgspec.Struct, frozen=True):
    """What was asked for of the model's reasoning."""

    effort: str | None = None
    summary: str | None = None


class Attempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """A deployment that was asked, and how that ended: "answered", "empty" or an error code.

    `told_characters`, `usage` and `estimated` are those of an answer that broke off and was
    continued elsewhere.
    """

    provider: str
    model: str
    outcome: str
    told_characters: int = 0
    usage: Usage | None = None
    estimated: bool = False


class CostNote(msgspec.Struct, frozen=True):
    """What a response has cost in US dollars, as a decimal number.

    `basis` states where the least reliable figure comes from: "reported" by the upstream,
    "counted" from what arrived, or "assumed".
    """

    usd: str
    basis: str


class BudgetNote(msgspec.Struct, frozen=True):
    """The budget or limit that ended a response early. Money is a decimal number of dollars."""

    id: str
    scope: str
    limit: str | int
    spent: str | int


class Notes(msgspec.Struct, frozen=True, omit_defaults=True):
    """What antiphon has to say about a response: nothing, in the best case.

    `degraded` lists what was asked for and not honoured; `repaired` what was wrong at first and
    right when the model was asked again; `usage` is "estimated" when no backend counted;
    `attempts` who was asked, if one deployment or more failed; `cost` what it has cost, if any
    upstream was asked; `budget` which limit has ended it early, if one did.
    """

    degraded: tuple[str, ...] = ()
    repaired: tuple[str, ...] = ()
    usage: Literal["estimated"] | None = None
    attempts: tuple[Attempt, ...] = ()
    cost: CostNote | None = None
    budget: BudgetNote | None = None


MOST_NOTES: Final = 500
"""How many notes of a kind a response carries: all of its events repeat them."""
_MORE: Final = f"more than {MOST_NOTES} things could not be honoured; the rest is not listed"


def add_notes(known: tuple[str, ...], new: Iterable[str]) -> tuple[str, ...]:
    """Return the notes with these added, each once; of too many, only that there are more."""
    if len(known) > MOST_NOTES:
        return known
    notes = dict.fromkeys(known)
    for what in new:
        if what in notes:
            continue
        if len(notes) == MOST_NOTES:
            return (*notes, _MORE)
        notes[what] = None
    return tuple(notes)


class Response(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A response, whole. The one object of the protocol that everything else is about."""

    id: str = ""
    object: Literal["response"] = "response"
    created_at: int | float = 0
    completed_at: int | float | None = None
    status: str = "in_progress"
    background: bool | None = False
    error: Failure | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | list[Item] | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    model: str = ""
    output: list[Item] = []
    parallel_tool_calls: bool | None = True
    previous_response_id: str | None = None
    prompt: dict[str, Any] | UnsetType | None = UNSET
    """The template that the request named, if it did."""
    prompt_cache_key: str | None = None
    reasoning: Reasoning | None = None
    safety_identifier: str | None = None
    service_tier: str | None = "default"
    store: bool | None = True
    temperature: float | None = 1.0
    text: dict[str, Any] | None = msgspec.field(
        default_factory=lambda: {"format": {"type": "text"}}
    )
    tool_choice: str | dict[str, Any] | None = "auto"
    tools: list[dict[str, Any]] | None = []
    top_logprobs: int | None = 0
    top_p: float | None = 1.0
    presence_penalty: float | None = 0.0
    frequency_penalty: float | None = 0.0
    truncation: str | None = "disabled"
    usage: Usage | None = None
    metadata: dict[str, Any] | None = {}
    user: str | UnsetType | None = UNSET
    conversation: dict[str, Any] | UnsetType | None = UNSET
    tool_usage: dict[str, Any] | UnsetType | None = UNSET
    antiphon: Notes | UnsetType = UNSET
    extra: Extra = msgspec.field(default=UNSET, name="$extra")

    @property
    def output_text(self) -> str:
        """The text of every message, joined; refusals are none. Never raises."""
        messages = [item for item in self.output if item_type(item) == "message"]
        return "".join(text_of(_texts_in(item.get("content"))) for item in messages)


def _texts_in(content: object) -> object:
    """Return the content without its refusals and other parts that are no text."""
    if not isinstance(content, list):
        return content
    return [part for part in content if isinstance(part, dict) and part.get("type") in _TEXTS]
