"""Seed 004: a specification of ten requirements for the Responses provider."""

from __future__ import annotations

from typing import Final

from tests.seeds.base import Requirement as Req
from tests.seeds.base import Section, Seed

__all__ = ["SEED_004"]

_FLOW: Final = (
    Req("004-flow-1", "Data flow 1: the endpoint by model and settings", see=("22-A1", "22-A4")),
    Req("004-flow-2", "Data flow 2: one request builder", see=("22-B1",)),
    Req(
        "004-flow-3",
        "Data flow 3: a parser for streams and one for whole answers",
        "One accumulator for both.",
        see=("22-C2", "REQ-001.1"),
    ),
    Req("004-flow-4", "Data flow 4: usage reaches the cache", see=("REQ-002.1",)),
    Req("004-flow-5", "Data flow 5: reasoning behind a switch", see=("REQ-003.1",)),
)

_WHOLE: Final = (
    Req("REQ-001.1", "A whole answer is read as a response, not as a chat completion"),
    Req(
        "REQ-001.2",
        "Text of its messages is collected in order",
        "Parts are called `output_text` today; the document's `text` is of an early draft.",
    ),
    Req("REQ-001.3", "Calls keep their id, name and arguments"),
    Req(
        "REQ-001.4",
        "A usage comes last, when there is one",
        "Under the names of Responses, `input_tokens` and `output_tokens`, with their details; "
        "prompt and completion tokens are the names of chat.",
    ),
)

_USAGE: Final = (
    Req(
        "REQ-002.1",
        "The server's usage at the end of a stream goes into the cache's total",
        "On every terminal event, not only the completed one.",
    ),
    Req("REQ-002.2", "An estimate never replaces the server's figure"),
    Req("REQ-002.3", "A stream ends with its usage in every case"),
)

_REASONING: Final = (
    Req(
        "REQ-003.1",
        "A switch for showing thinking, off by default",
        "`shows_thinking` here.",
    ),
    Req("REQ-003.2", "Off: JSON in text is never taken for reasoning", "On: neither."),
    Req(
        "REQ-003.3",
        "On: recognised reasoning only, and only for the models that are allowed",
        "Recognised is what the server sends as reasoning. `thinking_models` lists who may.",
    ),
)

_STATE: Final = (
    Req("REQ-004.1", "With previous_response_id, what the server has is not sent again"),
    Req("REQ-004.2", "What is sent ends in whole turns: never half a tool pair"),
    Req("REQ-004.3", "No stateful field that the API does not have"),
)

_CONFIG: Final = (
    Req("REQ-005.1", "Responses at other base URLs only when it is switched on"),
    Req("REQ-005.2", "OPENAI_RESPONSES_DISABLE wins over that"),
    Req("REQ-006.1", "Caps on tools can be set; 16 and 32 KB by default"),
    Req("REQ-006.2", "A soft limit is logged at DEBUG, a hard one raises with count and size"),
)

_REST: Final = (
    Req("REQ-007.1", "The docs show function_call and function_call_output items"),
    Req("REQ-007.2", "The docs show events of Responses, not chunks of chat"),
    Req("REQ-008.1", "Each requirement has tests of behaviour that carry its id"),
    Req("REQ-009.1", "The chat road does what it always did"),
    Req("REQ-009.2", "OPENAI_RESPONSES_DISABLE is honoured", see=("22-A-AC3", "REQ-005.2")),
    Req("REQ-010.1", "Decisions on size and cache are logged at DEBUG, without content"),
)

_FORM: Final = (
    Req(
        "004-schema",
        "Data schema and example: a response with a message and a call",
        see=("REQ-001.2", "REQ-001.3", "REQ-001.4"),
    ),
    Req(
        "004-config",
        "Settings: Responses on, thinking shown, models allowed, caps on tools",
        "In our spelling, under the names of the host's settings.",
        see=("REQ-003.1", "REQ-003.3", "REQ-005.1", "REQ-006.1"),
    ),
    Req(
        "004-constraint-1",
        "Constraint: no network in unit tests",
        "Loopback only: real servers on this machine, nothing beyond.",
        see=("22-E2",),
    ),
    Req(
        "004-constraint-2",
        "Constraint: strict types, immutable values, schema first",
        "mypy --strict over sources and tests; parts and requests are frozen.",
        see=("22-B-AC",),
    ),
    Req("004-constraint-3", "Constraint: no console output, DEBUG only", see=("REQ-010.1",)),
    Req(
        "004-performance",
        "Performance: streaming not slower, a whole answer under 2 ms, nothing extra in the loop",
        "The whole answer under 0.1 ms; the stream is measured against the official SDK.",
        reason_without_test="Speed is measured by `bench/client.py`, see topics/speed.md.",
    ),
)

SEED_004: Final = Seed(
    "004",
    "Feature specification: Responses improvements",
    "Ten requirements on parsing, accounting, state, limits and docs of the Responses provider.",
    (
        Section("Data flow", _FLOW),
        Section("REQ-001: whole answers", _WHOLE),
        Section("REQ-002: accounting", _USAGE),
        Section("REQ-003: reasoning", _REASONING),
        Section("REQ-004: state", _STATE),
        Section("REQ-005 and REQ-006: settings", _CONFIG),
        Section("REQ-007 to REQ-010: docs, tests, compatibility, logs", _REST),
        Section("Schemas, constraints, performance", _FORM),
    ),
)
