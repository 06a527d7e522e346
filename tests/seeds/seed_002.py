"""Seed 002, RFC 00022: from events to a chat application's parts, as a state machine."""

from __future__ import annotations

from typing import Final

from tests.seeds.base import Requirement as Req
from tests.seeds.base import Section, Seed

__all__ = ["SEED_002"]

_MOTIVES: Final = (
    Req("RFC22-motive-1", "Motive 1: no call twice", see=("RFC22-atomic-calls", "RFC22-call-flow")),
    Req("RFC22-motive-2", "Motive 2: nothing lost", see=("RFC22-gap-1", "RFC22-text-flow")),
    Req("RFC22-motive-3", "Motive 3: nothing out of order", see=("RFC22-order", "RFC22-parallel")),
    Req(
        "RFC22-motive-4",
        "Motive 4: no context doubled by doubled results",
        see=("RFC22-atomic-calls",),
    ),
)

_CONTRACT: Final = (
    Req(
        "RFC22-parts",
        "Response parts: text in pieces, calls whole, data whole",
        "And `ThinkingPart`. An item of an unknown type is a data part.",
    ),
    Req(
        "RFC22-atomic-calls",
        "Constraints 1 and 2: a call comes exactly once, with its name and all its arguments",
        "Once by item id and by call id: the same call with the same payload is a repetition, "
        "with another payload it is a conflict, a deviation and not a part. Malformed "
        "arguments are an error, never `{}`.",
    ),
    Req("RFC22-order", "Constraint 3: parts come in the order of the events"),
    Req(
        "RFC22-no-progress",
        "Constraint 4: no text that only shows progress",
        "Text parts hold the model's text and nothing else.",
        see=("RFC22-lifecycle", "RFC22-text-flow"),
    ),
    Req(
        "RFC22-namespacing",
        "Constraint 5: call ids carry a prefix, so that two providers do not collide",
        "A setting, and off by default; `gw-` is one value of it.",
    ),
)

_EVENTS: Final = (
    Req("RFC22-lifecycle", "Lifecycle: created, in_progress, completed, failed, incomplete"),
    Req("RFC22-item-events", "Items: output_item.added and .done"),
    Req("RFC22-part-events", "Content parts: content_part.added and .done"),
    Req("RFC22-text-events", "Text: output_text.delta, .done and .annotation.added"),
    Req("RFC22-call-events", "Calls: function_call_arguments.delta and .done"),
    Req(
        "RFC22-reasoning-events",
        "Reasoning: raw and summary, delta and done, and the summary's parts",
        "Under the names of both dialects: `reasoning`, `reasoning_text`, `reasoning_summary`, "
        "`reasoning_summary_text`.",
    ),
    Req(
        "RFC22-refusal",
        "Refusals: refusal.delta and .done",
        "Reported as text, because it is the model's text; the outcome shows that it refused.",
    ),
    Req(
        "RFC22-error",
        "Errors: the error event",
        "Raised, not shown as text. An end without a terminal event is an error too.",
    ),
)

_FLOWS: Final = (
    Req(
        "RFC22-state",
        "Internal state: open calls, emitted calls, text, reasoning, refusals, metadata",
        "What is open is asked of one table; the response id and the usage are in the outcome.",
        see=("RFC22-call-flow", "RFC22-text-flow", "RFC22-reasoning-flow"),
    ),
    Req("RFC22-text-flow", "Text flow: each delta is a part, and done adds nothing"),
    Req(
        "RFC22-call-flow",
        "Call flow: arguments.done first, output_item.done second, the completed response last",
    ),
    Req(
        "RFC22-reasoning-flow",
        "Reasoning flow: each delta is reported as it arrives",
        "As a `ThinkingPart` where the application asks for it, never as plain text; summary and "
        "raw are never both shown.",
    ),
    Req("RFC22-parallel", "Interleaving: two calls grow at once"),
    Req("RFC22-interleaved", "Interleaving: text beside a call"),
)

_GAPS: Final = (
    Req(
        "RFC22-gap-1",
        "Gap 1: an event before its item was added",
        "Held until the item is there, not dropped; the document defers that.",
    ),
    Req(
        "RFC22-gap-2",
        "Gap 2: citations are links in the text",
        "A link, a data part or nothing, by setting. A link is no part of the text; the response "
        "keeps every citation.",
    ),
    Req(
        "RFC22-thinking",
        "Thinking: a part of its own, once the application has one",
        "It has one. Opt-in, and for the models that are allowed (REQ-003).",
    ),
)

_CHECKLIST: Final = (
    Req(
        "RFC22-checklist-1",
        "Checklist 1: no second call at arguments.done",
        see=("RFC22-atomic-calls", "RFC22-call-flow"),
    ),
    Req(
        "RFC22-checklist-2",
        "Checklist 2: no second call at output_item.done",
        see=("RFC22-atomic-calls", "RFC22-call-flow"),
    ),
    Req(
        "RFC22-trace",
        "Checklist 3: the sequence of events can be logged",
        "At DEBUG: types, sizes and decisions, never content.",
    ),
    Req("RFC22-checklist-4", "Checklist 4: the prefix of call ids", see=("RFC22-namespacing",)),
    Req(
        "RFC22-checklist-5",
        "Checklist 5: defensive buffering (struck out in the document)",
        "Built all the same: peers were seen to need it.",
        see=("RFC22-gap-1",),
    ),
)

SEED_002: Final = Seed(
    "002",
    "RFC 00022: the state machine between events and parts",
    "How the events of a stream become the parts that a chat application shows.",
    (
        Section("Motivation", _MOTIVES),
        Section("The application's contract", _CONTRACT),
        Section("Events", _EVENTS),
        Section("State machine", _FLOWS),
        Section("Gaps and thinking", _GAPS),
        Section("Checklist", _CHECKLIST),
    ),
)
